import assert from "node:assert/strict";
import { test } from "node:test";
import { beforeText, endedOf, isOver, numberOf, progressText, statesText } from "../src/pages/backfills/texts";

const COUNTS = { total: 24, succeeded: 10, failed: 1, cancelled: 0, purged: 1, active: 2, left: 10 };

test("the progress counts what has ended, failed and is active", () => {
  assert.equal(endedOf(COUNTS), 12);
  assert.equal(progressText(COUNTS), "12 of 24 runs ended, 1 failed, 2 active");
  assert.equal(progressText({ ...COUNTS, total: 1, succeeded: 1, failed: 0, purged: 0, active: 0 }), "1 of 1 run ended");
});

test("a backfill that is done or cancelled is over", () => {
  assert.deepEqual((["running", "cancelling", "done", "cancelled"] as const).map((state) => isOver({ state })), [false, false, true, true]);
});

test("the state of a tick is a sentence, with the reason of a skip", () => {
  assert.equal(beforeText({ state: "none", reason: null }), "Left no record.");
  assert.equal(beforeText({ state: "skipped", reason: "paused" }), "Skipped: the schedule was paused.");
  assert.equal(statesText({ states: { succeeded: 1200, skipped: 3 } }), "1,200 succeeded, 3 skipped");
});

test("a number that can't be read is sent as it was written", () => {
  assert.equal(numberOf(" 5 "), 5);
  assert.equal(numberOf("many") as unknown, "many");
});

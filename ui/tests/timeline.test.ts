import assert from "node:assert/strict";
import { test } from "node:test";
import { axisTicks } from "../src/parts/bars";
import { splitName } from "../src/parts/peaks";
import { changed, presetOf } from "../src/pages/timeline/range";

const MINUTE = 60_000;
const NOW = Date.parse("2026-11-17T08:00:00Z");

test("the axis has labels at round times of the zone", () => {
  const ticks = axisTicks(NOW + 3 * MINUTE, 60 * MINUTE, "Asia/Kolkata");
  assert.deepEqual(ticks.map(({ text }) => text), ["13:40", "13:50", "14:00", "14:10", "14:20", "14:30"]);
  assert.equal(ticks[0]?.share, 7 / 60);
});

test("a week has a label for each day", () => {
  const ticks = axisTicks(NOW, 7 * 1_440 * MINUTE, "Europe/Berlin");
  assert.equal(ticks.length, 7);
  assert.equal(ticks[0]?.text, "Wed 18 Nov");
});

test("a week with a clock change has a label for each day, too", () => {
  const ticks = axisTicks(Date.parse("2026-10-22T08:00:00Z"), 7 * 1_440 * MINUTE, "Europe/Berlin");
  assert.deepEqual(ticks.map(({ text }) => text), ["Fri 23 Oct", "Sat 24 Oct", "Sun 25 Oct", "Mon 26 Oct", "Tue 27 Oct", "Wed 28 Oct", "Thu 29 Oct"]);
});

test("a month has a label for every fourth day", () => {
  const ticks = axisTicks(NOW, 30 * 1_440 * MINUTE, "Europe/Berlin");
  assert.deepEqual(ticks.map(({ text }) => text).slice(0, 3), ["Wed 18 Nov", "Sun 22 Nov", "Thu 26 Nov"]);
  assert.equal(ticks.length, 8);
});

test("zoom keeps the middle, and a move keeps the length", () => {
  const shown = { since: NOW - 60 * MINUTE, until: NOW + 60 * MINUTE };
  const near = changed(shown, NOW, { zoom: 0.5 });
  assert.deepEqual([near.since, near.until], ["2026-11-17T07:30:00.000Z", "2026-11-17T08:30:00.000Z"]);
  const later = changed(shown, NOW, { move: 0.5 });
  assert.deepEqual([later.since, later.until], ["2026-11-17T08:00:00.000Z", "2026-11-17T10:00:00.000Z"]);
});

test("the range stays within what the server answers", () => {
  const far = changed({ since: NOW - 30 * 86_400_000, until: NOW + 20 * 86_400_000 }, NOW, { zoom: 8 });
  assert.ok(Date.parse(far.since) >= NOW - 40 * 86_400_000);
  assert.ok(Date.parse(far.until) <= NOW + 31 * 86_400_000);
  const tiny = changed({ since: NOW, until: NOW + 5 * MINUTE }, NOW, { zoom: 0.01 });
  assert.equal(Date.parse(tiny.until) - Date.parse(tiny.since), 5 * MINUTE);
});

test("a preset is recognised", () => {
  assert.equal(presetOf({ since: "1h", until: "1h" }), "2 h");
  assert.equal(presetOf({ since: "1h", until: "2h" }), null);
});

test("names of all tenants have their tenant", () => {
  assert.deepEqual(splitName("acme/mail", null), ["acme", "mail"]);
  assert.deepEqual(splitName("mail", "acme"), ["acme", "mail"]);
});

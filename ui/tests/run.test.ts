import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  asSentence, attemptChart, errorLine, failureWords, gapSentence, hasLostFirst, latenessOf, lostSentence, remedyParts, retriesByHand,
} from "../src/pages/run/attempts";
import { bodyWithPayload, memberTexts, payloadProblem, prettyJson } from "../src/api/json_text";
import { isAtEnd, logItems, logText } from "../src/pages/run/log";
import { placesOf } from "../src/pages/run/places";
import { progressText } from "../src/pages/run/progress_text";

const LARGE = "12345678901234567890";

describe("JSON as text", () => {
  test("is laid out without a change of numbers and strings", () => {
    const text = `{"n":${LARGE},"f":1.0,"e":1e400,"s":"a, {b}: \\"c\\"","list":[1,[],{}],"none":null}`;
    assert.equal(
      prettyJson(text),
      `{\n  "n": ${LARGE},\n  "f": 1.0,\n  "e": 1e400,\n  "s": "a, {b}: \\"c\\"",\n  "list": [\n    1,\n    [],\n    {}\n  ],\n  "none": null\n}`,
    );
  });

  test("stays as it is if it is not JSON", () => assert.equal(prettyJson("<b>"), "<b>"));

  test("members are cut out as they are", () => {
    const text = `{"id":"x","payload":{"id":"y","n":${LARGE},"f":[1.0,2]},"a,b":true,"last":"}"}`;
    assert.deepEqual(memberTexts(text), { id: '"x"', payload: `{"id":"y","n":${LARGE},"f":[1.0,2]}`, "a,b": "true", last: '"}"' });
    assert.deepEqual(memberTexts("{}"), {});
  });

  test("a payload is an object or null", () => {
    assert.equal(payloadProblem('{"a": 1}'), null);
    assert.equal(payloadProblem("null"), null);
    assert.match(payloadProblem("[1]") ?? "", /object/);
    assert.match(payloadProblem('{"a": }') ?? "", /not JSON/);
  });

  test("a body keeps the digits of its payload", () => {
    const body = bodyWithPayload({ task: 'say "hi"', retries: 2, timeout: null }, `{"n": ${LARGE}, "f": 1.0}`);
    assert.equal(body, `{"task": "say \\"hi\\"", "retries": 2, "timeout": null, "payload": {"n": ${LARGE}, "f": 1.0}}`);
    assert.equal(bodyWithPayload({}, "null"), '{"payload": null}');
  });
});

const at = (second: number): string => new Date(Date.UTC(2026, 0, 1, 12, 3, second)).toISOString();
const ended = (number: number, from: number, to: number, outcome: "failed" | "lost" = "failed") => ({
  number,
  worker: "w1",
  started_at: at(from),
  ended_at: at(to),
  outcome,
  error: null,
  refused_at: null,
});
const running = { state: "running" as const, attempt: 2, started_at: at(8), worker: "w2", lease_until: at(40) };

describe("attempts over time", () => {
  test("share the range from the first start to the present", () => {
    const { bars, from, to } = attemptChart({ ...running, attempts: [ended(1, 0, 4)] }, Date.parse(at(10)));
    assert.equal(from, Date.parse(at(0)));
    assert.equal(to, Date.parse(at(10)));
    assert.deepEqual(
      bars.map(({ number, left, width, duration, outcome }) => [number, left, width, duration, outcome]),
      [[1, 0, 40, 4, "failed"], [2, 80, 20, 2, "running"]],
    );
    assert.equal(bars[1]?.leaseUntil, at(40));
  });

  test("of no length are still visible and inside the drawing", () => {
    const { bars } = attemptChart({ ...running, state: "failed", attempts: [ended(1, 0, 9), ended(2, 9, 9)] }, 0);
    const last = bars[1];
    assert.ok(last && last.width > 0 && last.left + last.width <= 100);
  });

  test("without a start have no duration", () => {
    const { bars } = attemptChart({ ...running, state: "queued", attempts: [{ ...ended(1, 0, 5), started_at: null }] }, 0);
    assert.equal(bars[0]?.duration, null);
  });

  test("that lost their lease say so", () => {
    const lost = { number: 1, outcome: "lost" as const, refusedAt: null };
    assert.equal(lostSentence(lost, "UTC"), "attempt 1 lost its lease: its worker stopped heartbeating");
    assert.equal(lostSentence({ ...lost, refusedAt: at(4) }, "UTC"), "attempt 1 lost its lease; its late result was refused at 12:03:04");
    assert.equal(lostSentence({ ...lost, outcome: "failed" }, "UTC"), null);
  });
});

describe("retries by hand", () => {
  const numbered = (numbers: number[]) => numbers.map((number) => ({ number }));

  test("are the numbers that no attempt has", () => {
    assert.equal(retriesByHand({ state: "failed", attempt: 2, attempts: numbered([1, 2]) }), 0);
    assert.equal(retriesByHand({ state: "succeeded", attempt: 3, attempts: numbered([1, 3]) }), 1);
    assert.equal(retriesByHand({ state: "running", attempt: 3, attempts: numbered([1]) }), 1);
    // Retried, and not started yet.
    assert.equal(retriesByHand({ state: "queued", attempt: 4, attempts: numbered([1, 3]) }), 2);
    // Cancelled before its first attempt, then retried.
    assert.equal(retriesByHand({ state: "succeeded", attempt: 2, attempts: numbered([2]) }), 1);
    assert.equal(retriesByHand({ state: "queued", attempt: 0, attempts: [] }), 0);
  });

  test("are not counted before the first attempt that is kept", () => {
    const kept = numbered(Array.from({ length: 20 }, (_, index) => index + 31));
    assert.equal(hasLostFirst({ attempts: kept }), true);
    assert.equal(retriesByHand({ state: "running", attempt: 51, attempts: kept }), 0);
    assert.equal(retriesByHand({ state: "running", attempt: 52, attempts: kept }), 1);
  });

  test("explain the numbers that are missing", () => {
    assert.equal(gapSentence(2, 1), null);
    assert.equal(gapSentence(3, 1), "Number 2 is that of a retry by hand.");
    assert.equal(gapSentence(5, 1), "Numbers 2 to 4 are those of retries by hand.");
  });

  test("start the count of failures again", () => {
    assert.equal(failureWords({ failures: 1, retries: 3, crashes: 0 }, 0), "1 failure, 3 automatic retries allowed");
    assert.equal(failureWords({ failures: 0, retries: 0, crashes: 1 }, 1), "0 failures since the retry by hand, no automatic retries, 1 lost worker");
  });
});

test("a run is as late as its first attempt was", () => {
  const run = { lateness: null, scheduled_at: at(0), attempts: [ended(1, 20, 21), ended(3, 40, 41)] };
  assert.equal(latenessOf(run), 20);
  assert.equal(latenessOf({ ...run, lateness: 1.5 }), 1.5);
  assert.equal(latenessOf({ ...run, attempts: [] }), null);
  assert.equal(latenessOf({ ...run, attempts: Array.from({ length: 20 }, (_, index) => ended(index + 5, 20, 21)) }), null);
});

test("the line of an error is that below the traceback", () => {
  const traceback = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise ValueError(x)\nValueError: first\nsecond\n';
  assert.equal(errorLine(traceback), "ValueError: first");
  assert.equal(errorLine("timed out after 200ms\nmore"), "timed out after 200ms");
  assert.equal(errorLine(null), null);
});

describe("the log", () => {
  const lines = [1, 1, 2].map((attempt, index) => ({ at: at(index), attempt, text: `line ${index}` }));

  test("has a heading for each attempt", () => {
    assert.deepEqual(
      logItems(lines).items.map((item) => (item.kind === "attempt" ? item.attempt : item.text)),
      [1, "line 0", "line 1", 2, "line 2"],
    );
  });

  test("leaves out the earliest lines", () => {
    const { items, leftOut } = logItems(lines, 2);
    assert.equal(leftOut, 1);
    assert.deepEqual(items.map((item) => (item.kind === "attempt" ? item.attempt : item.text)), [1, "line 1", 2, "line 2"]);
  });

  test("as text has all of them", () => assert.equal(logText(lines).split("\n").length, 3));

  test("follows the end", () => {
    assert.equal(isAtEnd({ scrollTop: 600, scrollHeight: 1_000, clientHeight: 399.5 }), true);
    assert.equal(isAtEnd({ scrollTop: 300, scrollHeight: 1_000, clientHeight: 400 }), false);
  });
});

test("progress in words", () => {
  assert.equal(progressText({ done: 30, total: 120 }), "30 of 120, 25 %");
  assert.equal(progressText({ done: 5, total: null }), "5 done");
  assert.equal(progressText({ done: 130, total: 120 }), "130 of 120, 100 %");
  assert.equal(progressText({ done: 0, total: 0 }), "0 of 0");
  assert.equal(progressText({ done: 0.4, total: 1 }), "40 %");
});

test("sentences begin with a capital letter, unless with a name", () => {
  assert.equal(asSentence("the run waits"), "The run waits.");
  assert.equal(asSentence("mail ran."), "mail ran.");
});

test("a remedy is words, a command, or both", () => {
  assert.deepEqual(remedyParts("evenbeat runs retry a/b.c"), { words: "", command: "evenbeat runs retry a/b.c" });
  assert.deepEqual(remedyParts("to run it after all: evenbeat runs retry x"), { words: "to run it after all: ", command: "evenbeat runs retry x" });
  assert.deepEqual(remedyParts("start a node that has the task x"), { words: "start a node that has the task x", command: null });
});

test("a run without its tenant is looked for where its id says, and in the default tenant", () => {
  assert.deepEqual(placesOf(["01f3"], ["default"], null), [{ tenant: "default", id: "01f3" }]);
  assert.deepEqual(placesOf(["acme/digest/1/5"], ["default"], null), [
    { tenant: "acme", id: "acme/digest/1/5" },
    { tenant: "default", id: "acme/digest/1/5" },
  ]);
  // The slashes of an id are often not encoded.
  assert.deepEqual(placesOf(["default", "digest", "1", "5"], ["default"], null), [
    { tenant: "default", id: "default/digest/1/5" },
    { tenant: "default", id: "digest/1/5" },
  ]);
  assert.deepEqual(placesOf(["acme", "acme", "digest", "1", "5"], ["default"], "acme").at(-1), { tenant: "acme", id: "acme/digest/1/5" });
});

test("a token of one tenant looks for runs of this tenant only", () => {
  assert.deepEqual(placesOf(["default/digest/1/5"], ["acme"], "acme"), [{ tenant: "acme", id: "default/digest/1/5" }]);
});

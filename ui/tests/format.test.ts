import assert from "node:assert/strict";
import { test } from "node:test";
import { counted, dayText, durationText, exactText, inputText, instantOf, offsetAt, relativeText, shortText, spanText, writtenOffset, zoneName } from "../src/time/format";

const BERLIN = "Europe/Berlin";

test("a time is written with its zone", () => {
  assert.equal(shortText("2026-11-17T08:30:05Z", BERLIN), "Tue 17 Nov, 09:30 Berlin");
  assert.equal(shortText("2026-11-17T08:30:05Z", "UTC", true), "Tue 17 Nov, 08:30:05 UTC");
  assert.equal(exactText("2026-11-17T08:30:05Z", BERLIN), "2026-11-17 09:30:05 +01:00 Europe/Berlin");
  assert.equal(exactText("2026-07-01T08:30:05Z", "America/New_York"), "2026-07-01 04:30:05 -04:00 America/New_York");
  assert.equal(exactText("2026-11-17T08:30:05Z", "UTC"), "2026-11-17 08:30:05 UTC");
  assert.equal(exactText("2026-11-17T08:30:05Z", "Asia/Kolkata"), "2026-11-17 14:00:05 +05:30 Asia/Kolkata");
  assert.equal(zoneName("America/Argentina/Buenos_Aires"), "Buenos Aires");
});

test("midnight is 00:00 of the new day", () => {
  assert.equal(shortText("2026-11-16T23:00:00Z", BERLIN), "Tue 17 Nov, 00:00 Berlin");
  assert.equal(dayText("2026-11-16T22:59:59Z", BERLIN), "Mon 16 Nov");
});

test("the offset follows the clock changes", () => {
  assert.equal(writtenOffset("2026-10-25T00:59:59Z", BERLIN), "+02:00");
  assert.equal(writtenOffset("2026-10-25T01:00:00Z", BERLIN), "+01:00");
  assert.equal(offsetAt("1969-12-31T23:59:59.500Z", "UTC"), 0);
});

test("a clock's time is read in its zone", () => {
  const at = (local: string, zone: string): string => new Date(instantOf(local, zone)).toISOString();
  assert.equal(at("2026-11-17T09:30", BERLIN), "2026-11-17T08:30:00.000Z");
  assert.equal(at("2026-07-17T09:30", BERLIN), "2026-07-17T07:30:00.000Z");
  assert.equal(at("2026-11-17T09:30", "Asia/Kolkata"), "2026-11-17T04:00:00.000Z");
  // Shown twice: the first one. Skipped: by the offset before the change.
  assert.equal(at("2026-10-25T02:30", BERLIN), "2026-10-25T00:30:00.000Z");
  assert.equal(at("2026-03-29T02:30", BERLIN), "2026-03-29T01:30:00.000Z");
});

test("an input has what the clock shows", () => {
  assert.equal(inputText("2026-11-17T08:30:05Z", BERLIN), "2026-11-17T09:30");
  const written = inputText("2026-06-01T22:10:00Z", "Asia/Tokyo");
  assert.equal(instantOf(written, "Asia/Tokyo"), Date.parse("2026-06-01T22:10:00Z"));
});

test("relative times", () => {
  const now = Date.parse("2026-11-17T08:00:00Z");
  assert.equal(relativeText("2026-11-17T08:00:00.900Z", now), "now");
  assert.equal(relativeText("2026-11-17T07:59:48Z", now), "12 s ago");
  assert.equal(relativeText("2026-11-17T08:03:30Z", now), "in 3 min");
  assert.equal(relativeText("2026-11-17T10:20:00Z", now), "in 2 h 20 min");
  assert.equal(relativeText("2026-11-20T08:00:00Z", now), "in 3 d");
  assert.equal(spanText(59_999), "59 s");
  assert.equal(spanText(6 * 3_600_000 + 1_800_000), "6 h");
});

test("durations keep the digits that matter", () => {
  const cases: [number | null, string][] = [
    [null, "–"],
    [0, "0 ms"],
    [0.003, "3 ms"],
    [0.9994, "999 ms"],
    [0.9996, "1.00 s"],
    [1.236, "1.24 s"],
    [12.34, "12.3 s"],
    [59.96, "1 min"],
    [125, "2 min 5 s"],
    [3_599.6, "1 h"],
    [11_400, "3 h 10 min"],
    [86_400, "1 d"],
    [90_000, "1 d 1 h"],
  ];
  for (const [seconds, text] of cases) assert.equal(durationText(seconds), text);
});

test("counts have their noun", () => {
  assert.equal(counted(1, "run"), "1 run");
  assert.equal(counted(1_440, "run"), "1,440 runs");
  assert.equal(counted(0, "entry", "entries"), "0 entries");
});

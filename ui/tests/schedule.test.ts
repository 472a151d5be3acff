import assert from "node:assert/strict";
import { test } from "node:test";
import type { Account, HeatCell, Run, Why } from "../src/api/schema";
import { askedOf, cellAt, cellTime, countsText, isRepeated, layoutOf, lengthFor, levelOf, lookOf, pagesBack, periodOf, stepTo } from "../src/pages/schedule/cells";
import { changesOf, steadyRows, valueText } from "../src/pages/schedule/changes";
import { type PauseEnd, pauseEnd, timeProblem, tomorrowAt } from "../src/pages/schedule/pause_end";
import { DURATION_STEPS, durationAxis, runsPlot } from "../src/pages/schedule/plots";
import { payloadProblem } from "../src/pages/schedule/payload";
import { accountText, actorText, asSentence, endedText, isBlocked, managedByText, metText, policiesOf, proposedNames, reasonText, remedyParts, runStates, waitText, waitingLongest } from "../src/pages/schedule/sentences";

const HOUR = 3_600_000;
const NOTHING = { fired: 0, succeeded: 0, failed: 0, cancelled: 0, running: 0, skipped: 0, coalesced: 0, planned: 0, paused: 0 };

function cell(at: string | number, hours = 1, counts: Partial<HeatCell> = {}): HeatCell {
  const start = typeof at === "number" ? at : Date.parse(at);
  return { ...NOTHING, at: new Date(start).toISOString(), end: new Date(start + hours * HOUR).toISOString(), ...counts };
}

function hours(first: string, count: number): HeatCell[] {
  const start = Date.parse(first);
  return Array.from({ length: count }, (_, index) => cell(start + index * HOUR));
}

test("hours of a zone are in the row of their day and the column of their hour", () => {
  const layout = layoutOf(hours("2026-11-16T22:00:00Z", 3), "hour", "Europe/Berlin");
  assert.deepEqual(layout.rows.map(({ key, label, note }) => [key, label, note]), [
    ["2026-11-16", "Mon 16 Nov", ""],
    ["2026-11-17", "Tue 17 Nov", ""],
  ]);
  assert.deepEqual(layout.rows[0]?.columns[23], [0]);
  assert.deepEqual(layout.rows[1]?.columns[0], [1]);
  assert.deepEqual(layout.rows[1]?.columns[1], [2]);
});

test("another zone moves the same cells to other columns", () => {
  const layout = layoutOf(hours("2026-11-16T22:00:00Z", 3), "hour", "UTC");
  assert.deepEqual(layout.rows[0]?.columns[22], [0]);
  assert.deepEqual(layout.rows[1]?.columns[0], [2]);
});

test("an hour that the clocks repeat has two cells in one column", () => {
  // 25 October 2026, Berlin: 03:00 becomes 02:00 at 01:00 UTC.
  const cells = hours("2026-10-24T22:00:00Z", 25);
  const layout = layoutOf(cells, "hour", "Europe/Berlin");
  assert.equal(layout.rows.length, 1);
  assert.equal(layout.rows[0]?.note, "25 h");
  assert.deepEqual(layout.rows[0]?.columns[2], [2, 3]);
  assert.deepEqual(layout.rows[0]?.columns[23], [24]);
  assert.deepEqual(cells.slice(1, 5).map((each) => isRepeated(each, "Europe/Berlin")), [false, true, true, false]);
  assert.equal(cellTime(cells[2] as HeatCell, "hour", "Europe/Berlin"), "Sun 25 Oct, 02:00–02:00 Berlin (+02:00)");
  assert.equal(cellTime(cells[3] as HeatCell, "hour", "Europe/Berlin"), "Sun 25 Oct, 02:00–03:00 Berlin (+01:00)");
});

test("an hour that the clocks skip is a gap", () => {
  // 29 March 2026, Berlin: 02:00 becomes 03:00.
  const layout = layoutOf(hours("2026-03-28T23:00:00Z", 23), "hour", "Europe/Berlin");
  assert.equal(layout.rows.length, 1);
  assert.equal(layout.rows[0]?.note, "23 h");
  assert.deepEqual(layout.rows[0]?.columns[2], []);
  assert.deepEqual(layout.rows[0]?.columns[3], [2]);
});

test("a clock change by half an hour makes a cell of half an hour", () => {
  // 5 April 2026, Lord Howe: 02:00 becomes 01:30 at 15:00 UTC on the day before.
  const cells = [cell("2026-04-04T14:00:00Z"), cell("2026-04-04T15:00:00Z", 0.5), cell("2026-04-04T15:30:00Z")];
  const layout = layoutOf(cells, "hour", "Australia/Lord_Howe");
  assert.equal(layout.rows[0]?.note, "24.5 h");
  assert.deepEqual(layout.rows[0]?.columns[1], [0, 1]);
  assert.deepEqual(layout.rows[0]?.columns[2], [2]);
});

test("days are in the row of their week, also where a day begins at 01:00", () => {
  // 6 September 2026, Santiago: the clocks skip midnight.
  const cells = [cell("2026-09-05T04:00:00Z", 24), cell("2026-09-06T04:00:00Z", 23), cell("2026-09-07T03:00:00Z", 24)];
  const layout = layoutOf(cells, "day", "America/Santiago");
  assert.deepEqual(layout.rows.map(({ label }) => label), ["week of 31 Aug", "week of 7 Sep"]);
  assert.deepEqual(layout.rows[0]?.columns.slice(5), [[0], [1]]);
  assert.deepEqual(layout.rows[1]?.columns[0], [2]);
  assert.equal(cellTime(cells[1] as HeatCell, "day", "America/Santiago"), "Sun 6 Sep Santiago");
});

test("arrow keys walk through the cells and stop at the edges", () => {
  const layout = layoutOf(hours("2026-10-24T22:00:00Z", 49), "hour", "Europe/Berlin");
  assert.equal(stepTo(layout, 2, "ArrowRight"), 3);
  assert.equal(stepTo(layout, 24, "ArrowRight"), 25);
  assert.equal(stepTo(layout, 0, "ArrowLeft"), 0);
  assert.equal(stepTo(layout, 3, "ArrowDown"), 27);
  assert.equal(stepTo(layout, 27, "ArrowUp"), 2);
  assert.equal(stepTo(layout, 30, "Home"), 25);
  assert.equal(stepTo(layout, 30, "End"), 48);
  assert.equal(stepTo(layout, 30, "ArrowDown"), 30);
  assert.equal(stepTo(layout, 30, "x"), 30);
});

test("arrow keys pass over an hour that the clocks skip", () => {
  const layout = layoutOf(hours("2026-03-27T23:00:00Z", 47), "hour", "Europe/Berlin");
  assert.equal(stepTo(layout, 2, "ArrowDown"), 25, "02:00 has no cell below; 01:00 is the nearest");
});

test("a cell shows the worst that happened in it", () => {
  const now = Date.parse("2026-11-17T12:00:00Z");
  const past = "2026-11-17T09:00:00Z";
  const look = (counts: Partial<HeatCell>, at = past): string => lookOf(cell(at, 1, counts), { now, countedFrom: Date.parse("2026-11-10T00:00:00Z"), createdAt: Date.parse("2026-10-20T00:00:00Z") });
  assert.equal(look({ succeeded: 5, failed: 1, fired: 6 }), "failed");
  assert.equal(look({ succeeded: 5, running: 1 }), "running");
  assert.equal(look({ succeeded: 5, planned: 1 }), "overdue");
  assert.equal(look({ succeeded: 5, skipped: 1 }), "skipped");
  assert.equal(look({ succeeded: 5, coalesced: 1 }), "succeeded");
  assert.equal(look({ planned: 2 }, "2026-11-17T12:00:00Z"), "planned");
  assert.equal(look({}), "empty");
  assert.equal(look({}, "2026-11-01T00:00:00Z"), "unknown");
  assert.equal(look({}, "2026-10-01T00:00:00Z"), "absent");
  assert.equal(look({ paused: 1 }), "paused");
  assert.equal(look({ paused: 1 }, "2026-11-17T12:00:00Z"), "paused");
  assert.equal(look({ paused: 1, failed: 1 }), "failed");
});

test("how full a cell is depends on the busiest one", () => {
  assert.deepEqual([1, 15, 16, 60].map((succeeded) => levelOf(cell(0, 1, { succeeded }), 60)), [1, 1, 2, 4]);
  assert.equal(levelOf(cell(0), 0), 4);
});

test("the counts of a cell are a sentence", () => {
  const bounds = { now: 9 * HOUR, countedFrom: 5 * HOUR, createdAt: 3 * HOUR };
  assert.equal(countsText(cell(0, 1, { succeeded: 1_200, failed: 1, planned: 3 }), bounds), "1,200 succeeded, 1 failed, 3 planned");
  assert.equal(countsText(cell(0, 1, { paused: 2 }), bounds), "2 paused");
  assert.deepEqual([0, 4, 6].map((hour) => countsText(cell(hour * HOUR), bounds)), ["not created yet", "records are deleted", "no tick"]);
});

test("a cell is found by an instant, and its end belongs to the next one", () => {
  const cells = hours("2026-11-17T09:00:00Z", 2);
  assert.equal(cellAt(cells, Date.parse("2026-11-17T09:59:59Z")), 0);
  assert.equal(cellAt(cells, Date.parse("2026-11-17T10:00:00Z")), 1);
  assert.equal(cellAt(cells, Date.parse("2026-11-17T11:00:00Z")), null);
});

test("rare schedules are drawn by the day", () => {
  assert.equal(lengthFor(["2026-11-17T09:00:00Z", "2026-11-18T09:00:00Z", "2026-11-19T09:00:00Z"]), "day");
  assert.equal(lengthFor(["2026-11-17T09:00:00Z", "2026-11-17T10:00:00Z"]), "hour");
  assert.equal(lengthFor([]), "hour");
});

test("the map goes back page by page, as far as the server has cells", () => {
  const now = Date.parse("2026-11-17T12:00:00Z");
  assert.deepEqual(periodOf("hour", 0, now), { since: "2026-11-10T12:00:00.000Z", until: "2026-11-19T12:00:00.000Z" });
  assert.deepEqual(periodOf("hour", 1, now), { since: "2026-11-03T12:00:00.000Z", until: "2026-11-10T12:00:00.000Z" });
  const [hours, days] = (["hour", "day"] as const).map((by) => now - Date.parse(periodOf(by, pagesBack(by), now).since));
  assert.ok((hours as number) < 40 * 24 * HOUR && (days as number) < 400 * 24 * HOUR);
});

test("a cell asks about its failed run, then about a skipped tick, else about its middle", () => {
  const at = "2026-11-17T09:00:00Z";
  const runs = [
    { state: "succeeded", tick: "2026-11-17T09:10:00Z" },
    { state: "failed", tick: "2026-11-17T09:20:00Z" },
  ];
  const ledger = [{ first: "2026-11-17T08:10:00Z", last: "2026-11-17T09:40:00Z" }];
  assert.equal(askedOf(cell(at, 1, { failed: 1, skipped: 1 }), runs, ledger), "2026-11-17T09:20:00Z");
  assert.equal(askedOf(cell(at, 1, { skipped: 4 }), runs, ledger), "2026-11-17T09:40:00Z");
  assert.equal(askedOf(cell(at, 1, { succeeded: 1 }), runs, []), "2026-11-17T09:10:00Z");
  assert.equal(askedOf(cell(at), [], []), "2026-11-17T09:30:00.000Z");
});

const ACCOUNT: Account = {
  schedule: "mail",
  tenant: "default",
  trigger: "every 1m",
  counted_from: "2026-11-16T00:00:00Z",
  counted_from_reason: "asked",
  counted_until: "2026-11-17T00:00:00Z",
  expected: 1_440,
  ran: 1_436,
  runs: { succeeded: 1_436 },
  coalesced: 3,
  skipped: { paused: 1 },
  moved: 0,
  pending: 0,
  missing: 0,
  doubled: 0,
  missing_ticks: [],
  doubled_ticks: [],
  watermark: null,
  adds_up: true,
};

test("a payload is a JSON object, or null, or nothing", () => {
  for (const right of ["", "  ", '{"id": 12345678901234567890}', "null"]) assert.equal(payloadProblem(right), null);
  for (const wrong of ["{", "[1]", "7", '"text"']) assert.notEqual(payloadProblem(wrong), null);
});

test("the account is an equation", () => {
  assert.equal(accountText(ACCOUNT), "1,440 expected = 1,436 ran + 3 coalesced + 1 skipped; 0 missing, 0 twice");
  assert.equal(accountText({ ...ACCOUNT, expected: 0, ran: 0, coalesced: 0, skipped: {} }), "0 expected = 0 ran; 0 missing, 0 twice");
});

test("each run is a point at its planned start, by its state", () => {
  const run = (state: Run["state"], at: string, duration: number | null) => ({ state, scheduled_at: at, duration, lateness: 0.01 });
  const runs = [run("failed", "2026-11-17T02:00:00Z", 0.12), run("queued", "2026-11-17T03:00:00Z", null), run("succeeded", "2026-11-17T01:00:00Z", 0.13)];
  assert.deepEqual(runsPlot(runs, "duration"), {
    times: [Date.parse("2026-11-17T01:00:00Z"), Date.parse("2026-11-17T02:00:00Z")],
    series: [
      { label: "succeeded", colour: "good", kind: "points", values: [0.13, null] },
      { label: "failed", colour: "bad", kind: "points", values: [null, 0.12] },
    ],
  });
});

test("the end of a pause is read by the clock of the zone", () => {
  // 23:30 in Berlin on the day before the clocks go forward.
  const now = Date.parse("2026-03-28T22:30:00Z");
  assert.equal(tomorrowAt(now, "Europe/Berlin"), "2026-03-29T09:00");
  const end = (chosen: PauseEnd, local = ""): string | undefined => pauseEnd(chosen, local, "Europe/Berlin", now);
  assert.equal(end(""), undefined);
  assert.equal(end("1d"), "1d");
  assert.equal(end("tomorrow"), "2026-03-29T07:00:00.000Z");
  assert.equal(end("at", "2026-03-29T01:30"), "2026-03-29T00:30:00.000Z");
  assert.equal(timeProblem("2026-03-28T23:29", "Europe/Berlin", now), "This time is over.");
  assert.equal(timeProblem("2026-03-28T23:31", "Europe/Berlin", now), null);
  assert.equal(timeProblem("", "Europe/Berlin", now), "Give a date and a time.");
});

test("an axis of durations has one unit", () => {
  assert.deepEqual(durationAxis([0, 0.05, 0.1]), ["0", "50 ms", "100 ms"]);
  assert.deepEqual(durationAxis([0, 0.5, 1, 1.5]), ["0", "0.5 s", "1 s", "1.5 s"]);
  assert.deepEqual(durationAxis([0, 30, 60, 90]), ["0", "0.5 min", "1 min", "1.5 min"]);
  assert.deepEqual(durationAxis([0, 20, 40, 60, 80, 100]), ["0", "20 s", "40 s", "60 s", "80 s", "100 s"]);
  assert.deepEqual(durationAxis([0, 7_200, 14_400]), ["0", "2 h", "4 h"]);
  assert.deepEqual(durationAxis([0, 0.0005]), ["0", "0.5 ms"]);
  assert.deepEqual(durationAxis([]), []);
  assert.deepEqual([...DURATION_STEPS].sort((one, other) => one - other), DURATION_STEPS);
});

test("an account tells runs that wait or run now from those that ended", () => {
  const account = { ...ACCOUNT, expected: 10, ran: 9, runs: { queued: 2, running: 1, succeeded: 6 }, coalesced: 0, skipped: {}, pending: 1 };
  assert.equal(accountText(account), "10 expected = 6 ran + 1 runs now + 2 wait to run + 1 pending; 0 missing, 0 twice");
  assert.equal(accountText({ ...account, expected: 1, ran: 1, runs: { queued: 1 }, pending: 0 }), "1 expected = 0 ran + 1 waits to run; 0 missing, 0 twice");
  // The tick that ran twice has two queued runs.
  assert.deepEqual(runStates({ ran: 1, runs: { queued: 2 } }), { waiting: 1, running: 0, ended: 0 });
});

test("ticks of the present pause are not pending", () => {
  const account = { ...ACCOUNT, expected: 7, ran: 6, runs: { succeeded: 6 }, coalesced: 0, skipped: {}, pending: 1 };
  assert.equal(accountText(account, true), "7 expected = 6 ran + 1 in the present pause; 0 missing, 0 twice");
});

test("a run that waits for more than a minute is worth a warning", () => {
  const now = Date.parse("2026-11-17T12:00:00Z");
  const run = (id: string, run_at: string, created_at = "2026-11-10T00:00:00Z") => ({ id, run_at, created_at });
  const [later, short, long, longest] = [run("later", "2026-11-17T12:05:00Z"), run("short", "2026-11-17T11:59:30Z"), run("long", "2026-11-17T11:58:00Z"), run("longest", "2026-11-16T00:00:00Z")];
  assert.equal(waitingLongest([later, long, longest, short], now), longest);
  assert.equal(waitingLongest([later, short], now), null);
  // A missed tick that a node has fired just now.
  assert.equal(waitingLongest([run("missed", "2026-11-16T00:00:00Z", "2026-11-17T11:59:55Z")], now), null);
});

test("the answer about the last tick says whether something keeps the schedule from running", () => {
  const now = Date.parse("2026-11-17T12:00:00Z");
  const blocked = (verdict: Why["verdict"], tick = "2026-11-17T11:00:00Z"): boolean => isBlocked({ verdict, tick }, now);
  assert.deepEqual((["no_task", "no_ticker", "quarantined", "missing", "due"] as const).map((each) => blocked(each)), [true, true, true, true, true]);
  assert.deepEqual((["succeeded", "failed", "paused", "running", "next", "not_due", "overlap"] as const).map((each) => blocked(each)), [false, false, false, false, false, false, false]);
  assert.equal(blocked("due", "2026-11-17T11:59:55Z"), false);
});

test("an account with missing ticks still adds up", () => {
  const account = { ...ACCOUNT, ran: 1_430, skipped: { paused: 1, late: 2 }, missing: 3, pending: 1, doubled: 2 };
  assert.equal(accountText(account), "1,440 expected = 1,430 ran + 3 coalesced + 3 skipped + 1 pending + 3 missing; 2 twice");
});

const POLICIES = {
  catch_up: "latest",
  catch_up_limit: 100,
  catch_up_max_age: null,
  catch_up_rate: null,
  grace: 60,
  overlap: "allow",
  max_concurrent: null,
  after: null,
  spread: 0,
  spread_delay: 0,
  retries: 0,
  backoff: 10,
  max_backoff: 3_600,
  timeout: null,
  on_crash: "rerun",
  max_crashes: 3,
  queue: "default",
  priority: 5,
  priority_name: "normal",
} as const;

function sentence(name: string, changes: object = {}): string | undefined {
  return policiesOf({ ...POLICIES, ...changes }).find((policy) => policy.name === name)?.sentence;
}

test("each policy is a sentence", () => {
  assert.equal(sentence("catch_up"), "After an outage, one run makes up for all missed ticks.");
  assert.equal(sentence("catch_up", { catch_up: "all" }), "After an outage, each missed tick runs, in order; if there are more than 100, only the newest 100.");
  assert.equal(sentence("catch_up", { catch_up: "skip" }), "Missed ticks are skipped, unless they are at most 1 min late: then they run; if there are more than 100, only the newest 100.");
  assert.equal(sentence("catch_up", { catch_up: "skip", grace: 0 }), "Missed ticks are skipped.");
  assert.equal(
    sentence("catch_up", { catch_up: "all", catch_up_max_age: 7200, catch_up_rate: "10/m" }),
    "After an outage, each missed tick runs, in order; if there are more than 100, only the newest 100. Ticks that are more than 2 h late do not run. Missed ticks run no faster than 10/m.",
  );
  assert.equal(sentence("overlap", { overlap: "queue" }), "A tick waits while the run before is active; if several wait, only the latest runs.");
  assert.equal(sentence("retries"), "A failed run is not retried.");
  assert.equal(sentence("retries", { retries: 1 }), "A failed run is retried once, after 10 s.");
  assert.equal(sentence("retries", { retries: 3 }), "A failed run is retried up to 3 times, first after 10 s; the wait doubles each time.");
  assert.equal(
    sentence("retries", { retries: 20 }),
    "A failed run is retried up to 20 times, first after 10 s; the wait doubles each time, up to 1 h.",
  );
  assert.equal(sentence("timeout", { timeout: 90 }), "An attempt that takes longer than 1 min 30 s is asked to stop, and fails.");
  assert.equal(sentence("on_crash"), "A run whose worker dies is run again, up to 3 times.");
  assert.equal(sentence("on_crash", { on_crash: "fail" }), "A run whose worker dies fails: it is not run again.");
  assert.equal(sentence("queue"), "Runs wait in the queue default with priority normal (5).");
  assert.equal(sentence("queue", { priority: 7, priority_name: null }), "Runs wait in the queue default with priority 7.");
});

test("policies that are not set are left out", () => {
  assert.equal(sentence("spread"), undefined);
  assert.equal(sentence("max_concurrent"), undefined);
  assert.equal(sentence("after"), undefined);
  assert.equal(sentence("after", { after: "load within 1h" }), "A tick fires only after other schedules have succeeded: load within 1h.");
  assert.equal(sentence("spread", { spread: 600, spread_delay: 75 }), "Ticks are spread over 10 min: this schedule fires 1 min 15 s after its tick.");
  assert.equal(sentence("max_concurrent", { max_concurrent: 1 }), "At most 1 run at once; further ticks wait.");
});

test("reasons of the ledger agree with the number of ticks", () => {
  assert.equal(reasonText("coalesced", 1), "the run of a later tick stands for it");
  assert.equal(reasonText("coalesced", 3), "the run of a later tick stands for them");
  assert.equal(reasonText("paused", 1), "the schedule was paused");
  assert.equal(reasonText("dependency", 1), "a schedule that it waits for had not succeeded in time (after)");
  assert.equal(reasonText("of a later version", 1), "of a later version");
});

test("the words of the head agree with those of the list", () => {
  assert.equal(endedText(1_200, 4), "1,200, 4 of them failed");
  assert.equal(endedText(6, 0), "6, none failed");
  assert.deepEqual(["api", "code"].map((each) => managedByText(each)), ["API, command or page", "code"]);
  assert.deepEqual(["local", "carla"].map(actorText), ["a user without a login", "carla"]);
});

test("a remedy is split into words and a command", () => {
  assert.deepEqual(remedyParts("evenbeat schedules resume mail"), { words: "", command: "evenbeat schedules resume mail" });
  assert.deepEqual(remedyParts("to run more of them: evenbeat schedules update mail --catch-up-limit …"), {
    words: "to run more of them",
    command: "evenbeat schedules update mail --catch-up-limit …",
  });
  assert.deepEqual(remedyParts("repair that node"), { words: "repair that node", command: null });
});

test("proposed names are read from a remedy", () => {
  assert.deepEqual(proposedNames("did you mean mail or mail-digest?"), ["mail", "mail-digest"]);
  assert.deepEqual(proposedNames("to list the schedules: evenbeat schedules list"), []);
  assert.deepEqual(proposedNames(null), []);
});

test("words become a sentence", () => {
  assert.equal(asSentence("the tick did not run"), "The tick did not run.");
  assert.equal(asSentence("mail-digest has no tick", "mail-digest"), "mail-digest has no tick.");
  assert.equal(asSentence("did you mean mail?"), "Did you mean mail?");
  assert.equal(asSentence(""), "");
});

test("a change names each field with its value before and after", () => {
  assert.deepEqual(changesOf({ retries: 3, pause_note: "" }, { retries: 5, pause_note: "<b>disk</b>" }), [
    { name: "retries", before: "3", after: "5", isTime: false },
    { name: "pause_note", before: "none", after: "<b>disk</b>", isTime: false },
  ]);
  assert.deepEqual(changesOf({}, { task: "send" }), [{ name: "task", before: null, after: "send", isTime: false }]);
  assert.deepEqual(changesOf({ task: "send" }, {}), [{ name: "task", before: "send", after: null, isTime: false }]);
});

test("times of a change are marked as such, unless they are not times", () => {
  const [time] = changesOf({ next_run: null }, { next_run: "2026-11-17T09:00:00Z" });
  assert.equal(time?.isTime, true);
  assert.equal(changesOf({}, { until: "soon" })[0]?.isTime, false);
});

test("the exact text of a payload takes the place of the payload", () => {
  assert.deepEqual(changesOf({ payload: { id: 1 } }, { payload: null, payload_text: '{"id": 12345678901234567890}' }), [
    { name: "payload", before: '{"id":1}', after: '{"id": 12345678901234567890}', isTime: false },
  ]);
});

test("values are texts, and long ones are cut", () => {
  assert.equal(valueText(["a", "b"]), "a b");
  assert.equal(valueText([]), "none");
  assert.equal(valueText(false), "false");
  assert.equal(valueText("x".repeat(400)).length, 301);
});

test("rows that are shown stay in their places while new ones come", () => {
  const shown = [{ id: "b", state: "running" }, { id: "a", state: "succeeded" }];
  const fresh = [{ id: "c", state: "queued" }, { id: "b", state: "succeeded" }];
  assert.deepEqual(steadyRows(shown, fresh, ({ id }) => id), {
    rows: [{ id: "b", state: "succeeded" }, { id: "a", state: "succeeded" }],
    added: 1,
  });
});

test("a delete names the schedules that wait", () => {
  assert.equal(waitText(["mail"]), "mail waits for it, and it does not succeed any more.");
  assert.equal(waitText(["a", "b", "c"]), "a, b and c wait for it, and it does not succeed any more.");
});

test("a predecessor says what it lacks", () => {
  const last_success = "2026-03-01T12:00:00Z";
  assert.equal(metText({ state: null, last_success, is_met: true }), "does not exist any more");
  assert.equal(metText({ state: "deleted", last_success: null, is_met: false }), "does not exist any more");
  assert.equal(metText({ state: "active", last_success: null, is_met: false }), "has never succeeded");
  assert.equal(metText({ state: "active", last_success, is_met: false }), "succeeded too long ago:");
  assert.equal(metText({ state: "paused", last_success, is_met: null }), "last succeeded:");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Schedule } from "../src/api/schema";
import { batchesOf, countOf, distinct, outcomesOf, outcomesWithout, worstFirst } from "../src/pages/schedules/batches";
import { filtersOf, isFiltered, sortOf } from "../src/pages/schedules/filters";
import { changeBody, changedFields, createBody, durationIn, EMPTY, errorsOf, fieldOf, type Form, formOf, rebased, tagsOf, wrongText } from "../src/pages/schedules/form";
import { isLate, lastRun, matchText, refreshed } from "../src/pages/schedules/rows";
import { COMPARED, tickChanges } from "../src/pages/schedules/ticks";

function schedule(fields: Partial<Schedule> = {}): Schedule {
  return {
    name: "mail",
    tenant: "default",
    task: "mail.send",
    trigger: "0 9 * * *",
    payload: { to: "ops" },
    payload_text: null,
    tags: ["billing"],
    description: "",
    catch_up: "latest",
    grace: 60,
    catch_up_limit: 100,
    catch_up_max_age: null,
    catch_up_rate: null,
    overlap: "allow",
    max_concurrent: null,
    after: null,
    spread: 0,
    retries: 2,
    backoff: 10,
    max_backoff: 3600,
    timeout: null,
    on_crash: "rerun",
    max_crashes: 3,
    expires: null,
    queue: "default",
    priority: 5,
    ...fields,
  } as Schedule;
}

const FORM = formOf(schedule());

function ticks(first: string, step: number, count: number): string[] {
  return Array.from({ length: count }, (_, index) => new Date(Date.parse(first) + index * step).toISOString());
}

const HOUR = 3_600_000;
const NOON = Date.parse("2026-11-17T12:00:00Z");

test("an edit that adds ticks keeps the old ones", () => {
  const changes = tickChanges(ticks("2026-11-17T13:00:00Z", 2 * HOUR, COMPARED), ticks("2026-11-17T13:00:00Z", HOUR, COMPARED), NOON, 3);
  assert.deepEqual(changes.map(({ at, kind }) => [(at - NOON) / HOUR, kind]), [[1, "kept"], [2, "added"], [3, "kept"], [5, "kept"]]);
});

test("an edit that moves all ticks removes the old ones and adds the new ones", () => {
  const changes = tickChanges(ticks("2026-11-17T13:00:00Z", HOUR, COMPARED), ticks("2026-11-17T13:30:00Z", HOUR, COMPARED), NOON, 2);
  assert.deepEqual(changes.map(({ kind }) => kind), ["removed", "added", "removed", "added"]);
});

test("ticks after the last compared one of the other trigger are not called removed", () => {
  // The new trigger has 1,000 ticks within 17 minutes: whether it has one tomorrow is not known.
  const changes = tickChanges(["2026-11-18T12:00:00Z"], ticks("2026-11-17T12:00:01Z", 1_000, COMPARED), NOON, 2);
  assert.deepEqual(changes.map(({ kind }) => kind), ["added", "added"]);
});

test("a trigger without more ticks removes all of the other", () => {
  assert.deepEqual(tickChanges(ticks("2026-11-17T13:00:00Z", HOUR, 3), [], NOON).map(({ kind }) => kind), ["removed", "removed", "removed"]);
});

test("a tick that is due already is not part of the difference", () => {
  assert.deepEqual(tickChanges(["2026-11-17T11:59:00Z", "2026-11-17T13:00:00Z"], ["2026-11-17T13:00:00Z"], NOON), [
    { at: Date.parse("2026-11-17T13:00:00Z"), kind: "kept" },
  ]);
});

test("a new schedule is sent without the fields that are empty", () => {
  const form: Form = { ...EMPTY, name: "mail ", task: "mail.send", trigger: "every 10m", retries: "3", timeout: "90s", tags: "a, b  a", priority: "8" };
  assert.deepEqual(JSON.parse(createBody(form)), { name: "mail", task: "mail.send", trigger: "every 10m", tags: ["a", "b"], retries: 3, timeout: "90s", priority: 8 });
  assert.equal(JSON.parse(createBody(form, { paused: true, note: "later" })).note, "later");
  assert.equal("paused" in JSON.parse(createBody(form, { paused: false })), false);
});

test("a payload is sent as it was typed, with every digit", () => {
  const form: Form = { ...EMPTY, name: "x", task: "x", trigger: "@daily", payload: ' {"big": 12345678901234567890, "one": 1.10} ' };
  assert.ok(createBody(form).includes('"payload":{"big": 12345678901234567890, "one": 1.10}'));
  const before = formOf(schedule({ payload: null, payload_text: '{"big":12345678901234567890}' }));
  assert.equal(changeBody({ ...before, payload: '{"big":12345678901234567891}' }, before), '{"payload":{"big":12345678901234567891}}');
});

test("options that the catch-up ignores are not sent", () => {
  const form: Form = { ...EMPTY, name: "x", task: "x", trigger: "@daily", grace: "5m", catch_up_limit: "7" };
  assert.equal("grace" in JSON.parse(createBody({ ...form, catch_up: "latest" })), false);
  assert.equal(JSON.parse(createBody({ ...form, catch_up: "all" })).catch_up_limit, 7);
  assert.equal("grace" in JSON.parse(createBody({ ...form, catch_up: "all" })), false);
  assert.equal(JSON.parse(createBody({ ...form, catch_up: "skip" })).grace, "5m");
});

test("the age and the rate of missed ticks are sent where the catch-up uses them", () => {
  const form: Form = { ...EMPTY, name: "x", task: "x", trigger: "@daily", catch_up_max_age: "2d", catch_up_rate: "10/m" };
  assert.equal(JSON.parse(createBody({ ...form, catch_up: "latest" })).catch_up_max_age, "2d");
  assert.equal("catch_up_rate" in JSON.parse(createBody({ ...form, catch_up: "latest" })), false);
  assert.equal("catch_up_max_age" in JSON.parse(createBody({ ...form, catch_up: "skip" })), false);
  assert.equal(JSON.parse(createBody({ ...form, catch_up: "skip" })).catch_up_rate, "10/m");
  const before = formOf(schedule({ catch_up: "all", catch_up_max_age: 3600, catch_up_rate: "10/m" }));
  assert.deepEqual([before.catch_up_max_age, before.catch_up_rate], ["1h", "10/m"]);
  assert.deepEqual(JSON.parse(changeBody({ ...before, catch_up_rate: "" }, before)), { catch_up_rate: null });
  assert.deepEqual(errorsOf({ ...before, catch_up_rate: "fast" }, before), { catch_up_rate: "Write it like 10/m, 5/s, 1000/h or 10/30s." });
});

test("an edit sends only what differs", () => {
  assert.equal(changeBody(FORM, FORM), "{}");
  assert.deepEqual(changedFields({ ...FORM, tags: " billing ", description: "x" }, FORM), ["description"]);
  const changed = { ...FORM, trigger: "every 1h", timeout: "5m", max_concurrent: "2", payload: "" };
  assert.deepEqual(JSON.parse(changeBody(changed, FORM)), { trigger: "every 1h", payload: null, max_concurrent: 2, timeout: "5m" });
  const before = formOf(schedule({ timeout: 300, max_concurrent: 2 }));
  assert.deepEqual(JSON.parse(changeBody({ ...before, timeout: "", max_concurrent: "" }, before)), { max_concurrent: null, timeout: null });
});

test("an edit of the catch-up sends the options that it then has", () => {
  const form = { ...FORM, catch_up: "skip", grace: "2m" };
  assert.deepEqual(JSON.parse(changeBody(form, FORM)), { catch_up: "skip", grace: "2m" });
  const before = formOf(schedule({ catch_up: "skip" }));
  assert.equal(before.grace, "1m");
  assert.deepEqual(JSON.parse(changeBody({ ...before, catch_up: "latest" }, before)), { catch_up: "latest" });
});

test("after a change by somebody else, my entries stay and the rest is new", () => {
  const mine = { ...FORM, retries: "5" };
  const now = formOf(schedule({ retries: 1, description: "theirs" }));
  const form = rebased(mine, FORM, now);
  assert.equal(form.retries, "5");
  assert.equal(form.description, "theirs");
  assert.deepEqual(JSON.parse(changeBody(form, now)), { retries: 5 });
});

test("texts that can't be right are refused at their field", () => {
  const wrong = errorsOf({ ...EMPTY, name: ".hidden", trigger: "", task: "two words", payload: "[1]", retries: "-1", backoff: "soon", tags: "ok b@d", queue: "a b", max_concurrent: "0" }, null);
  assert.deepEqual(Object.keys(wrong).sort(), ["backoff", "max_concurrent", "name", "payload", "queue", "retries", "tags", "task", "trigger"]);
  assert.match(wrong.tags ?? "", /b@d/);
  assert.deepEqual(errorsOf({ ...EMPTY, name: "a.b:c", task: "x", trigger: "@daily", payload: "null", backoff: "1h 30m" }, null), {});
  assert.match(errorsOf({ ...EMPTY, name: "x", task: "x", trigger: "x", payload: "{" }, null).payload ?? "", /not JSON/);
});

test("an edit may not empty an option that always has a value", () => {
  assert.deepEqual(Object.keys(errorsOf({ ...FORM, retries: "", queue: " ", timeout: "", payload: "" }, FORM)).sort(), ["queue", "retries"]);
  assert.deepEqual(errorsOf(FORM, FORM), {});
});

test("problems of the server belong to their field", () => {
  assert.equal(fieldOf("retries"), "retries");
  assert.equal(fieldOf("payload.to"), "payload");
  assert.equal(fieldOf("tags[2]"), "tags");
  assert.equal(fieldOf("tz"), "trigger");
  assert.equal(fieldOf("tenant"), null);
  assert.equal(fieldOf(null), null);
});

test("durations are written as the server reads them", () => {
  assert.deepEqual([0, 0.25, 90, 5400, 86_400, null].map(durationIn), ["0s", "250ms", "1m30s", "1h30m", "1d", ""]);
  assert.deepEqual(tagsOf("a,b  c\na"), ["a", "b", "c"]);
});

test("batches are of one tenant and of a size", () => {
  const keys = ["a1", "b1", "a2", "a3", "b2"].map((name) => ({ tenant: name[0] as string, name }));
  assert.deepEqual(batchesOf(keys, 2), [
    { tenant: "a", names: ["a1", "a2"] },
    { tenant: "a", names: ["a3"] },
    { tenant: "b", names: ["b1", "b2"] },
  ]);
  assert.equal(batchesOf(Array.from({ length: 1_250 }, (_, index) => ({ tenant: "a", name: `n${index}` }))).length, 13);
  assert.equal(distinct([...keys, ...keys]).length, 5);
});

test("each schedule of a batch has its result", () => {
  const batch = { tenant: "a", names: ["one", "two", "three"] };
  const outcomes = outcomesOf("pause", batch, { changed: [{ tenant: "a", id: "one" }], refused: [{ tenant: "a", id: "two", why: "it is damaged" }] });
  assert.deepEqual(outcomes.map(({ name, kind, why }) => [name, kind, why]), [
    ["one", "done", null],
    ["two", "refused", "it is damaged"],
    ["three", "left", "it is not active"],
  ]);
  const all = [...outcomes, ...outcomesWithout({ tenant: "a", names: ["four"] }, "unknown", "no answer")];
  assert.deepEqual(worstFirst(all).map(({ name }) => name), ["two", "four", "three", "one"]);
  assert.equal(countOf(all, "refused"), 1);
});

test("a refresh moves no row", () => {
  const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => schedule({ name })) as [Schedule, Schedule, Schedule, Schedule];
  const paused = schedule({ name: "b", state: "paused" });
  assert.deepEqual(refreshed([a, b], [a, paused]), { rows: [a, paused], gone: new Set(), moved: 0 });
  assert.deepEqual(refreshed([a, b], [a, b, c]).rows, [a, b, c]);
  const moved = refreshed([b, c], [a, paused, d]);
  assert.deepEqual(moved.rows, [paused, c]);
  assert.deepEqual([...moved.gone], ["default/c"]);
  assert.equal(moved.moved, 2);
  assert.deepEqual(refreshed([a, b], [b, a]).rows, [a, b]);
  assert.equal(refreshed([a, b], [b, a]).moved, 1);
  assert.deepEqual(refreshed([], [a, b]).rows, [a, b]);
});

test("a schedule is late 30 seconds after its time, unless it waits for a run or catches up", () => {
  const row = { state: "active", is_waiting: false, catch_up_at: null, next_run: "2026-11-17T12:00:00Z" } as const;
  assert.equal(isLate(row, NOON + 30_000), false);
  assert.equal(isLate(row, NOON + 30_001), true);
  assert.equal(isLate({ ...row, is_waiting: true }, NOON + 60_000), false);
  assert.equal(isLate({ ...row, catch_up_at: "2026-11-17T12:01:03Z" }, NOON + 60_000), false);
  assert.equal(isLate({ ...row, state: "paused" }, NOON + 60_000), false);
});

test("the last run is the newest one, or what the statistics remember", () => {
  const stats = { run_count: 2, success_count: 1, failure_count: 1, last_run: "2026-11-17T11:00:00Z", last_success: "2026-11-17T10:00:00Z", last_failure: "2026-11-17T11:00:00Z", last_error: "x" };
  assert.deepEqual(lastRun({ recent: [], stats }), { id: null, state: "failed", at: "2026-11-17T11:00:00Z" });
  const recent = [{ id: "r1", state: "running" as const, scheduled_at: "2026-11-17T12:00:00Z", duration: null, lateness: null }];
  assert.equal(lastRun({ recent, stats })?.state, "running");
  assert.equal(lastRun({ recent: null, stats: { ...stats, last_run: null } }), null);
});

test("filters come from the URL; values that no filter has are ignored", () => {
  const query = new URLSearchParams("text= mail &state=asleep&failing=true&late=no&managed_by=code&tag=a&tz=utc&sort=size");
  assert.deepEqual(filtersOf(query), { text: "mail", tag: "a", failing: true, managed_by: "code" });
  assert.equal(sortOf(query), "name");
  assert.equal(sortOf(new URLSearchParams("sort=-updated_at")), "-updated_at");
  assert.equal(isFiltered(filtersOf(new URLSearchParams("tz=utc&cursor=x"))), false);
});

test("the fields that need another value are named in their order", () => {
  assert.equal(wrongText({ trigger: "…", name: "…" }), "2 fields need another value: name, trigger.");
  assert.equal(wrongText({ retries: "…" }), "1 field needs another value: retries.");
  assert.equal(wrongText({}), "");
});

test("counts past 1,000 are not claimed", () => {
  assert.equal(matchText(1_000, true), "more than 1,000 match");
  assert.equal(matchText(1, false), "1 matches");
});

test("a dependency is a text, and an empty one removes it", () => {
  const before = formOf(schedule({ after: "load within 1h" }));
  assert.equal(before.after, "load within 1h");
  assert.deepEqual(JSON.parse(changeBody({ ...before, after: "" }, before)), { after: "" });
  assert.deepEqual(JSON.parse(changeBody({ ...FORM, after: "load within 2h" }, FORM)), { after: "load within 2h" });
  assert.equal(fieldOf("within"), "after");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Delivery, QueueStats } from "../src/api/schema";
import { refreshedPage, unknown, updated } from "../src/live/paging";
import {
  announcedText, arrival, conditionText, CONDITIONS, coversText, deliveryState, healthOf, managedText, ownedBy, ownedKey, readCondition, subjectPath, writtenCondition,
} from "../src/pages/alerts/texts";
import { coverBody, coverOf } from "../src/pages/alerts/cover";
import { momentOf } from "../src/pages/alerts/until";
import { filterOf, pageOf, words } from "../src/pages/audit/filter";
import { isSilent, linksOf, placeOf, slotsText, tasksOf } from "../src/pages/nodes/texts";
import { byNeed, trendOf } from "../src/pages/queues/trend";
import { FIRST, isComplete, NEVER, OTHER, scopeText, wantedOf } from "../src/pages/tokens/wanted";

const NOW = Date.parse("2026-11-17T02:00:00Z");

test("a node is silent after 45 seconds, or if it was never seen", () => {
  assert.equal(isSilent({ seen_at: "2026-11-17T01:59:15Z" }, NOW), false);
  assert.equal(isSilent({ seen_at: "2026-11-17T01:59:14.999Z" }, NOW), true);
  assert.equal(isSilent({ seen_at: null }, NOW), true);
});

test("slots are counted over all executors, and named by executor", () => {
  assert.equal(slotsText({ worker: true, running: 2, slots: { thread: 4, async: 100 } }), "2 of 104: thread 4, async 100");
  assert.equal(slotsText({ worker: true, running: null, slots: {} }), "? of 0");
  assert.equal(slotsText({ worker: false, running: 0, slots: { thread: 4 } }), "starts no runs");
});

test("the tasks of a node are in the order of their names", () => {
  assert.deepEqual(tasksOf({ tasks: { work: "thread", mail: "async" } }), [["mail", "async"], ["work", "thread"]]);
});

test("what a check has found links to the page that shows it, for all tenants", () => {
  const words = (check: string, level: "ok" | "warn", facts = {}): string[] => linksOf({ check, level, facts }).map((each) => each.words);
  assert.deepEqual(words("alerts", "warn", { unsent: ["a"], open: [] }), ["Show the delivery log"]);
  assert.deepEqual(words("alerts", "warn", { unsent: [], open: ["b"] }), ["Show the open incidents"]);
  assert.deepEqual(words("queue", "ok"), []);
  assert.deepEqual(words("of a later version", "warn"), []);
  assert.deepEqual(linksOf({ check: "leases", level: "fail", facts: {} })[0]?.query, { state: "running", tenant: null });
  assert.match(placeOf({ check: "quarantine", level: "fail" }) ?? "", /Quarantine/);
  assert.equal(placeOf({ check: "quarantine", level: "ok" }), null);
});

test("the trend of a queue has an arrow, a word and its numbers", () => {
  const queue = { came_due: 1, ended: 0, oldest_due: null, nodes: ["n"] };
  assert.deepEqual(trendOf({ ...queue, trend: "grows" }, NOW), {
    label: "↑ grows",
    tone: "warn",
    reason: "in 5 minutes 1 run came due and 0 ended",
  });
  assert.equal(trendOf({ ...queue, trend: "stands still" }, NOW).tone, "bad");
  assert.equal(trendOf({ ...queue, trend: "of a later version" }, NOW).label, "of a later version");
});

test("a queue in which a run waits for long is not fine, whatever its trend", () => {
  const steady = { trend: "steady", came_due: 0, ended: 0, nodes: ["n"], oldest_due: "2026-11-17T01:00:00Z" };
  assert.equal(trendOf(steady, NOW).tone, "good");
  const long = trendOf({ ...steady, oldest_due: "2026-11-11T01:00:00Z" }, NOW);
  assert.deepEqual([long.label, long.tone], ["→ steady, oldest waits 6 d", "warn"]);
  const alone = { ...steady, nodes: [] };
  assert.equal(trendOf({ ...alone, oldest_due: "2026-11-17T01:55:00Z" }, NOW).tone, "good");
  assert.equal(trendOf({ ...alone, oldest_due: "2026-11-17T01:54:00Z" }, NOW).label, "→ steady, oldest waits 6 min");
  assert.equal(trendOf({ ...alone, trend: "stands still", oldest_due: "2026-11-17T01:54:00Z" }, NOW).tone, "bad");
});

test("queues without a node come first; the others keep the order of their names", () => {
  const queue = (name: string, nodes: string[], due: number): QueueStats => ({
    name, nodes, due, later: 0, retrying: 0, running: 0, oldest_due: null, came_due: 0, ended: 0, trend: "empty",
  });
  const sorted = [queue("b", ["n"], 9), queue("a", ["n"], 1), queue("z", [], 0)].sort(byNeed);
  assert.deepEqual(sorted.map(({ name }) => name), ["z", "a", "b"]);
});

test("a condition is read and written without loss", () => {
  for (const text of ["failed", "failing:3", "late:10m", "no_node:1m", "node_lost"]) assert.equal(writtenCondition(readCondition(text)), text);
  assert.equal(writtenCondition({ kind: "failed", value: "3" }), "failed");
  assert.equal(writtenCondition({ kind: "late", value: " " }), "late");
});

test("every condition has words of its own", () => {
  assert.equal(conditionText("failing:5"), "5 runs failed in a row");
  assert.equal(conditionText("late"), "late by 5m");
  assert.equal(conditionText("of_a_later_version:1"), "of_a_later_version:1");
  const texts = CONDITIONS.map(({ kind }) => conditionText(kind));
  assert.equal(new Set(texts).size, CONDITIONS.length);
  assert.equal(CONDITIONS.some(({ kind }) => conditionText(kind) === kind), false);
});

test("a rule covers one schedule, a tag, or all schedules", () => {
  assert.equal(coversText({ schedule: "mail", tag: null }), "schedule mail");
  assert.equal(coversText({ schedule: null, tag: "billing" }), "tag billing");
  assert.equal(coversText({ schedule: null, tag: null }), "all schedules");
  assert.deepEqual(coverOf({ schedule: null, tag: "billing" }), { kind: "tag", name: "billing" });
  assert.deepEqual(coverBody({ kind: "schedule", name: " mail " }), { schedule: "mail", tag: null });
  assert.deepEqual(coverBody(coverOf(null)), { schedule: null, tag: null });
});

test("what is for all tenants is asked for with all_tenants, and is not what a tenant named null has", () => {
  assert.deepEqual(ownedBy(null), { all_tenants: true });
  assert.deepEqual(ownedBy("acme"), { tenant: "acme" });
  assert.notEqual(ownedKey({ tenant: null, name: "a" }), ownedKey({ tenant: "*", name: "a" }));
});

test("rules of code and files are named as such", () => {
  assert.equal(managedText("code"), "declared in code");
  assert.equal(managedText("config"), "declared in a file");
  assert.equal(managedText("api"), null);
});

test("an incident links to what it is about", () => {
  assert.deepEqual(subjectPath({ subject_kind: "schedule", subject: "a/b", tenant: "acme" }), ["schedules", "acme", "a/b"]);
  assert.deepEqual(subjectPath({ subject_kind: "run", subject: "acme/a/1/2", tenant: "acme" }), ["runs", "acme", "acme/a/1/2"]);
  assert.deepEqual(subjectPath({ subject_kind: "node", subject: "n1", tenant: null }), ["nodes"]);
  assert.equal(subjectPath({ subject_kind: "schedule", subject: "a", tenant: null }), null);
});

test("an incident says whether people know about it, and who mutes it", () => {
  assert.equal(announcedText({ announced: ["opened", "escalated"], muted_by: null }), "opened, escalated");
  assert.equal(announcedText({ announced: [], muted_by: "window disks" }), "not announced; muted by window disks");
});

test("an incident says whether its announcement arrived", () => {
  assert.equal(arrival({ delivery: null }), null);
  assert.deepEqual(arrival({ delivery: "sent" }), { label: "delivered", tone: "good" });
  assert.deepEqual(arrival({ delivery: "waiting" }), { label: "not delivered yet", tone: "warn" });
  assert.deepEqual(arrival({ delivery: "given_up" }), { label: "not delivered", tone: "bad" });
});

test("a message waits, is retried, is sent, or is given up", () => {
  assert.equal(deliveryState({ state: "pending", tries: 0 }).label, "waiting");
  assert.equal(deliveryState({ state: "pending", tries: 2 }).label, "retrying");
  assert.equal(deliveryState({ state: "sent", tries: 1 }).label, "sent");
  assert.equal(deliveryState({ state: "failed", tries: 9 }).label, "given up");
});

test("a channel is as well as its last attempt", () => {
  const channel = { tenant: "acme", name: "ops" };
  const delivery = (state: Delivery["state"], last_try_at: string | null, changes: Partial<Delivery> = {}): Delivery => ({
    id: "d", incident: null, rule: null, owner: "acme", tenant: "acme", channel: "ops", announcement: "opened", title: "t", state, tries: 1,
    created_at: "2026-11-17T00:00:00Z", last_try_at, next_try_at: null, error: state === "sent" ? null : "refused", ...changes,
  });
  assert.equal(healthOf(channel, []).label, "nothing sent lately");
  assert.equal(healthOf(channel, [delivery("failed", "2026-11-17T01:00:00Z", { owner: null })]).tone, "off");
  assert.equal(healthOf(channel, [delivery("pending", null, { tries: 0 })]).tone, "off");
  const broken = healthOf(channel, [delivery("pending", "2026-11-17T01:00:00Z"), delivery("sent", "2026-11-16T01:00:00Z")]);
  assert.deepEqual(broken, { label: "retrying", tone: "warn", at: "2026-11-17T01:00:00Z", error: "refused", lastSent: "2026-11-16T01:00:00Z" });
  // An old message that was sent at last is newer than the end of another one.
  const mended = healthOf(channel, [delivery("failed", "2026-11-17T01:00:00Z"), delivery("sent", "2026-11-17T01:30:00Z")]);
  assert.deepEqual([mended.label, mended.error, mended.lastSent], ["sent", null, null]);
});

test("a mute ends at a time to come, by the clock of the chosen zone", () => {
  assert.deepEqual(momentOf("2026-11-17T04:00", "Europe/Berlin", NOW), { value: "2026-11-17T03:00:00.000Z", problem: null });
  assert.equal(momentOf("2026-11-17T03:00", "Europe/Berlin", NOW).problem, "This time is over.");
  assert.equal(momentOf("", "UTC", NOW).problem, "Give a date and a time.");
});

test("the filter of the audit takes only what the server knows", () => {
  assert.deepEqual(filterOf(new URLSearchParams("actor=ana&action=pause&subject=a%2Fb&since=7d&tz=utc")), {
    actor: "ana", action: "pause", subject: "a/b", since: "7d",
  });
  assert.deepEqual(filterOf(new URLSearchParams("action=explode&actor=")), {});
});

test("entries of the audit link to what they are about", () => {
  assert.deepEqual(pageOf({ kind: "run", tenant: "acme", subject: "1" }), { path: ["runs", "acme", "1"], query: {} });
  assert.deepEqual(pageOf({ kind: "alert_window", tenant: "acme", subject: "w" }), { path: ["alerts"], query: { tab: "windows" } });
  assert.equal(pageOf({ kind: "of a later version", tenant: "acme", subject: "w" }), null);
  assert.equal(words("run_now"), "run now");
});

test("a list that is read again keeps its rows, and counts new ones", () => {
  const shown = { items: [{ id: "b", n: 1 }, { id: "c", n: 1 }], cursor: "after c" };
  const newest = { items: [{ id: "a", n: 2 }, { id: "b", n: 2 }], cursor: "after b" };
  assert.deepEqual(refreshedPage(shown, newest), { items: [{ id: "b", n: 2 }, { id: "c", n: 1 }], cursor: "after c" });
  assert.deepEqual(unknown(shown.items, newest.items), [{ id: "a", n: 2 }]);
  assert.deepEqual(updated([], newest.items), []);
});

test("a search that has found nothing yet stays where it is, until there is something", () => {
  const searched = { items: [], cursor: "far" };
  assert.equal(refreshedPage(searched, { items: [], cursor: "near" }), searched);
  const found = { items: [{ id: "a" }], cursor: null };
  assert.equal(refreshedPage(searched, found), found);
});

test("a token form becomes a request", () => {
  assert.equal(isComplete(FIRST), false);
  assert.deepEqual(wantedOf({ ...FIRST, name: " ci " }), { name: "ci", role: "viewer", tenant: null, expires: "90d" });
  assert.equal(wantedOf({ ...FIRST, name: "ci", expiry: NEVER }).expires, null);
  assert.equal(isComplete({ ...FIRST, name: "ci", expiry: OTHER }), false);
  assert.equal(wantedOf({ ...FIRST, name: "ci", tenant: "acme", expiry: OTHER, span: "12h" }).expires, "12h");
  assert.equal(scopeText({ role: "operator", tenant: "acme" }), "operator of tenant acme");
  assert.equal(scopeText({ role: "admin", tenant: null }), "admin of all tenants");
});

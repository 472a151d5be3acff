import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeployPlan, PlanEntry } from "../src/api/schema";
import { countsText, optionChanges, plannedTicks, resultText, toDo } from "../src/pages/plan/texts";

const entry: PlanEntry = {
  tenant: "default",
  name: "nightly",
  action: "add",
  managed_by: "code",
  source: "shop",
  changes: [],
  ticks_before: [],
  ticks_after: [],
  why: "",
  command: "",
  token: "t",
};
const plan: DeployPlan = {
  entries: [entry, { ...entry, action: "change" }, { ...entry, action: "drift" }],
  unchanged: 2,
  at: "2026-03-02T08:00:00Z",
  warnings: [],
};
const hours = (...found: number[]): string[] => found.map((hour) => `2026-03-02T${String(hour).padStart(2, "0")}:00:00Z`);
const kinds = (before: string[], after: string[]): string[] => plannedTicks(before, after).map(({ at, kind }) => `${new Date(at).getUTCHours()} ${kind}`);

test("a plan counts what an apply does", () => {
  assert.equal(countsText(plan), "1 to add, 1 to change, 0 to remove");
  assert.equal(toDo(plan).length, 2);
});

test("ticks are compared as far as both lists reach", () => {
  assert.deepEqual(kinds(hours(1, 2, 3, 4, 5), hours(2, 4, 6, 8, 10)), ["1 removed", "2 kept", "3 removed", "4 kept", "5 removed"]);
  assert.deepEqual(kinds([], hours(1, 2, 3, 4, 5)), ["1 added", "2 added", "3 added", "4 added", "5 added"]);
  assert.deepEqual(kinds(hours(1), []), ["1 removed"]);
  assert.deepEqual(kinds(hours(1, 2), hours(1, 2)), ["1 kept", "2 kept"]);
});

test("values are shown as text", () => {
  const changes = [
    { field: "payload", before: null, after: { n: 1 } },
    { field: "tags", before: ["a", "b"], after: [] },
  ];
  assert.deepEqual(optionChanges(changes), [
    { name: "payload", before: "", after: '{\n  "n": 1\n}' },
    { name: "tags", before: "a b", after: "" },
  ]);
});

test("a result says what was refused", () => {
  assert.equal(resultText({ done: [], refused: [], left: [], unchanged: 1, warnings: [] }), "Nothing was changed.");
  const refused = [{ tenant: "default", name: "a", why: "changed", entry: null }];
  assert.equal(resultText({ done: [entry], refused, left: [], unchanged: 1, warnings: [] }), "Applied 1 change. 1 schedule refused: look at the plan again.");
});

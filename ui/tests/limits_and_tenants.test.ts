import assert from "node:assert/strict";
import { test } from "node:test";
import { Problem } from "../src/api/client";
import { pageOf } from "../src/pages/audit/filter";
import * as limits from "../src/pages/limits/form";
import * as order from "../src/pages/order/texts";
import * as tenants from "../src/pages/tenants/texts";
import { fieldErrors } from "../src/parts/field_errors";

test("a problem is shown at its field, with the hint, and below the form if it names none", () => {
  const problem = new Problem(422, "invalid-value", "rate 'x' is not a rate", "rate", "write 100/m");
  const errors = fieldErrors(problem, ["rate", "burst"]);
  assert.equal(errors.at("rate"), "rate 'x' is not a rate. write 100/m");
  assert.equal(errors.at("burst"), null);
  assert.equal(errors.rest, null);
  assert.equal(fieldErrors(problem, ["burst"]).rest, problem);
  assert.equal(fieldErrors(null, ["rate"]).rest, null);
});

test("a limit needs a name and a number; numbers that can't be read are sent as they are", () => {
  assert.equal(limits.isComplete({ ...limits.FIRST, task: "charge" }), false);
  assert.equal(limits.isComplete({ ...limits.FIRST, rate: "1/s" }), false);
  assert.equal(limits.isComplete({ ...limits.FIRST, key: "customer", rate: "1/s" }), true);
  const wanted = limits.wantedOf({ ...limits.FIRST, task: " charge ", concurrency: "5", burst: "many" });
  assert.deepEqual(wanted, { task: "charge", queue: null, tenant: null, key: null, concurrency: 5, rate: null, burst: "many" });
});

test("another rate drops the burst that the form began with, and keeps one that was written", () => {
  const first = { ...limits.FIRST, rate: "100/m", burst: "1" };
  assert.equal(limits.edited(first, "rate", "10/s", first).burst, "");
  const written = limits.edited(first, "burst", "7", first);
  assert.equal(limits.edited(written, "rate", "10/s", first).burst, "7");
});

test("a limit is removed by exactly its names, and lists the runs that it concerns", () => {
  const names = { task: "charge", queue: null, tenant: "acme", key: "customer" };
  assert.deepEqual(limits.namesOf(names), { task: "charge", tenant: "acme", key: "customer" });
  assert.deepEqual(limits.runsOf(names, "queued"), { task: "charge", queue: null, state: "queued", tenant: "acme" });
  assert.equal(limits.concerns(names, "other"), false);
  assert.equal(limits.concerns({ ...names, tenant: null }, "other"), true);
  assert.equal(limits.concerns(names, null), true);
});

test("what a limit admits, in words", () => {
  assert.equal(limits.admitsText({ key: null, admits: 3, admits_at: null }), "3 more");
  assert.equal(limits.admitsText({ key: null, admits: 0, admits_at: null }), "none until one ends");
  assert.equal(limits.admitsText({ key: null, admits: 0, admits_at: "2026-11-17T02:00:00Z" }), null);
  assert.equal(limits.admitsText({ key: "customer", admits: null, admits_at: null }), "counted for each customer");
});

test("a quota in words, and how much of it is used", () => {
  assert.equal(tenants.quotaText(null), "none");
  assert.equal(tenants.quotaText({ schedules: 1, queued_runs: 2000 }), "at most 1 schedule, 2,000 queued runs");
  const uses = tenants.usesOf({ quota: { schedules: null, queued_runs: 5 }, schedules: 9, due: 2, later: 3 });
  assert.deepEqual(uses.map(tenants.useText), ["5 of 5 queued runs"]);
  assert.deepEqual(uses.map(tenants.isFull), [true]);
  assert.deepEqual(tenants.wantedQuota("0", " "), { schedules: 0, queued_runs: null });
});

test("a purge adds up its requests; running runs are those of the last one", () => {
  const part = { schedules: 1, cancelled: 2, stopping: 1, runs: 2000, records: 0, tokens: 0 };
  const sum = tenants.added(tenants.added(tenants.NOTHING, part), { ...part, schedules: 0, stopping: 0, cancelled: 0, runs: 3, records: 4 });
  assert.deepEqual(tenants.countLines(sum), ["1 schedule", "2,003 runs (2 of them queued)", "4 other rows"]);
  assert.equal(tenants.rowCount(sum), 2008);
});

test("a retention rule goes through its form and back", () => {
  const rule = { tenant: null, state: "failed" as const, keep: 7 * 86_400, most: 100 };
  const form = order.formOf(rule);
  assert.deepEqual(form, { tenant: "", state: "failed", keep: "7d", most: "100" });
  assert.deepEqual(order.wantedOf(form), { state: "failed", keep: "7d", most: 100 });
  assert.deepEqual(order.idOf(rule), { state: "failed" });
  assert.equal(order.coverText(rule), "failed runs of all tenants");
  assert.deepEqual([90, 5_400, 129_600].map(order.spanOf), ["90s", "90m", "36h"]);
  assert.equal(order.isComplete({ ...order.FIRST, tenant: "acme" }), false);
});

test("entries of the audit lead to the pages of limits, tenants and retention", () => {
  const entry = { tenant: "default", subject: "acme" };
  assert.deepEqual(pageOf({ ...entry, kind: "limit" })?.path, ["limits"]);
  assert.deepEqual(pageOf({ ...entry, kind: "tenant" })?.path, ["tenants", "acme"]);
  assert.deepEqual(pageOf({ ...entry, kind: "retention" })?.path, ["order"]);
  assert.equal(pageOf({ ...entry, kind: "record" }), null);
});

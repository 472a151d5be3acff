// Options of templates and bulk changes: rows, what is wrong with them, and what is sent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pageOf } from "../src/pages/audit/filter";
import { filtersOf } from "../src/pages/schedules/filters";
import { areComplete, choicesOf, OPTIONS, optionText, problemOf, rowsOf, valuesOf, withRow } from "../src/pages/schedules/options";

test("a row more has an option that no row has", () => {
  let rows = withRow([]);
  assert.deepEqual(rows, [{ option: "retries", text: "" }]);
  for (let count = 0; count < OPTIONS.length + 3; count += 1) rows = withRow(rows);
  assert.deepEqual(new Set(rows.map(({ option }) => option)), new Set(OPTIONS));
  assert.equal(rows.length, OPTIONS.length);
  assert.deepEqual(choicesOf([{ option: "queue", text: "" }, { option: "retries", text: "" }], 0).includes("retries"), false);
});

test("rows are sent when each has a value that may be right", () => {
  assert.equal(areComplete([]), false);
  assert.equal(areComplete([{ option: "retries", text: "" }]), false);
  assert.equal(areComplete([{ option: "timeout", text: "" }]), true);
  assert.equal(areComplete([{ option: "retries", text: "-1" }]), false);
  assert.match(problemOf([{ option: "retries", text: "-1" }], { option: "retries", text: "-1" }) ?? "", /whole number/);
});

test("values are sent as the server takes them", () => {
  const rows = [
    { option: "retries", text: " 3 " },
    { option: "tags", text: "b, a" },
    { option: "timeout", text: "" },
    { option: "priority", text: "8" },
    { option: "trigger", text: "0 3 * * *" },
    { option: "grace", text: "5m" },
  ] as const;
  assert.deepEqual(valuesOf([...rows]), { retries: 3, tags: ["b", "a"], timeout: null, priority: 8, trigger: "0 3 * * *", grace: "5m" });
});

test("options of the server become rows again", () => {
  const options = { retries: 3, trigger: "0 3 * * *", tags: ["a", "b"], timeout: null };
  assert.deepEqual(valuesOf(rowsOf(options)), { trigger: "0 3 * * *", tags: ["a", "b"], retries: 3, timeout: null });
  assert.equal(optionText(undefined), "");
});

test("the list is filtered by a pattern of names and by a template", () => {
  const query = new URLSearchParams({ name: " report-* ", template: "nightly" });
  assert.deepEqual(filtersOf(query), { name: "report-*", template: "nightly" });
});

test("an entry of the audit leads to its template", () => {
  assert.deepEqual(pageOf({ kind: "template", tenant: "acme", subject: "nightly" }), { path: ["templates", "nightly"], query: { tenant: "acme" } });
});

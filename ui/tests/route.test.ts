import assert from "node:assert/strict";
import { test } from "node:test";
import { href, parseHash } from "../src/state/route";

test("a route has a path and a query", () => {
  const route = parseHash("#/schedules/default/mail?text=a%26b&tz=utc");
  assert.deepEqual(route.path, ["schedules", "default", "mail"]);
  assert.equal(route.query.get("text"), "a&b");
  assert.deepEqual(parseHash("").path, []);
  assert.deepEqual(parseHash("#/").path, []);
});

test("parts keep slashes, emoji and signs", () => {
  const parts = ["runs", "default", "default/clock/1/1794741983060 ?#%🦊"];
  assert.deepEqual(parseHash(href(parts)).path, parts);
});

test("a broken escape is kept as it is", () => {
  assert.deepEqual(parseHash("#/runs/%zz").path, ["runs", "%zz"]);
});

test("empty values are left out of a link", () => {
  assert.equal(href(["runs"], { state: "", task: null, late: false, limit: 0, schedule: "a b" }), "#/runs?limit=0&schedule=a+b");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { type GraphStep, type Layout, layoutOf, MOST_DRAWN, stepTowards } from "../src/pages/flows/layout";
import { canResume, conditionText, countsText, elementsBrief, elementsText, retryable, retryText, stepsAfter, stepToShow, tookText } from "../src/pages/flows/texts";

const step = (name: string, ...after: string[]): GraphStep => ({ name, after });

const DIAMOND = [step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")];

function laid(steps: GraphStep[]): Layout {
  const found = layoutOf(steps);
  assert.ok(found);
  return found;
}

function overlaps(layout: Layout): string[] {
  return layout.boxes.flatMap((a) =>
    layout.boxes.filter((b) => a.name < b.name && a.layer === b.layer && Math.abs(a.middle - b.middle) < 0.999).map((b) => `${a.name} ${b.name}`),
  );
}

test("a step is in the layer after the last one that it waits for", () => {
  const { boxes, layers } = laid([...DIAMOND, step("e", "a", "d")]);
  assert.deepEqual(Object.fromEntries(boxes.map(({ name, layer }) => [name, layer])), { a: 0, b: 1, c: 1, d: 2, e: 3 });
  assert.equal(layers, 4);
});

test("boxes of a layer do not overlap, and a join is between what it joins", () => {
  const layout = laid(DIAMOND);
  assert.deepEqual(overlaps(layout), []);
  const middle = Object.fromEntries(layout.boxes.map((box) => [box.name, box.middle]));
  assert.equal(middle["a"], middle["d"]);
  assert.ok(Math.min(middle["b"] as number, middle["c"] as number) < (middle["d"] as number));
  assert.ok((layout.boxes.map(({ middle: at }) => at) as number[]).every((at) => at >= 0.499 && at <= layout.breadth - 0.499));
});

test("an edge that passes over layers has a point in each, away from the boxes there", () => {
  const layout = laid([step("a"), step("b", "a"), step("c", "b"), step("d", "c", "a")]);
  const long = layout.edges.find(({ from, to }) => from === "a" && to === "d");
  assert.deepEqual(long?.points.map(([layer]) => layer), [0, 1, 2, 3]);
  for (const [layer, middle] of long?.points.slice(1, -1) ?? []) {
    for (const box of layout.boxes.filter((each) => each.layer === layer)) assert.ok(Math.abs(box.middle - middle) > 0.6, box.name);
  }
});

test("edges that cross are untangled", () => {
  const { boxes } = laid([step("a"), step("b"), step("x", "b"), step("y", "a")]);
  const middle = Object.fromEntries(boxes.map((box) => [box.name, box.middle])) as Record<string, number>;
  assert.equal(Math.sign((middle["a"] as number) - (middle["b"] as number)), Math.sign((middle["y"] as number) - (middle["x"] as number)));
});

test("hundreds of steps are laid out quickly, and more than that not at all", () => {
  const fan = [step("start"), ...Array.from({ length: MOST_DRAWN - 2 }, (_, index) => step(`s${index}`, "start"))];
  const wide = laid([...fan, step("join", ...fan.slice(1).map(({ name }) => name))]);
  assert.deepEqual(overlaps(wide), []);
  const chain = Array.from({ length: MOST_DRAWN }, (_, index) => (index === 0 ? step("s0") : step(`s${index}`, `s${index - 1}`)));
  assert.equal(laid(chain).layers, MOST_DRAWN);
  assert.equal(layoutOf([...chain, step("more")]), null);
  // Each step leads to all later ones: a thicket.
  const names = Array.from({ length: 200 }, (_, index) => `s${index}`);
  const start = performance.now();
  assert.equal(layoutOf(names.map((name, index) => step(name, ...names.slice(0, index)))), null);
  assert.ok(performance.now() - start < 2_000);
});

test("an unknown or empty graph is drawn without edges", () => {
  assert.deepEqual(layoutOf([]), { boxes: [], edges: [], layers: 0, breadth: 0 });
  assert.deepEqual(laid([step("a", "gone")]).edges, []);
});

test("arrow keys follow the graph", () => {
  const layout = laid(DIAMOND);
  const [up, down] = [...layout.boxes.filter(({ layer }) => layer === 1)].sort((a, b) => a.middle - b.middle).map(({ name }) => name) as [string, string];
  assert.equal(stepTowards(layout, up, "ArrowRight", false), "d");
  assert.equal(stepTowards(layout, up, "ArrowLeft", false), "a");
  assert.equal(stepTowards(layout, up, "ArrowDown", false), down);
  assert.equal(stepTowards(layout, up, "ArrowUp", false), null);
  assert.equal(stepTowards(layout, up, "ArrowDown", true), "d");
  assert.equal(stepTowards(layout, up, "ArrowRight", true), down);
  assert.equal(stepTowards(layout, up, "Home", false), "a");
  assert.equal(stepTowards(layout, up, "End", false), "d");
  assert.equal(stepTowards(layout, up, "x", false), null);
});

const MAP = { elements: 1200, elements_open: 200, elements_failed: 3, elements_cancelled: 1 };

test("a map says how many of its elements ended, failed and were cancelled", () => {
  assert.equal(elementsText(MAP), "1,000 of 1,200 ended, 3 failed, 1 cancelled");
  assert.equal(elementsText({ elements: 0, elements_open: 0, elements_failed: 0, elements_cancelled: 0 }), "0 of 0 ended");
  assert.equal(elementsText({ ...MAP, elements: null }), null);
  assert.equal(elementsBrief(MAP), "1,000/1,200, 3 failed");
  assert.equal(elementsBrief({ ...MAP, elements_failed: 0 }), "1,000/1,200");
});

test("a step that runs says for how long", () => {
  const at = "2026-11-17T09:00:00Z";
  assert.equal(tookText({ state: "running", started_at: at, duration: null }, Date.parse(at) + 65_400), "1 min 5 s");
  assert.equal(tookText({ state: "succeeded", started_at: at, duration: 1.5 }, 0), "1.50 s");
  assert.equal(tookText({ state: "queued", started_at: null, duration: null }, 0), "");
});

test("the condition of a step is in words", () => {
  assert.equal(conditionText({ after: [], run_if: "all_succeeded" }), "the flow starts");
  assert.equal(conditionText({ after: ["a"], run_if: "any_failed" }), "a step before it failed");
});

const states = (values: Record<string, string>) => Object.entries(values).map(([name, state]) => ({ name, state }));
const run = (values: Record<string, string>, more: object = {}) => ({ outer: null, state: "failed" as const, graph: { steps: DIAMOND }, steps: states(values), ...more });

test("steps are counted by state, and the one that failed is shown first", () => {
  const all = states({ a: "succeeded", b: "failed", c: "succeeded", d: "not_run" });
  assert.equal(countsText(all), "2 succeeded, 1 failed, 1 not run");
  assert.equal(stepToShow(all, "a"), "b");
  const going = states({ a: "succeeded", b: "running" });
  assert.equal(stepToShow(going, null), "b");
  // The page does not jump with each step that ends.
  assert.equal(stepToShow(going, "a"), "a");
  assert.equal(stepToShow(states({ a: "succeeded" }), null), "a");
  assert.equal(stepToShow([], null), null);
});

test("a step is retried when it and all after it have ended", () => {
  assert.deepEqual(stepsAfter(DIAMOND, "b"), ["d"]);
  const of = (values: Record<string, string>, more: object = {}) => [...retryable(run(values, more))].sort().join("");
  assert.equal(of({ a: "succeeded", b: "failed", c: "cancelled", d: "not_run" }), "abc");
  assert.equal(of({ a: "succeeded", b: "succeeded", c: "running", d: "waiting" }), "b");
  assert.equal(of({ a: "succeeded", b: "succeeded", c: "succeeded", d: "queued" }), "");
  assert.equal(of({ a: "running" }), "");
  assert.equal(of({ a: "failed" }, { outer: { id: "x", step: "y", index: null, tick: null } }), "");
  assert.equal(retryable({ outer: null, graph: null, steps: [] }).size, 0);
  assert.equal(retryText(run({}), "d"), "The step runs again.");
  assert.equal(retryText(run({}), "a"), "The step runs again, and then 3 steps after it: b, c, d.");
});

test("a flow is resumed when it has begun and failed, unless it is a step", () => {
  const steps = states({ a: "failed" }) as never[];
  assert.equal(canResume({ state: "failed", outer: null, steps }), true);
  assert.equal(canResume({ state: "running", outer: null, steps }), false);
  assert.equal(canResume({ state: "failed", outer: null, steps: [] }), false);
  assert.equal(canResume({ state: "cancelled", outer: { id: "x", step: "y", index: null, tick: null }, steps }), false);
});

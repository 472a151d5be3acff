// Steps of a flow in words, and what can be done with them. Pure.

import type { FlowRun, FlowStepInfo, FlowStepRun } from "../../api/schema";
import type { Tone } from "../../parts/state";
import { counted, countText, durationText } from "../../time/format";

const LABELS: Record<string, string> = { not_run: "not run", not_needed: "not needed" };

export function stateLabel(state: string): string {
  return LABELS[state] ?? state;
}

const TONES: Record<string, Tone> = { succeeded: "good", failed: "bad", running: "busy", queued: "wait", waiting: "wait" };

export function stepTone(state: string): Tone {
  return TONES[state] ?? "off";
}

type Elements = Pick<FlowStepRun, "elements" | "elements_open" | "elements_failed" | "elements_cancelled">;

/** Return how far a map is, in few words: "7/10, 1 failed"; null if it is not a map, or has not begun. */
export function elementsBrief({ elements, elements_open, elements_failed }: Elements): string | null {
  if (elements === null) return null;
  const ended = `${countText(elements - elements_open)}/${countText(elements)}`;
  return elements_failed > 0 ? `${ended}, ${countText(elements_failed)} failed` : ended;
}

/** Return how far a map is: "7 of 10 ended, 1 failed"; null if it is not a map, or has not begun. */
export function elementsText({ elements, elements_open, elements_failed, elements_cancelled }: Elements): string | null {
  if (elements === null) return null;
  const parts = [`${countText(elements - elements_open)} of ${countText(elements)} ended`];
  if (elements_failed > 0) parts.push(`${countText(elements_failed)} failed`);
  if (elements_cancelled > 0) parts.push(`${countText(elements_cancelled)} cancelled`);
  return parts.join(", ");
}

/** Return how long a step took, or has been running for, in words; an empty text if it has not begun. */
export function tookText({ state, started_at, duration }: Pick<FlowStepRun, "state" | "started_at" | "duration">, now: number): string {
  if (duration !== null) return durationText(duration);
  if (state !== "running" || started_at === null) return "";
  return durationText(Math.max(0, Math.floor((now - Date.parse(started_at)) / 1_000)));
}

const WHEN: Record<FlowStepInfo["run_if"], string> = {
  all_succeeded: "all steps before it succeeded",
  any_failed: "a step before it failed",
  always: "the steps before it ended, however they did",
};

export function conditionText({ after, run_if }: Pick<FlowStepInfo, "after" | "run_if">): string {
  return after.length === 0 ? "the flow starts" : WHEN[run_if];
}

/** Return how many steps are in which state: "3 succeeded, 1 failed, 2 not run". */
export function countsText(steps: Pick<FlowStepRun, "state">[]): string {
  const counts = new Map<string, number>();
  for (const { state } of steps) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${countText(count)} ${stateLabel(state)}`).join(", ");
}

/** The states of a step that has not ended. */
const OPEN = new Set(["queued", "running"]);

type Graph = Pick<FlowStepInfo, "name" | "after">[];

/** Return the steps that come after a step, directly or not; the steps are each after those that they wait for. */
export function stepsAfter(graph: Graph, name: string): string[] {
  const found = new Set([name]);
  for (const step of graph) {
    if (step.after.some((each) => found.has(each))) found.add(step.name);
  }
  found.delete(name);
  return [...found];
}

type Shown = Pick<FlowRun, "outer"> & { graph: { steps: Graph } | null; steps: Pick<FlowStepRun, "name" | "state">[] };

/** The states of a step that has not run, or has not ended. */
const NOT_RETRIED = new Set(["waiting", "queued", "running", "not_run"]);

/** Return the steps that can be run again now: they have run, and neither they nor any step after them is open. */
export function retryable({ outer, graph, steps }: Shown): Set<string> {
  // The flow around it has to know.
  if (outer !== null) return new Set();
  const states = new Map(steps.map(({ name, state }) => [name, state]));
  const blocked = new Set<string>();
  const found = new Set<string>();
  for (const { name, after } of [...(graph?.steps ?? [])].reverse()) {
    const state = states.get(name) ?? "waiting";
    if (!NOT_RETRIED.has(state) && !blocked.has(name)) found.add(name);
    if (OPEN.has(state) || blocked.has(name)) for (const each of after) blocked.add(each);
  }
  return found;
}

/** Return whether a flow can be resumed: it has begun, and failed or was cancelled. */
export function canResume(run: Pick<FlowRun, "state" | "outer" | "steps">): boolean {
  return run.outer === null && run.steps.length > 0 && (run.state === "failed" || run.state === "cancelled");
}

/**
 * Return the step to show while the reader has chosen none: one that failed, else the one that was shown before, else
 * one that runs, else the first. So the page does not jump with each step that ends.
 */
export function stepToShow(steps: Pick<FlowStepRun, "name" | "state">[], before: string | null): string | null {
  const of = (state: string): string | undefined => steps.find((step) => step.state === state)?.name;
  return of("failed") ?? before ?? of("running") ?? of("queued") ?? steps[0]?.name ?? null;
}

/** Return what a retry of a step would run: the step, and how many after it. */
export function retryText(run: Shown, name: string): string {
  const after = stepsAfter(run.graph?.steps ?? [], name);
  return after.length === 0 ? "The step runs again." : `The step runs again, and then ${counted(after.length, "step")} after it: ${listed(after)}.`;
}

const LISTED = 5;

function listed(names: string[]): string {
  const rest = names.length - LISTED;
  return rest <= 0 ? names.join(", ") : `${names.slice(0, LISTED).join(", ")} and ${countText(rest)} more`;
}

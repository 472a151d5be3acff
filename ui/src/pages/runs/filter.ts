// The filter of a list of runs, as the address has it.

import type { Operations } from "../../api/schema";

type Asked = Operations["GET /runs"]["query"];

export type RunState = NonNullable<Asked["state"]>;

export const STATES: RunState[] = ["queued", "retrying", "running", "succeeded", "failed", "cancelled"];

export interface RunFilter {
  state?: RunState;
  schedule?: string;
  task?: string;
  queue?: string;
  worker?: string;
  since?: string;
  until?: string;
}

const TEXTS = ["schedule", "task", "queue", "worker", "since", "until"] as const;

export function filterOf(query: URLSearchParams): RunFilter {
  const filter: RunFilter = {};
  const state = STATES.find((each) => each === query.get("state"));
  if (state !== undefined) filter.state = state;
  for (const name of TEXTS) {
    const value = query.get(name);
    if (value) filter[name] = value;
  }
  return filter;
}

export function isFiltered(filter: RunFilter): boolean {
  return Object.keys(filter).length > 0;
}

/** The filter in words: "failed runs of schedule mail, queue default". */
export function filterWords(filter: RunFilter, state: RunState | undefined = filter.state): string {
  const parts = (["schedule", "task", "queue", "worker"] as const).filter((name) => filter[name]).map((name) => `${name} ${filter[name]}`);
  if (filter.since) parts.push(isSpan(filter.since) ? `the last ${filter.since}` : `since ${filter.since}`);
  if (filter.until) parts.push(isSpan(filter.until) ? `until ${filter.until} ago` : `until ${filter.until}`);
  return `${state ? `${state} ` : ""}runs${parts.length > 0 ? ` of ${parts.join(", ")}` : ""}`;
}

/** Whether a text is a duration, like 2h, in contrast to a date. */
export function isSpan(text: string): boolean {
  return /^\d+(\.\d+)?\s*[a-z]/i.test(text);
}

/** Whether the action concerns runs in this state; undefined stands for all. */
export function bulkActions(state: RunState | undefined): ("retry" | "cancel")[] {
  if (state === undefined) return ["retry", "cancel"];
  if (state === "failed" || state === "cancelled") return ["retry"];
  return state === "succeeded" ? [] : ["cancel"];
}

// Bulk changes in batches: which schedules go together, and what became of each. Pure.

import type { BulkSchedules, BulkSchedulesResult, Schedule } from "../../api/schema";
import { type Key, keyOf } from "./rows";

export type BulkAction = BulkSchedules["action"];

export interface Batch {
  tenant: string;
  names: string[];
}

/** So many schedules are changed by one request: few enough for progress to be seen. */
export const BATCH = 100;
/** So many are changed at most by one action. */
export const MOST = 10_000;
/** The server takes so many names at once. */
export const MOST_NAMES = 1_000;

/** Return batches of at most `size` schedules, each of one tenant. */
export function batchesOf(keys: Key[], size: number = BATCH): Batch[] {
  const byTenant = new Map<string, string[]>();
  for (const { tenant, name } of keys) {
    const names = byTenant.get(tenant);
    if (names === undefined) byTenant.set(tenant, [name]);
    else names.push(name);
  }
  const made: Batch[] = [];
  for (const [tenant, names] of byTenant) {
    for (let start = 0; start < names.length; start += size) made.push({ tenant, names: names.slice(start, start + size) });
  }
  return made;
}

export interface Outcome extends Key {
  /** `left`: it was not in a state to which the action applies. `unknown`: no answer came. */
  kind: "done" | "refused" | "left" | "unknown" | "stopped";
  why: string | null;
}

/** The states of schedules that an action applies to, unless the filter names a state. */
export const STATES_OF: Record<BulkAction, readonly Schedule["state"][]> = {
  pause: ["active"],
  resume: ["paused"],
  run: ["active"],
  update: ["active", "paused", "finished"],
  delete: ["active", "paused", "finished"],
};

const LEFT: Record<BulkAction, string> = {
  pause: "it is not active",
  resume: "it is not paused",
  run: "it is not active",
  update: "it does not exist any more",
  delete: "it does not exist any more",
};

/** Return what became of each schedule of a batch. */
export function outcomesOf(action: BulkAction, batch: Batch, answer: Pick<BulkSchedulesResult, "changed" | "refused">): Outcome[] {
  const changed = new Set(answer.changed.map(({ id }) => id));
  const refused = new Map(answer.refused.map(({ id, why }) => [id, why]));
  return batch.names.map((name) => {
    const key = { tenant: batch.tenant, name };
    const why = refused.get(name);
    if (why !== undefined) return { ...key, kind: "refused", why };
    return changed.has(name) ? { ...key, kind: "done", why: null } : { ...key, kind: "left", why: LEFT[action] };
  });
}

/** Return the outcomes of schedules for which the request failed, or was not sent. */
export function outcomesWithout(batch: Batch, kind: "unknown" | "stopped", why: string): Outcome[] {
  return batch.names.map((name) => ({ tenant: batch.tenant, name, kind, why }));
}

export function countOf(outcomes: Outcome[], kind: Outcome["kind"]): number {
  return outcomes.filter((outcome) => outcome.kind === kind).length;
}

/** Return what was not done first, then what was done; each in the order of the work. */
export function worstFirst(outcomes: Outcome[]): Outcome[] {
  const order: Outcome["kind"][] = ["refused", "unknown", "stopped", "left", "done"];
  return order.flatMap((kind) => outcomes.filter((outcome) => outcome.kind === kind));
}

/** Return the keys of these schedules without repetition. */
export function distinct(keys: Key[]): Key[] {
  return [...new Map(keys.map((key) => [keyOf(key), key])).values()];
}

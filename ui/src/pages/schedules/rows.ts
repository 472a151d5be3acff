// The rows of the list while it is refreshed: no row moves under the pointer. Pure.

import type { Schedule } from "../../api/schema";

export interface Key {
  tenant: string;
  name: string;
}

export function keyOf({ tenant, name }: Key): string {
  return `${tenant}/${name}`;
}

export interface ShownRows {
  rows: Schedule[];
  /** Keys of shown rows that the newest answer does not have: deleted, or no longer a match. */
  gone: Set<string>;
  /** How many rows of the newest answer are not shown, or are shown in another place. */
  moved: number;
}

/** Return the rows to show after a refresh: those that are shown stay in their places, with new values. */
export function refreshed(shown: Schedule[], fresh: Schedule[]): ShownRows {
  const found = new Map(fresh.map((row) => [keyOf(row), row]));
  if (shown.every((row, index) => index < fresh.length && keyOf(row) === keyOf(fresh[index] as Schedule))) {
    // New rows at the end move none of the others.
    return { rows: fresh, gone: new Set(), moved: 0 };
  }
  const rows = shown.map((row) => found.get(keyOf(row)) ?? row);
  const gone = new Set(shown.map(keyOf).filter((key) => !found.has(key)));
  const known = new Set(shown.map(keyOf));
  const added = fresh.filter((row) => !known.has(keyOf(row))).length;
  return { rows, gone, moved: Math.max(added, gone.size, 1) };
}

/** How long after its time a schedule counts as late, as in the filter of the API. */
const LATE = 30_000;

export function isLate(row: Pick<Schedule, "state" | "is_waiting" | "catch_up_at" | "next_run">, now: number): boolean {
  return row.state === "active" && !row.is_waiting && row.catch_up_at === null && row.next_run !== null && Date.parse(row.next_run) < now - LATE;
}

export interface LastRun {
  id: string | null;
  state: string;
  at: string;
}

/** Return the last run of a schedule; null if it has none. */
export function lastRun({ recent, stats }: Pick<Schedule, "recent" | "stats">): LastRun | null {
  const newest = recent?.at(-1);
  if (newest !== undefined) return { id: newest.id, state: newest.state, at: newest.scheduled_at };
  if (stats.last_run === null) return null;
  const failed = stats.last_failure !== null && (stats.last_success === null || stats.last_success < stats.last_failure);
  return { id: null, state: failed ? "failed" : "succeeded", at: stats.last_run };
}

/** Return how many match, in words: "1,250 match", "more than 1,000 match". */
export function matchText(matched: number, more: boolean): string {
  const count = matched.toLocaleString("en-US");
  return more ? `more than ${count} match` : `${count} ${matched === 1 ? "matches" : "match"}`;
}

// The filters of the list, as they are in the URL. Pure.

import type { BulkScheduleFilter } from "../../api/schema";
import type { Query } from "../../state/route";

/** What a list can be filtered by. */
export type ScheduleFilter = Omit<BulkScheduleFilter, "names">;

export const STATES = ["active", "paused", "finished"] as const;
export const SORTS = ["name", "-name", "task", "updated_at", "-updated_at"] as const;
export type Sort = (typeof SORTS)[number];

/** The longest text that the search takes. */
export const LONGEST_TEXT = 200;

const TEXTS = ["text", "name", "task", "tag", "queue", "template"] as const;
const FLAGS = ["failing", "late"] as const;

/** Return the filters that the URL names. Values that no filter has are left out. */
export function filtersOf(query: URLSearchParams): ScheduleFilter {
  const found: ScheduleFilter = {};
  for (const name of TEXTS) {
    const value = query.get(name)?.trim();
    if (value) found[name] = value.slice(0, LONGEST_TEXT);
  }
  for (const name of FLAGS) {
    if (query.get(name) === "true") found[name] = true;
  }
  const state = oneOf(query.get("state"), STATES);
  if (state !== undefined) found.state = state;
  const managedBy = oneOf(query.get("managed_by"), ["code", "file", "api"] as const);
  if (managedBy !== undefined) found.managed_by = managedBy;
  return found;
}

export function sortOf(query: URLSearchParams): Sort {
  return oneOf(query.get("sort"), SORTS) ?? "name";
}

function oneOf<T extends string>(value: string | null, known: readonly T[]): T | undefined {
  return known.find((each) => each === value);
}

export function isFiltered(filters: ScheduleFilter): boolean {
  return Object.keys(filters).length > 0;
}

/** What to pass to `setQuery` to have no filter. */
export const NO_FILTERS: Query = { text: null, name: null, template: null, state: null, task: null, tag: null, queue: null, managed_by: null, failing: null, late: null, cursor: null };

// A list of runs that is kept fresh while somebody reads it. Pure.
//
// Rows that are shown keep their place: their values change, and none is inserted or removed. New runs are held
// back and counted, until the reader asks for them.

import { counted } from "../../time/format";

export interface Row {
  tenant: string;
  id: string;
  created_at: string;
}

export interface RowPage<R> {
  items: R[];
  cursor: string | null;
}

export interface LiveRows<R> {
  /** What the table shows, the newest first. */
  rows: R[];
  /** Continues after the last row; null at the end. */
  cursor: string | null;
  /** Runs of the newest page that are not shown. */
  fresh: R[];
  /** The newest page has none of the rows: between it and the rows there may be more runs. */
  hasGap: boolean;
  newest: RowPage<R>;
}

export function rowKey(row: Pick<Row, "tenant" | "id">): string {
  return `${row.tenant} ${row.id}`;
}

/** Order rows as the server does: the newest first, and those of one millisecond by their ids. */
export function compareRows(one: Row, other: Row): number {
  const difference = Date.parse(other.created_at) - Date.parse(one.created_at);
  if (difference !== 0) return difference;
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

export function firstRows<R extends Row>(page: RowPage<R>): LiveRows<R> {
  return { rows: page.items, cursor: page.cursor, fresh: [], hasGap: false, newest: page };
}

/** Take the newest page, and rows that were read one by one, into a list. */
export function refreshed<R extends Row>(list: LiveRows<R>, page: RowPage<R>, single: R[] = []): LiveRows<R> {
  // There is nothing that could jump.
  if (list.rows.length === 0) return firstRows(page);
  const read = new Map([...single, ...page.items].map((row) => [rowKey(row), row]));
  const shown = new Set(list.rows.map(rowKey));
  const last = list.rows[list.rows.length - 1] as R;
  // A run that is older than the last row is on the next page, and not new.
  const isNew = (row: R): boolean => !shown.has(rowKey(row)) && (list.cursor === null || compareRows(row, last) < 0);
  return {
    rows: list.rows.map((row) => read.get(rowKey(row)) ?? row),
    cursor: list.cursor,
    fresh: page.items.filter(isNew),
    hasGap: page.cursor !== null && !page.items.some((row) => shown.has(rowKey(row))),
    newest: page,
  };
}

/** Show the runs that were held back. Rows that match no longer go. */
export function withFresh<R extends Row>(list: LiveRows<R>): LiveRows<R> {
  const { newest, rows } = list;
  const end = newest.items[newest.items.length - 1];
  // Across a gap the rows would not be complete: the list starts again.
  if (list.hasGap || newest.cursor === null || end === undefined) return firstRows(newest);
  const older = rows.filter((row) => compareRows(row, end) > 0);
  // Without older rows, the end of the list is that of the newest page.
  const cursor = older.length > 0 ? list.cursor : newest.cursor;
  return { rows: [...newest.items, ...older], cursor, fresh: [], hasGap: false, newest };
}

/** Append the next page. */
export function withOlder<R extends Row>(list: LiveRows<R>, page: RowPage<R>): LiveRows<R> {
  const shown = new Set(list.rows.map(rowKey));
  return { ...list, rows: [...list.rows, ...page.items.filter((row) => !shown.has(rowKey(row)))], cursor: page.cursor };
}

/** Say how many rows of the list are shown: "The newest 50 runs", or "All 12 runs" if there are no others. */
export function shownText(count: number, hasMore: boolean): string {
  if (hasMore) return `The newest ${counted(count, "run")}`;
  return count === 1 ? "1 run" : `All ${counted(count, "run")}, the newest first`;
}

/** Return the words on the button: "12 new", "50 or more new". */
export function freshText(list: LiveRows<Row>): string {
  return list.hasGap ? `${list.fresh.length} or more new` : `${list.fresh.length} new`;
}

/** Keep the order of groups that are shown; those that are gone stay, with a count of 0; new ones are apart. */
export function stableGroups<G extends { id: string; count: number }>(shown: G[], read: G[]): { groups: G[]; fresh: G[] } {
  if (shown.length === 0) return { groups: read, fresh: [] };
  const found = new Map(read.map((group) => [group.id, group]));
  const known = new Set(shown.map(({ id }) => id));
  return {
    groups: shown.map((group) => found.get(group.id) ?? { ...group, count: 0 }),
    fresh: read.filter(({ id }) => !known.has(id)),
  };
}

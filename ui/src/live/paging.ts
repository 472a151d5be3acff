// A list that is read page by page, the newest first. Rows that are shown keep their place: new ones are counted
// until the reader asks for them.

import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../api/client";
import { useAction } from "./action";
import { type Data, useData } from "./data";

export interface ListPage<T> {
  items: T[];
  cursor: string | null;
}

export interface PagedList<T> {
  data: Data<ListPage<T>>;
  /** null until the first page is there. */
  rows: T[] | null;
  /** How many rows of the newest page are not shown. */
  added: number;
  /** Whether there may be older rows. A page may have none of them and a cursor nevertheless. */
  hasMore: boolean;
  showNew: () => void;
  loadMore: () => void;
  isLoadingMore: boolean;
  moreError: Problem | null;
}

interface Held<T> extends ListPage<T> {
  key: string;
}

/** Load a list page by page, and its newest page again every `every` milliseconds. `key` names the list. */
export function usePages<T extends { id: string }>(
  key: string,
  load: (cursor: string | undefined, signal?: AbortSignal) => Promise<ListPage<T>>,
  every: number,
): PagedList<T> {
  const data = useData(key, (signal) => load(undefined, signal), { every });
  const [kept, setKept] = useState<Held<T> | null>(null);
  const held = kept !== null && kept.key === key ? kept : null;
  const newest = data.value;
  useEffect(() => {
    if (newest === undefined) return;
    setKept((old) => (old === null || old.key !== key ? { key, ...newest } : { key, ...refreshedPage(old, newest) }));
  }, [newest, key]);
  const more = useAction(async () => {
    if (held === null || held.cursor === null) return;
    const page = await load(held.cursor);
    setKept((old) => (old === null || old.key !== key ? old : { key, items: [...old.items, ...unknown(old.items, page.items)], cursor: page.cursor }));
  });
  return {
    data,
    rows: held?.items ?? null,
    added: held === null || newest === undefined ? 0 : unknown(held.items, newest.items).length,
    hasMore: held !== null && held.cursor !== null,
    showNew: () => newest && setKept({ key, ...newest }),
    loadMore: () => void more.run(),
    isLoadingMore: more.isBusy,
    moreError: more.error,
  };
}

/** Return the pages that were read, with the values of the newest page. */
export function refreshedPage<T extends { id: string }>(shown: ListPage<T>, newest: ListPage<T>): ListPage<T> {
  // No row could jump. Without rows, the cursor says how far a search has come.
  if (shown.items.length === 0) return newest.items.length > 0 ? newest : shown;
  return { items: updated(shown.items, newest.items), cursor: shown.cursor };
}

/** Return the rows with the values that were read last; no row moves. */
export function updated<T extends { id: string }>(rows: T[], read: T[]): T[] {
  const found = new Map(read.map((row) => [row.id, row]));
  return rows.map((row) => found.get(row.id) ?? row);
}

/** Return those of `read` that are not among the rows. */
export function unknown<T extends { id: string }>(rows: T[], read: T[]): T[] {
  const shown = new Set(rows.map(({ id }) => id));
  return read.filter(({ id }) => !shown.has(id));
}

// The list of runs, kept fresh without moving rows.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import type { Run } from "../../api/schema";
import { useAction } from "../../live/action";
import { type Data, useData } from "../../live/data";
import { type Change, onChanges } from "../../live/stream";
import type { TenantScope } from "../../state/session";
import type { RunFilter } from "./filter";
import { firstRows, type LiveRows, refreshed, rowKey, type RowPage, withFresh, withOlder } from "./merge";

const PAGE = 50;
/** Rows below the newest page are read one by one: at most so many at a time. */
const MOST_SINGLE = 20;
/** Active rows are read again after this time, also if no change was heard. */
const FULL_EVERY = 15_000;

export interface RunList {
  data: Data<Reading>;
  list: LiveRows<Run> | null;
  showFresh: () => void;
  loadOlder: () => void;
  isLoadingOlder: boolean;
  olderError: Problem | null;
}

interface Reading {
  page: RowPage<Run>;
  single: Run[];
}

export function useRunList(scope: TenantScope, filter: RunFilter): RunList {
  const key = JSON.stringify([scope, filter]);
  const [held, setHeld] = useState<{ key: string; list: LiveRows<Run> } | null>(null);
  const list = held !== null && held.key === key ? held.list : null;
  const shown = useRef<Run[]>([]);
  shown.current = list?.rows ?? [];
  const touched = useRef(new Set<string>());
  const lastFull = useRef(0);

  const when = (change: Change): boolean =>
    change.subject === "run" && (filter.schedule === undefined || change.schedule === undefined || change.schedule === filter.schedule);
  useEffect(
    () =>
      onChanges((changes) => {
        // After a gap in the stream any row may have changed.
        if (changes === null || changes.some(({ kind }) => kind === "many")) lastFull.current = 0;
        for (const { subject, tenant, id } of changes ?? []) if (subject === "run") touched.current.add(`${tenant} ${id}`);
      }),
    [],
  );

  const load = async (signal: AbortSignal): Promise<Reading> => {
    const page = await call("GET /runs", { query: { ...scope, ...filter, brief: true, limit: PAGE }, signal });
    const read = new Set(page.items.map(rowKey));
    const isFull = Date.now() - lastFull.current > FULL_EVERY;
    if (isFull) lastFull.current = Date.now();
    const changed = touched.current;
    touched.current = new Set();
    const isStale = (run: Run): boolean =>
      !read.has(rowKey(run)) && (changed.has(rowKey(run)) || (isFull && (run.state === "queued" || run.state === "running")));
    const stale = shown.current.filter(isStale);
    // The others are read the next time.
    for (const run of stale.slice(MOST_SINGLE)) touched.current.add(rowKey(run));
    const single = await Promise.all(stale.slice(0, MOST_SINGLE).map((run) => readOne(run, signal)));
    return { page, single: single.filter((run) => run !== null) };
  };

  const data = useData(key, load, { when, every: FULL_EVERY });
  const { value } = data;
  useEffect(() => {
    if (value === undefined) return;
    setHeld((old) => {
      const made = old === null || old.key !== key ? firstRows(value.page) : refreshed(old.list, value.page, value.single);
      return { key, list: made };
    });
  }, [value, key]);

  const change = (by: (list: LiveRows<Run>) => LiveRows<Run>): void =>
    setHeld((old) => (old === null || old.key !== key ? old : { key, list: by(old.list) }));
  const older = useAction(async () => {
    const cursor = list?.cursor;
    if (!cursor) return;
    const page = await call("GET /runs", { query: { ...scope, ...filter, brief: true, limit: PAGE, cursor } });
    change((current) => withOlder(current, page));
  });
  return {
    data,
    list,
    showFresh: () => change(withFresh),
    loadOlder: () => void older.run(),
    isLoadingOlder: older.isBusy,
    olderError: older.error,
  };
}

/** Return a run; null if it was purged meanwhile. */
async function readOne(run: Run, signal: AbortSignal): Promise<Run | null> {
  try {
    return await call("GET /runs/{id}", { path: { id: run.id }, query: { tenant: run.tenant }, signal });
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

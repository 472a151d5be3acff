// Follows runs that were retried, until each has ended.

import { useRef, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import { useData } from "../../live/data";
import { toneOf } from "../../parts/state";
import type { Changed } from "./batches";
import { type Fate, fateOf, fateWords, isOver } from "./fates";
import { rowKey } from "./merge";

const EVERY = 1_500;
/** So many runs are read at a time, each by a request; the others the next time. */
const AT_ONCE = 20;
/** More runs than this are not followed. */
export const MOST_FOLLOWED = 200;

export type Fates = Map<string, Fate>;

/** Return what has become of the runs so far, and read again those that are not over. `since`: when they were retried. */
export function useFates(runs: Changed[], since: number): Fates {
  const [fates, setFates] = useState<Fates>(new Map());
  const turn = useRef(0);
  const open = runs.filter((run) => !isOver(fates.get(rowKey(run))));
  useData(
    `fates ${since}`,
    async (signal) => {
      const from = turn.current < open.length ? turn.current : 0;
      const some = open.slice(from, from + AT_ONCE);
      // Those that are over leave the list before the next turn.
      const read = await Promise.all(some.map(async (run) => [rowKey(run), await readFate(run, since, signal)] as const));
      turn.current = from + read.filter(([, fate]) => !isOver(fate)).length;
      setFates((old) => new Map([...old, ...read]));
    },
    {
      every: open.length > 0 ? EVERY : undefined,
      when: ({ subject, tenant, id }) => subject === "run" && open.some((run) => run.id === id && run.tenant === tenant),
    },
  );
  return fates;
}

async function readFate({ tenant, id }: Changed, since: number, signal: AbortSignal): Promise<Fate> {
  try {
    return fateOf(await call("GET /runs/{id}", { path: { id }, query: { tenant }, signal }), since);
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return "purged";
    throw error;
  }
}

/** What became of the runs, as a sentence that changes. */
export function FateLine({ runs, fates }: { runs: Changed[]; fates: Fates }) {
  const known = [...fates.values()];
  const tone = known.includes("failed") ? toneOf("failed") : known.every(isOver) && known.length === runs.length ? "good" : "busy";
  return (
    <p class={`fate ${tone}`} role="status">
      {fateWords(known, runs.length)}
    </p>
  );
}

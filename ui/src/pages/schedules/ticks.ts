// The difference between the ticks of two triggers. Pure.

export interface TickChange {
  at: number;
  kind: "kept" | "removed" | "added";
}

/** So many ticks of each trigger are shown. */
export const SHOWN = 10;
/** So many are compared: a tick beyond the shown ones of the other trigger may be one of its ticks all the same. */
export const COMPARED = 1_000;

/**
 * Return the next ticks of both triggers, the earliest first, and what an edit does to each. Both lists have up to
 * `COMPARED` ticks; a shorter list is complete. Ticks that are due already are left out: an edit does not touch them.
 */
export function tickChanges(before: string[], after: string[], since: number, shown: number = SHOWN): TickChange[] {
  const [old, fresh] = [before, after].map((ticks) => ticks.map((at) => Date.parse(at)).filter((at) => at > since)) as [number[], number[]];
  const [oldEnd, freshEnd] = [endOf(before, old), endOf(after, fresh)];
  const [inOld, inFresh] = [new Set(old), new Set(fresh)];
  const asked = [...new Set([...old.slice(0, shown), ...fresh.slice(0, shown)])].sort((one, other) => one - other);
  const changes: TickChange[] = [];
  for (const at of asked) {
    if (inOld.has(at) && inFresh.has(at)) changes.push({ at, kind: "kept" });
    else if (inOld.has(at) && at <= freshEnd) changes.push({ at, kind: "removed" });
    else if (inFresh.has(at) && at <= oldEnd) changes.push({ at, kind: "added" });
  }
  return changes;
}

/** Return until when a list has all ticks. */
function endOf(asked: string[], ticks: number[]): number {
  return asked.length < COMPARED ? Infinity : (ticks.at(-1) ?? 0);
}

// What became of runs after they were retried. Pure.

import type { Run } from "../../api/schema";
import { countText } from "../../time/format";
import { retriesByHand } from "../run/attempts";

export type Fate = "succeeded" | "failed" | "cancelled" | "running" | "queued" | "replaced" | "purged";

/** Return what became of a run. `since` is when it was retried: a run that ended before was left as it is, and a new one was added. */
export function fateOf(run: Pick<Run, "state" | "attempt" | "attempts" | "finished_at">, since: number): Fate {
  const isOld = run.finished_at !== null && (retriesByHand(run) === 0 || Date.parse(run.finished_at) < since);
  return isOld ? "replaced" : run.state;
}

export function isOver(fate: Fate | undefined): boolean {
  return fate !== undefined && fate !== "running" && fate !== "queued";
}

const WORDS: [Fate, string][] = [
  ["succeeded", "succeeded"],
  ["failed", "failed again"],
  ["cancelled", "cancelled"],
  ["replaced", "added as new runs, since their schedules limit active runs"],
  ["purged", "purged"],
  ["running", "running"],
];

/** Say what became of the runs: "3 retried: 2 succeeded, 1 failed again". Those that are not known yet wait. */
export function fateWords(fates: Fate[], total: number): string {
  const parts: string[] = [];
  let known = 0;
  for (const [fate, words] of WORDS) {
    const count = fates.filter((each) => each === fate).length;
    known += count;
    if (count > 0) parts.push(`${countText(count)} ${words}`);
  }
  const waiting = total - known;
  if (waiting > 0) parts.push(`${countText(waiting)} ${waiting === 1 ? "waits" : "wait"}`);
  return `${countText(total)} retried: ${parts.join(", ")}`;
}

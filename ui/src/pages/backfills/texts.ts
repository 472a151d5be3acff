// What the pages say about a backfill: its state, how far it is, and what a dry run found. Pure.

import type { Backfill, BackfillPlan, BackfillTick } from "../../api/schema";
import { counted, countText } from "../../time/format";
import { asSentence, reasonText } from "../schedule/sentences";

type Counts = Pick<Backfill, "total" | "succeeded" | "failed" | "cancelled" | "purged" | "active" | "left">;

/** Return how many runs of a backfill have ended. */
export function endedOf({ succeeded, failed, cancelled, purged }: Counts): number {
  return succeeded + failed + cancelled + purged;
}

/** Return how far a backfill is: "12 of 24 runs ended, 1 failed, 2 active". */
export function progressText(backfill: Counts): string {
  const { total, failed, active } = backfill;
  const parts = [`${countText(endedOf(backfill))} of ${counted(total, "run")} ended`];
  if (failed > 0) parts.push(`${countText(failed)} failed`);
  if (active > 0) parts.push(`${countText(active)} active`);
  return parts.join(", ");
}

/** Return whether nothing more happens to a backfill. */
export function isOver({ state }: Pick<Backfill, "state">): boolean {
  return state === "done" || state === "cancelled";
}

const BEFORE: Record<BackfillTick["state"], string> = {
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "was cancelled",
  queued: "is queued now",
  running: "runs now",
  skipped: "was skipped",
  none: "left no record",
  unknown: "is unknown: its history may be deleted",
};

/** Return what became of a tick before. */
export function beforeText({ state, reason }: Pick<BackfillTick, "state" | "reason">): string {
  return state === "skipped" && reason !== null ? asSentence(`skipped: ${reasonText(reason, 1)}`) : asSentence(BEFORE[state]);
}

const MANY: Record<BackfillTick["state"], string> = {
  succeeded: "succeeded",
  failed: "failed",
  cancelled: "cancelled",
  queued: "queued now",
  running: "running now",
  skipped: "skipped",
  none: "without a record",
  unknown: "of unknown fate",
};

/** Return what became of all ticks of a range: "20 succeeded, 3 skipped, 1 without a record". */
export function statesText({ states }: Pick<BackfillPlan, "states">): string {
  return Object.entries(states)
    .map(([state, count]) => `${countText(count)} ${MANY[state as BackfillTick["state"]] ?? state}`)
    .join(", ");
}

export interface BackfillForm {
  start: string;
  end: string;
  atOnce: string;
  order: Backfill["order"];
  missingOnly: boolean;
}

/** Return a number as it was written if it can't be read: the server says what is wrong with it. */
export function numberOf(text: string): number {
  const written = text.trim();
  return /^[+-]?\d+$/.test(written) ? Number(written) : (written as unknown as number);
}

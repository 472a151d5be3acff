// Whether a queue drains. Pure.

import type { QueueStats } from "../../api/schema";
import type { Tone } from "../../parts/state";
import { counted, spanText, toMs } from "../../time/format";

export interface Trend {
  /** An arrow and a word: "↑ grows". */
  label: string;
  tone: Tone;
  /** The numbers behind it. */
  reason: string;
}

const TRENDS: Record<string, [label: string, tone: Tone]> = {
  grows: ["↑ grows", "warn"],
  drains: ["↓ drains", "good"],
  steady: ["→ steady", "good"],
  "stands still": ["■ stands still", "bad"],
  empty: ["nothing waits", "off"],
};

export const PERIOD = 300;

/** A run that waits for longer than this is news; sooner, if no node takes from the queue. In milliseconds. */
const LONG_WAIT = 3_600_000;
const LONG_WITHOUT_NODE = 300_000;

export function trendOf(queue: Pick<QueueStats, "trend" | "came_due" | "ended" | "oldest_due" | "nodes">, now: number): Trend {
  const { trend, came_due, ended } = queue;
  const [label, tone] = TRENDS[trend] ?? [trend, "off"];
  const reason = `in 5 minutes ${counted(came_due, "run")} came due and ${ended} ended`;
  const wait = longWait(queue, now);
  if (wait === null) return { label, tone, reason };
  return { label: `${label}, oldest waits ${spanText(wait)}`, tone: tone === "bad" ? "bad" : "warn", reason };
}

/** Return for how long the oldest due run has waited, if that is too long; null otherwise. */
function longWait({ oldest_due, nodes }: Pick<QueueStats, "oldest_due" | "nodes">, now: number): number | null {
  if (oldest_due === null) return null;
  const wait = now - toMs(oldest_due);
  return wait > (nodes.length === 0 ? LONG_WITHOUT_NODE : LONG_WAIT) ? wait : null;
}

/** Order queues: first those that nobody takes from. The others stay where they are, whatever waits in them. */
export function byNeed(one: QueueStats, other: QueueStats): number {
  const hasNodes = (queue: QueueStats): number => (queue.nodes.length === 0 ? 0 : 1);
  return hasNodes(one) - hasNodes(other) || (one.name < other.name ? -1 : 1);
}

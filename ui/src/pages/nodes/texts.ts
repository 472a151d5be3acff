// What a node is and does, in words. Pure.

import type { Finding, NodeView } from "../../api/schema";
import type { Query } from "../../state/route";
import { toMs } from "../../time/format";

/** Nodes write that they are alive every 20 seconds; one that missed two of these is silent. */
const SILENT = 45_000;

export function isSilent(node: Pick<NodeView, "seen_at">, now: number): boolean {
  return node.seen_at === null || now - toMs(node.seen_at) > SILENT;
}

/** Return how many slots are in use, and how many each executor has: "2 of 105: thread 4, async 100, process 1". */
export function slotsText({ worker, running, slots }: Pick<NodeView, "worker" | "running" | "slots">): string {
  if (!worker) return "starts no runs";
  const total = Object.values(slots).reduce((sum, count) => sum + count, 0);
  const each = Object.entries(slots).map(([executor, count]) => `${executor} ${count}`);
  return `${running ?? "?"} of ${total}${each.length > 0 ? `: ${each.join(", ")}` : ""}`;
}

/** Return the tasks by name, with the executor of each. */
export function tasksOf(node: Pick<NodeView, "tasks">): [task: string, executor: string][] {
  return Object.entries(node.tasks).sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
}

export interface FindingLink {
  words: string;
  path: string[];
  query: Query;
}

/** Return the pages that show what a check of the store has found. The check is about all tenants, and so are they. */
export function linksOf({ check, level, facts }: Pick<Finding, "check" | "level" | "facts">): FindingLink[] {
  if (level === "ok") return [];
  if (check === "alerts") {
    const has = (name: string): boolean => Array.isArray(facts[name]) && facts[name].length > 0;
    return [
      ...(has("unsent") ? [link("Show the delivery log", "alerts", { tab: "log" })] : []),
      ...(has("open") ? [link("Show the open incidents", "alerts")] : []),
    ];
  }
  if (check === "queue") return [link("Show the queued runs", "runs", { state: "queued" }), link("Show the queues", "queues")];
  if (check === "leases") return [link("Show the running runs", "runs", { state: "running" })];
  return check === "schedules" ? [link("Show the schedules", "schedules")] : [];
}

function link(words: string, page: string, query: Query = {}): FindingLink {
  return { words, path: [page], query: { ...query, tenant: null } };
}

/** Return where on this page the findings of a check are; null if they are elsewhere. */
export function placeOf({ check, level }: Pick<Finding, "check" | "level">): string | null {
  return level !== "ok" && (check === "quarantine" || check === "deferred") ? "Each is above, under “Quarantine”, with what to do." : null;
}

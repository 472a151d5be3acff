// Tenants, quotas and purges in words. Pure.

import type { Quota, TenantPurge, TenantView, WantedQuota } from "../../api/schema";
import { counted, countText } from "../../time/format";

/** The tenant that a purge deletes only if it is asked to. */
export const DEFAULT = "default";

/** Return what a quota allows: "10 schedules, 1,000 queued runs". */
export function quotaText(quota: Quota | null): string {
  if (quota === null) return "none";
  const parts = [];
  if (quota.schedules !== null) parts.push(counted(quota.schedules, "schedule"));
  if (quota.queued_runs !== null) parts.push(counted(quota.queued_runs, "queued run"));
  return `at most ${parts.join(", ")}`;
}

export interface Use {
  what: "schedules" | "queued runs";
  used: number;
  most: number;
}

/** Return how much of its quota a tenant uses. */
export function usesOf({ quota, schedules, due, later }: Pick<TenantView, "quota" | "schedules" | "due" | "later">): Use[] {
  const uses: Use[] = [];
  if (quota !== null && quota.schedules !== null) uses.push({ what: "schedules", used: schedules, most: quota.schedules });
  if (quota !== null && quota.queued_runs !== null) uses.push({ what: "queued runs", used: due + later, most: quota.queued_runs });
  return uses;
}

export function useText({ what, used, most }: Use): string {
  return `${countText(used)} of ${countText(most)} ${what}`;
}

export const isFull = ({ used, most }: Use): boolean => used >= most;

/** Return the quota to send. What is not a number is sent as it was written: the server says what is wrong with it. */
export function wantedQuota(schedules: string, queued: string): WantedQuota {
  return { schedules: numberOf(schedules), queued_runs: numberOf(queued) };
}

function numberOf(written: string): number | null {
  const text = written.trim();
  if (text === "") return null;
  return /^[+-]?\d+$/.test(text) ? Number(text) : (text as unknown as number);
}

export type Counts = Pick<TenantPurge, "schedules" | "cancelled" | "stopping" | "runs" | "records" | "tokens">;

export const NOTHING: Counts = { schedules: 0, cancelled: 0, stopping: 0, runs: 0, records: 0, tokens: 0 };

/** Add what a request of a purge deleted to what those before it did. `stopping` is of the last one. */
export function added(before: Counts, now: Counts): Counts {
  return {
    schedules: before.schedules + now.schedules,
    cancelled: before.cancelled + now.cancelled,
    stopping: now.stopping,
    runs: before.runs + now.runs,
    records: before.records + now.records,
    tokens: before.tokens + now.tokens,
  };
}

/** Return what a purge deletes, or has deleted, as a list: only what there is. */
export function countLines(counts: Counts): string[] {
  const { schedules, cancelled, stopping, runs, records, tokens } = counts;
  const queued = cancelled > 0 && cancelled < runs ? ` (${countText(cancelled)} of them queued)` : "";
  return [
    ...(schedules > 0 ? [counted(schedules, "schedule")] : []),
    ...(runs > 0 ? [`${counted(runs, cancelled === runs ? "queued run" : "run")}${queued}`] : []),
    ...(stopping > 0 ? [`${counted(stopping, "running run")}, asked to stop first`] : []),
    ...(records > 0 ? [counted(records, "other row")] : []),
    ...(tokens > 0 ? [counted(tokens, "token")] : []),
  ];
}

/** Return how many rows that is: the measure of progress. */
export function rowCount({ schedules, stopping, runs, records, tokens }: Counts): number {
  return schedules + stopping + runs + records + tokens;
}

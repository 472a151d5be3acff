// Retention rules, quarantined rows and repairs in words. Pure.

import type { RepairFinding, RetentionRule, WantedRetention } from "../../api/schema";
import { durationText } from "../../time/format";

export type EndedState = NonNullable<RetentionRule["state"]>;

export const STATES: [string, string][] = [
  ["", "every state"],
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
];

export interface RuleForm {
  tenant: string;
  state: string;
  keep: string;
  most: string;
}

export const FIRST: RuleForm = { tenant: "", state: "", keep: "", most: "" };

/** Return a rule as the form shows it. */
export function formOf({ tenant, state, keep, most }: Pick<RetentionRule, "tenant" | "state" | "keep" | "most">): RuleForm {
  return { tenant: tenant ?? "", state: state ?? "", keep: keep === null ? "" : spanOf(keep), most: most === null ? "" : String(most) };
}

const UNITS: [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** Write seconds as a duration that the server reads: "7d", "36h", "90s". */
export function spanOf(seconds: number): string {
  const found = UNITS.find(([, size]) => seconds % size === 0);
  return found === undefined ? `${seconds}s` : `${seconds / found[1]}${found[0]}`;
}

export function isComplete({ keep, most }: RuleForm): boolean {
  return keep.trim() !== "" || most.trim() !== "";
}

/** Return what to send. A number that can't be read is sent as it was written: the server says what is wrong with it. */
export function wantedOf(form: RuleForm): WantedRetention {
  const wanted: WantedRetention = { ...idOf(form) };
  const keep = form.keep.trim();
  const most = form.most.trim();
  if (keep !== "") wanted.keep = keep;
  if (most !== "") wanted.most = /^[+-]?\d+$/.test(most) ? Number(most) : (most as unknown as number);
  return wanted;
}

/** Return what names a rule: its tenant and its state, where it has them. */
export function idOf({ tenant, state }: { tenant: string | null; state: string | null }): { tenant?: string; state?: EndedState } {
  const id: { tenant?: string; state?: EndedState } = {};
  if (tenant?.trim()) id.tenant = tenant.trim();
  if (state) id.state = state as EndedState;
  return id;
}

/** Return which runs a rule is about: "failed runs of acme". */
export function coverText({ tenant, state }: Pick<RetentionRule, "tenant" | "state">): string {
  return `${state ?? "ended"} runs of ${tenant ?? "all tenants"}`;
}

export function keepText(keep: number | null): string {
  return keep === null ? "–" : durationText(keep);
}

export const KINDS: Record<RepairFinding["kind"], string> = {
  duplicate: "settled twice",
  asleep: "no wake-up",
  lost: "no live worker",
  unlisted: "not told",
  uncancelled: "not stopped",
  leftover: "leftover",
  index: "index",
};

export const OUTCOMES: Record<RepairFinding["outcome"], string> = {
  found: "found",
  mended: "mended",
  changed: "left alone: somebody changed it meanwhile",
  left: "left: a person has to decide",
};

/** Return a value of a row as text. */
export function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return whether a repair would change something. */
export function isMendable({ mending }: Pick<RepairFinding, "mending">): boolean {
  return mending !== null;
}

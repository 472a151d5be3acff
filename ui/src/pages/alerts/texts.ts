// Alerts in words, and the parts of their forms. Pure.

import type { AlertChannel, AlertRule, Delivery, Incident } from "../../api/schema";
import type { Tone } from "../../parts/state";
import type { TenantScope } from "../../state/session";

export interface ConditionKind {
  kind: string;
  /** What it is, for the choice. */
  label: string;
  /** What the text after the colon is; undefined if there is none. */
  value?: { label: string; initial: string };
  /** Only a rule of all tenants may have it. */
  isShared?: boolean;
}

export const CONDITIONS: ConditionKind[] = [
  { kind: "failed", label: "a run failed for good" },
  { kind: "failing", label: "runs fail in a row", value: { label: "How many", initial: "3" } },
  { kind: "late", label: "a tick is late", value: { label: "By how much", initial: "5m" } },
  { kind: "missed", label: "a tick was skipped" },
  { kind: "stuck", label: "an attempt runs too long", value: { label: "For how long", initial: "1h" } },
  { kind: "no_node", label: "no node takes a due run", value: { label: "For how long", initial: "1m" } },
  { kind: "runs", label: "each run that ended, for monitors" },
  { kind: "queue", label: "a queue is long and does not drain", value: { label: "How many runs", initial: "1000" }, isShared: true },
  { kind: "node_lost", label: "a node was lost", isShared: true },
  { kind: "store_unsafe", label: "the store is unsafe", isShared: true },
];

/** A condition as a form has it: "failing:3" in two parts. */
export interface Condition {
  kind: string;
  value: string;
}

export function readCondition(text: string): Condition {
  const mark = text.indexOf(":");
  return mark < 0 ? { kind: text, value: "" } : { kind: text.slice(0, mark), value: text.slice(mark + 1) };
}

export function writtenCondition({ kind, value }: Condition): string {
  const takesValue = CONDITIONS.find((each) => each.kind === kind)?.value !== undefined;
  return takesValue && value.trim() !== "" ? `${kind}:${value.trim()}` : kind;
}

/** Return a condition in words: "failing:3" is "3 runs failed in a row". */
export function conditionText(text: string): string {
  const { kind, value } = readCondition(text);
  const words: Record<string, string> = {
    failed: "a run failed",
    failing: `${value || 3} runs failed in a row`,
    late: `late by ${value || "5m"}`,
    missed: "a tick was skipped",
    stuck: `an attempt ran for ${value || "1h"}`,
    no_node: `no node for ${value || "1m"}`,
    runs: "each run that ended",
    queue: `${value || 1000} runs wait in a queue`,
    node_lost: "a node was lost",
    store_unsafe: "the store is unsafe",
  };
  return words[kind] ?? text;
}

/** Return what a rule or a window covers: "all schedules", "tag billing". */
export function coversText({ schedule, tag }: Pick<AlertRule, "schedule" | "tag">): string {
  return schedule !== null ? `schedule ${schedule}` : tag !== null ? `tag ${tag}` : "all schedules";
}

/** Return the parameters of requests about something that a tenant owns, or all of them. */
export function ownedBy(tenant: string | null): TenantScope {
  return tenant === null ? { all_tenants: true } : { tenant };
}

/** Return the key of an owned thing: two tenants may use the same name. */
export function ownedKey({ tenant, name }: { tenant: string | null; name: string }): string {
  return `${tenant === null ? "*" : `=${tenant}`} ${name}`;
}

/** Return who wrote a rule or channel, if not a person. */
export function managedText(managedBy: string): string | null {
  if (managedBy === "code") return "declared in code";
  return managedBy === "config" ? "declared in a file" : null;
}

/** Return the link to what an incident is about, as parts of the address; null if there is no page for it. */
export function subjectPath({ subject_kind, subject, tenant }: Pick<Incident, "subject_kind" | "subject" | "tenant">): string[] | null {
  if (subject_kind === "queue") return ["queues"];
  if (subject_kind === "node" || subject_kind === "store" || subject_kind === "task") return ["nodes"];
  if (tenant === null) return null;
  return [subject_kind === "run" ? "runs" : "schedules", tenant, subject];
}

/** Return whether people know about an incident. */
export function announcedText({ announced, muted_by }: Pick<Incident, "announced" | "muted_by">): string {
  const known = announced.length > 0 ? announced.join(", ") : "not announced";
  return muted_by === null ? known : `${known}; muted by ${muted_by}`;
}

/** Return whether the announcement of an incident arrived; null if there is none. */
export function arrival({ delivery }: Pick<Incident, "delivery">): { label: string; tone: Tone } | null {
  if (delivery === null) return null;
  if (delivery === "sent") return { label: "delivered", tone: "good" };
  return delivery === "waiting" ? { label: "not delivered yet", tone: "warn" } : { label: "not delivered", tone: "bad" };
}

/** Return what became of a message. */
export function deliveryState({ state, tries }: Pick<Delivery, "state" | "tries">): { label: string; tone: Tone } {
  if (state === "sent") return { label: "sent", tone: "good" };
  if (state === "failed") return { label: "given up", tone: "bad" };
  return tries > 0 ? { label: "retrying", tone: "warn" } : { label: "waiting", tone: "wait" };
}

/** Whether messages of a channel arrive. */
export interface Health {
  label: string;
  tone: Tone;
  /** When the channel was last tried. */
  at: string | null;
  /** Why the last message did not arrive; null if it did. */
  error: string | null;
  /** When a message arrived before that; null if the last one did, or if none is known. */
  lastSent: string | null;
}

/** Return the health of a channel by the log of deliveries. The last attempt counts: messages that wait for one say nothing. */
export function healthOf(channel: Pick<AlertChannel, "tenant" | "name">, deliveries: Delivery[]): Health {
  const tried = deliveries
    .filter(({ channel: name, owner, last_try_at }) => name === channel.name && owner === channel.tenant && last_try_at !== null)
    .sort((one, other) => Date.parse(other.last_try_at ?? "") - Date.parse(one.last_try_at ?? ""));
  const [last] = tried;
  if (last === undefined) return { label: "nothing sent lately", tone: "off", at: null, error: null, lastSent: null };
  const isFine = last.state === "sent";
  const sent = tried.find(({ state }) => state === "sent");
  const error = isFine ? null : (last.error ?? "The reason is not known.");
  return { ...deliveryState(last), at: last.last_try_at, error, lastSent: isFine ? null : (sent?.last_try_at ?? null) };
}

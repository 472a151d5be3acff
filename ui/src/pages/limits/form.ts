// A limit as the form has it, and what the page says about one. Pure.

import type { RunLimit, WantedLimit } from "../../api/schema";
import type { Query } from "../../state/route";
import { countText } from "../../time/format";

export const FIELDS = ["task", "queue", "tenant", "key", "concurrency", "rate", "burst"] as const;

export type LimitField = (typeof FIELDS)[number];
export type LimitForm = Record<LimitField, string>;

export const FIRST: LimitForm = { task: "", queue: "", tenant: "", key: "", concurrency: "", rate: "", burst: "" };

/** Return a limit as the form shows it. */
export function formOf(limit: RunLimit): LimitForm {
  const form = { ...FIRST };
  for (const field of FIELDS) form[field] = limit[field] === null ? "" : String(limit[field]);
  return form;
}

/** Return the form with another text in a field. Another rate drops a burst that nobody wrote: it may be the default of the old rate. */
export function edited(form: LimitForm, field: LimitField, text: string, first: LimitForm): LimitForm {
  const dropsBurst = field === "rate" && form.burst === first.burst;
  return { ...form, ...(dropsBurst ? { burst: "" } : {}), [field]: text };
}

/** Return whether the form names something to limit, and how. The server checks the rest. */
export function isComplete(form: LimitForm): boolean {
  const has = (...fields: LimitField[]): boolean => fields.some((field) => form[field].trim() !== "");
  return has("task", "queue", "tenant", "key") && has("concurrency", "rate");
}

/** Return what to send. A number that can't be read is sent as it was written: the server says what is wrong with it. */
export function wantedOf(form: LimitForm): WantedLimit {
  const text = (field: LimitField): string | null => form[field].trim() || null;
  const number = (field: LimitField): number | null => {
    const written = text(field);
    if (written === null) return null;
    return /^[+-]?\d+$/.test(written) ? Number(written) : (written as unknown as number);
  };
  return {
    task: text("task"),
    queue: text("queue"),
    tenant: text("tenant"),
    key: text("key"),
    concurrency: number("concurrency"),
    rate: text("rate"),
    burst: number("burst"),
  };
}

type Names = Pick<RunLimit, "task" | "queue" | "tenant" | "key">;

/** Return the names of a limit as parameters: exactly those that it has. */
export function namesOf({ task, queue, tenant, key }: Names): { task?: string; queue?: string; tenant?: string; key?: string } {
  return Object.fromEntries(Object.entries({ task, queue, tenant, key }).filter(([, value]) => value !== null));
}

/** Return the filter that shows the runs of a limit. */
export function runsOf({ task, queue, tenant }: Names, state: "queued" | "running"): Query {
  return { task, queue, state, ...(tenant === null ? {} : { tenant }) };
}

/** Return how many more runs may start: null if the page should show a time instead. */
export function admitsText({ key, admits, admits_at }: Pick<RunLimit, "key" | "admits" | "admits_at">): string | null {
  if (admits === null) return key === null ? "any number" : `counted for each ${key}`;
  if (admits > 0) return `${countText(admits)} more`;
  return admits_at === null ? "none until one ends" : null;
}

/** Return whether a limit holds for runs of a tenant; null stands for all tenants. */
export function concerns(limit: Names, tenant: string | null): boolean {
  return tenant === null || limit.tenant === null || limit.tenant === tenant;
}

// The filter of the audit, as the address has it, and links to what entries are about. Pure.

import type { AuditEntry, Operations } from "../../api/schema";
import type { Query } from "../../state/route";

type Asked = Operations["GET /audit"]["query"];
type Action = NonNullable<Asked["action"]>;

export const ACTIONS: Action[] = [
  "add", "backfill", "cancel", "create", "declare", "delete", "drop", "enqueue", "mute", "pause", "purge", "remove", "repair", "reschedule", "reset", "resume", "retry", "revoke", "run_now", "set",
  "test", "unmute", "update",
];

export interface AuditFilter {
  actor?: string;
  action?: Action;
  subject?: string;
  since?: string;
}

export function filterOf(query: URLSearchParams): AuditFilter {
  const filter: AuditFilter = {};
  for (const name of ["actor", "subject", "since"] as const) {
    const value = query.get(name);
    if (value) filter[name] = value;
  }
  const action = ACTIONS.find((each) => each === query.get("action"));
  if (action !== undefined) filter.action = action;
  return filter;
}

const PAGES: Record<string, string> = { token: "tokens", limit: "limits", backfill: "backfills", retention: "order" };
const ALERT_TABS: Record<string, string> = { alert_rule: "rules", alert_channel: "channels", alert_window: "windows" };

/** Return the page of what an entry is about: the parts of its address and its parameters; null if there is none. */
export function pageOf({ kind, tenant, subject }: Pick<AuditEntry, "kind" | "tenant" | "subject">): { path: string[]; query: Query } | null {
  if (kind === "schedule" || kind === "run") return { path: [`${kind}s`, tenant, subject], query: {} };
  if (kind === "tenant") return { path: ["tenants", subject], query: {} };
  if (kind === "template") return { path: ["templates", subject], query: { tenant } };
  const page = PAGES[kind];
  if (page !== undefined) return { path: [page], query: {} };
  const tab = ALERT_TABS[kind];
  return tab === undefined ? null : { path: ["alerts"], query: { tab } };
}

/** Return the kind of a subject, or an action, as words: "alert_rule" is "alert rule". */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

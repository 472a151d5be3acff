// The pages of the dashboard, in the order of the navigation.

import type { PageEntry } from "./routes";

export const PAGES: PageEntry[] = [
  { path: "now", title: "Now", load: async () => (await import("../pages/now/index")).NowPage },
  { path: "schedules", title: "Schedules", load: async () => (await import("../pages/schedules/index")).SchedulesPage },
  { path: "runs", title: "Runs", load: async () => (await import("../pages/runs/index")).RunsPage },
  { path: "flows", title: "Flows", load: async () => (await import("../pages/flows/index")).FlowsPage },
  { path: "timeline", title: "Timeline", load: async () => (await import("../pages/timeline/index")).TimelinePage },
  { path: "nodes", title: "Nodes", load: async () => (await import("../pages/nodes/index")).NodesPage, wholeStore: true },
  { path: "queues", title: "Queues", load: async () => (await import("../pages/queues/index")).QueuesPage, wholeStore: true },
  { path: "alerts", title: "Alerts", load: async () => (await import("../pages/alerts/index")).AlertsPage },
  { path: "backfills", title: "Backfills", load: async () => (await import("../pages/backfills/index")).BackfillsPage, more: true },
  { path: "templates", title: "Templates", load: async () => (await import("../pages/templates/index")).TemplatesPage, more: true },
  { path: "plan", title: "Plan", load: async () => (await import("../pages/plan/index")).PlanPage, more: true },
  { path: "limits", title: "Limits", load: async () => (await import("../pages/limits/index")).LimitsPage, more: true },
  { path: "calendars", title: "Calendars", load: async () => (await import("../pages/calendars/index")).CalendarsPage, more: true },
  { path: "tenants", title: "Tenants", load: async () => (await import("../pages/tenants/index")).TenantsPage, more: true },
  { path: "order", title: "Retention and repair", load: async () => (await import("../pages/order/index")).OrderPage, more: true },
  { path: "audit", title: "Audit", load: async () => (await import("../pages/audit/index")).AuditPage, more: true },
  { path: "tokens", title: "Tokens", load: async () => (await import("../pages/tokens/index")).TokensPage, wholeStore: true, role: "admin", more: true },
];

// Made from the OpenAPI document by tests/web/ui_schema.py. Do not edit it; write it anew:
//   python -m tests.web.ui_schema

export interface Account {
  schedule: string;
  tenant: string;
  trigger: string;
  counted_from: string;
  counted_from_reason: "asked" | "created" | "purged" | "trigger";
  counted_until: string;
  expected: number;
  ran: number;
  runs: { [key: string]: number };
  coalesced: number;
  skipped: { [key: string]: number };
  moved: number;
  pending: number;
  missing: number;
  doubled: number;
  missing_ticks: string[];
  doubled_ticks: string[];
  watermark: string | null;
  adds_up: boolean;
}

export interface AlertChannel {
  name: string;
  tenant: string | null;
  kind: "apprise" | "healthchecks" | "sentry" | "webhook";
  address: string;
  managed_by: string;
  revision: number;
}

/** What to change of an alert channel. */
export interface AlertChannelChanges {
  kind?: "apprise" | "healthchecks" | "sentry" | "webhook";
  /** Never shown again. env:EVENBEAT_SECRET_NAME names a variable of the sending process. */
  url?: string;
  /** Of a webhook: the key by which it is signed. */
  secret?: string | null;
}

export interface AlertChannels {
  items: AlertChannel[];
}

export interface AlertRule {
  name: string;
  tenant: string | null;
  on: string[];
  to: string[];
  schedule: string | null;
  tag: string | null;
  recovery: boolean;
  muted_until: string | null;
  managed_by: string;
  revision: number;
}

/** What to change of an alert rule. */
export interface AlertRuleChanges {
  /** failed, failing:3, late:10m, missed, stuck:1h, no_node:1m, runs; for all tenants also queue:1000, node_lost, store_unsafe. */
  on?: string[];
  /** Names of channels. */
  to?: string[];
  schedule?: string | null;
  tag?: string | null;
  /** Whether the end of what was announced is announced, too. */
  recovery?: boolean;
}

export interface AlertRules {
  items: AlertRule[];
}

export interface Attention {
  checked_at: string;
  items: AttentionItem[];
  more: number;
  is_exact: boolean;
}

export interface AttentionItem {
  kind: "failing" | "late" | "no_node" | "no_ticker" | "orphaned" | "quarantined" | "store_unsafe" | "stuck" | "undelivered" | "waiting";
  level: "fail" | "warn";
  sentence: string;
  evidence: Fact[];
  remedy: string | null;
  tenant: string | null;
  schedule: string | null;
  run: string | null;
  task: string | null;
  since: string | null;
  count: number;
}

export interface Audit {
  items: AuditEntry[];
  cursor: string | null;
}

export interface AuditEntry {
  id: string;
  at: string;
  actor: string;
  via: string;
  action: string;
  tenant: string;
  kind: string;
  subject: string;
  before: { [key: string]: unknown };
  after: { [key: string]: unknown };
}

export interface Backfill {
  id: string;
  tenant: string;
  schedule: string;
  state: "cancelled" | "cancelling" | "done" | "dry_run" | "running";
  trigger: string;
  start: string;
  end: string;
  order: "newest" | "oldest";
  max_concurrent: number;
  priority: number;
  payload: unknown;
  missing_only: boolean;
  ticks: number;
  total: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  purged: number;
  active: number;
  left: number;
  waits_for: string | null;
  failed_runs: string[];
  note: string;
  created_at: string | null;
  created_by: string;
  ended_at: string | null;
  existed_since: string | null;
  plan: BackfillPlan | null;
  payload_text: string | null;
}

export interface BackfillPlan {
  states: { [key: string]: number };
  unknown_before: string | null;
  ticks: BackfillTick[];
  more: number;
}

export interface BackfillTick {
  tick: string;
  state: "cancelled" | "failed" | "none" | "queued" | "running" | "skipped" | "succeeded" | "unknown";
  reason: "calendar" | "chain" | "changed" | "coalesced" | "deleted" | "dependency" | "late" | "limit" | "overlap" | "paused" | "rescheduled" | null;
  run: string | null;
  is_made: boolean;
}

export interface Backfills {
  items: Backfill[];
}

/** What to do with the runs that match. */
export interface BulkRuns {
  action: "cancel" | "retry";
  filter: RunFilterBody;
  state?: "cancelled" | "failed" | "queued" | "retrying" | "running";
  dry_run?: boolean;
  limit?: number;
}

export interface BulkRunsResult {
  matched: number;
  done: number;
  changed: ChangedItem[];
  refused: RefusedItem[];
  more: boolean;
  warnings: ChangeWarning[];
  sample: Run[];
}

/** Selects schedules, by names, too. */
export interface BulkScheduleFilter {
  /** Part of the name, description, task or a tag. */
  text?: string;
  /** A pattern of names: `report-*`. `*` stands for any characters, `?` for one; upper and lower case differ. */
  name?: string;
  state?: "active" | "finished" | "paused";
  task?: string;
  tag?: string;
  queue?: string;
  /** `code`: schedules that the code declares; `file`: those of a file; `api`: the others. */
  managed_by?: "api" | "code" | "file";
  /** The template from which it inherits. */
  template?: string;
  /** Whether its last run failed. */
  failing?: boolean;
  /** Whether it should have fired more than 30 s ago. */
  late?: boolean;
  /** Only these schedules, of one tenant. */
  names?: string[];
}

/** What to do with the schedules that match. */
export interface BulkSchedules {
  action: "delete" | "pause" | "resume" | "run" | "update";
  filter: BulkScheduleFilter;
  note?: string;
  /** RFC 3339, or a duration from now, like 2h. */
  until?: string;
  /** The catch-up policy decides about the ticks of the pause, instead of skipping them. */
  catch_up?: boolean;
  changes?: ScheduleChanges;
  dry_run?: boolean;
  limit?: number;
}

export interface BulkSchedulesResult {
  matched: number;
  done: number;
  changed: ChangedItem[];
  refused: RefusedItem[];
  more: boolean;
  warnings: ChangeWarning[];
  sample: Schedule[];
}

export interface Calendar {
  name: string;
  tenant: string;
  days: string[];
  weekly: string[];
  without: string[];
  tz: string | null;
  country: string | null;
  subdivision: string | null;
  events: number;
  covers_until: string | null;
  built_in: boolean;
  words: string;
  updated_at: string | null;
  updated_by: string | null;
  schedules: string[];
  schedule_count: number | null;
  templates: string[];
  replanned: number;
  effects: CalendarEffect[];
  warnings: ChangeWarning[];
}

export interface CalendarDay {
  day: string;
  weekday: string;
  times: string[];
}

export interface CalendarDays {
  items: CalendarDay[];
}

export interface CalendarEffect {
  schedule: string;
  before: string[];
  after: string[];
}

export interface Calendars {
  items: Calendar[];
}

export interface ChangeWarning {
  problem: string;
  hint: string | null;
}

export interface ChangedItem {
  tenant: string;
  id: string;
}

export interface DeclaredSchedule {
  /** Needed unless the template has one. `0 9 * * mon-fri`, or `@` and a template. */
  trigger?: string;
  task: string;
  payload?: { [key: string]: unknown } | null;
  tenant?: string;
  /** RFC 3339, or a duration from now, like 2h. */
  start_at?: string;
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
  /** What the schedule is for. */
  description?: string;
  /** Words by which schedules are found: billing, team:ops. */
  tags?: string[];
  /** Which missed ticks run: only the latest, which stands for all of them; all; or none. */
  catch_up?: "all" | "latest" | "skip";
  /** Only for catch_up skip: ticks that are at most this late still run. */
  grace?: number | string;
  /** Only for catch_up all and skip: at most this many missed ticks run, the newest ones. */
  catch_up_limit?: number;
  /** Only for catch_up latest and all: ticks that are later than this do not run. */
  catch_up_max_age?: number | string | null;
  /** Only for catch_up all and skip: missed ticks run no faster than this: 10/m. */
  catch_up_rate?: string | null;
  /** What a tick does while the last run is active. */
  overlap?: "allow" | "cancel_running" | "queue" | "queue_all" | "skip";
  /** How many runs of the schedule may be active at once; further ticks wait. */
  max_concurrent?: number | null;
  /** Ticks fire up to this much later, by an amount that depends on the schedule's name alone. */
  spread?: number | string;
  /** Schedules that must have succeeded lately before a tick fires: load within 1h wait 30m. */
  after?: string | null;
  /** Create the schedule paused: it waits to be resumed. */
  paused?: boolean;
  /** Why the schedule is paused. */
  note?: string;
  /** The template from which it inherits the options that are not given, such as workdays. */
  template?: string | null;
}

export interface DeletedSchedule {
  name: string;
  tenant: string;
  warnings: ChangeWarning[];
}

export interface Deliveries {
  items: Delivery[];
  cursor: string | null;
}

export interface Delivery {
  id: string;
  incident: string | null;
  rule: string | null;
  owner: string | null;
  tenant: string | null;
  channel: string;
  announcement: "escalated" | "opened" | "recovered" | "run" | "test";
  title: string;
  state: "failed" | "pending" | "sent";
  tries: number;
  created_at: string;
  last_try_at: string | null;
  next_try_at: string | null;
  error: string | null;
}

export interface Dependencies {
  schedule: string;
  tenant: string;
  after: string | null;
  on_success_of: string | null;
  predecessors: Predecessor[];
  followers: string[];
  waits_until: string | null;
  pending: number;
}

export interface DeployPlan {
  entries: PlanEntry[];
  unchanged: number;
  at: string;
  warnings: ChangeWarning[];
}

export interface DeployResult {
  done: PlanEntry[];
  refused: RefusedChange[];
  left: PlanEntry[];
  unchanged: number;
  warnings: ChangeWarning[];
}

export interface Fact {
  text: string;
  at: string | null;
}

export interface FailureGroup {
  id: string;
  error: string;
  count: number;
  newest: string;
  oldest: string;
  tasks: string[];
  schedules: string[];
  tenants: string[];
  whole_error: string | null;
  runs: string[];
}

export interface FailureReport {
  since: string | null;
  until: string;
  count: number;
  more: boolean;
  groups: FailureGroup[];
}

export interface FieldChange {
  field: string;
  before: unknown;
  after: unknown;
}

export interface FigurePoint {
  at: string;
  nodes: number;
  figures: Figures;
}

export interface FigureSeries {
  since: string;
  until: string;
  by: "hour" | "minute";
  points: FigurePoint[];
  total: Figures;
  is_complete: boolean;
  schedules: NamedFigures[];
  tasks: NamedFigures[];
}

export interface Figures {
  fired: number;
  skipped: { [key: string]: number };
  started: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  retried: number;
  crashed: number;
  released: number;
  duration: Percentiles | null;
  lateness: Percentiles | null;
}

export interface Finding {
  check: string;
  level: "fail" | "ok" | "warn";
  message: string;
  hint: string | null;
  details: string[];
  facts: { [key: string]: unknown };
}

export interface Findings {
  items: Finding[];
  ok: boolean;
}

export interface FlowInfo {
  name: string;
  steps: FlowStepInfo[];
  result: string | null;
  version: string;
}

export interface FlowPlace {
  id: string;
  step: string;
  index: number | null;
  tick: string | null;
}

export interface FlowRun {
  id: string;
  tenant: string;
  flow: string;
  schedule: string | null;
  state: "cancelled" | "failed" | "queued" | "running" | "succeeded";
  error: string | null;
  payload: unknown;
  result: unknown;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  /** seconds */
  duration: number | null;
  cancel_requested: boolean;
  outer: FlowPlace | null;
  graph: FlowInfo | null;
  steps: FlowStepRun[];
  payload_text: string | null;
  result_text: string | null;
}

export interface FlowStepInfo {
  name: string;
  task: string;
  kind: "flow" | "task";
  after: string[];
  inputs: string[];
  run_if: "all_succeeded" | "always" | "any_failed";
  is_map: boolean;
  queue: string;
}

export interface FlowStepRun {
  name: string;
  task: string;
  state: string;
  run: string | null;
  started_at: string | null;
  finished_at: string | null;
  /** seconds */
  duration: number | null;
  error: string | null;
  reason: string | null;
  elements: number | null;
  elements_open: number;
  elements_failed: number;
  elements_cancelled: number;
  failed_runs: string[];
  attempt: number;
  round: number;
}

export interface Flows {
  items: ListedFlow[];
  /** Why the list is empty, where the server knows. */
  hint: string | null;
}

export interface Forecast {
  start: string;
  end: string;
  by: "hour" | "minute";
  schedules: number;
  counts: number[];
  total: number;
  mean: number;
  peaks: ForecastPeak[];
  quiet: QuietWindow[];
  proposals: SpreadProposal[];
  notes: string[];
}

export interface ForecastPeak {
  at: string;
  runs: number;
  minutes: string[];
  schedules: string[];
  more: number;
}

export interface HeatCell {
  at: string;
  end: string;
  fired: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  running: number;
  skipped: number;
  coalesced: number;
  planned: number;
  paused: number;
}

export interface HeatMap {
  tenant: string;
  schedule: string;
  zone: string;
  by: "day" | "hour";
  since: string;
  until: string;
  now: string;
  counted_from: string;
  is_exact: boolean;
  cells: HeatCell[];
}

export interface Incident {
  id: string;
  rule: string;
  owner: string | null;
  tenant: string | null;
  condition: string;
  subject_kind: "node" | "queue" | "run" | "schedule" | "store" | "task";
  subject: string;
  run: string | null;
  tick: string | null;
  opened_at: string;
  failures: number;
  last_success: string | null;
  error: string | null;
  reason: string;
  announced: ("escalated" | "opened" | "recovered" | "run" | "test")[];
  muted_by: string | null;
  closed_at: string | null;
  delivery: "given_up" | "sent" | "waiting" | null;
}

export interface Incidents {
  items: Incident[];
}

export interface Ledger {
  items: SkippedTicks[];
}

export interface LimitValue {
  value: string;
  running: number;
  waiting: number;
}

/** A flow in a list, without its graph. */
export interface ListedFlow {
  name: string;
  steps: number;
  version: string;
  recent: RecentFlowRun[];
}

export interface Log {
  items: LogLine[];
}

export interface LogLine {
  at: string;
  attempt: number;
  text: string;
}

/** A login. */
export interface Login {
  token: string;
}

export interface MaintenanceWindow {
  name: string;
  tenant: string | null;
  starts_at: string;
  ends_at: string;
  schedule: string | null;
  tag: string | null;
  note: string;
  created_by: string;
}

export interface MaintenanceWindows {
  items: MaintenanceWindow[];
}

/** Who sends the request, and what they may do. */
export interface Me {
  name: string;
  role: "admin" | "operator" | "viewer";
  tenant: string | null;
  default_tenant: string;
  has_session: boolean;
  csrf: string | null;
}

export interface MoveResult {
  matched: number;
  done: number;
  changed: ChangedItem[];
  refused: RefusedItem[];
  more: boolean;
  warnings: ChangeWarning[];
  sample: Run[];
  schedules: ScheduleOfTask[];
}

/** How long an alert rule is muted. */
export interface Mute {
  /** RFC 3339, or a duration from now, like 2h. */
  until: string;
}

export interface NamedFigures {
  tenant: string;
  name: string;
  figures: Figures;
}

/** An alert channel to create. */
export interface NewAlertChannel {
  name: string;
  kind: "apprise" | "healthchecks" | "sentry" | "webhook";
  /** Never shown again. env:EVENBEAT_SECRET_NAME names a variable of the sending process. */
  url: string;
  /** Of a webhook: the key by which it is signed. */
  secret?: string | null;
}

/** An alert rule to create. */
export interface NewAlertRule {
  name: string;
  /** failed, failing:3, late:10m, missed, stuck:1h, no_node:1m, runs; for all tenants also queue:1000, node_lost, store_unsafe. */
  on: string[];
  /** Names of channels. */
  to: string[];
  schedule?: string | null;
  tag?: string | null;
  /** Whether the end of what was announced is announced, too. */
  recovery?: boolean;
}

/** The range of a backfill, and how to run it. */
export interface NewBackfill {
  /** RFC 3339, or a duration before now, like 2h. */
  start: string;
  /** RFC 3339, or a duration before now, like 2h. */
  end: string;
  max_concurrent?: number;
  order?: "newest" | "oldest";
  priority?: number | "high" | "low" | "normal";
  payload?: { [key: string]: unknown } | null;
  missing_only?: boolean;
  dry_run?: boolean;
  /** By default it follows from the schedule and the range: a repeated request adds nothing. */
  id?: string;
}

export interface NewRun {
  task: string;
  payload?: { [key: string]: unknown } | null;
  delay?: number | string;
  /** RFC 3339, or a duration from now, like 2h. */
  at?: string;
  /** `payload`, or a key: while a run of the task with the same payload, or key, is active, this adds nothing and returns that run. */
  unique?: string;
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
}

export interface NewSchedule {
  name: string;
  /** Needed unless the template has one. `0 9 * * mon-fri`, or `@` and a template. */
  trigger?: string;
  task: string;
  payload?: { [key: string]: unknown } | null;
  /** RFC 3339, or a duration from now, like 2h. */
  start_at?: string;
  run_now?: boolean;
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
  /** What the schedule is for. */
  description?: string;
  /** Words by which schedules are found: billing, team:ops. */
  tags?: string[];
  /** Which missed ticks run: only the latest, which stands for all of them; all; or none. */
  catch_up?: "all" | "latest" | "skip";
  /** Only for catch_up skip: ticks that are at most this late still run. */
  grace?: number | string;
  /** Only for catch_up all and skip: at most this many missed ticks run, the newest ones. */
  catch_up_limit?: number;
  /** Only for catch_up latest and all: ticks that are later than this do not run. */
  catch_up_max_age?: number | string | null;
  /** Only for catch_up all and skip: missed ticks run no faster than this: 10/m. */
  catch_up_rate?: string | null;
  /** What a tick does while the last run is active. */
  overlap?: "allow" | "cancel_running" | "queue" | "queue_all" | "skip";
  /** How many runs of the schedule may be active at once; further ticks wait. */
  max_concurrent?: number | null;
  /** Ticks fire up to this much later, by an amount that depends on the schedule's name alone. */
  spread?: number | string;
  /** Schedules that must have succeeded lately before a tick fires: load within 1h wait 30m. */
  after?: string | null;
  /** Create the schedule paused: it waits to be resumed. */
  paused?: boolean;
  /** Why the schedule is paused. */
  note?: string;
  /** The template from which it inherits the options that are not given, such as workdays. */
  template?: string | null;
}

export interface NewToken {
  secret: string;
  token: Token;
}

/** A maintenance window to add. */
export interface NewWindow {
  name: string;
  /** RFC 3339, or a duration from now, like 2h. */
  until: string;
  /** RFC 3339, or a duration from now, like 2h. */
  starts?: string;
  schedule?: string | null;
  tag?: string | null;
  note?: string;
}

export interface NodeView {
  name: string;
  host: string | null;
  pid: number | null;
  version: string | null;
  started_at: string | null;
  seen_at: string | null;
  ticker: boolean;
  worker: boolean;
  tasks: { [key: string]: string };
  queues: string[];
  slots: { [key: string]: number };
  running: number | null;
  code_only: string[];
  fallback_since: string | null;
}

export interface Nodes {
  items: NodeView[];
}

/** How to pause a schedule. */
export interface Pause {
  note?: string;
  /** RFC 3339, or a duration from now, like 2h. */
  until?: string;
  cancel_queued?: boolean;
}

export interface Percentiles {
  count: number;
  /** seconds */
  p50: number;
  /** seconds */
  p95: number;
  /** seconds */
  p99: number;
}

export interface PlanEntry {
  tenant: string;
  name: string;
  action: "add" | "change" | "conflict" | "drift" | "orphan" | "refused" | "remove" | "unchanged";
  managed_by: string;
  source: string;
  changes: FieldChange[];
  ticks_before: string[];
  ticks_after: string[];
  why: string;
  command: string;
  token: string;
}

export interface Predecessor {
  name: string;
  state: "active" | "deleted" | "finished" | "paused" | null;
  last_success: string | null;
  is_met: boolean | null;
}

/** A trigger to explain. */
export interface Preview {
  /** `0 9 * * mon-fri tz=Europe/Berlin`, `every 10m`. */
  trigger: string;
  count?: number;
  /** The zone of a cron that names none. */
  tz?: string;
  /** RFC 3339, or a duration from now, like 2h. */
  since?: string;
  name?: string;
  /** Whose calendars the trigger names. */
  tenant?: string;
}

/** The body of every answer that reports an error. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  field?: string | null;
  value?: string | null;
  hint?: string | null;
}

export interface Quarantine {
  items: QuarantineNote[];
}

export interface QuarantineChange {
  action: "drop" | "retry";
  subject: "run" | "schedule";
  tenant: string;
  name: string;
  words: string;
}

export interface QuarantineNote {
  kind: "deferred" | "quarantine";
  tenant: string;
  name: string;
  reason: string;
  remedy: string;
}

export interface QuarantinedRow {
  kind: "deferred" | "quarantine";
  subject: "run" | "schedule";
  tenant: string;
  name: string;
  reason: string;
  problem: string | null;
  fields: { [key: string]: unknown };
  unreadable: string[];
  on_retry: string;
  on_drop: string;
}

export interface QueueStats {
  name: string;
  due: number;
  later: number;
  retrying: number;
  running: number;
  oldest_due: string | null;
  came_due: number;
  ended: number;
  nodes: string[];
  trend: string;
}

export interface Queues {
  items: QueueStats[];
}

export interface QuietWindow {
  start: string;
  end: string;
  runs: number;
  most: number;
}

export interface Quota {
  schedules: number | null;
  queued_runs: number | null;
}

/** One of the last runs of a flow, in brief. */
export interface RecentFlowRun {
  id: string;
  tenant: string;
  state: string;
  schedule: string | null;
  scheduled_at: string;
  started_at: string | null;
  /** seconds */
  duration: number | null;
}

export interface RecentRun {
  id: string;
  state: "cancelled" | "failed" | "queued" | "running" | "succeeded";
  scheduled_at: string;
  /** seconds */
  duration: number | null;
  /** seconds */
  lateness: number | null;
}

export interface RefusedChange {
  tenant: string;
  name: string;
  why: string;
  entry: PlanEntry | null;
}

export interface RefusedItem {
  tenant: string;
  id: string;
  why: string;
}

export interface RemovedTicks {
  first: string;
  last: string;
  count: number;
  calendars: string[];
  moved_to: string | null;
}

export interface RepairFinding {
  kind: "asleep" | "duplicate" | "index" | "leftover" | "lost" | "uncancelled" | "unlisted";
  tenant: string | null;
  subject: string;
  what: string;
  evidence: Fact[];
  mending: string | null;
  outcome: "changed" | "found" | "left" | "mended";
}

export interface RepairReport {
  checked_at: string;
  dry_run: boolean;
  findings: RepairFinding[];
  is_exact: boolean;
  mended: number;
}

/** Where to move the next tick. */
export interface Reschedule {
  /** RFC 3339, or a duration from now, like 2h. */
  at: string;
}

/** How to resume a schedule. */
export interface Resume {
  /** The catch-up policy decides about the ticks of the pause, instead of skipping them. */
  catch_up?: boolean;
}

export interface ResumePreview {
  missed: number;
  coalesced: number;
  runs: number;
  skipped: number;
  next_run: string | null;
  sentence: string;
}

export interface Retention {
  items: RetentionRule[];
}

export interface RetentionRule {
  tenant: string | null;
  state: "cancelled" | "failed" | "succeeded" | null;
  /** seconds */
  keep: number | null;
  most: number | null;
  words: string;
  updated_at: string;
  updated_by: string;
}

/** Which step to run again. */
export interface RetryStep {
  step: string;
}

export interface Run {
  id: string;
  tenant: string;
  task: string;
  state: "cancelled" | "failed" | "queued" | "running" | "succeeded";
  schedule: string | null;
  tick: string | null;
  scheduled_at: string;
  run_at: string;
  cause: "backfill" | "enqueue" | "run_now" | "tick";
  predecessor: string | null;
  predecessor_schedule: string | null;
  coalesced: number;
  kind: "flow" | "task";
  payload: unknown;
  queue: string;
  priority: number;
  priority_name: string | null;
  attempt: number;
  failures: number;
  crashes: number;
  worker: string | null;
  lease_until: string | null;
  cancel_requested: boolean;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  result: unknown;
  error: string | null;
  fired_by: string | null;
  attempts: RunAttempt[];
  retries: number;
  /** seconds */
  backoff: number;
  /** seconds */
  max_backoff: number;
  /** seconds */
  timeout: number | null;
  on_crash: "fail" | "rerun";
  max_crashes: number;
  /** seconds */
  expires: number | null;
  expires_at: string | null;
  unique_key: string | null;
  flow: FlowPlace | null;
  progress: RunProgress | null;
  payload_text: string | null;
  result_text: string | null;
  /** seconds */
  lateness: number | null;
  /** seconds */
  duration: number | null;
}

export interface RunAttempt {
  number: number;
  worker: string | null;
  started_at: string | null;
  ended_at: string | null;
  outcome: "cancelled" | "failed" | "handed back" | "lost" | "succeeded";
  error: string | null;
  refused_at: string | null;
}

/** Selects runs of the tenant. */
export interface RunFilterBody {
  schedule?: string;
  task?: string;
  queue?: string;
  worker?: string;
  /** RFC 3339, or a duration before now, like 2h. */
  since?: string;
  /** RFC 3339, or a duration before now, like 2h. */
  until?: string;
  ids?: string[];
}

export interface RunHistory {
  items: AuditEntry[];
}

export interface RunLimit {
  name: string;
  task: string | null;
  queue: string | null;
  tenant: string | null;
  key: string | null;
  concurrency: number | null;
  rate: string | null;
  burst: number | null;
  words: string;
  running: number;
  waiting: number;
  oldest_waiting: string | null;
  admits: number | null;
  admits_at: string | null;
  values: LimitValue[];
  value_count: number;
  warnings: ChangeWarning[];
}

export interface RunLimits {
  items: RunLimit[];
}

/** How to run a schedule now. */
export interface RunNow {
  payload?: { [key: string]: unknown } | null;
}

export interface RunProgress {
  done: number;
  total: number | null;
  note: string;
  at: string;
}

export interface Runs {
  items: Run[];
  cursor: string | null;
}

export interface Schedule {
  name: string;
  tenant: string;
  task: string;
  trigger: string;
  words: string;
  state: "active" | "deleted" | "finished" | "paused";
  next_run: string | null;
  payload: unknown;
  kind: "flow" | "task";
  queue: string;
  priority: number;
  priority_name: string | null;
  description: string;
  tags: string[];
  catch_up: "all" | "latest" | "skip";
  /** seconds */
  grace: number;
  catch_up_limit: number;
  /** seconds */
  catch_up_max_age: number | null;
  catch_up_rate: string | null;
  overlap: "allow" | "cancel_running" | "queue" | "queue_all" | "skip";
  max_concurrent: number | null;
  /** seconds */
  spread: number;
  /** seconds */
  spread_delay: number;
  after: string | null;
  retries: number;
  /** seconds */
  backoff: number;
  /** seconds */
  max_backoff: number;
  /** seconds */
  timeout: number | null;
  on_crash: "fail" | "rerun";
  max_crashes: number;
  /** seconds */
  expires: number | null;
  managed_by: string;
  source: string;
  pause_note: string;
  paused_until: string | null;
  paused_by: string;
  paused_at: string | null;
  timezone: string;
  last_enqueued_at: string | null;
  last_run_at: string | null;
  is_waiting: boolean;
  catch_up_left: number;
  catch_up_at: string | null;
  last_error: string | null;
  declared: boolean;
  edited: { [key: string]: unknown };
  template: string | null;
  inherited: string[];
  damage: string;
  revision: number;
  created_at: string;
  updated_at: string;
  warnings: ChangeWarning[];
  payload_text: string | null;
  stats: ScheduleStats;
  /** Its last runs, the oldest first; null unless the query asks for them. */
  recent: RecentRun[] | null;
}

export interface ScheduleCalendars {
  schedule: string;
  tenant: string;
  skip: string[];
  only: string[];
  move: string;
  removed: RemovedTicks[];
}

export interface ScheduleChanges {
  /** `0 9 * * mon-fri tz=Europe/Berlin`, `every 10m`. */
  trigger?: string;
  task?: string;
  payload?: { [key: string]: unknown } | null;
  /** Null: none; its options stay. */
  template?: string | null;
  /** Options to give back to the template. */
  inherit?: ("after" | "backoff" | "catch_up" | "catch_up_limit" | "catch_up_max_age" | "catch_up_rate" | "description" | "expires" | "grace" | "max_backoff" | "max_concurrent" | "max_crashes" | "on_crash" | "overlap" | "priority" | "queue" | "retries" | "spread" | "tags" | "timeout" | "trigger")[];
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
  /** What the schedule is for. */
  description?: string;
  /** Words by which schedules are found: billing, team:ops. */
  tags?: string[];
  /** Which missed ticks run: only the latest, which stands for all of them; all; or none. */
  catch_up?: "all" | "latest" | "skip";
  /** Only for catch_up skip: ticks that are at most this late still run. */
  grace?: number | string;
  /** Only for catch_up all and skip: at most this many missed ticks run, the newest ones. */
  catch_up_limit?: number;
  /** Only for catch_up latest and all: ticks that are later than this do not run. */
  catch_up_max_age?: number | string | null;
  /** Only for catch_up all and skip: missed ticks run no faster than this: 10/m. */
  catch_up_rate?: string | null;
  /** What a tick does while the last run is active. */
  overlap?: "allow" | "cancel_running" | "queue" | "queue_all" | "skip";
  /** How many runs of the schedule may be active at once; further ticks wait. */
  max_concurrent?: number | null;
  /** Ticks fire up to this much later, by an amount that depends on the schedule's name alone. */
  spread?: number | string;
  /** Schedules that must have succeeded lately before a tick fires: load within 1h wait 30m. */
  after?: string | null;
}

export interface ScheduleHistory {
  items: AuditEntry[];
}

export interface ScheduleOfTask {
  tenant: string;
  name: string;
  command: string;
}

export interface ScheduleStats {
  run_count: number;
  success_count: number;
  failure_count: number;
  last_run: string | null;
  last_success: string | null;
  last_failure: string | null;
  last_error: string | null;
}

export interface ScheduleTimeline {
  since: string;
  until: string;
  now: string;
  /** seconds */
  step: number;
  lanes: TimelineLane[];
  cursor: string | null;
}

export interface Schedules {
  items: Schedule[];
  cursor: string | null;
  /** How many match, up to 1,000. */
  matched: number;
  /** Whether more than 1,000 match. */
  more_match: boolean;
}

export interface SkippedTicks {
  first: string;
  last: string;
  count: number;
  reason: "calendar" | "chain" | "changed" | "coalesced" | "deleted" | "dependency" | "late" | "limit" | "overlap" | "paused" | "rescheduled";
  recorded_at: string;
  run: string | null;
}

export interface SpreadProposal {
  at: string;
  /** seconds */
  spread: number;
  schedules: string[];
  more: number;
  peak_before: number;
  peak_after: number;
  start: string;
  before: number[];
  after: number[];
}

export interface StartFlow {
  payload?: { [key: string]: unknown } | null;
  delay?: number | string;
  /** RFC 3339, or a duration from now, like 2h. */
  at?: string;
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
}

export interface Template {
  name: string;
  tenant: string;
  options: { [key: string]: unknown };
  words: string;
  built_in: boolean;
  revision: number;
  created_at: string | null;
  updated_at: string | null;
}

export interface TemplateChange {
  template: Template;
  schedules: number;
  changed: number;
  refused: RefusedItem[];
  sample: TemplateEffect[];
}

export interface TemplateEffect {
  schedule: string;
  before: { [key: string]: unknown };
  after: { [key: string]: unknown };
}

export interface Templates {
  items: Template[];
}

export interface TenantDetails {
  name: string;
  schedules: number;
  active_schedules: number;
  paused_schedules: number;
  due: number;
  later: number;
  running: number;
  quota: Quota | null;
  started: number;
  succeeded: number;
  failed: number;
  ended: { [key: string]: number };
  oldest_due: string | null;
  next_fire: string | null;
  limits: string[];
}

export interface TenantPurge {
  tenant: string;
  dry_run: boolean;
  schedules: number;
  cancelled: number;
  stopping: number;
  runs: number;
  records: number;
  tokens: number;
  is_complete: boolean;
  remains: string[];
}

export interface TenantView {
  name: string;
  schedules: number;
  active_schedules: number;
  paused_schedules: number;
  due: number;
  later: number;
  running: number;
  quota: Quota | null;
  started: number;
  succeeded: number;
  failed: number;
}

export interface Tenants {
  items: TenantView[];
}

export interface Ticks {
  items: string[];
}

export interface TimelineCell {
  at: string;
  end: string;
  fired: number;
  failed: number;
  waiting: number;
  skipped: number;
  planned: number;
  paused: number;
}

export interface TimelineLane {
  tenant: string;
  schedule: string;
  state: "active" | "deleted" | "finished" | "paused";
  is_exact: boolean;
  cells: TimelineCell[];
}

export interface Token {
  id: string;
  name: string;
  role: "admin" | "operator" | "viewer";
  tenant: string | null;
  created_at: string;
  created_by: string;
  expires_at: string | null;
  last_used_at: string | null;
}

export interface Tokens {
  items: Token[];
}

export interface TriggerClockChange {
  at: string;
  clock_from: string;
  clock_to: string;
  /** seconds */
  shift: number;
  effect: string;
}

export interface TriggerExplanation {
  kind: "at" | "cron" | "every" | "success";
  trigger: string;
  written: string;
  words: string;
  zone: string;
  since: string;
  until: string | null;
  ticks: TriggerTick[];
  clock_changes: TriggerClockChange[];
  notes: string[];
}

export interface TriggerTick {
  at: string;
  /** seconds */
  away: number;
  note: string | null;
}

/** What to apply. */
export interface WantedApply {
  /** The tokens of the plan that was seen: other changes are refused. */
  plan?: string[];
  /** Schedules by name: then only these are compared. */
  schedules?: { [key: string]: DeclaredSchedule };
  /** The label under which they are managed. */
  source?: string;
  /** Remove schedules that the same source declared once, and does not declare any more. */
  prune?: boolean;
  /** Take over schedules that were made by hand, or that another source declares. */
  adopt?: boolean;
}

/** What a calendar contains: at least one of days, weekly, country and ics. */
export interface WantedCalendar {
  days?: string[];
  weekly?: string[];
  without?: string[];
  /** An IANA name; by default each schedule's. */
  tz?: string | null;
  /** Its holidays: `US`. */
  country?: string | null;
  /** A part of the country: `CA`. */
  subdivision?: string | null;
  /** The text of a file in the iCalendar format. */
  ics?: string | null;
  /** Show what would change, and change nothing. */
  dry_run?: boolean;
}

/** A limit to set: at least one of task, queue, tenant and key, and one of concurrency and rate. */
export interface WantedLimit {
  task?: string | null;
  queue?: string | null;
  /** By default that of the token; null limits the runs of all tenants. */
  tenant?: string | null;
  /** A field of the payload: the limit holds for each value of it. */
  key?: string | null;
  concurrency?: number | null;
  /** Starts in a period: 100/m, 10/30s. */
  rate?: string | null;
  /** Starts that the rate allows after a quiet time. */
  burst?: number | null;
}

/** Which queued runs to move, and where. */
export interface WantedMove {
  task: string;
  to: string;
  queue?: string;
  dry_run?: boolean;
  limit?: number;
}

/** Schedules that a deploy declares. */
export interface WantedPlan {
  /** Schedules by name: then only these are compared. */
  schedules: { [key: string]: DeclaredSchedule };
  /** The label under which they are managed. */
  source?: string;
  /** Remove schedules that the same source declared once, and does not declare any more. */
  prune?: boolean;
  /** Take over schedules that were made by hand, or that another source declares. */
  adopt?: boolean;
}

/** How to purge a tenant. */
export interface WantedPurge {
  dry_run?: boolean;
  even_default?: boolean;
  limit?: number;
}

/** The quota of a tenant. Null or missing: any number. */
export interface WantedQuota {
  schedules?: number | null;
  queued_runs?: number | null;
}

/** Whether to mend. */
export interface WantedRepair {
  dry_run?: boolean;
}

/** A retention rule to set. At least one of `keep` and `most`. */
export interface WantedRetention {
  tenant?: string;
  state?: "cancelled" | "failed" | "succeeded";
  keep?: number | string;
  most?: number;
}

export interface WantedTemplate {
  name: string;
  /** Show what would change, and change nothing. */
  dry_run?: boolean;
  /** `0 9 * * mon-fri tz=Europe/Berlin`, `every 10m`. */
  trigger?: string;
  /** How many times a failed run is retried. */
  retries?: number;
  /** The wait before the first retry; it doubles with each retry. */
  backoff?: number | string;
  /** The longest wait before a retry. */
  max_backoff?: number | string;
  /** An attempt that takes longer is asked to stop, and fails unless it returns all the same. */
  timeout?: number | string | null;
  /** Whether a run is run again or fails when its worker dies. */
  on_crash?: "fail" | "rerun";
  /** How many times at most a run is run again after its worker died. */
  max_crashes?: number;
  /** A run that waits longer than this after its planned start is cancelled instead of executed. Retries count. */
  expires?: number | string | null;
  /** The queue in which a run waits for a worker. */
  queue?: string;
  /** Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8). */
  priority?: number | "high" | "low" | "normal";
  /** What the schedule is for. */
  description?: string;
  /** Words by which schedules are found: billing, team:ops. */
  tags?: string[];
  /** Which missed ticks run: only the latest, which stands for all of them; all; or none. */
  catch_up?: "all" | "latest" | "skip";
  /** Only for catch_up skip: ticks that are at most this late still run. */
  grace?: number | string;
  /** Only for catch_up all and skip: at most this many missed ticks run, the newest ones. */
  catch_up_limit?: number;
  /** Only for catch_up latest and all: ticks that are later than this do not run. */
  catch_up_max_age?: number | string | null;
  /** Only for catch_up all and skip: missed ticks run no faster than this: 10/m. */
  catch_up_rate?: string | null;
  /** What a tick does while the last run is active. */
  overlap?: "allow" | "cancel_running" | "queue" | "queue_all" | "skip";
  /** How many runs of the schedule may be active at once; further ticks wait. */
  max_concurrent?: number | null;
  /** Ticks fire up to this much later, by an amount that depends on the schedule's name alone. */
  spread?: number | string;
  /** Schedules that must have succeeded lately before a tick fires: load within 1h wait 30m. */
  after?: string | null;
}

/** A token to create. */
export interface WantedToken {
  name: string;
  role?: "admin" | "operator" | "viewer";
  tenant?: string | null;
  expires?: number | string | null;
}

export interface Why {
  verdict: "busy" | "calendar" | "cancelled" | "catching_up" | "chain" | "changed" | "clock_repeated" | "clock_skipped" | "coalesced" | "code_only" | "deferred" | "deleted" | "dependency" | "due" | "failed" | "finished" | "late" | "later" | "limit" | "limited" | "missing" | "never_existed" | "next" | "no_queue" | "no_task" | "no_tick" | "no_ticker" | "no_worker" | "not_due" | "not_yet_created" | "overlap" | "paused" | "purged" | "quarantined" | "rescheduled" | "retry" | "running" | "succeeded" | "too_new" | "trigger_unknown" | "unfit" | "unreadable" | "waits_for_run" | "waits_for_success";
  sentence: string;
  evidence: Fact[];
  remedy: string | null;
  schedule: string | null;
  asked: string | null;
  tick: string | null;
  run: string | null;
  before: string | null;
  after: string | null;
}

export interface Operations {
  /** List the alert channels of a tenant, without their secrets; with all_tenants, those of all owners. */
  "GET /alerts/channels": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: AlertChannels;
  };
  /** Create an alert channel. No answer has its secrets. */
  "POST /alerts/channels": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: NewAlertChannel;
    answer: AlertChannel;
  };
  /** Delete an alert channel; 409 names the rules that use it. */
  "DELETE /alerts/channels/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: undefined;
  };
  /** Return an alert channel, without its secrets. Its ETag is its revision. */
  "GET /alerts/channels/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: AlertChannel;
  };
  /** Change the kind, the URL or the secret of an alert channel. */
  "PATCH /alerts/channels/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: AlertChannelChanges | undefined;
    answer: AlertChannel;
  };
  /** Send a test message. The delivery, by its id, says what became of it. */
  "POST /alerts/channels/{name}/test": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: Delivery;
  };
  /** List announcements, the newest first: waiting, sent, or given up. They are kept for 30 days. */
  "GET /alerts/deliveries": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      limit?: number;
      /** From the page before. */
      cursor?: string;
    };
    body: undefined;
    answer: Deliveries;
  };
  /** Return one announcement, by its id. */
  "GET /alerts/deliveries/{id}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: Delivery;
  };
  /** List what alert rules have found wrong, the latest first. */
  "GET /alerts/incidents": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** What is wrong now; false: what is over, for 30 days. */
      open?: boolean;
      limit?: number;
    };
    body: undefined;
    answer: Incidents;
  };
  /** List the alert rules of a tenant; with all_tenants, those of all owners. */
  "GET /alerts/rules": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: AlertRules;
  };
  /** Create an alert rule; with all_tenants, one that covers all tenants. */
  "POST /alerts/rules": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: NewAlertRule;
    answer: AlertRule;
  };
  /** Delete an alert rule: its open incidents end without an announcement. */
  "DELETE /alerts/rules/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: undefined;
  };
  /** Return an alert rule. Its ETag is its revision. */
  "GET /alerts/rules/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: AlertRule;
  };
  /** Change some fields of an alert rule; the others, and its mute, stay. */
  "PATCH /alerts/rules/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: AlertRuleChanges | undefined;
    answer: AlertRule;
  };
  /** Mute an alert rule until a time. What is still wrong then is announced then. */
  "POST /alerts/rules/{name}/mute": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: Mute;
    answer: AlertRule;
  };
  /** End the mute of an alert rule: what is wrong now is announced now. */
  "POST /alerts/rules/{name}/unmute": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: AlertRule;
  };
  /** List the maintenance windows that are not over, by their start. */
  "GET /alerts/windows": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: MaintenanceWindows;
  };
  /** Mute the alerts of some schedules, or of all, from now or another time until a time. */
  "POST /alerts/windows": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: NewWindow;
    answer: MaintenanceWindow;
  };
  /** End a maintenance window before its time. */
  "DELETE /alerts/windows/{name}": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: undefined;
  };
  /** Make the schedules what is declared, in one atomic step. */
  "POST /apply": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: WantedApply | undefined;
    answer: DeployResult;
  };
  /** List what needs somebody now: late, failing, stuck, missing nodes, quarantined rows, an unsafe store. */
  "GET /attention": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: Attention;
  };
  /** List changes by hand, the newest first: who, when, what, before and after. */
  "GET /audit": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** A schedule's name, or an id. */
      subject?: string;
      actor?: string;
      action?: "add" | "backfill" | "cancel" | "create" | "declare" | "delete" | "drop" | "enqueue" | "move" | "mute" | "pause" | "purge" | "remove" | "repair" | "reschedule" | "reset" | "resume" | "retry" | "revoke" | "run_now" | "set" | "test" | "unmute" | "update";
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      until?: string;
      limit?: number;
      /** From the page before. */
      cursor?: string;
    };
    body: undefined;
    answer: Audit;
  };
  /** List the backfills, the newest first. One that is over is kept for 90 days. */
  "GET /backfills": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      schedule?: string;
      limit?: number;
    };
    body: undefined;
    answer: Backfills;
  };
  /** Return a backfill, and how far it is. */
  "GET /backfills/{id}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Backfill;
  };
  /** Add no further runs, cancel the queued ones, and ask running ones to stop. */
  "POST /backfills/{id}/cancel": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Backfill;
  };
  /** Retry or cancel all runs that match a filter; by default only count them and show a sample. */
  "POST /bulk/runs": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: BulkRuns;
    answer: BulkRunsResult;
  };
  /** Pause, resume, run, update or delete all schedules that match; by default only count them and show a */
  "POST /bulk/schedules": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: BulkSchedules;
    answer: BulkSchedulesResult;
  };
  /** List the calendars, the built-in ones first, each with the first schedules that use it. */
  "GET /calendars": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Calendars;
  };
  /** Delete a calendar that no schedule and no template uses. */
  "DELETE /calendars/{name}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: undefined;
  };
  /** Return a calendar, with the schedules that use it. */
  "GET /calendars/{name}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Calendar;
  };
  /** Create a calendar, or replace what it contains: the schedules that use it are planned anew. */
  "POST /calendars/{name}": {
    query: {
      tenant?: string;
    };
    body: WantedCalendar | undefined;
    answer: Calendar;
  };
  /** List the days of a calendar among the ``count`` days from ``since``. */
  "GET /calendars/{name}/days": {
    query: {
      tenant?: string;
      /** `2026-12-01`; by default today. */
      since?: string;
      /** Of so many days. */
      count?: number;
      /** An IANA name; by default the trigger's zone. */
      tz?: string;
    };
    body: undefined;
    answer: CalendarDays;
  };
  /** Check the store, and whether nodes work on it; each finding says what to do. */
  "GET /doctor": {
    query: { [key: string]: never };
    body: undefined;
    answer: Findings;
  };
  /** Stream what changes, as Server-Sent Events: kinds and ids, at most one message a second. */
  "GET /events": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: undefined;
  };
  /** Return the newest failed runs, grouped by error. Errors that differ only in values are one group. */
  "GET /failures": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      schedule?: string;
      task?: string;
      limit?: number;
    };
    body: undefined;
    answer: FailureReport;
  };
  /** Return a run of a flow: the graph that it was started with, and the state of each step. */
  "GET /flow-runs/{id}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: FlowRun;
  };
  /** Cancel a flow: queued steps are over at once, running ones are asked to stop, and no other step starts. */
  "POST /flow-runs/{id}/cancel": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: FlowRun;
  };
  /** Run again what failed, was cancelled, or did not run because of that; keep what succeeded. */
  "POST /flow-runs/{id}/resume": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: FlowRun;
  };
  /** Run a step again, and what came after it, whether it succeeded or not. */
  "POST /flow-runs/{id}/retry": {
    query: {
      tenant?: string;
    };
    body: RetryStep;
    answer: FlowRun;
  };
  /** List the flows of the app that this server was started with, by name. */
  "GET /flows": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** How many of the last runs of each flow to return. */
      recent?: number;
    };
    body: undefined;
    answer: Flows;
  };
  /** Return a flow of the app that this server was started with: its steps, and what they wait for. */
  "GET /flows/{flow}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: FlowInfo;
  };
  /** Start a flow: due at once, after a delay, or at a time. */
  "POST /flows/{flow}/run": {
    query: {
      tenant?: string;
    };
    body: StartFlow | undefined;
    answer: Run;
  };
  /** Return how many runs start in each coming minute or hour, with peaks, quiet windows and spreads. */
  "GET /forecast": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** At most 168 by the minute. */
      hours?: number;
      /** RFC 3339, or a duration from now, like 2h. */
      since?: string;
      by?: "hour" | "minute";
    };
    body: undefined;
    answer: Forecast;
  };
  /** Remove the limit that has exactly these names: runs that waited for it may start at once. */
  "DELETE /limits": {
    query: {
      task?: string;
      queue?: string;
      tenant?: string;
      /** A field of the payload: the limit holds for each value of it. */
      key?: string;
    };
    body: undefined;
    answer: undefined;
  };
  /** List the limits, each with what is running and what waits; only those with the names in the query. */
  "GET /limits": {
    query: {
      task?: string;
      queue?: string;
      tenant?: string;
      /** A field of the payload: the limit holds for each value of it. */
      key?: string;
    };
    body: undefined;
    answer: RunLimits;
  };
  /** Set a limit; replace the one with the same task, queue, tenant and key. */
  "POST /limits": {
    query: { [key: string]: never };
    body: WantedLimit | undefined;
    answer: RunLimit;
  };
  /** Return who sends the request, and what they may do. */
  "GET /me": {
    query: { [key: string]: never };
    body: undefined;
    answer: Me;
  };
  /** Return all metrics in the text format of Prometheus, or as OpenMetrics if Accept asks for it. */
  "GET /metrics": {
    query: { [key: string]: never };
    body: undefined;
    answer: string;
  };
  /** List the live nodes, with their tasks and queues. */
  "GET /nodes": {
    query: { [key: string]: never };
    body: undefined;
    answer: Nodes;
  };
  /** Return this description of the API, as OpenAPI 3.1. */
  "GET /openapi.json": {
    query: { [key: string]: never };
    body: undefined;
    answer: { [key: string]: unknown };
  };
  /** Return what a deploy of the server's own app would change: its code, and its file with schedules. */
  "GET /plan": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** Remove schedules that the same source declared once, and does not declare any more. */
      prune?: boolean;
      /** Take over schedules that were made by hand, or that another source declares. */
      adopt?: boolean;
    };
    body: undefined;
    answer: DeployPlan;
  };
  /** Return what a deploy of these schedules would change. Nothing is changed. */
  "POST /plan": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: WantedPlan;
    answer: DeployPlan;
  };
  /** Explain a trigger in words, with its next ticks and the effect of clock changes. Nothing is stored. */
  "POST /preview": {
    query: { [key: string]: never };
    body: Preview;
    answer: TriggerExplanation;
  };
  /** List the schedules and runs that nodes can't process, with the reason and what to do. */
  "GET /quarantine": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: undefined;
    answer: Quarantine;
  };
  /** Delete the note of a row and, if it is a schedule that nodes can't process, the schedule. */
  "DELETE /quarantine/{id}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: QuarantineChange;
  };
  /** Return why a schedule or run is in quarantine, what can be read of it, and what helps. */
  "GET /quarantine/{id}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: QuarantinedRow;
  };
  /** Give a schedule its wake-up again, or queue a run again. */
  "POST /quarantine/{id}/retry": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: QuarantineChange;
  };
  /** List the queues: how many runs wait, which live nodes take from them, and whether they drain. */
  "GET /queues": {
    query: {
      /** Seconds: runs that came due or ended in them are counted. */
      period?: number;
    };
    body: undefined;
    answer: Queues;
  };
  /** Find duplicates, stuck rows and leftovers, of all tenants; with `dry_run` false, mend them. */
  "POST /repair": {
    query: { [key: string]: never };
    body: WantedRepair | undefined;
    answer: RepairReport;
  };
  /** Delete the rule for exactly this tenant and state. */
  "DELETE /retention": {
    query: {
      tenant?: string;
      state?: "cancelled" | "failed" | "succeeded";
    };
    body: undefined;
    answer: undefined;
  };
  /** List the retention rules: how long, and how many, ended runs are kept. */
  "GET /retention": {
    query: { [key: string]: never };
    body: undefined;
    answer: Retention;
  };
  /** Create the rule for a tenant and state, or replace it. Nodes apply it within a minute. */
  "POST /retention": {
    query: { [key: string]: never };
    body: WantedRetention | undefined;
    answer: RetentionRule;
  };
  /** List runs, the newest first, a page at a time. */
  "GET /runs": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      schedule?: string;
      task?: string;
      queue?: string;
      worker?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      until?: string;
      state?: "cancelled" | "failed" | "queued" | "retrying" | "running" | "succeeded";
      /** Leave out payloads, results and errors: they are null. */
      brief?: boolean;
      limit?: number;
      /** From the page before. */
      cursor?: string;
    };
    body: undefined;
    answer: Runs;
  };
  /** Add one run of a task: due at once, after a delay, or at a time. */
  "POST /runs": {
    query: {
      tenant?: string;
    };
    body: NewRun;
    answer: Run;
  };
  /** Make the queued runs of a task runs of another one; by default only count them and show a sample. */
  "POST /runs/move": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
    };
    body: WantedMove;
    answer: MoveResult;
  };
  /** Return a run, with its attempts, error and result. */
  "GET /runs/{id}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Run;
  };
  /** Cancel a run: a queued one is over at once, a running one is asked to stop. */
  "POST /runs/{id}/cancel": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Run;
  };
  /** Return the changes of a run by hand, the newest first. */
  "GET /runs/{id}/history": {
    query: {
      tenant?: string;
      limit?: number;
    };
    body: undefined;
    answer: RunHistory;
  };
  /** Return the lines that a run wrote to its log, attempt by attempt. */
  "GET /runs/{id}/logs": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Log;
  };
  /** Retry a failed or cancelled run now, with all its retries. */
  "POST /runs/{id}/retry": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Run;
  };
  /** Explain why a run waits, failed, or has not started. */
  "GET /runs/{id}/why": {
    query: {
      tenant?: string;
      /** An IANA name; by default the trigger's zone. */
      tz?: string;
    };
    body: undefined;
    answer: Why;
  };
  /** List schedules, a page at a time. */
  "GET /schedules": {
    query: {
      /** Part of the name, description, task or a tag. */
      text?: string;
      /** A pattern of names: `report-*`. `*` stands for any characters, `?` for one; upper and lower case differ. */
      name?: string;
      state?: "active" | "finished" | "paused";
      task?: string;
      tag?: string;
      queue?: string;
      /** `code`: schedules that the code declares; `file`: those of a file; `api`: the others. */
      managed_by?: "api" | "code" | "file";
      /** The template from which it inherits. */
      template?: string;
      /** Whether its last run failed. */
      failing?: boolean;
      /** Whether it should have fired more than 30 s ago. */
      late?: boolean;
      tenant?: string;
      all_tenants?: boolean;
      sort?: "-name" | "-updated_at" | "name" | "task" | "updated_at";
      /** Add so many of the last runs of each schedule. */
      recent?: number;
      limit?: number;
      /** From the page before. */
      cursor?: string;
    };
    body: undefined;
    answer: Schedules;
  };
  /** Create a schedule. */
  "POST /schedules": {
    query: {
      tenant?: string;
    };
    body: NewSchedule;
    answer: Schedule;
  };
  /** Delete a schedule; its runs and their history stay. `warnings` name the schedules that wait for it. */
  "DELETE /schedules/{name}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: DeletedSchedule;
  };
  /** Return a schedule. Its ETag is its revision. */
  "GET /schedules/{name}": {
    query: {
      tenant?: string;
      /** Add so many of the last runs of each schedule. */
      recent?: number;
      /** Also return a schedule that was deleted; its `state` says so. */
      deleted?: boolean;
    };
    body: undefined;
    answer: Schedule;
  };
  /** Change some fields of a schedule; the others, and its pause, stay. No tick fires from the change. */
  "PATCH /schedules/{name}": {
    query: {
      tenant?: string;
    };
    body: ScheduleChanges | undefined;
    answer: Schedule;
  };
  /** Account for each tick of a schedule: ran, coalesced or skipped; 0 missing, 0 twice. */
  "GET /schedules/{name}/account": {
    query: {
      tenant?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      until?: string;
    };
    body: undefined;
    answer: Account;
  };
  /** Add a run for each tick of a past range, a few at a time. The same request again adds nothing. */
  "POST /schedules/{name}/backfill": {
    query: {
      tenant?: string;
    };
    body: NewBackfill;
    answer: Backfill;
  };
  /** Return the calendars that a schedule's trigger names, and the next ticks that they remove. */
  "GET /schedules/{name}/calendars": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: ScheduleCalendars;
  };
  /** Return what became of the ticks of a schedule, and its ticks to come, in hours or days of a zone. */
  "GET /schedules/{name}/cells": {
    query: {
      tenant?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration from now, like 2h. */
      until?: string;
      by?: "day" | "hour";
      /** An IANA name; by default the trigger's zone. */
      tz?: string;
    };
    body: undefined;
    answer: HeatMap;
  };
  /** Return what a schedule waits for, with the last successes, and the schedules that wait for it. */
  "GET /schedules/{name}/dependencies": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Dependencies;
  };
  /** Return the changes of a schedule, the newest first. */
  "GET /schedules/{name}/history": {
    query: {
      tenant?: string;
      limit?: number;
    };
    body: undefined;
    answer: ScheduleHistory;
  };
  /** Pause a schedule until it is resumed, or until a time. It starts no run. */
  "POST /schedules/{name}/pause": {
    query: {
      tenant?: string;
    };
    body: Pause | undefined;
    answer: Schedule;
  };
  /** Move the next tick, and only that one; later ticks follow the trigger. */
  "POST /schedules/{name}/reschedule": {
    query: {
      tenant?: string;
    };
    body: Reschedule;
    answer: Schedule;
  };
  /** Undo edits by hand: the schedule becomes what the code last declared. */
  "POST /schedules/{name}/reset": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Schedule;
  };
  /** Return what a resume would do now: what becomes of the missed ticks. Nothing is changed. */
  "GET /schedules/{name}/resume": {
    query: {
      tenant?: string;
      /** An IANA name; by default the trigger's zone. */
      tz?: string;
      /** The catch-up policy decides about the ticks of the pause, instead of skipping them. */
      catch_up?: boolean;
    };
    body: undefined;
    answer: ResumePreview;
  };
  /** End the pause of a schedule: its next tick fires again. */
  "POST /schedules/{name}/resume": {
    query: {
      tenant?: string;
    };
    body: Resume | undefined;
    answer: Schedule;
  };
  /** Add one run at once, beside the ticks: the next tick stays where it is. */
  "POST /schedules/{name}/run": {
    query: {
      tenant?: string;
    };
    body: RunNow | undefined;
    answer: Run;
  };
  /** Return the ticks that did not become runs of their own, and why; the newest first. */
  "GET /schedules/{name}/skipped": {
    query: {
      tenant?: string;
      limit?: number;
    };
    body: undefined;
    answer: Ledger;
  };
  /** Return how often a schedule ran, when last, and its last error; purged runs are counted, too. */
  "GET /schedules/{name}/stats": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: ScheduleStats;
  };
  /** Return the coming ticks of a schedule. */
  "GET /schedules/{name}/ticks": {
    query: {
      tenant?: string;
      count?: number;
    };
    body: undefined;
    answer: Ticks;
  };
  /** Explain why a schedule ran, or did not run, at a time: a sentence, evidence, and what to do. */
  "GET /schedules/{name}/why": {
    query: {
      tenant?: string;
      /** An IANA name; by default the trigger's zone. */
      tz?: string;
      /** A time, in the trigger's zone unless it has an offset; by default now. */
      at?: string;
    };
    body: undefined;
    answer: Why;
  };
  /** Log out: servers refuse the cookie within 5 seconds, and its event streams end. The token stays. */
  "DELETE /session": {
    query: { [key: string]: never };
    body: undefined;
    answer: undefined;
  };
  /** Log in with a token: the answer sets the cookie of a session. */
  "POST /session": {
    query: { [key: string]: never };
    body: Login;
    answer: Me;
  };
  /** Return how many ticks fired and runs ended, and how long and how late they were, over time. */
  "GET /statistics": {
    query: {
      tenant?: string;
      all_tenants?: boolean;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration before now, like 2h. */
      until?: string;
      by?: "hour" | "minute";
      schedule?: string;
      task?: string;
      /** Add the figures of so many schedules and tasks, the busiest. */
      top?: number;
    };
    body: undefined;
    answer: FigureSeries;
  };
  /** List the templates of a tenant, and then the built-in ones. */
  "GET /templates": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Templates;
  };
  /** Create a template, or replace all of its options, and change the schedules that inherit from it. */
  "POST /templates": {
    query: {
      tenant?: string;
    };
    body: WantedTemplate;
    answer: TemplateChange;
  };
  /** Delete a template. 409 if schedules inherit from it; the problem names them. */
  "DELETE /templates/{name}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: undefined;
  };
  /** Return a template. GET /schedules?template=… lists the schedules that inherit from it. */
  "GET /templates/{name}": {
    query: {
      tenant?: string;
    };
    body: undefined;
    answer: Template;
  };
  /** List the tenants that have schedules, runs or a quota, with counts. */
  "GET /tenants": {
    query: {
      limit?: number;
    };
    body: undefined;
    answer: Tenants;
  };
  /** Return a tenant, with its ended runs by state, its longest waiting run, its next fire and its limits. */
  "GET /tenants/{name}": {
    query: { [key: string]: never };
    body: undefined;
    answer: TenantDetails;
  };
  /** Delete everything of a tenant: schedules, runs, history, records and tokens; by default only count. */
  "POST /tenants/{name}/purge": {
    query: { [key: string]: never };
    body: WantedPurge | undefined;
    answer: TenantPurge;
  };
  /** Remove the quota of a tenant: it may have any number of schedules and queued runs. */
  "DELETE /tenants/{name}/quota": {
    query: { [key: string]: never };
    body: undefined;
    answer: undefined;
  };
  /** Set the quota of a tenant, or replace it. It holds in all processes within 5 seconds. */
  "POST /tenants/{name}/quota": {
    query: { [key: string]: never };
    body: WantedQuota | undefined;
    answer: Quota;
  };
  /** Return the ticks of many schedules over a range, past and future, in at most 360 columns. */
  "GET /timeline": {
    query: {
      /** Part of the name, description, task or a tag. */
      text?: string;
      /** A pattern of names: `report-*`. `*` stands for any characters, `?` for one; upper and lower case differ. */
      name?: string;
      state?: "active" | "finished" | "paused";
      task?: string;
      tag?: string;
      queue?: string;
      /** `code`: schedules that the code declares; `file`: those of a file; `api`: the others. */
      managed_by?: "api" | "code" | "file";
      /** The template from which it inherits. */
      template?: string;
      /** Whether its last run failed. */
      failing?: boolean;
      /** Whether it should have fired more than 30 s ago. */
      late?: boolean;
      tenant?: string;
      all_tenants?: boolean;
      /** RFC 3339, or a duration before now, like 2h. */
      since?: string;
      /** RFC 3339, or a duration from now, like 2h. */
      until?: string;
      limit?: number;
      /** From the page before. */
      cursor?: string;
    };
    body: undefined;
    answer: ScheduleTimeline;
  };
  /** List the tokens that work, those used last first, without their secrets. */
  "GET /tokens": {
    query: { [key: string]: never };
    body: undefined;
    answer: Tokens;
  };
  /** Create a token. Its secret is in this answer, and nowhere else. */
  "POST /tokens": {
    query: { [key: string]: never };
    body: WantedToken;
    answer: NewToken;
  };
  /** Revoke a token: servers refuse it within 5 seconds. */
  "DELETE /tokens/{id}": {
    query: { [key: string]: never };
    body: undefined;
    answer: undefined;
  };
}

// The form of a schedule: its texts, what is wrong with them, and the body of the request. Pure.
//
// All values are texts, as they are typed. In the form of a new schedule an empty text means "as the task or the
// server has it". In the form of an edit only changed texts are sent.

import type { NewSchedule, Schedule } from "../../api/schema";

export const FIELDS = [
  "name",
  "task",
  "trigger",
  "payload",
  "tags",
  "description",
  "catch_up",
  "grace",
  "catch_up_limit",
  "catch_up_max_age",
  "catch_up_rate",
  "overlap",
  "max_concurrent",
  "spread",
  "after",
  "retries",
  "backoff",
  "max_backoff",
  "timeout",
  "on_crash",
  "max_crashes",
  "expires",
  "queue",
  "priority",
] as const;

export type FieldName = (typeof FIELDS)[number];
export type Form = Record<FieldName, string>;
export type Errors = Partial<Record<FieldName, string>>;

export const LABELS: Record<FieldName, string> = {
  name: "Name",
  task: "Task",
  trigger: "Trigger",
  payload: "Payload",
  tags: "Tags",
  description: "Description",
  catch_up: "Missed ticks",
  grace: "Grace",
  catch_up_limit: "Most missed ticks",
  catch_up_max_age: "Oldest missed tick",
  catch_up_rate: "Rate of missed ticks",
  overlap: "Overlap",
  max_concurrent: "Most runs at once",
  spread: "Spread",
  after: "After",
  retries: "Retries",
  backoff: "Wait before the first retry",
  max_backoff: "Longest wait before a retry",
  timeout: "Timeout",
  on_crash: "When its worker dies",
  max_crashes: "Most crashes",
  expires: "Expires",
  queue: "Queue",
  priority: "Priority",
};

/** Return which fields need another value: "2 fields need another value: name, trigger."; an empty text if none does. */
export function wrongText(errors: Errors): string {
  const names = FIELDS.filter((name) => errors[name] !== undefined).map((name) => LABELS[name].toLowerCase());
  if (names.length === 0) return "";
  return `${names.length === 1 ? "1 field needs" : `${names.length} fields need`} another value: ${names.join(", ")}.`;
}

type Kind = "text" | "payload" | "tags" | "count" | "duration" | "choice" | "priority" | "rate";

const KINDS: Record<FieldName, Kind> = {
  name: "text",
  task: "text",
  trigger: "text",
  payload: "payload",
  tags: "tags",
  description: "text",
  catch_up: "choice",
  grace: "duration",
  catch_up_limit: "count",
  catch_up_max_age: "duration",
  catch_up_rate: "rate",
  overlap: "choice",
  max_concurrent: "count",
  spread: "duration",
  after: "text",
  retries: "count",
  backoff: "duration",
  max_backoff: "duration",
  timeout: "duration",
  on_crash: "choice",
  max_crashes: "count",
  expires: "duration",
  queue: "text",
  priority: "priority",
};

/** Fields whose empty text means that there is none. */
const OPTIONAL: ReadonlySet<FieldName> = new Set(["payload", "tags", "description", "catch_up_max_age", "catch_up_rate", "max_concurrent", "after", "timeout", "expires"]);
const REQUIRED: ReadonlySet<FieldName> = new Set(["name", "task", "trigger"]);

const BOUNDS: Partial<Record<FieldName, [low: number, high: number]>> = {
  catch_up_limit: [1, 10_000],
  max_concurrent: [1, 10_000],
  retries: [0, 1_000],
  max_crashes: [0, 1_000],
};

export const EMPTY: Form = Object.fromEntries(FIELDS.map((name) => [name, ""])) as Form;

const UNITS: [string, number][] = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
];

/** Return a duration as the server reads it: 5400 seconds are "1h30m". */
export function durationIn(seconds: number | null): string {
  if (seconds === null) return "";
  let rest = Math.round(seconds * 1_000);
  let text = "";
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) text += `${count}${unit}`;
  }
  return text || "0s";
}

/** Return a payload as text. One whose numbers JavaScript would round comes as text from the server. */
export function payloadText({ payload, payload_text }: Pick<Schedule, "payload" | "payload_text">): string {
  if (payload_text !== null) return payload_text;
  return payload === null || payload === undefined ? "" : JSON.stringify(payload, null, 2);
}

/** The ways to catch up that use an option. The server refuses to set an option that the way ignores. */
const USED_BY = {
  grace: ["skip"],
  catch_up_limit: ["all", "skip"],
  catch_up_max_age: ["latest", "all"],
  catch_up_rate: ["all", "skip"],
} satisfies Partial<Record<FieldName, string[]>>;

type CatchUpOption = keyof typeof USED_BY;

function isCatchUpOption(name: FieldName): name is CatchUpOption {
  return name in USED_BY;
}

/** Return whether a schedule that catches up this way uses an option. */
export function usesOption(catchUp: string, name: CatchUpOption): boolean {
  return (USED_BY[name] as string[]).includes(catchUp);
}

/** Return the form with the values of a schedule. */
export function formOf(schedule: Schedule): Form {
  const optional = (value: number | null): string => (value === null ? "" : String(value));
  return {
    name: schedule.name,
    task: schedule.task,
    trigger: schedule.trigger,
    payload: payloadText(schedule),
    tags: schedule.tags.join(" "),
    description: schedule.description,
    catch_up: schedule.catch_up,
    grace: usesOption(schedule.catch_up, "grace") ? durationIn(schedule.grace) : "",
    catch_up_limit: usesOption(schedule.catch_up, "catch_up_limit") ? String(schedule.catch_up_limit) : "",
    catch_up_max_age: usesOption(schedule.catch_up, "catch_up_max_age") ? durationIn(schedule.catch_up_max_age) : "",
    catch_up_rate: usesOption(schedule.catch_up, "catch_up_rate") ? (schedule.catch_up_rate ?? "") : "",
    overlap: schedule.overlap,
    max_concurrent: optional(schedule.max_concurrent),
    spread: durationIn(schedule.spread),
    after: schedule.after ?? "",
    retries: String(schedule.retries),
    backoff: durationIn(schedule.backoff),
    max_backoff: durationIn(schedule.max_backoff),
    timeout: durationIn(schedule.timeout),
    on_crash: schedule.on_crash,
    max_crashes: String(schedule.max_crashes),
    expires: durationIn(schedule.expires),
    queue: schedule.queue,
    priority: String(schedule.priority),
  };
}

const NAME = /^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}$/;
const LABEL = /^[A-Za-z0-9_-]{1,128}$/;
const DURATION = /^(\d+(\.\d+)?\s*(ms|[wdhms])\s*)+$/;
const RATE = /^\d+\s*\/\s*(\d+(\.\d+)?)?\s*[wdhms]$/;
const NAMES = "1 to 128 letters, digits, _, -, . or : (not . or : first)";

export function isName(text: string): boolean {
  return NAME.test(text);
}

/** Return whether a text can be the name of a tenant. */
export function isLabel(text: string): boolean {
  return LABEL.test(text);
}

export function tagsOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}

/** Return what is wrong with the texts, as far as the page can tell. `before`: the form of the schedule to edit. */
export function errorsOf(form: Form, before: Form | null): Errors {
  const errors: Errors = {};
  for (const name of FIELDS) {
    const problem = before !== null && form[name] === before[name] ? null : problemOf(name, form, before);
    if (problem !== null) errors[name] = problem;
  }
  return errors;
}

function problemOf(name: FieldName, form: Form, before: Form | null): string | null {
  const text = form[name].trim();
  if (text === "") {
    const isNeeded = REQUIRED.has(name) || (before !== null && !OPTIONAL.has(name) && !isIgnored(name, form) && before[name] !== "");
    return isNeeded ? `Give a value: ${LABELS[name].toLowerCase()} is needed.` : null;
  }
  if (name === "name") return isName(text) ? null : `A name has ${NAMES}.`;
  if (name === "queue") return LABEL.test(text) ? null : "A queue has 1 to 128 letters, digits, _ or -.";
  if (name === "task") return /\s/.test(text) ? "The name of a task has no spaces." : null;
  switch (KINDS[name]) {
    case "payload":
      return payloadProblem(text);
    case "tags": {
      const wrong = tagsOf(text).find((tag) => !isName(tag));
      return wrong === undefined ? null : `The tag “${wrong}” is not ${NAMES}.`;
    }
    case "count": {
      const [low, high] = BOUNDS[name] ?? [0, Number.MAX_SAFE_INTEGER];
      const isRight = /^\d+$/.test(text) && Number(text) >= low && Number(text) <= high;
      return isRight ? null : `Give a whole number, ${low.toLocaleString("en-US")} to ${high.toLocaleString("en-US")}.`;
    }
    case "duration":
      return DURATION.test(text) ? null : "Write it like 10s, 5m, 1h30m or 7d.";
    case "rate":
      return RATE.test(text) ? null : "Write it like 10/m, 5/s, 1000/h or 10/30s.";
    default:
      return null;
  }
}

function payloadProblem(text: string): string | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : "it can't be read"}`;
  }
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject || value === null ? null : 'A payload is an object: {"key": "value"}';
}

/** Return the fields whose values differ from those of the schedule. */
export function changedFields(form: Form, before: Form): FieldName[] {
  return FIELDS.filter((name) => normal(name, form[name]) !== normal(name, before[name]));
}

function normal(name: FieldName, text: string): string {
  return KINDS[name] === "tags" ? tagsOf(text).join(" ") : text.trim();
}

/** Return the JSON text of a value. The payload stays as it was typed: its numbers keep every digit. */
export function jsonText(name: FieldName, form: Form): string {
  const text = form[name].trim();
  switch (KINDS[name]) {
    case "payload":
      return text === "" ? "null" : text;
    case "tags":
      return JSON.stringify(tagsOf(text));
    case "count":
      return text === "" ? "null" : String(Number(text));
    case "duration":
    case "rate":
      return text === "" ? "null" : JSON.stringify(text);
    case "priority":
      return String(Number(text));
    default:
      return JSON.stringify(text);
  }
}

export type Extra = Pick<NewSchedule, "paused" | "note" | "run_now" | "template">;

/** Return the body of a request that creates the schedule. */
export function createBody(form: Form, extra: Extra = {}): string {
  const given = FIELDS.filter((name) => form[name].trim() !== "" && !isIgnored(name, form));
  const more = Object.entries(extra).filter(([, value]) => value !== undefined && value !== false && value !== "");
  return asObject([...given.map((name): [string, string] => [name, jsonText(name, form)]), ...more.map(([name, value]): [string, string] => [name, JSON.stringify(value)])]);
}

/** Return the body of a request that changes the schedule: only what differs. */
export function changeBody(form: Form, before: Form): string {
  const sent = changedFields(form, before).filter((name) => name !== "name" && !(isIgnored(name, form) || isCleared(name, form)));
  return asObject(sent.map((name) => [name, jsonText(name, form)]));
}

function isIgnored(name: FieldName, form: Form): boolean {
  return isCatchUpOption(name) && !usesOption(form.catch_up, name);
}

/** An empty text of an option that always has a value: the value stays. */
function isCleared(name: FieldName, form: Form): boolean {
  return form[name].trim() === "" && !OPTIONAL.has(name);
}

function asObject(members: [string, string][]): string {
  return `{${members.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(",")}}`;
}

/**
 * Return the form after the schedule has changed meanwhile: what the user has changed stays, the rest is as in
 * the schedule now.
 */
export function rebased(form: Form, before: Form, now: Form): Form {
  const mine = new Set(changedFields(form, before));
  return Object.fromEntries(FIELDS.map((name) => [name, mine.has(name) ? form[name] : now[name]])) as Form;
}

/** Return the field of the form that a problem is about; null if it is about none. */
export function fieldOf(field: string | null): FieldName | null {
  const first = (field ?? "").split(/[.[]/)[0];
  // The parts of a trigger have names of their own, and so has its zone.
  if (first === "within" || first === "wait" || first === "otherwise") return "after";
  if (first === "tz" || first === "start" || first === "until" || first === "expression") return "trigger";
  return FIELDS.find((name) => name === first) ?? null;
}

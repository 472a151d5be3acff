// What a change by hand did to each field: before and after, as texts. Pure.

export interface FieldChange {
  name: string;
  /** null: the field was not there. */
  before: string | null;
  after: string | null;
  /** Whether the values are instants in RFC 3339. */
  isTime: boolean;
}

type Values = { [key: string]: unknown };

const TIMES = new Set(["next_run", "paused_until", "run_at", "wake_at", "expires", "muted_until", "starts_at", "until", "start_at"]);
const LONGEST = 300;

/** Return the fields that an entry of the audit names. A field that was there before and is not there after was removed. */
export function changesOf(before: Values, after: Values): FieldChange[] {
  const names = [...new Set([...Object.keys(after), ...Object.keys(before)])].filter((name) => !isTwin(name, before) && !isTwin(name, after));
  return names.map((name) => ({
    name,
    before: textOf(before, name),
    after: textOf(after, name),
    isTime: TIMES.has(name) && [before[name], after[name]].every((value) => value === undefined || value === null || isInstant(value)),
  }));
}

function isInstant(value: unknown): boolean {
  return typeof value === "string" && !Number.isNaN(Date.parse(value));
}

/** Return whether a field has the exact text of the field beside it: payload_text of payload. */
function isTwin(name: string, values: Values): boolean {
  return name.endsWith("_text") && name.slice(0, -"_text".length) in values;
}

function textOf(values: Values, name: string): string | null {
  if (!(name in values)) return null;
  const exact = values[`${name}_text`];
  return typeof exact === "string" ? cut(exact) : valueText(values[name]);
}

/** Return a value as people read it; long ones are cut. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "string") return cut(value);
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return cut(value.join(" ") || "none");
  return cut(JSON.stringify(value));
}

function cut(text: string): string {
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

/** Return rows of a list that is read again: rows that are shown stay where they are, and new ones are counted. */
export function steadyRows<T>(shown: T[], fresh: T[], keyOf: (row: T) => string): { rows: T[]; added: number } {
  const found = new Map(fresh.map((row) => [keyOf(row), row]));
  const known = new Set(shown.map(keyOf));
  return {
    rows: shown.map((row) => found.get(keyOf(row)) ?? row),
    added: fresh.filter((row) => !known.has(keyOf(row))).length,
  };
}

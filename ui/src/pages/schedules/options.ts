// Some options and their new values, as a bulk change and a template have them. Pure.

import { EMPTY, errorsOf, type FieldName, FIELDS, type Form, jsonText } from "./form";

/** The options that many schedules may share. */
export type OptionName = Exclude<FieldName, "name" | "task" | "payload">;

export interface OptionRow {
  option: OptionName;
  text: string;
}

export const OPTIONS: OptionName[] = FIELDS.filter((name): name is OptionName => name !== "name" && name !== "task" && name !== "payload");

/** Return the rows with one more: the first option that no row has. */
export function withRow(rows: OptionRow[]): OptionRow[] {
  const first = PREFERRED.find((option) => rows.every((row) => row.option !== option)) ?? nextOption(rows);
  return first === undefined ? rows : [...rows, { option: first, text: "" }];
}

const PREFERRED: OptionName[] = ["retries", "queue", "timeout", "trigger"];

function nextOption(rows: OptionRow[]): OptionName | undefined {
  return OPTIONS.find((option) => rows.every((row) => row.option !== option));
}

/** Return the options that a row may have: its own, and those that no other row has. */
export function choicesOf(rows: OptionRow[], index: number): OptionName[] {
  return OPTIONS.filter((option) => rows.every((row, other) => other === index || row.option !== option));
}

function formOf(rows: OptionRow[]): Form {
  const form = { ...EMPTY };
  for (const { option, text } of rows) form[option] = text;
  return form;
}

/** Return what is wrong with the text of a row, as far as the page can tell; null if nothing is. */
export function problemOf(rows: OptionRow[], { option, text }: OptionRow): string | null {
  return text.trim() === "" ? null : (errorsOf(formOf(rows), null)[option] ?? null);
}

/** Options whose empty text means that there is none. The others need a value. */
const CLEARED: ReadonlySet<OptionName> = new Set(["tags", "description", "catch_up_max_age", "catch_up_rate", "max_concurrent", "timeout", "expires"]);

export function mayBeEmpty(option: OptionName): boolean {
  return CLEARED.has(option);
}

/** Return whether the rows can be sent. */
export function areComplete(rows: OptionRow[]): boolean {
  return rows.length > 0 && rows.every((row) => (row.text.trim() !== "" || mayBeEmpty(row.option)) && problemOf(rows, row) === null);
}

/** Return the options with their values as the server takes them. */
export function valuesOf(rows: OptionRow[]): { [option: string]: unknown } {
  const form = formOf(rows);
  return Object.fromEntries(rows.map(({ option }) => [option, JSON.parse(jsonText(option, form)) as unknown]));
}

/** Return options that the server sent as rows. */
export function rowsOf(options: { [option: string]: unknown }): OptionRow[] {
  return OPTIONS.filter((option) => option in options).map((option) => ({ option, text: optionText(options[option]) }));
}

/** Return the value of an option as a form shows it. */
export function optionText(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(" ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

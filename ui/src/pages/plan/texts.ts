// The plan of a deploy in words, and what it does to the next ticks. Pure.

import type { DeployPlan, DeployResult, FieldChange, PlanEntry } from "../../api/schema";
import { counted } from "../../time/format";
import type { OptionChange } from "../schedules/compare";
import type { TickChange } from "../schedules/ticks";

export type Action = PlanEntry["action"];

export const DONE: Action[] = ["add", "change", "remove"];

export const TITLES: Record<Action, string> = {
  add: "To add",
  change: "To change",
  remove: "To remove",
  refused: "Would be refused",
  conflict: "Conflicts",
  drift: "Edited by hand",
  orphan: "Not declared any more",
  unchanged: "Unchanged",
};

export const HELP: Record<Action, string> = {
  add: "The declaration has them, and the store does not.",
  change: "They are declared otherwise than they are stored.",
  remove: "They were declared once, and are not any more. Their runs stay.",
  refused: "They would wait for themselves, or for a schedule that does not exist. They stay as they are.",
  conflict: "They were made by hand, or another source declares them. They stay as they are, unless the deploy takes them over.",
  drift: "They are declared otherwise, and somebody edited them since. The edit stays until the declaration changes.",
  orphan: "They were declared once, and are not any more. They stay, unless the deploy removes them.",
  unchanged: "They are as declared.",
};

export const ORDER: Action[] = ["refused", "conflict", "add", "change", "remove", "drift", "orphan"];

/** Return "2 to add, 1 to change, 0 to remove". */
export function countsText(plan: DeployPlan): string {
  return DONE.map((action) => `${ofAction(plan, action).length} to ${action}`).join(", ");
}

export function ofAction(plan: DeployPlan, action: Action): PlanEntry[] {
  return plan.entries.filter((entry) => entry.action === action);
}

export function toDo(plan: DeployPlan): PlanEntry[] {
  return plan.entries.filter(({ action }) => DONE.includes(action));
}

export function resultText(result: DeployResult): string {
  const done = result.done.length === 0 ? "Nothing was changed." : `Applied ${counted(result.done.length, "change")}.`;
  return result.refused.length === 0 ? done : `${done} ${counted(result.refused.length, "schedule")} refused: look at the plan again.`;
}

export function optionChanges(changes: FieldChange[]): OptionChange[] {
  return changes.map(({ field, before, after }) => ({ name: field, before: asText(before), after: asText(after) }));
}

function asText(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(" ");
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

/** The server sends so many ticks; a shorter list is complete. */
const SENT = 5;

/** Return what a change does to the next ticks. Beyond the end of a list that is not complete, nothing is known. */
export function plannedTicks(before: string[], after: string[]): TickChange[] {
  const [old, fresh] = [before, after].map((ticks) => ticks.map((at) => Date.parse(at))) as [number[], number[]];
  const [oldEnd, freshEnd] = [endOf(old), endOf(fresh)];
  const all = [...new Set([...old, ...fresh])].sort((one, other) => one - other);
  const changes: TickChange[] = [];
  for (const at of all) {
    if (old.includes(at) && fresh.includes(at)) changes.push({ at, kind: "kept" });
    else if (old.includes(at) && at <= freshEnd) changes.push({ at, kind: "removed" });
    else if (fresh.includes(at) && at <= oldEnd) changes.push({ at, kind: "added" });
  }
  return changes;
}

function endOf(ticks: number[]): number {
  return ticks.length < SENT ? Infinity : (ticks.at(-1) ?? 0);
}

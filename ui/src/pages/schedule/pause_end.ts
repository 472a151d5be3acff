// The end of a pause, as users choose it and as the API takes it. Pure.

import { instantOf, partsIn } from "../../time/format";

/** Until somebody resumes it, for a while, tomorrow at 09:00, or until a time. */
export type PauseEnd = "" | "1h" | "1d" | "tomorrow" | "at";

/** Return tomorrow at 09:00 by the clock of a zone: "2026-11-18T09:00". */
export function tomorrowAt(now: number, zone: string): string {
  const { year, month, day } = partsIn(now, zone);
  return `${new Date(Date.UTC(year, month - 1, day + 1)).toISOString().slice(0, 10)}T09:00`;
}

/** Return what the API takes as `until`; undefined for a pause without an end. */
export function pauseEnd(end: PauseEnd, local: string, zone: string, now: number): string | undefined {
  if (end === "") return undefined;
  if (end === "1h" || end === "1d") return end;
  return new Date(instantOf(end === "tomorrow" ? tomorrowAt(now, zone) : local, zone)).toISOString();
}

/** Return what is wrong with a time that must lie in the future; null if nothing is. */
export function timeProblem(local: string, zone: string, now: number): string | null {
  if (local === "" || Number.isNaN(Date.parse(`${local}Z`))) return "Give a date and a time.";
  return instantOf(local, zone) <= now ? "This time is over." : null;
}

// The heat map's layout: which cell is in which row and column, what it shows, and where the arrow keys lead.
// Pure.
//
// By the hour, rows are days and columns are the hours that the zone's clock shows. An hour that the clock
// repeats is two cells in one column; an hour that it skips is a gap. By the day, rows are weeks.

import type { HeatCell, HeatMap } from "../../api/schema";
import { clockText, counted, dayText, instantOf, offsetAt, partsIn, toMs, WEEKDAYS, writtenOffset, zoneName } from "../../time/format";

export type CellLength = HeatMap["by"];

export interface Row {
  /** The local date of its first cell, which names the row: "2026-11-17". */
  key: string;
  label: string;
  /** What is special about the row: "25 h" on the day when the clocks go back. */
  note: string;
  /** For each column the numbers of its cells, in the order of time; empty where there is none. */
  columns: number[][];
}

export interface Layout {
  /** The title of each column: "00" to "23", or "Mon" to "Sun". */
  titles: string[];
  rows: Row[];
}

interface Place {
  key: string;
  column: number;
}

const HOURS = Array.from({ length: 24 }, (_, hour) => String(hour).padStart(2, "0"));
const DAYS = [...WEEKDAYS.slice(1), ...WEEKDAYS.slice(0, 1)];
const HOUR = 3_600_000;

/** Return the cells in rows and columns, by what the zone's calendar and clock show at their start. */
export function layoutOf(cells: HeatCell[], by: CellLength, zone: string): Layout {
  const titles = by === "hour" ? HOURS : DAYS;
  const rows = new Map<string, Row>();
  cells.forEach((cell, index) => {
    const place = by === "hour" ? hourPlace(cell, zone) : dayPlace(cell, zone);
    let row = rows.get(place.key);
    if (row === undefined) {
      const label = by === "hour" ? dayText(cell.at, zone) : weekLabel(place.key);
      row = { key: place.key, label, note: by === "hour" ? clockNote(place.key, zone) : "", columns: titles.map(() => []) };
      rows.set(place.key, row);
    }
    row.columns[place.column]?.push(index);
  });
  return { titles, rows: [...rows.values()] };
}

function written(year: number, month: number, day: number): string {
  return new Date(Date.UTC(year, month - 1, day)).toISOString().slice(0, 10);
}

function hourPlace(cell: HeatCell, zone: string): Place {
  const { year, month, day, hour } = partsIn(cell.at, zone);
  return { key: written(year, month, day), column: hour };
}

/** A day is placed by the date in its middle: where the clocks skip midnight, it begins at 01:00. */
function dayPlace(cell: HeatCell, zone: string): Place {
  const { year, month, day } = partsIn(middleOf(cell), zone);
  const column = (new Date(Date.UTC(year, month - 1, day)).getUTCDay() + 6) % 7;
  return { key: written(year, month, day - column), column };
}

function weekLabel(monday: string): string {
  return `week of ${dayText(`${monday}T00:00:00Z`, "UTC").replace("Mon ", "")}`;
}

/** Return "23 h" or "25 h" for the day of a clock change, and an empty text for others. */
function clockNote(date: string, zone: string): string {
  const [year = 0, month = 0, day = 0] = date.split("-").map(Number);
  const length = instantOf(`${written(year, month, day + 1)}T00:00`, zone) - instantOf(`${date}T00:00`, zone);
  return length === 24 * HOUR ? "" : `${length / HOUR} h`;
}

export function middleOf(cell: HeatCell): number {
  return (toMs(cell.at) + toMs(cell.end)) / 2;
}

/** What a cell shows: the worst that happened in it. */
export type Look = "failed" | "running" | "overdue" | "paused" | "skipped" | "succeeded" | "cancelled" | "coalesced" | "planned" | "empty" | "absent" | "unknown";

/** The letter or sign of a look: colour alone says nothing. */
export const MARKS: Record<Look, string> = {
  failed: "×",
  running: "▸",
  overdue: "!",
  paused: "‖",
  skipped: "S",
  succeeded: "",
  cancelled: "–",
  coalesced: "C",
  planned: "○",
  empty: "",
  absent: "·",
  unknown: "?",
};

export const LOOK_WORDS: Record<Look, string> = {
  failed: "a run failed",
  running: "queued or running",
  overdue: "due, not fired yet",
  paused: "paused",
  skipped: "skipped",
  succeeded: "succeeded",
  cancelled: "cancelled",
  coalesced: "a later run stands for it",
  planned: "planned",
  empty: "no tick",
  absent: "not created yet",
  unknown: "records are deleted",
};

/** What a map knows beside its cells, in milliseconds. */
export interface Bounds {
  now: number;
  /** Records of earlier cells are deleted. */
  countedFrom: number;
  createdAt: number;
}

export function lookOf(cell: HeatCell, { now, countedFrom, createdAt }: Bounds): Look {
  if (cell.failed > 0) return "failed";
  if (cell.running > 0) return "running";
  if (cell.planned > 0 && toMs(cell.end) <= now) return "overdue";
  if (cell.paused > 0) return "paused";
  if (cell.skipped > 0) return "skipped";
  if (cell.succeeded > 0) return "succeeded";
  if (cell.cancelled > 0) return "cancelled";
  if (cell.coalesced > 0) return "coalesced";
  if (cell.planned > 0) return "planned";
  // A tick that fired has a run, unless the run was deleted.
  if (cell.fired > 0) return "unknown";
  if (toMs(cell.end) <= createdAt) return "absent";
  return toMs(cell.end) <= countedFrom ? "unknown" : "empty";
}

/** Return how full a cell is, from 1 to 4, by the busiest cell of the map. */
export function levelOf(cell: HeatCell, most: number): number {
  return most <= 0 ? 4 : Math.min(4, Math.max(1, Math.ceil((runsOf(cell) / most) * 4)));
}

export function runsOf(cell: HeatCell): number {
  return cell.succeeded + cell.failed + cell.cancelled + cell.running;
}

/** Return what is in a cell: "12 succeeded, 1 failed, 3 planned", or why there is nothing in it. */
export function countsText(cell: HeatCell, bounds: Bounds): string {
  const parts: [number, string][] = [
    [cell.succeeded, "succeeded"],
    [cell.failed, "failed"],
    [cell.cancelled, "cancelled"],
    [cell.running, "queued or running"],
    [cell.paused, "paused"],
    [cell.skipped, "skipped"],
    [cell.coalesced, "coalesced"],
    [cell.planned, "planned"],
  ];
  const found = parts.filter(([count]) => count > 0).map(([count, word]) => `${count.toLocaleString("en-US")} ${word}`);
  if (found.length > 0) return found.join(", ");
  return cell.fired > 0 ? `${counted(cell.fired, "tick")} fired` : LOOK_WORDS[lookOf(cell, bounds)];
}

/** Return the time of a cell: "Tue 17 Nov, 09:00–10:00 Berlin". A repeated hour has its offset, too. */
export function cellTime(cell: HeatCell, by: CellLength, zone: string): string {
  if (by === "day") return `${dayText(middleOf(cell), zone)} ${zoneName(zone)}`;
  const offset = isRepeated(cell, zone) ? ` (${writtenOffset(cell.at, zone)})` : "";
  return `${dayText(cell.at, zone)}, ${clockText(cell.at, zone)}–${clockText(cell.end, zone)} ${zoneName(zone)}${offset}`;
}

/** Return whether the clock shows the cell's hour twice. */
export function isRepeated(cell: HeatCell, zone: string): boolean {
  const at = toMs(cell.at);
  const offset = offsetAt(at, zone);
  const earlier = offsetAt(at - 3 * HOUR, zone);
  const later = offsetAt(toMs(cell.end) + 2 * HOUR, zone);
  // After the change: the clock showed this before it. Before the change: it shows this again after it.
  if (offset < earlier) return offsetAt(at - (earlier - offset), zone) === earlier;
  if (later < offset) return offsetAt(toMs(cell.end) - 1 + (offset - later), zone) === later;
  return false;
}

/** Return the cell to which a key leads from another cell; the same one at the edge, or for other keys. */
export function stepTo(layout: Layout, from: number, key: string): number {
  const flat = layout.rows.flatMap((row) => row.columns.flat());
  const rowAt = layout.rows.findIndex((row) => row.columns.some((cells) => cells.includes(from)));
  const row = layout.rows[rowAt];
  if (row === undefined) return from;
  const inRow = row.columns.flat();
  const column = row.columns.findIndex((cells) => cells.includes(from));
  switch (key) {
    case "ArrowLeft":
      return flat[flat.indexOf(from) - 1] ?? from;
    case "ArrowRight":
      return flat[flat.indexOf(from) + 1] ?? from;
    case "Home":
      return inRow[0] ?? from;
    case "End":
      return inRow[inRow.length - 1] ?? from;
    case "ArrowUp":
      return nearest(layout.rows[rowAt - 1], column) ?? from;
    case "ArrowDown":
      return nearest(layout.rows[rowAt + 1], column) ?? from;
    default:
      return from;
  }
}

function nearest(row: Row | undefined, column: number): number | undefined {
  if (row === undefined) return undefined;
  for (let away = 0; away < row.columns.length; away += 1) {
    const found = row.columns[column - away]?.[0] ?? row.columns[column + away]?.[0];
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Return the number of the cell that contains an instant; null if there is none. */
export function cellAt(cells: HeatCell[], instant: number): number | null {
  const found = cells.findIndex((cell) => toMs(cell.at) <= instant && instant < toMs(cell.end));
  return found < 0 ? null : found;
}

/** Return how to cut the time for a schedule with these coming ticks: rare ones by the day. */
export function lengthFor(ticks: string[]): CellLength {
  const first = ticks[0];
  const last = ticks[ticks.length - 1];
  if (first === undefined || last === undefined || ticks.length < 2) return "hour";
  return (toMs(last) - toMs(first)) / (ticks.length - 1) >= 20 * HOUR ? "day" : "hour";
}

const DAY = 24 * HOUR;
/** Days before and after now that the map shows, and how far back the server has cells. */
const REACH: Record<CellLength, { before: number; after: number; most: number }> = {
  hour: { before: 7, after: 2, most: 39 },
  day: { before: 56, after: 14, most: 399 },
};

/** Return how many pages back the map can go. */
export function pagesBack(by: CellLength): number {
  return Math.floor(REACH[by].most / REACH[by].before) - 1;
}

/** Return the period of the map; `back` counts pages into the past. */
export function periodOf(by: CellLength, back: number, now: number): { since: string; until: string } {
  const { before, after } = REACH[by];
  const written = (days: number): string => new Date(now + days * DAY).toISOString();
  return { since: written(-before * (back + 1)), until: written(back === 0 ? after : -before * back) };
}

interface TickRange {
  first: string;
  last: string;
}

interface TickRun {
  state: string;
  tick: string | null;
}

/**
 * Return the instant to ask about a cell: the tick of a failed run, a tick that was skipped, else the middle.
 * `runs` and `ledger` are what is known of the cell.
 */
export function askedOf(cell: HeatCell, runs: TickRun[], ledger: TickRange[]): string {
  const inside = (instant: string | null): instant is string => instant !== null && isIn(cell, instant);
  const failed = runs.find(({ state, tick }) => state === "failed" && inside(tick));
  if (cell.failed > 0 && failed?.tick) return failed.tick;
  if (cell.skipped > 0 || cell.coalesced > 0) {
    const skipped = ledger.flatMap(({ first, last }) => [first, last]).find(inside);
    if (skipped !== undefined) return skipped;
  }
  const ran = runs.find(({ tick }) => inside(tick));
  return ran?.tick ?? new Date(middleOf(cell)).toISOString();
}

export function isIn(cell: HeatCell, instant: string): boolean {
  return toMs(cell.at) <= toMs(instant) && toMs(instant) < toMs(cell.end);
}

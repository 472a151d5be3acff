// What the charts of a schedule draw: each run as it is, or percentiles; and the axis of durations. Pure.

import type { FigureSeries, Run } from "../../api/schema";
import type { Series } from "../../parts/chart";
import { countText, durationText, toMs } from "../../time/format";

/** So many runs are drawn one by one at most. */
export const MOST_RUNS = 500;

export type Measure = "duration" | "lateness";

export interface Plot {
  times: number[];
  series: Series[];
}

type Drawn = Pick<Run, "state" | "scheduled_at" | "duration" | "lateness">;

const STATES: [state: Run["state"], colour: string][] = [
  ["succeeded", "good"],
  ["failed", "bad"],
  ["cancelled", "off"],
  ["running", "busy"],
];

/** Return a point for each run that has the measure, at its planned start, by its state. */
export function runsPlot(runs: Drawn[], measure: Measure): Plot {
  const measured = runs.filter((run) => run[measure] !== null).sort((one, other) => toMs(one.scheduled_at) - toMs(other.scheduled_at));
  const series = STATES.map(([state, colour]): Series => ({
    label: state,
    colour,
    kind: "points",
    values: measured.map((run) => (run.state === state ? run[measure] : null)),
  }));
  return { times: measured.map(({ scheduled_at }) => toMs(scheduled_at)), series: series.filter(({ values }) => values.some((value) => value !== null)) };
}

/** Return the percentiles of each minute or hour. */
export function percentilesPlot(points: FigureSeries["points"], measure: Measure): Plot {
  return {
    times: points.map(({ at }) => toMs(at)),
    series: [
      { label: "p50", colour: "busy", values: points.map(({ figures }) => figures[measure]?.p50 ?? null) },
      { label: "p95", colour: "warn", values: points.map(({ figures }) => figures[measure]?.p95 ?? null) },
    ],
  };
}

/** Return how many runs ended in the period. */
export function endsOf(points: FigureSeries["points"]): number {
  return points.reduce((sum, { figures }) => sum + figures.succeeded + figures.failed + figures.cancelled, 0);
}

const UNITS: [unit: string, seconds: number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
  ["ms", 0.001],
];

/** The steps of an axis of durations, in seconds: round numbers of milliseconds, seconds, minutes, hours and days. */
export const DURATION_STEPS: number[] = [
  ...[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms / 1_000),
  ...[1, 2, 5, 10, 20, 30],
  ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * 60),
  ...[1, 2, 4, 6, 12].map((hours) => hours * 3_600),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * 86_400),
];

/** Return durations in one unit, for an axis: ["0", "0.5 s", "1 s"]. The unit is the largest that needs at most one decimal. */
export function durationAxis(values: number[]): string[] {
  const most = Math.max(0, ...values);
  const found = UNITS.find(([unit, seconds]) => (seconds <= most || unit === "ms") && values.every((value) => isTenths(value / seconds)));
  if (most === 0 || found === undefined) return values.map(durationText);
  const [unit, seconds] = found;
  return values.map((value) => (value === 0 ? "0" : `${countText(Math.round((value / seconds) * 10) / 10)} ${unit}`));
}

function isTenths(value: number): boolean {
  return Math.abs(value * 10 - Math.round(value * 10)) < 1e-6;
}

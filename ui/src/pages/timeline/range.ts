// The range of the timeline: around the present, and moving with it; or fixed. Pure.

export interface Range {
  /** As the API takes it: a duration before now ("1h"), or RFC 3339. */
  since: string;
  /** A duration after now, or RFC 3339. */
  until: string;
}

export const PRESETS: { label: string; range: Range }[] = [
  { label: "10 min", range: { since: "5m", until: "5m" } },
  { label: "2 h", range: { since: "1h", until: "1h" } },
  { label: "24 h", range: { since: "12h", until: "12h" } },
  { label: "7 days", range: { since: "5d", until: "2d" } },
  { label: "30 days", range: { since: "23d", until: "7d" } },
];

export const DEFAULT = PRESETS[1]!.range;

const SHORTEST = 5 * 60_000;
const LONGEST = 60 * 86_400_000;
const FURTHEST_BACK = 39 * 86_400_000;
const FURTHEST_AHEAD = 30 * 86_400_000;

/** Return a fixed range after a zoom by a factor around its middle, or a move by a share of its length. */
export function changed(shown: { since: number; until: number }, now: number, change: { zoom?: number; move?: number }): Range {
  const length = Math.min(LONGEST, Math.max(SHORTEST, (shown.until - shown.since) * (change.zoom ?? 1)));
  const middle = (shown.since + shown.until) / 2 + (change.move ?? 0) * length;
  const since = Math.max(now - FURTHEST_BACK, middle - length / 2);
  const until = Math.min(now + FURTHEST_AHEAD, since + length);
  return { since: written(since), until: written(until) };
}

function written(instant: number): string {
  return new Date(Math.round(instant / 1_000) * 1_000).toISOString();
}

/** Return the preset that a range is, if it is one. */
export function presetOf(range: Range): string | null {
  return PRESETS.find((preset) => preset.range.since === range.since && preset.range.until === range.until)?.label ?? null;
}

export function rangeOf(label: string): Range {
  return PRESETS.find((preset) => preset.label === label)?.range ?? DEFAULT;
}

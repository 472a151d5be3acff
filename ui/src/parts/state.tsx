// States, by colour, shape and word: never by colour alone.

export type Tone = "good" | "bad" | "busy" | "wait" | "off" | "warn";

const TONES: Record<string, Tone> = {
  succeeded: "good",
  active: "good",
  sent: "good",
  ok: "good",
  live: "good",
  failed: "bad",
  fail: "bad",
  lost: "bad",
  late: "bad",
  open: "bad",
  "given up": "bad",
  running: "busy",
  queued: "wait",
  waiting: "wait",
  retrying: "warn",
  warn: "warn",
  paused: "warn",
  muted: "warn",
  cancelled: "off",
  finished: "off",
  deleted: "off",
  closed: "off",
  "handed back": "off",
};

const SHAPES: Record<Tone, string> = {
  good: "M3 8.5l3.2 3.2L13 5",
  bad: "M4 4l8 8M12 4l-8 8",
  busy: "M5 3.5l7 4.5-7 4.5z",
  wait: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5.2v3l2.2 1.3",
  off: "M4 8h8",
  warn: "M8 3.5v5.5M8 11.6v.9",
};

export function toneOf(state: string): Tone {
  return TONES[state] ?? "off";
}

/** The state of a schedule, a run or another thing. */
export function State({ state, label = state, tone = toneOf(state) }: { state: string; label?: string; tone?: Tone }) {
  return (
    <span class={`state ${tone}`}>
      <svg viewBox="0 0 16 16" aria-hidden="true" class="state-icon">
        <path d={SHAPES[tone]} />
      </svg>
      {label}
    </span>
  );
}

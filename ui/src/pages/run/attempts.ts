// The attempts of a run, as bars over time. Pure.

import type { Run, RunAttempt } from "../../api/schema";
import { clockText, counted } from "../../time/format";

export interface AttemptBar {
  /** Also the fencing token: the store takes results of the latest attempt only. */
  number: number;
  outcome: RunAttempt["outcome"] | "running";
  worker: string | null;
  error: string | null;
  startedAt: number | null;
  endedAt: number | null;
  refusedAt: string | null;
  leaseUntil: string | null;
  /** Seconds; null if it is not known when it started. */
  duration: number | null;
  /** Shares of the drawing, in percent. */
  left: number;
  width: number;
}

export interface AttemptChart {
  from: number;
  to: number;
  bars: AttemptBar[];
}

type Timed = Pick<Run, "state" | "attempt" | "started_at" | "worker" | "lease_until" | "attempts">;

const NARROWEST = 0.8;

function ms(text: string | null | undefined): number | null {
  return text === null || text === undefined ? null : Date.parse(text);
}

/** Lay out the attempts from the first start to the last end, or to the present. */
export function attemptChart(run: Timed, now: number): AttemptChart {
  const ended = run.attempts.map((attempt) => ({
    number: attempt.number,
    outcome: attempt.outcome as AttemptBar["outcome"],
    worker: attempt.worker,
    error: attempt.error,
    startedAt: ms(attempt.started_at),
    endedAt: ms(attempt.ended_at),
    refusedAt: attempt.refused_at,
    leaseUntil: null as string | null,
  }));
  if (run.state === "running") {
    ended.push({
      number: run.attempt,
      outcome: "running",
      worker: run.worker,
      error: null,
      startedAt: ms(run.started_at),
      endedAt: null,
      refusedAt: null,
      leaseUntil: run.lease_until,
    });
  }
  const spans = ended.map((each) => {
    const end = each.endedAt ?? (each.outcome === "running" ? now : (each.startedAt ?? now));
    return { start: each.startedAt ?? end, end };
  });
  const from = Math.min(...spans.map(({ start }) => start));
  const to = Math.max(...spans.map(({ end }) => end), from + 1);
  const bars = ended.map((each, index) => {
    const { start, end } = spans[index] as { start: number; end: number };
    const width = Math.max(((end - start) / (to - from)) * 100, NARROWEST);
    const left = Math.min(((start - from) / (to - from)) * 100, 100 - width);
    return { ...each, duration: each.startedAt === null ? null : Math.max(0, end - start) / 1_000, left, width };
  });
  return { from, to, bars };
}

/** The store keeps the last 20 attempts that were followed by another one, and the one that ended the run. */
const KEPT = 20;

type Numbered = Pick<Run, "state" | "attempt"> & { attempts: Pick<RunAttempt, "number">[] };

/** Return whether the first attempts of a run are not kept any more. */
export function hasLostFirst({ attempts }: Pick<Numbered, "attempts">): boolean {
  return attempts.length >= KEPT && (attempts[0]?.number ?? 1) > 1;
}

/** Return how many retries by hand there were between the kept attempts: each takes a number, and is no attempt. */
export function retriesByHand(run: Numbered): number {
  const first = hasLostFirst(run) ? (run.attempts[0]?.number ?? 1) : 1;
  const begun = run.attempts.length + (run.state === "running" ? 1 : 0);
  return Math.max(0, run.attempt - (first - 1) - begun);
}

/** Say which numbers before an attempt are not those of attempts: "number 2 was a retry by hand"; null if there are none. */
export function gapSentence(number: number, before: number): string | null {
  const missing = number - before - 1;
  if (missing <= 0) return null;
  if (missing === 1) return `Number ${before + 1} is that of a retry by hand.`;
  return `Numbers ${before + 1} to ${number - 1} are those of retries by hand.`;
}

/** Return how often a run failed, and how often it may: "1 failure, 3 retries allowed". Retries by hand start the count again. */
export function failureWords(run: Pick<Run, "failures" | "retries" | "crashes">, byHand: number): string {
  const since = byHand > 0 ? ` since the ${byHand === 1 ? "retry" : "last retry"} by hand` : "";
  const parts = [`${counted(run.failures, "failure")}${since}`, run.retries === 0 ? "no automatic retries" : `${counted(run.retries, "automatic retry", "automatic retries")} allowed`];
  if (run.crashes > 0) parts.push(counted(run.crashes, "lost worker"));
  return parts.join(", ");
}

/** Return how late a run started, in seconds. Of a run with several attempts the first one counts; null if it is not known. */
export function latenessOf(run: Pick<Run, "lateness" | "scheduled_at" | "attempts">): number | null {
  if (run.lateness !== null) return run.lateness;
  const started = ms(run.attempts[0]?.started_at);
  if (started === null || hasLostFirst(run)) return null;
  return Math.max(0, started - Date.parse(run.scheduled_at)) / 1_000;
}

/** Say what became of an attempt whose worker lost its lease; null for other attempts. */
export function lostSentence(bar: Pick<AttemptBar, "number" | "outcome" | "refusedAt">, zone: string): string | null {
  if (bar.outcome !== "lost") return null;
  if (bar.refusedAt === null) return `attempt ${bar.number} lost its lease: its worker stopped heartbeating`;
  return `attempt ${bar.number} lost its lease; its late result was refused at ${clockText(bar.refusedAt, zone, true)}`;
}

/** Return the line that names an error: its first line, or, below a traceback, the line after the last frame. */
export function errorLine(error: string | null): string | null {
  const lines = (error ?? "").split("\n").filter((line) => line.trim() !== "");
  const [first] = lines;
  if (first === undefined) return null;
  if (first.trim() !== "Traceback (most recent call last):") return first.trim();
  const below = lines.slice(lines.findLastIndex((line) => line.startsWith("  File ")) + 1);
  return (below.find((line) => !line.startsWith(" ")) ?? lines[lines.length - 1] ?? first).trim();
}

/** Split a remedy into words and the command at its end, if it has one: "to run it after all: evenbeat runs retry x". */
export function remedyParts(text: string): { words: string; command: string | null } {
  const found = /^(|.*: )(evenbeat .+)$/s.exec(text);
  return found === null ? { words: text, command: null } : { words: found[1] ?? "", command: found[2] ?? null };
}

/** Begin with a capital letter, and end with a full stop. Names at the beginning stay as they are. */
export function asSentence(text: string): string {
  const begun = text.replace(/^(the|a|an|its|no|run) /, (word) => `${word[0]?.toUpperCase()}${word.slice(1)}`);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

// Sentences about one schedule: its policies, its account, the reasons of its ledger. Pure.

import type { Account, Predecessor, Run, Schedule, SkippedTicks, Why } from "../../api/schema";
import { counted, countText, durationText } from "../../time/format";

export interface Policy {
  /** The name of the option, as in the code, the API and the command line. */
  name: string;
  sentence: string;
}

type PolicyFields = Pick<
  Schedule,
  | "catch_up"
  | "catch_up_limit"
  | "catch_up_max_age"
  | "catch_up_rate"
  | "grace"
  | "overlap"
  | "max_concurrent"
  | "after"
  | "spread"
  | "spread_delay"
  | "retries"
  | "backoff"
  | "max_backoff"
  | "timeout"
  | "on_crash"
  | "max_crashes"
  | "queue"
  | "priority"
  | "priority_name"
>;

const OVERLAPS: Record<Schedule["overlap"], string> = {
  allow: "A tick runs beside the run before, if that is still active.",
  skip: "A tick is skipped, and recorded, while the run before is active.",
  queue: "A tick waits while the run before is active; if several wait, only the latest runs.",
  queue_all: "A tick waits while the run before is active; if several wait, each runs, one after the other.",
  cancel_running: "A tick cancels the run before if that is still active, and runs when it has ended.",
};

/** Return what the schedule does in each case, a sentence for each policy. */
export function policiesOf(schedule: PolicyFields): Policy[] {
  const found: Policy[] = [
    { name: "catch_up", sentence: catchUpText(schedule) },
    { name: "overlap", sentence: OVERLAPS[schedule.overlap] },
  ];
  if (schedule.max_concurrent !== null) {
    found.push({ name: "max_concurrent", sentence: `At most ${counted(schedule.max_concurrent, "run")} at once; further ticks wait.` });
  }
  if (schedule.after !== null) found.push({ name: "after", sentence: `A tick fires only after other schedules have succeeded: ${schedule.after}.` });
  if (schedule.spread > 0) found.push({ name: "spread", sentence: spreadText(schedule) });
  found.push({ name: "retries", sentence: retriesText(schedule) });
  found.push({
    name: "timeout",
    sentence:
      schedule.timeout === null
        ? "An attempt may take as long as it needs."
        : `An attempt that takes longer than ${lengthText(schedule.timeout)} is asked to stop, and fails.`,
  });
  found.push({ name: "on_crash", sentence: crashText(schedule) });
  found.push({ name: "queue", sentence: `Runs wait in the queue ${schedule.queue} with ${priorityText(schedule)}.` });
  return found;
}

/** Return a duration as it was set: "10 s", not "10.0 s". */
function lengthText(seconds: number): string {
  return Number.isInteger(seconds) && seconds < 60 ? `${seconds} s` : durationText(seconds);
}

function catchUpText(policy: PolicyFields): string {
  const { catch_up, catch_up_max_age: age, catch_up_rate: rate } = policy;
  const old = catch_up === "skip" || age === null ? "" : ` Ticks that are more than ${lengthText(age)} late do not run.`;
  const pace = catch_up === "latest" || rate === null ? "" : ` Missed ticks run no faster than ${rate}.`;
  return `${missedText(policy)}${old}${pace}`;
}

function missedText({ catch_up, grace, catch_up_limit }: PolicyFields): string {
  const most = `if there are more than ${countText(catch_up_limit)}, only the newest ${countText(catch_up_limit)}`;
  switch (catch_up) {
    case "latest":
      return "After an outage, one run makes up for all missed ticks.";
    case "all":
      return `After an outage, each missed tick runs, in order; ${most}.`;
    case "skip":
      return grace > 0
        ? `Missed ticks are skipped, unless they are at most ${lengthText(grace)} late: then they run; ${most}.`
        : "Missed ticks are skipped.";
  }
}

function spreadText({ spread, spread_delay }: PolicyFields): string {
  return `Ticks are spread over ${lengthText(spread)}: this schedule fires ${lengthText(spread_delay)} after its tick.`;
}

function retriesText({ retries, backoff, max_backoff }: PolicyFields): string {
  if (retries === 0) return "A failed run is not retried.";
  const first = lengthText(backoff);
  if (retries === 1) return `A failed run is retried once, after ${first}.`;
  const longest = backoff * 2 ** (retries - 1) > max_backoff ? `, up to ${lengthText(max_backoff)}` : "";
  return `A failed run is retried up to ${countText(retries)} times, first after ${first}; the wait doubles each time${longest}.`;
}

function crashText({ on_crash, max_crashes }: PolicyFields): string {
  if (on_crash === "fail" || max_crashes === 0) return "A run whose worker dies fails: it is not run again.";
  const times = max_crashes === 1 ? "once" : `up to ${countText(max_crashes)} times`;
  return `A run whose worker dies is run again, ${times}.`;
}

function priorityText({ priority, priority_name }: PolicyFields): string {
  return `priority ${priority_name === null ? priority : `${priority_name} (${priority})`}`;
}

/**
 * Return the account as an equation: "1,440 expected = 1,435 ran + 1 runs now + 3 coalesced + 1 skipped; 0 missing, 0 twice".
 * `isPaused`: ticks that no node has settled yet belong to the present pause.
 */
export function accountText(account: Account, isPaused = false): string {
  const skipped = Object.values(account.skipped).reduce((sum, count) => sum + count, 0);
  const { waiting, running, ended } = runStates(account);
  const terms: [number, string][] = [
    [running, running === 1 ? "runs now" : "run now"],
    [waiting, waiting === 1 ? "waits to run" : "wait to run"],
    [account.coalesced, "coalesced"],
    [skipped, "skipped"],
    [account.moved, "moved"],
    [account.pending, isPaused ? "in the present pause" : "pending"],
    [account.missing, "missing"],
  ];
  const others = terms.filter(([count]) => count > 0).map(([count, word]) => ` + ${countText(count)} ${word}`);
  const missing = account.missing > 0 ? "" : "0 missing, ";
  return `${countText(account.expected)} expected = ${countText(ended)} ran${others.join("")}; ${missing}${countText(account.doubled)} twice`;
}

/** Return how many of the ticks that became runs wait, run now, and have ended. The sum is `account.ran`. */
export function runStates({ ran, runs }: Pick<Account, "ran" | "runs">): { waiting: number; running: number; ended: number } {
  // A tick that ran twice is one tick of `ran`, but two runs.
  const waiting = Math.min(ran, runs["queued"] ?? 0);
  const running = Math.min(ran - waiting, runs["running"] ?? 0);
  return { waiting, running, ended: ran - waiting - running };
}

/** How long a run may wait for a worker before that is worth a warning. */
const SHORT_WAIT = 60_000;

/** Return since when a queued run waits for a worker. A missed tick becomes a run late. */
export function waitsSince({ run_at, created_at }: Pick<Run, "run_at" | "created_at">): number {
  return Math.max(Date.parse(run_at), Date.parse(created_at));
}

/** Return the run that has waited longest, if it should have started a minute ago or earlier; `runs` are queued. */
export function waitingLongest<R extends Pick<Run, "run_at" | "created_at">>(runs: R[], now: number): R | null {
  const due = runs.filter((run) => waitsSince(run) <= now - SHORT_WAIT);
  return due.sort((one, other) => waitsSince(one) - waitsSince(other))[0] ?? null;
}

const BLOCKED: ReadonlySet<Why["verdict"]> = new Set([
  "no_task",
  "no_worker",
  "no_queue",
  "no_ticker",
  "quarantined",
  "deferred",
  "unreadable",
  "too_new",
  "unfit",
  "missing",
] as const);

/** Return whether the answer about the last tick says that something keeps the schedule from running. */
export function isBlocked({ verdict, tick }: Pick<Why, "verdict" | "tick">, now: number): boolean {
  // Nodes fire a tick within a second: one that is due for longer is late.
  if (verdict === "due") return tick !== null && Date.parse(tick) <= now - SHORT_WAIT;
  return BLOCKED.has(verdict);
}

const COUNTED_FROM: Record<Account["counted_from_reason"], string> = {
  asked: "",
  created: "when the schedule was created",
  trigger: "when it got its present trigger",
  purged: "older history is deleted",
};

/** Return why the account begins where it does; an empty text if that is the chosen period. */
export function countedFromText(account: Account): string {
  return COUNTED_FROM[account.counted_from_reason];
}

/** Return who did something. A server that asks for no token knows its users as "local". */
export function actorText(actor: string): string {
  return actor === "local" ? "a user without a login" : actor;
}

/** Return how many runs ended, and how many of them failed: "8, 4 of them failed". */
export function endedText(ends: number, failures: number): string {
  return `${countText(ends)}, ${failures === 0 ? "none failed" : `${countText(failures)} of them failed`}`;
}

/** Return who creates and changes a schedule, in the words of the filter of the list. */
export function managedByText(managedBy: string, source = ""): string {
  if (managedBy === "api") return "API, command or page";
  return source === "" ? managedBy : `${managedBy} of ${source}`;
}

type Reason = SkippedTicks["reason"];

const REASONS: Record<Reason, string> = {
  coalesced: "the run of a later tick stands for them",
  late: "they were later than grace or catch_up_max_age allows",
  limit: "more ticks were missed than catch_up_limit",
  overlap: "the run before was still active (overlap skip)",
  paused: "the schedule was paused",
  changed: "the trigger was changed while they waited for room to run",
  rescheduled: "the next tick was moved past them by hand",
  deleted: "the schedule was deleted when they were overdue",
  dependency: "a schedule that they wait for had not succeeded in time (after)",
  calendar: "a calendar of the trigger removed them (skip, only)",
  chain: "too many successes in a row had led to them: schedules may start each other in a cycle",
};

const ONE: Partial<Record<Reason, string>> = {
  coalesced: "the run of a later tick stands for it",
  late: "it was later than grace or catch_up_max_age allows",
  changed: "the trigger was changed while it waited for room to run",
  rescheduled: "the next tick was moved past it by hand",
  calendar: "a calendar of the trigger removed it (skip, only)",
  deleted: "the schedule was deleted when it was overdue",
  dependency: "a schedule that it waits for had not succeeded in time (after)",
  chain: "too many successes in a row had led to it: schedules may start each other in a cycle",
};

/** Return what a predecessor lacks, or the words before the time of its last success. */
export function metText({ state, last_success, is_met }: Pick<Predecessor, "state" | "last_success" | "is_met">): string {
  if (state === null || state === "deleted") return "does not exist any more";
  if (last_success === null) return "has never succeeded";
  return is_met === false ? "succeeded too long ago:" : "last succeeded:";
}

/** Return what a delete does to the schedules that wait for this one. */
export function waitText(followers: string[]): string {
  const names = followers.length === 1 ? followers[0] : `${followers.slice(0, -1).join(", ")} and ${followers.at(-1)}`;
  return `${names} ${followers.length === 1 ? "waits" : "wait"} for it, and it does not succeed any more.`;
}

/** Return why ticks did not become runs of their own. */
export function reasonText(reason: string, count: number): string {
  const one = count === 1 ? ONE[reason as Reason] : undefined;
  return one ?? REASONS[reason as Reason] ?? reason;
}

/** Return the words and the command of a remedy: "to run more of them: evenbeat schedules update …". */
export function remedyParts(remedy: string): { words: string; command: string | null } {
  const match = /^(?:([\s\S]*): )?(evenbeat [^\n]+)$/.exec(remedy);
  if (match === null) return { words: remedy, command: null };
  return { words: match[1] ?? "", command: match[2] ?? null };
}

/** Return the names that a remedy proposes: "did you mean mail or mails?" */
export function proposedNames(remedy: string | null): string[] {
  const match = /^did you mean (.+)\?$/.exec(remedy ?? "");
  return match?.[1]?.split(" or ") ?? [];
}

/** Return a sentence with a capital letter and a full stop. A name at its beginning stays as it is. */
export function asSentence(words: string, name?: string): string {
  const text = words.trim();
  if (text === "") return "";
  const keeps = name !== undefined && name !== "" && text.startsWith(name);
  const first = keeps ? text : text.slice(0, 1).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

/** What may become of the ticks of a pause. */
export const RESUMES: [value: "skip" | "catch-up", words: string][] = [
  ["skip", "Skip the missed ticks"],
  ["catch-up", "Catch up on them"],
];

/** Return where the declaration of a declared schedule is. */
export const placeOf = ({ managed_by }: Pick<Schedule, "managed_by">): "code" | "file" => (managed_by === "file" ? "file" : "code");

// Bulk actions: first count and sample, then batches with progress, at the end a result for each schedule.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import type { BulkSchedules, BulkSchedulesResult, ChangeWarning, RefusedItem, Schedule, Schedules } from "../../api/schema";
import { Button } from "../../parts/button";
import { Choice } from "../../parts/choice";
import { ActionDialog, Dialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { Loading } from "../../parts/load";
import { ProblemBox } from "../../parts/problem";
import { State } from "../../parts/state";
import { Table } from "../../parts/table";
import type { TenantScope } from "../../state/session";
import { useMay } from "../../state/session";
import { counted, countText } from "../../time/format";
import { useZone } from "../../time/zone";
import { RESUMES } from "../schedule/sentences";
import { PAUSE_WARNING, UntilFields, useUntil } from "../schedule/until";
import { type Batch, batchesOf, type BulkAction, countOf, distinct, MOST, MOST_NAMES, type Outcome, outcomesOf, outcomesWithout, STATES_OF, worstFirst } from "./batches";
import type { ScheduleFilter } from "./filters";
import { fieldOf } from "./form";
import { OptionRows } from "./option_rows";
import { areComplete, type OptionRow, valuesOf, withRow } from "./options";
import { RefusedList } from "./refused";
import { type Key, keyOf } from "./rows";

export interface Selection {
  /** All schedules that match the filters, on all pages. */
  isAll: boolean;
  keys: Key[];
}

interface Verb {
  verb: string;
  /** The title of the dialog; `what` are the schedules. */
  title: (what: string) => string;
  done: string;
  sentence: string;
}

const VERBS: Record<BulkAction, Verb> = {
  pause: { verb: "Pause", title: (what) => `Pause ${what}`, done: "paused", sentence: `${PAUSE_WARNING} Runs that are active go on.` },
  resume: { verb: "Resume", title: (what) => `Resume ${what}`, done: "resumed", sentence: "Each fires again at its next tick." },
  run: { verb: "Run now", title: (what) => `Run ${what} now`, done: "run", sentence: "Each gets one run, at once. Their next ticks stay where they are." },
  update: { verb: "Change", title: (what) => `Change ${what}`, done: "changed", sentence: "Each gets all of these values or none. No tick fires from the change; an option that one inherits becomes its own." },
  delete: { verb: "Delete", title: (what) => `Delete ${what}`, done: "deleted", sentence: "Their runs and the history stay. Code that declares one of them creates it again when a node starts." },
};

interface BulkBarProps {
  selection: Selection;
  onSelect: (selection: Selection) => void;
  rows: Schedule[];
  answer: Schedules;
  filters: ScheduleFilter;
  scope: TenantScope;
  onDone: () => void;
}

export function BulkBar({ selection, onSelect, rows, answer, filters, scope, onDone }: BulkBarProps) {
  const [action, setAction] = useState<BulkAction | null>(null);
  const isAdmin = useMay("admin");
  const count = selection.keys.length;
  const chosen = new Set(selection.keys.map(keyOf));
  const isPageChosen = rows.length > 0 && rows.every((row) => chosen.has(keyOf(row)));
  const isNothing = !selection.isAll && count === 0;
  const all = answer.more_match ? `all, more than ${countText(answer.matched)}, that match` : `all ${countText(answer.matched)} that match`;
  const actions: BulkAction[] = isAdmin ? ["pause", "resume", "run", "update", "delete"] : ["pause", "resume", "run"];
  return (
    <div class="bulk" role="group" aria-label="Actions on the selected schedules">
      <span role="status">{selection.isAll ? `${all}: selected` : isNothing ? "none selected" : `${countText(count)} selected`}</span>
      {isPageChosen && !selection.isAll && (answer.more_match || answer.matched > count) && (
        <Button small onClick={() => onSelect({ isAll: true, keys: [] })}>
          Select {all}
        </Button>
      )}
      {actions.map((each) => (
        <Button key={each} small kind={each === "delete" ? "danger" : "plain"} disabled={isNothing} onClick={() => setAction(each)}>
          {VERBS[each].verb} …
        </Button>
      ))}
      {!isNothing && (
        <Button small kind="quiet" onClick={() => onSelect({ isAll: false, keys: [] })}>
          Select none
        </Button>
      )}
      {action !== null && (
        <BulkDialog
          action={action}
          selection={selection}
          filters={filters}
          scope={scope}
          onClose={(hasChanged) => {
            setAction(null);
            if (!hasChanged) return;
            onSelect({ isAll: false, keys: [] });
            onDone();
          }}
        />
      )}
    </div>
  );
}

interface BulkDialogProps {
  action: BulkAction;
  selection: Selection;
  filters: ScheduleFilter;
  scope: TenantScope;
  onClose: (hasChanged: boolean) => void;
}

interface Count {
  matched: number;
  more: boolean;
  refused: RefusedItem[];
  sample: Schedule[];
  warnings: ChangeWarning[];
}

interface Work {
  total: number;
  outcomes: Outcome[];
  isOver: boolean;
  problem: Problem | null;
}

function BulkDialog({ action, selection, filters, scope, onClose }: BulkDialogProps) {
  const [note, setNote] = useState("");
  const [catchUp, setCatchUp] = useState(false);
  const [rows, setRows] = useState<OptionRow[]>(withRow([]));
  const until = useUntil(useZone());
  const [count, setCount] = useState<Count | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [work, setWork] = useState<Work | null>(null);
  const isStopped = useRef(false);
  const { verb, title, sentence } = VERBS[action];

  useEffect(() => {
    let isShown = true;
    dryRun(action, selection, filters, scope)
      .then((found) => isShown && setCount(found))
      .catch((error: unknown) => {
        if (!(error instanceof Problem)) throw error;
        if (isShown) setProblem(error);
      });
    return () => {
      isShown = false;
      isStopped.current = true;
    };
  }, []);

  const start = async (): Promise<void> => {
    if (count === null) return;
    setProblem(null);
    const end = until.value();
    const options: Partial<BulkSchedules> = {};
    if (action === "pause" && note.trim()) options.note = note.trim();
    if (action === "pause" && end !== undefined) options.until = end;
    if (action === "resume" && catchUp) options.catch_up = true;
    if (action === "update") options.changes = valuesOf(rows);
    setWork({ total: Math.min(count.matched, MOST), outcomes: [], isOver: false, problem: null });
    try {
      const [first] = count.sample;
      if ((options.until !== undefined || options.changes !== undefined) && first !== undefined) await checkOptions(action, options, first);
      const keys = selection.isAll ? await matching(action, filters, scope, () => isStopped.current) : selection.keys;
      await workOn(distinct(keys), (batch) => send(action, batch, filters, selection.isAll, options), action, () => isStopped.current, setWork);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      // Nothing was sent yet.
      setWork(null);
      setProblem(error);
    }
  };

  if (work !== null) {
    const close = (): void => {
      isStopped.current = true;
      if (work.isOver) onClose(true);
    };
    return (
      <Dialog title={`${verb}: ${work.isOver ? "the result" : "at work"}`} onClose={close} wide>
        {work.isOver ? <Result action={action} work={work} onClose={close} /> : <Progress work={work} onStop={() => (isStopped.current = true)} />}
      </Dialog>
    );
  }
  const field = fieldOf(problem?.field?.replace(/^changes\./, "") ?? null);
  const isAtRow = action === "update" && rows.some(({ option }) => option === field);
  const untilProblem = problem?.field === "until" ? problem : null;
  return (
    <ActionDialog
      title={title(selection.isAll ? "all schedules that match" : "the selected schedules")}
      verb={verb}
      kind={action === "delete" ? "danger" : "primary"}
      isBusy={false}
      error={untilProblem === null && !isAtRow ? problem : null}
      disabled={count === null || count.matched === 0 || until.wrong !== null || (action === "update" && !areComplete(rows))}
      onSubmit={() => void start()}
      onClose={() => onClose(false)}
    >
      {count === null ? problem === null && <Loading /> : <Sample action={action} count={count} chosen={selection.isAll ? null : selection.keys.length} />}
      <p class="muted">{sentence}</p>
      {action === "resume" && <Choice label="The ticks of the pauses" value={catchUp ? "catch-up" : "skip"} options={RESUMES} onChoose={(value) => setCatchUp(value === "catch-up")} />}
      {action === "resume" && <p class="muted">{catchUp ? "The catch-up policy of each decides about the ticks of its pause." : "The ticks of their pauses are skipped, and recorded so."}</p>}
      {action === "update" && (
        <OptionRows
          rows={rows}
          onRows={(next) => {
            setRows(next);
            setProblem(null);
          }}
          errorAt={(option) => (field === option && problem !== null ? problem.message : null)}
        />
      )}
      {action === "pause" && (
        <>
          <TextField label="Note" help="Why: everybody who looks at one of them reads it." value={note} onText={setNote} />
          <UntilFields until={until} error={untilProblem?.message ?? null} />
        </>
      )}
    </ActionDialog>
  );
}

function Sample({ action, count, chosen }: { action: BulkAction; count: Count; chosen: number | null }) {
  const others = chosen === null ? 0 : chosen - count.matched;
  const shown = count.sample.slice(0, 5);
  const states = STATES_OF[action].join(" or ");
  return (
    <div class="stack">
      <p>
        <strong>
          {count.more ? `More than ${countText(count.matched)} schedules` : counted(count.matched - count.refused.length, "schedule")} will be {VERBS[action].done}.
        </strong>
        {count.more && ` At most ${countText(MOST)} at a time: do it again for the others.`}
        {others > 0 && ` ${countText(others)} of the selected stay as they are: they are not ${states}.`}
      </p>
      {shown.length > 0 && (
        <ul class="sample" aria-label="Sample">
          {shown.map((row) => (
            <li key={keyOf(row)}>
              <strong>{row.name}</strong> <span class="muted">{row.words}</span>
            </li>
          ))}
          {count.matched > shown.length && <li class="muted">and {countText(count.matched - shown.length)} more</li>}
        </ul>
      )}
      {count.warnings.map(({ problem }) => (
        <p key={problem} class="warning">
          {problem}.
        </p>
      ))}
      <RefusedList refused={count.refused} />
    </div>
  );
}

function Progress({ work, onStop }: { work: Work; onStop: () => void }) {
  const done = work.outcomes.length;
  return (
    <div class="stack">
      <label class="stack">
        <span role="status">
          {countText(done)} of {countText(work.total)}
        </span>
        <progress max={Math.max(work.total, 1)} value={done} />
      </label>
      <div>
        <Button onClick={onStop}>Stop after this batch</Button>
      </div>
    </div>
  );
}

const MOST_SHOWN = 1_000;

const KINDS: Record<Outcome["kind"], { tone: "good" | "bad" | "warn" | "off"; label: string }> = {
  done: { tone: "good", label: "done" },
  refused: { tone: "bad", label: "refused" },
  left: { tone: "off", label: "left as it was" },
  unknown: { tone: "warn", label: "not known" },
  stopped: { tone: "off", label: "not done" },
};

function Result({ action, work, onClose }: { action: BulkAction; work: Work; onClose: () => void }) {
  const { outcomes } = work;
  const parts = (["done", "refused", "unknown", "stopped", "left"] as const)
    .map((kind) => [countOf(outcomes, kind), kind === "done" ? VERBS[action].done : KINDS[kind].label] as const)
    .filter(([count]) => count > 0);
  const rows = worstFirst(outcomes);
  return (
    <div class="stack">
      <p role="status">
        <strong>{parts.length === 0 ? "Nothing was changed." : `${parts.map(([count, words]) => `${countText(count)} ${words}`).join(", ")}.`}</strong>
      </p>
      {work.problem && <ProblemBox problem={work.problem} />}
      <div class="result">
        <Table
          caption="Result for each schedule"
          rows={rows.slice(0, MOST_SHOWN)}
          keyOf={keyOf}
          columns={[
            { title: "Schedule", kind: "main", cell: ({ name }) => name },
            { title: "Tenant", cell: ({ tenant }) => tenant },
            { title: "Result", cell: ({ kind }) => <State state={kind} tone={KINDS[kind].tone} label={kind === "done" ? VERBS[action].done : KINDS[kind].label} /> },
            { title: "Reason", kind: "wide", cell: ({ why }) => why ?? "" },
          ]}
        />
      </div>
      {rows.length > MOST_SHOWN && <p class="muted">The first {countText(MOST_SHOWN)} of {countText(rows.length)}.</p>}
      <div>
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </div>
  );
}

/** Count the schedules that an action would change, and return some of them. */
async function dryRun(action: BulkAction, selection: Selection, filters: ScheduleFilter, scope: TenantScope): Promise<Count> {
  // Which schedules an update changes does not depend on what it changes.
  const changes: Partial<BulkSchedules> = action === "update" ? { changes: { retries: 0 } } : {};
  if (selection.isAll) return call("POST /bulk/schedules", { query: scope, body: { action, filter: filters, dry_run: true, ...changes } });
  const total: Count = { matched: 0, more: false, refused: [], sample: [], warnings: [] };
  for (const { tenant, names } of batchesOf(selection.keys, MOST_NAMES)) {
    const part = await call("POST /bulk/schedules", { query: { tenant }, body: { action, filter: { names }, dry_run: true, ...changes } });
    total.matched += part.matched;
    total.refused.push(...part.refused);
    total.sample.push(...part.sample);
    total.warnings.push(...part.warnings);
  }
  return total;
}

/** Have the server check the end of a pause, or the new values, before anything is changed. */
async function checkOptions(action: BulkAction, options: Partial<BulkSchedules>, { tenant, name }: Key): Promise<void> {
  await call("POST /bulk/schedules", { query: { tenant }, body: { action, filter: { names: [name] }, dry_run: true, ...options } });
}

/** Return the schedules that match the filters now and that the action applies to, up to the most at once. */
async function matching(action: BulkAction, filters: ScheduleFilter, scope: TenantScope, isStopped: () => boolean): Promise<Key[]> {
  const states = filters.state === undefined ? STATES_OF[action] : [filters.state];
  const found: Key[] = [];
  let cursor: string | null = null;
  do {
    const page: Schedules = await call("GET /schedules", { query: { ...scope, ...filters, limit: 500, ...(cursor === null ? {} : { cursor }) } });
    found.push(...page.items.filter(({ state }) => states.includes(state)));
    cursor = page.cursor;
  } while (cursor !== null && found.length < MOST && !isStopped());
  return found.slice(0, MOST).map(({ tenant, name }) => ({ tenant, name }));
}

function send(action: BulkAction, { tenant, names }: Batch, filters: ScheduleFilter, isAll: boolean, options: Partial<BulkSchedules>): Promise<BulkSchedulesResult> {
  const state = isAll && filters.state !== undefined ? { state: filters.state } : {};
  return call("POST /bulk/schedules", { query: { tenant }, body: { action, filter: { names, ...state }, dry_run: false, ...options } });
}

/** Work batch by batch. A request that fails ends the work: a run must not be repeated without the user's word. */
async function workOn(
  keys: Key[],
  change: (batch: Batch) => Promise<BulkSchedulesResult>,
  action: BulkAction,
  isStopped: () => boolean,
  onWork: (work: Work) => void,
): Promise<void> {
  let outcomes: Outcome[] = [];
  let problem: Problem | null = null;
  for (const batch of batchesOf(keys)) {
    if (problem !== null || isStopped()) {
      outcomes = [...outcomes, ...outcomesWithout(batch, "stopped", "the work was stopped before")];
      continue;
    }
    try {
      outcomes = [...outcomes, ...outcomesOf(action, batch, await change(batch))];
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = error;
      outcomes = [...outcomes, ...outcomesWithout(batch, "unknown", error.message)];
    }
    onWork({ total: keys.length, outcomes, isOver: false, problem });
  }
  onWork({ total: keys.length, outcomes, isOver: true, problem });
}

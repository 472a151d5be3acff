// Retry or cancel many runs: first the count and a sample, then progress, then what became of each.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import type { BulkRunsResult, Run } from "../../api/schema";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { Loading } from "../../parts/load";
import { ProblemBox } from "../../parts/problem";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { type TenantScope, useTenantScope } from "../../state/session";
import { now } from "../../time/clock";
import { counted, countText } from "../../time/format";
import { errorLine } from "../run/attempts";
import { chunks, handled, inBatches, type Outcome, readIds } from "./batches";
import type { Fate } from "./fates";
import { filterWords, type RunFilter } from "./filter";
import { FateLine, MOST_FOLLOWED, useFates } from "./follow";
import { rowKey } from "./merge";
import { RunLink, RunState, ScheduleLink } from "./parts";

export interface BulkTarget {
  action: "retry" | "cancel";
  state: "cancelled" | "failed" | "queued" | "retrying" | "running";
  /** The runs that match; or those with these ids, in words. */
  filter: Omit<RunFilter, "state">;
  ids?: string[];
  words?: string;
}

const MOST = 10_000;
const IDS_AT_ONCE = 1_000;
const LISTED = 200;

interface Count {
  matched: number;
  more: boolean;
  sample: Run[];
}

/** Count the runs that the action is about, and read a sample of them. */
async function counting(target: BulkTarget, scope: TenantScope): Promise<Count> {
  const { action, state, filter, ids } = target;
  const ask = (wanted: RunFilter & { ids?: string[] }): Promise<BulkRunsResult> =>
    call("POST /bulk/runs", { query: scope, body: { action, state, filter: wanted, dry_run: true, limit: MOST } });
  if (ids === undefined) return ask(filter);
  const count: Count = { matched: 0, more: false, sample: [] };
  for (const some of chunks(ids, IDS_AT_ONCE)) {
    const { matched, sample } = await ask({ ids: some });
    count.matched += matched;
    if (count.sample.length === 0) count.sample = sample;
  }
  return count;
}

type Step =
  | { name: "counting" }
  | { name: "asking"; count: Count }
  | { name: "working"; total: number; outcome: Outcome | null }
  | { name: "done"; total: number; outcome: Outcome; isStopped: boolean; since: number };

export function BulkDialog({ target, onClose }: { target: BulkTarget; onClose: () => void }) {
  const scope = useTenantScope();
  const [step, setStep] = useState<Step>({ name: "counting" });
  const [error, setError] = useState<Problem | null>(null);
  const isOpen = useRef(true);
  const isStopped = useRef(false);
  const { action, state } = target;
  const Verb = action === "retry" ? "Retry" : "Cancel";

  const guarded = async (work: () => Promise<void>): Promise<void> => {
    setError(null);
    try {
      await work();
    } catch (failure) {
      if (!(failure instanceof Problem)) throw failure;
      setError(failure);
    }
  };

  useEffect(() => {
    void guarded(async () => {
      const count = await counting(target, scope);
      if (isOpen.current) setStep({ name: "asking", count });
    });
    return () => {
      isOpen.current = false;
    };
  }, []);

  const start = (count: Count): Promise<void> =>
    guarded(async () => {
      const goesOn = (): boolean => isOpen.current && !isStopped.current;
      let outcome: Outcome = { changed: [], refused: [], gone: [] };
      let total = count.matched;
      // A run that ended before this was not retried itself. Two seconds, since the clocks may differ.
      const since = now() - 2_000;
      setStep({ name: "working", total, outcome: null });
      try {
        const read = (cursor: string | null) =>
          call("GET /runs", { query: { ...scope, ...target.filter, state, brief: true, limit: 500, ...(cursor === null ? {} : { cursor }) } });
        const ids = target.ids ?? (await readIds(read, MOST, goesOn));
        total = ids.length;
        const send = (some: string[]): Promise<BulkRunsResult> =>
          call("POST /bulk/runs", { query: scope, body: { action, state, filter: { ids: some }, dry_run: false } });
        const show = (made: Outcome): void => {
          outcome = made;
          setStep({ name: "working", total, outcome });
        };
        await inBatches(ids, send, show, goesOn);
      } finally {
        // What was done before a failure is shown, too.
        setStep({ name: "done", total, outcome, isStopped: handled(outcome) < total, since });
      }
    });

  const title = `${Verb} ${target.words ?? filterWords(target.filter, state)}`;
  return (
    <Dialog title={title} onClose={onClose} wide>
      {error && <ProblemBox problem={error} />}
      {step.name === "counting" && error === null && <Loading />}
      {step.name === "asking" && <Asking target={target} count={step.count} onStart={() => void start(step.count)} onClose={onClose} />}
      {step.name === "working" && (
        <>
          <Progress label={`${Verb} runs`} done={step.outcome === null ? 0 : handled(step.outcome)} total={step.total} />
          <footer>
            <Button onClick={() => (isStopped.current = true)}>Stop</Button>
          </footer>
        </>
      )}
      {step.name === "done" && <Result action={action} step={step} onClose={onClose} />}
    </Dialog>
  );
}

interface AskingProps {
  target: BulkTarget;
  count: Count;
  onStart: () => void;
  onClose: () => void;
}

function Asking({ target, count, onStart, onClose }: AskingProps) {
  const { action, state } = target;
  const Verb = action === "retry" ? "Retry" : "Cancel";
  const isNone = count.matched === 0;
  const columns: Column<Run>[] = [
    { title: "State", cell: (run) => <RunState run={run} /> },
    { title: "Run", kind: "main", cell: (run) => <RunLink tenant={run.tenant} id={run.id} /> },
    { title: "Task", cell: (run) => run.task },
    { title: "Schedule", cell: (run) => <ScheduleLink tenant={run.tenant} name={run.schedule} /> },
    { title: "Due", cell: (run) => <Time at={run.scheduled_at} form="short" /> },
  ];
  if (count.sample.some((run) => run.error !== null)) {
    columns.push({ title: "Error", kind: "wide", cell: (run) => errorLine(run.error) ?? "–" });
  }
  return (
    <>
      <p>
        <strong>
          {count.more ? `More than ${countText(count.matched)}` : countText(count.matched)} {state}{" "}
          {count.matched === 1 ? "run matches" : "runs match"}.
        </strong>{" "}
        {count.more && `This dialog changes the newest ${countText(MOST)}. `}
        {!isNone && consequence(action, state)}
      </p>
      {!isNone && (
        <Table
          caption="A sample of the runs"
          columns={columns}
          rows={count.sample}
          keyOf={(run) => run.id}
        />
      )}
      {count.matched > count.sample.length && <p class="muted">The newest {count.sample.length} are shown.</p>}
      <footer>
        <Button onClick={onClose}>{isNone ? "Close" : "Change nothing"}</Button>
        {!isNone && (
          <Button kind={action === "cancel" ? "danger" : "primary"} onClick={onStart}>
            {Verb} {counted(count.matched, "run")}
          </Button>
        )}
      </footer>
    </>
  );
}

function consequence(action: BulkTarget["action"], state: BulkTarget["state"]): string {
  if (action === "retry") {
    return (
      "Each is queued again, with all its retries. Where a schedule limits its active runs, a new run is added instead, " +
      "and the old one stays as it is."
    );
  }
  return state === "running" ? "Each is asked to stop." : "Each is over at once: it does not run.";
}

export function Progress({ label, done, total }: { label: string; done: number; total: number }) {
  return (
    <div class="progress">
      <progress aria-label={label} value={done} max={Math.max(total, 1)} />
      <span class="number">
        {countText(done)} of {countText(total)}
      </span>
    </div>
  );
}

interface ResultProps {
  action: BulkTarget["action"];
  step: Extract<Step, { name: "done" }>;
  onClose: () => void;
}

function Result({ action, step, onClose }: ResultProps) {
  const { changed, refused, gone } = step.outcome;
  const done = action === "retry" ? "Retried" : "Cancelled";
  const followed = action === "retry" ? changed.slice(0, MOST_FOLLOWED) : [];
  const fates = useFates(followed, step.since);
  const unchanged = refused.length + gone.length;
  const rows = [
    ...refused.map(({ tenant, id, why }) => ({ tenant, id, result: why, isDone: false })),
    ...gone.map((id) => ({ tenant: null, id, result: "It did not match any more.", isDone: false })),
    ...changed.map(({ tenant, id }) => ({ tenant, id, result: resultOf(done, fates.get(rowKey({ tenant, id }))), isDone: true })),
  ];
  return (
    <>
      <p role="status">
        <strong>
          {done} {counted(changed.length, "run")}.
        </strong>{" "}
        {unchanged > 0 && `${counted(unchanged, "run")} stayed as ${unchanged === 1 ? "it was" : "they were"}. `}
        {step.isStopped && `${counted(step.total - rows.length, "run")} not tried.`}
      </p>
      {followed.length > 0 && <FateLine runs={followed} fates={fates} />}
      {followed.length < changed.length && action === "retry" && (
        <p class="muted">The first {countText(MOST_FOLLOWED)} are followed here; the list of runs shows all.</p>
      )}
      {rows.length > 0 && (
        <div class="results">
          <Table
            caption="The result of each run"
            columns={[
              {
                title: "Run",
                kind: "main",
                cell: ({ tenant, id }) => (tenant === null ? <span class="mono">{id}</span> : <RunLink tenant={tenant} id={id} />),
              },
              { title: "Result", kind: "wide", cell: ({ result }) => result },
            ]}
            rows={rows.slice(0, LISTED)}
            keyOf={({ id }) => id}
          />
        </div>
      )}
      {rows.length > LISTED && <p class="muted">{counted(rows.length - LISTED, "more run")} of the same kind as the last ones.</p>}
      <footer>
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </footer>
    </>
  );
}

const RESULTS: Partial<Record<Fate, string>> = {
  succeeded: "it succeeded",
  failed: "it failed again",
  cancelled: "it was cancelled",
  running: "it is running",
  replaced: "as a new run, since its schedule limits its active runs",
};

/** Return the result of one run: "Retried: it succeeded". */
function resultOf(done: string, fate: Fate | undefined): string {
  const words = fate === undefined ? undefined : RESULTS[fate];
  return words === undefined ? done : `${done}: ${words}`;
}

// The steps of a flow: the graph with the chosen step below it, or a table.

import { useMemo, useRef } from "preact/hooks";
import type { FlowInfo, FlowRun, FlowStepInfo, FlowStepRun } from "../../api/schema";
import { Choice, chosen as chosenOf } from "../../parts/choice";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { href, setQuery, useRoute } from "../../state/route";
import { useMay } from "../../state/session";
import { countText } from "../../time/format";
import { StepGraph, Took } from "./graph";
import { layoutOf } from "./layout";
import { RetryStep, StepPanel } from "./step";
import { elementsText, retryable, stateLabel, stepToShow, stepTone } from "./texts";

type View = "graph" | "table";

const VIEWS: [View, string][] = [
  ["graph", "Graph"],
  ["table", "Table"],
];

/** Of a table with more rows, the rest is said in a sentence: a browser draws ten thousand slowly. */
const MOST_ROWS = 2_000;

interface StepsProps {
  graph: FlowInfo;
  run: FlowRun | null;
  zone?: string | null;
  onChange?: () => void;
}

export function Steps({ graph, run, zone = null, onChange = () => undefined }: StepsProps) {
  const { query } = useRoute();
  // The graph of a run never changes: it is laid out once, however often the states change.
  const layout = useMemo(() => layoutOf(graph.steps), [graph.version]);
  const runs = useMemo(() => (run === null || run.steps.length === 0 ? null : new Map(run.steps.map((step) => [step.name, step]))), [run]);
  const mayRetry = useMemo(() => (run === null ? new Set<string>() : retryable(run)), [run]);
  const wanted = query.get("step");
  const shown = useRef<string | null>(null);
  if (runs !== null) shown.current = stepToShow(run?.steps ?? [], shown.current);
  const chosen = graph.steps.some(({ name }) => name === wanted) ? wanted : shown.current ?? graph.steps[0]?.name ?? null;
  const info = graph.steps.find(({ name }) => name === chosen);
  const onChoose = (step: string): void => setQuery({ step });
  const hasOrder = graph.steps.some(({ after, inputs }) => after.some((each) => !inputs.includes(each)));
  const view = layout === null ? "table" : chosenOf(query, "steps", VIEWS, "graph");
  return (
    <div class="stack">
      {layout === null ? (
        <p class="muted">{countText(graph.steps.length)} steps are too many for a picture.</p>
      ) : (
        <div class="flow-tools">
          <Choice label="How the steps are shown" value={view} options={VIEWS} onChoose={(steps) => setQuery({ steps: steps === "graph" ? null : steps })} />
          {view === "graph" && hasOrder && <span class="muted">A dashed arrow is an order without data.</span>}
        </div>
      )}
      {view === "graph" && layout !== null ? (
        <>
          <StepGraph label={`Steps of ${graph.name}`} layout={layout} steps={graph.steps} runs={runs} chosen={chosen} onChoose={onChoose} />
          {info !== undefined && <StepPanel info={info} run={runs?.get(info.name)} flow={run} zone={zone} canRetry={mayRetry.has(info.name)} onChoose={onChoose} onChange={onChange} />}
        </>
      ) : (
        <StepTable graph={graph} run={run} runs={runs} mayRetry={mayRetry} onChange={onChange} />
      )}
    </div>
  );
}

interface StepTableProps {
  graph: FlowInfo;
  run: FlowRun | null;
  runs: Map<string, FlowStepRun> | null;
  mayRetry: Set<string>;
  onChange: () => void;
}

function StepTable({ graph, run, runs, mayRetry, onChange }: StepTableProps) {
  const mayAct = useMay("operator");
  const stepOf = ({ name }: FlowStepInfo): FlowStepRun | undefined => runs?.get(name);
  const columns: Column<FlowStepInfo>[] = [
    { title: "Step", kind: "main", cell: (info) => <StepName info={info} flow={run} step={stepOf(info)} /> },
    { title: "Task", cell: ({ task }) => task },
    { title: "Waits for", kind: "wide", cell: ({ after }) => (after.length === 0 ? <span class="muted">–</span> : shortened(after)) },
  ];
  if (run !== null && runs !== null) {
    columns.splice(
      1,
      0,
      { title: "State", cell: (info) => <StepState step={stepOf(info)} /> },
      { title: "Took", kind: "number", cell: (info) => <TookCell step={stepOf(info)} /> },
      { title: "Why", kind: "wide", cell: (info) => <Why step={stepOf(info)} /> },
    );
    if (mayAct) columns.push({ title: "Actions", cell: ({ name }) => <RetryStep flow={run} step={name} canRetry={mayRetry.has(name)} onChange={onChange} /> });
  }
  const hidden = graph.steps.length - MOST_ROWS;
  return (
    <>
      <Table caption={`Steps of ${graph.name}`} columns={columns} rows={inOrder(graph.steps.slice(), runs).slice(0, MOST_ROWS)} keyOf={({ name }) => name} />
      {hidden > 0 && <p class="muted">{countText(hidden)} more steps are not shown. Those that failed come first.</p>}
    </>
  );
}

/** In a long table, the steps that failed and those that run come first. */
function inOrder(steps: FlowStepInfo[], runs: Map<string, FlowStepRun> | null): FlowStepInfo[] {
  if (runs === null || steps.length <= MOST_ROWS) return steps;
  const rank = ({ name }: FlowStepInfo): number => {
    const found = ["failed", "running", "queued"].indexOf(runs.get(name)?.state ?? "");
    return found < 0 ? 3 : found;
  };
  return steps.sort((a, b) => rank(a) - rank(b));
}

const LISTED = 5;

function shortened(names: string[]): string {
  return names.length <= LISTED ? names.join(", ") : `${names.slice(0, LISTED).join(", ")} and ${countText(names.length - LISTED)} more`;
}

function StepName({ info, flow, step }: { info: FlowStepInfo; flow: FlowRun | null; step: FlowStepRun | undefined }) {
  if (flow === null || step === undefined || step.run === null) return <>{info.name}</>;
  return <a href={href(["runs", flow.tenant, step.run])}>{info.name}</a>;
}

function StepState({ step }: { step: FlowStepRun | undefined }) {
  return step === undefined ? <span class="muted">–</span> : <State state={step.state} label={stateLabel(step.state)} tone={stepTone(step.state)} />;
}

function TookCell({ step }: { step: FlowStepRun | undefined }) {
  return step === undefined || step.started_at === null ? <span class="muted">–</span> : <Took run={step} />;
}

function Why({ step }: { step: FlowStepRun | undefined }) {
  const parts = step === undefined ? [] : [elementsText(step), step.reason, step.error?.split("\n")[0]].filter(Boolean);
  return parts.length === 0 ? <span class="muted">–</span> : <>{parts.join("; ")}</>;
}

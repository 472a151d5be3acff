// One step of a flow: what it is, what became of it, and the button that runs it again.

import { useState } from "preact/hooks";
import type { FlowRun, FlowStepInfo, FlowStepRun } from "../../api/schema";
import { Button } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { type Fact, Facts } from "../../parts/page";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay } from "../../state/session";
import { RetryStepDialog } from "./actions";
import { Took } from "./graph";
import { conditionText, elementsText, stateLabel, stepTone } from "./texts";

export interface StepPanelProps {
  info: FlowStepInfo;
  run: FlowStepRun | undefined;
  flow: FlowRun | null;
  zone: string | null;
  canRetry: boolean;
  onChoose: (name: string) => void;
  onChange: () => void;
}

export function StepPanel({ info, run, flow, zone, canRetry, onChoose, onChange }: StepPanelProps) {
  return (
    <section class="flow-step" aria-label={`Step ${info.name}`}>
      <header class="flow-step-head">
        <h3>{info.name}</h3>
        {run !== undefined && <State state={run.state} label={stateLabel(run.state)} tone={stepTone(run.state)} />}
        {flow !== null && run !== undefined && run.run !== null && (
          <a href={href(["runs", flow.tenant, run.run])}>{info.kind === "flow" ? "Open the flow of this step" : "Open its run"}</a>
        )}
        {flow !== null && run !== undefined && <RetryStep key={info.name} flow={flow} step={info.name} canRetry={canRetry} onChange={onChange} />}
      </header>
      {run?.reason && <p>{asSentence(run.reason)}</p>}
      <Facts items={[...(run === undefined || flow === null ? [] : outcome(run, flow.tenant, zone)), ...description(info, onChoose)]} />
      {run?.error && (
        <div class="flow-error">
          <pre class="traceback" tabIndex={0} aria-label={`Error of ${info.name}`}>
            {run.error}
          </pre>
          <CopyButton text={run.error} label="Copy the error" />
        </div>
      )}
    </section>
  );
}

function outcome(run: FlowStepRun, tenant: string, zone: string | null): Fact[] {
  const items: Fact[] = [
    [run.state === "running" ? "Running for" : "Took", run.started_at === null ? "–" : <Took run={run} />],
    ["Started", <Time at={run.started_at} zone={zone} form="short" />],
    ["Finished", <Time at={run.finished_at} zone={zone} form="short" />],
  ];
  const elements = elementsText(run);
  if (elements !== null) items.push(["Elements", elements]);
  if (run.failed_runs.length > 0) items.push([run.failed_runs.length < run.elements_failed ? "First failed runs" : "Failed runs", <FailedRuns tenant={tenant} ids={run.failed_runs} />]);
  if (run.attempt > 1) items.push(["Attempts", String(run.attempt)]);
  if (run.round > 1) items.push(["Started anew", run.round === 2 ? "once" : `${run.round - 1} times`]);
  return items;
}

function FailedRuns({ tenant, ids }: { tenant: string; ids: string[] }) {
  return (
    <>
      {ids.map((id, index) => (
        <span key={id}>
          {index > 0 && ", "}
          <a href={href(["runs", tenant, id])}>element {id.slice(id.lastIndexOf("~") + 1)}</a>
        </span>
      ))}
    </>
  );
}

function description(info: FlowStepInfo, onChoose: (name: string) => void): Fact[] {
  return [
    [info.kind === "flow" ? "Flow" : info.is_map ? "Task of each element" : "Task", info.kind === "flow" ? <a href={href(["flows", info.task])}>{info.task}</a> : info.task],
    ["Queue", info.queue],
    ["Runs when", conditionText(info)],
    ["Waits for", info.after.length === 0 ? "nothing" : <Names names={info.after} inputs={info.inputs} onChoose={onChoose} />],
  ];
}

const LISTED = 12;

function Names({ names, inputs, onChoose }: { names: string[]; inputs: string[]; onChoose: (name: string) => void }) {
  return (
    <>
      {names.slice(0, LISTED).map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <button type="button" class="link" onClick={() => onChoose(name)}>
            {name}
          </button>
          {inputs.includes(name) && <span class="muted"> (its result)</span>}
        </span>
      ))}
      {names.length > LISTED && ` and ${names.length - LISTED} more`}
    </>
  );
}

/** The button that runs a step again, where that is possible. */
export function RetryStep({ flow, step, canRetry, onChange }: { flow: FlowRun; step: string; canRetry: boolean; onChange: () => void }) {
  const mayAct = useMay("operator");
  const [isOpen, setOpen] = useState(false);
  // An open dialog stays, and the server says why not.
  if (!mayAct || (!isOpen && !canRetry)) return null;
  return (
    <>
      <Button small aria-label={`Retry the step ${step} …`} onClick={() => setOpen(true)}>
        Retry step …
      </Button>
      {isOpen && (
        <RetryStepDialog
          run={flow}
          step={step}
          onClose={() => {
            setOpen(false);
            onChange();
          }}
        />
      )}
    </>
  );
}

function asSentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

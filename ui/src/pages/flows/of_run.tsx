// A run of a flow on the page of the run: its graph with live states, and its buttons.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { FlowRun, Run } from "../../api/schema";
import { type Data, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { href } from "../../state/route";
import { useMay } from "../../state/session";
import { useReload } from "../run/reload";
import { CancelFlowDialog, ResumeFlowDialog } from "./actions";
import { Steps } from "./steps";
import { canResume, countsText } from "./texts";

/** Load a run of a flow, and follow it: its row changes with each step that ends, and steps start by themselves. */
export function useFlowRun(run: Run): Data<FlowRun | null> {
  const isFlow = run.kind === "flow";
  const data = useData(
    `flow ${isFlow} ${run.tenant} ${run.id}`,
    async (signal) => (isFlow ? call("GET /flow-runs/{id}", { path: { id: run.id }, query: { tenant: run.tenant }, signal }) : null),
    { when: (change) => isFlow && change.subject === "run" && (change.id === run.id || change.flow === run.id) },
  );
  useReload(data, `${run.state} ${run.attempt}`);
  return data;
}

export function FlowSection({ data, zone, onChange }: { data: Data<FlowRun | null>; zone: string | null; onChange: () => void }) {
  const run = data.value;
  return (
    <Section title="Steps" aside={run && run.steps.length > 0 ? countsText(run.steps) : undefined}>
      <Loaded data={data}>{(found) => found !== null && <Shown run={found} zone={zone} onChange={onChange} />}</Loaded>
    </Section>
  );
}

function Shown({ run, zone, onChange }: { run: FlowRun; zone: string | null; onChange: () => void }) {
  if (run.graph === null) return <p class="muted">The flow has not begun, and this server does not know its steps.</p>;
  return (
    <>
      {run.outer !== null && (
        <p>
          This flow is the step {run.outer.step} of <a href={href(["runs", run.tenant, run.outer.id], { step: run.outer.step })}>another flow</a>, which resumes and retries it.
        </p>
      )}
      <Steps graph={run.graph} run={run} zone={zone} onChange={onChange} />
    </>
  );
}

/** The buttons of a flow that has begun. */
export function FlowActions({ run, onChange }: { run: FlowRun; onChange: () => void }) {
  const mayAct = useMay("operator");
  const [open, setOpen] = useState<"resume" | "cancel" | null>(null);
  const isActive = run.state === "queued" || run.state === "running";
  const close = (): void => {
    setOpen(null);
    onChange();
  };
  if (!mayAct) return null;
  return (
    <>
      {canResume(run) && (
        <Button kind="primary" onClick={() => setOpen("resume")}>
          Resume …
        </Button>
      )}
      {isActive && !run.cancel_requested && (
        <Button kind="danger" onClick={() => setOpen("cancel")}>
          Cancel …
        </Button>
      )}
      {open === "resume" && <ResumeFlowDialog run={run} onClose={close} />}
      {open === "cancel" && <CancelFlowDialog run={run} onClose={close} />}
    </>
  );
}

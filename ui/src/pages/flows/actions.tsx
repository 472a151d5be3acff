// What can be done with flows and runs of them: start, resume, retry a step, cancel.

import { useState } from "preact/hooks";
import { bodyWithPayload, payloadProblem } from "../../api/json_text";
import { call, idempotencyKey } from "../../api/client";
import type { FlowRun } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { AreaField } from "../../parts/field";
import { notify } from "../../parts/notice";
import { href, navigate } from "../../state/route";
import { counted } from "../../time/format";
import { retryText } from "./texts";

interface DialogProps {
  run: FlowRun;
  onClose: () => void;
}

const of = (run: FlowRun) => ({ path: { id: run.id }, query: { tenant: run.tenant } });

export function ResumeFlowDialog({ run, onClose }: DialogProps) {
  const kept = run.steps.filter(({ state }) => state === "succeeded").length;
  const again = run.steps.filter(({ state }) => ["failed", "cancelled", "not_run"].includes(state)).length;
  const resume = useAction(async () => {
    await call("POST /flow-runs/{id}/resume", of(run));
    onClose();
    notify("The flow goes on.");
  });
  return (
    <ActionDialog title="Resume this flow" verb="Resume" isBusy={resume.isBusy} error={resume.error} onSubmit={() => void resume.run()} onClose={onClose}>
      <p>
        {counted(again, "step")} {again === 1 ? "runs" : "run"} again: what failed or was cancelled, and what did not run because of that.{" "}
        {counted(kept, "step")} that succeeded {kept === 1 ? "stays as it is" : "stay as they are"}.
      </p>
      <p class="muted">Of a map, only the elements that failed run again.</p>
    </ActionDialog>
  );
}

export function RetryStepDialog({ run, step, onClose }: DialogProps & { step: string }) {
  const retry = useAction(async () => {
    await call("POST /flow-runs/{id}/retry", { ...of(run), body: { step } });
    onClose();
    notify(`The step ${step} runs again.`);
  });
  return (
    <ActionDialog title={`Retry the step ${step}`} verb="Retry the step" isBusy={retry.isBusy} error={retry.error} onSubmit={() => void retry.run()} onClose={onClose}>
      <p>{retryText(run, step)}</p>
      <p class="muted">Steps that succeeded run again, too, if they come after it. Their earlier runs are kept.</p>
    </ActionDialog>
  );
}

export function CancelFlowDialog({ run, onClose }: DialogProps) {
  const cancel = useAction(async () => {
    const made = await call("POST /flow-runs/{id}/cancel", of(run));
    onClose();
    if (made.state === "running") notify("The steps of the flow were asked to stop.");
    else notify(made.state === "cancelled" ? "The flow is cancelled." : `The flow was over already: ${made.state}.`);
  });
  return (
    <ActionDialog
      title="Cancel this flow"
      verb="Cancel the flow"
      kind="danger"
      isBusy={cancel.isBusy}
      error={cancel.error}
      onSubmit={() => void cancel.run()}
      onClose={onClose}
    >
      <p>Queued steps are over at once, running ones are asked to stop, and no other step starts. What succeeded is kept: the flow can be resumed later.</p>
    </ActionDialog>
  );
}

export function StartFlowDialog({ flow, tenant, onClose }: { flow: string; tenant: string; onClose: () => void }) {
  const [text, setText] = useState("");
  // One key for each opened dialog: a double click, or a repetition after a lost reply, adds nothing.
  const [key] = useState(idempotencyKey);
  const wrong = text.trim() === "" ? null : payloadProblem(text);
  const start = useAction(async () => {
    const bodyText = text.trim() === "" ? "{}" : bodyWithPayload({}, text);
    const run = await call("POST /flows/{flow}/run", { path: { flow }, query: { tenant }, bodyText, headers: { "Idempotency-Key": key } });
    onClose();
    notify(`Started ${flow}. This is its run.`);
    navigate(href(["runs", run.tenant, run.id]));
  });
  return (
    <ActionDialog
      title={`Start ${flow}`}
      verb="Start"
      isBusy={start.isBusy}
      error={start.error}
      disabled={wrong !== null}
      onSubmit={() => void start.run()}
      onClose={onClose}
    >
      <p>
        One run of the flow is added at once, for the tenant {tenant}.
      </p>
      <AreaField
        label="Arguments"
        mono
        rows={5}
        value={text}
        onText={setText}
        error={wrong}
        help="A JSON object. Empty: the defaults of the flow's parameters. Each digit is kept."
      />
    </ActionDialog>
  );
}

// What can be done with a run: retry it, run it with another payload, cancel it.

import { useMemo, useState } from "preact/hooks";
import { call, idempotencyKey } from "../../api/client";
import type { Run } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { AreaField } from "../../parts/field";
import { notify } from "../../parts/notice";
import { href, navigate } from "../../state/route";
import { counted } from "../../time/format";
import { bodyWithPayload, payloadProblem } from "../../api/json_text";

interface DialogProps {
  run: Run;
  onClose: () => void;
}

export function RetryDialog({ run, onClose }: DialogProps) {
  const retry = useAction(async () => {
    const made = await call("POST /runs/{id}/retry", { path: { id: run.id }, query: { tenant: run.tenant } });
    onClose();
    if (made.id === run.id) {
      notify("The run is queued again.");
      return;
    }
    notify("A new run was added, since the schedule limits its active runs.");
    navigate(href(["runs", made.tenant, made.id]));
  });
  return (
    <ActionDialog title="Retry this run" verb="Retry" isBusy={retry.isBusy} error={retry.error} onSubmit={() => void retry.run()} onClose={onClose}>
      <p>
        The run is queued now, with the same payload and {counted(run.retries, "retry", "retries")} if it fails again. Its earlier
        attempts stay on this page.
      </p>
      {run.schedule !== null && <p class="muted">If the schedule limits its active runs, a new run is added instead, within that limit.</p>}
    </ActionDialog>
  );
}

/** The options of a run that a new run of the same task takes over. */
function optionsOf(run: Run): Record<string, unknown> {
  const { task, retries, backoff, max_backoff, timeout, on_crash, max_crashes, expires, queue, priority } = run;
  return { task, retries, backoff, max_backoff, timeout, on_crash, max_crashes, expires, queue, priority };
}

export function EditDialog({ run, payload, onClose }: DialogProps & { payload: string }) {
  const [text, setText] = useState(payload === "null" ? "{}" : payload);
  const [isAlone, setAlone] = useState(run.schedule === null);
  // The same text is sent once, however often the button is pressed.
  const key = useMemo(idempotencyKey, [text, isAlone]);
  const wrong = payloadProblem(text);
  const send = useAction(async () => {
    const headers = { "Idempotency-Key": key };
    const query = { tenant: run.tenant };
    const made =
      isAlone || run.schedule === null
        ? await call("POST /runs", { query, headers, bodyText: bodyWithPayload(optionsOf(run), text) })
        : await call("POST /schedules/{name}/run", { path: { name: run.schedule }, query, headers, bodyText: bodyWithPayload({}, text) });
    onClose();
    notify("A new run was added. This is its page.");
    navigate(href(["runs", made.tenant, made.id]));
  });
  const isGone = send.error?.status === 404 && !isAlone;
  return (
    <ActionDialog
      title="Run it with an edited payload"
      verb="Add the run"
      isBusy={send.isBusy}
      error={send.error}
      disabled={wrong !== null}
      onSubmit={() => void send.run()}
      onClose={onClose}
      wide
    >
      <p>{explanation(run, isAlone)}</p>
      {isGone && (
        <label class="check">
          <input type="checkbox" checked={false} onChange={() => setAlone(true)} />
          <span>The schedule is gone. Add a run of the task {run.task} without it.</span>
        </label>
      )}
      <AreaField
        label="Payload"
        mono
        rows={12}
        value={text}
        onText={setText}
        error={wrong}
        help="JSON. It is sent as you see it: every digit is kept."
      />
    </ActionDialog>
  );
}

function explanation(run: Run, isAlone: boolean): string {
  if (isAlone) return `This adds a new run of the task ${run.task}, with the options of this run. This run stays as it is.`;
  return (
    `This adds a new run to the schedule ${run.schedule}, with the schedule's options of today. ` +
    "This run stays as it is, and the next tick stays where it is."
  );
}

export function CancelDialog({ run, onClose }: DialogProps) {
  const cancel = useAction(async () => {
    const made = await call("POST /runs/{id}/cancel", { path: { id: run.id }, query: { tenant: run.tenant } });
    onClose();
    if (made.state === "running") notify("The run was asked to stop.");
    else notify(made.state === "cancelled" ? "The run is cancelled." : `The run was over already: ${made.state}.`);
  });
  return (
    <ActionDialog
      title="Cancel this run"
      verb="Cancel the run"
      kind="danger"
      isBusy={cancel.isBusy}
      error={cancel.error}
      onSubmit={() => void cancel.run()}
      onClose={onClose}
    >
      {run.state === "running" ? (
        <>
          <p>The run is asked to stop. It is not tried again.</p>
          <ul class="notes">
            <li>A “def” task stops when it calls run.raise_if_cancelled(). If it returns instead, the run has succeeded.</li>
            <li>An “async def” task is cancelled at its next await.</li>
            <li>A task in a process of its own is stopped after 2 seconds.</li>
          </ul>
        </>
      ) : (
        <p>The run has not started: it is over at once, and does not run. It can be retried later.</p>
      )}
    </ActionDialog>
  );
}

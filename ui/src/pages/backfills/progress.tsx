// How far a backfill is, and the button that cancels it.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Backfill } from "../../api/schema";
import { useAction } from "../../live/action";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { notify } from "../../parts/notice";
import { useMay } from "../../state/session";
import { counted } from "../../time/format";
import { endedOf, isOver, progressText } from "./texts";

export function BackfillProgress({ backfill }: { backfill: Backfill }) {
  const { id, total, waits_for, note } = backfill;
  return (
    <div>
      <div class="progress">
        <progress aria-label={`Progress of the backfill ${id}`} value={total === 0 ? 1 : endedOf(backfill)} max={total || 1} />
        <span class="number">{progressText(backfill)}</span>
      </div>
      {waits_for !== null && <p class="progress-note">Waits: {waits_for}.</p>}
      {note !== "" && <p class="progress-note">{note}.</p>}
    </div>
  );
}

export function CancelBackfill({ backfill, onChange }: { backfill: Backfill; onChange: () => void }) {
  const mayOperate = useMay("operator");
  const [isOpen, setOpen] = useState(false);
  const { id, tenant, schedule, active, left, state } = backfill;
  const cancel = useAction(async () => {
    const found = await call("POST /backfills/{id}/cancel", { path: { id }, query: { tenant } });
    notify(found.state === "done" ? `The backfill ${id} was done already.` : `Cancelled the backfill ${id}: ${counted(found.left, "run")} not added.`);
    setOpen(false);
    onChange();
  });
  if (!mayOperate || isOver(backfill) || state === "cancelling") return null;
  return (
    <>
      <Button small kind="danger" aria-label={`Cancel the backfill ${id}`} onClick={() => setOpen(true)}>
        Cancel
      </Button>
      {isOpen && (
        <ActionDialog
          title={`Cancel the backfill of ${schedule}`}
          verb="Cancel the backfill"
          kind="danger"
          isBusy={cancel.isBusy}
          error={cancel.error}
          onSubmit={() => void cancel.run()}
          onClose={() => setOpen(false)}
        >
          <p>
            {counted(left, "run")} will not be added. Of the {counted(active, "active run")}, queued ones are cancelled, and running ones are asked to stop. Runs that
            have ended stay.
          </p>
        </ActionDialog>
      )}
    </>
  );
}

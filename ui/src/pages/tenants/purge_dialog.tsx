// Purge a tenant: first what there is, then the name as a confirmation, then request by request until nothing is left.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { TenantPurge } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { ActionDialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { added, type Counts, countLines, DEFAULT, NOTHING, rowCount } from "./texts";
import { countText } from "../../time/format";

interface PurgeDialogProps {
  tenant: string;
  onClose: () => void;
  onDone: (words: string) => void;
}

/** About how many rows one request deletes: few enough for a progress that moves. */
const AT_ONCE = 2_000;
/** Milliseconds between two looks at runs that were asked to stop. */
const PAUSE = 1_000;

export function PurgeDialog({ tenant, onClose, onDone }: PurgeDialogProps) {
  const even_default = tenant === DEFAULT;
  const planned = useData(`purge ${tenant}`, (signal) => call("POST /tenants/{name}/purge", { path: { name: tenant }, body: { dry_run: true, even_default }, signal }));
  const [typed, setTyped] = useState("");
  const [deleted, setDeleted] = useState<Counts | null>(null);
  const isOpen = useRef(true);
  useEffect(() => () => void (isOpen.current = false), []);
  const purge = useAction(async () => {
    let sum = NOTHING;
    setDeleted(sum);
    for (;;) {
      const part = await call("POST /tenants/{name}/purge", { path: { name: tenant }, body: { dry_run: false, even_default, limit: AT_ONCE } });
      sum = added(sum, part);
      // Whoever closes the dialog stops after this request.
      if (!isOpen.current) return;
      setDeleted(sum);
      if (part.is_complete) break;
      if (part.stopping > 0) await new Promise((resolve) => setTimeout(resolve, PAUSE));
      if (!isOpen.current) return;
    }
    onDone(`Purged ${tenant}: ${countLines(sum).join(", ") || "nothing was left"}.`);
  });
  return (
    <ActionDialog
      title={`Purge ${tenant}`}
      verb="Purge"
      kind="danger"
      disabled={planned.value === undefined || typed.trim() !== tenant}
      isBusy={purge.isBusy}
      error={purge.error}
      onSubmit={() => void purge.run()}
      onClose={onClose}
    >
      <Loaded data={planned}>{(plan) => <Plan plan={plan} />}</Loaded>
      {deleted === null ? (
        <TextField label={`Type ${tenant} to confirm`} value={typed} onText={setTyped} />
      ) : (
        <Progress deleted={deleted} total={planned.value === undefined ? 0 : rowCount(planned.value)} />
      )}
    </ActionDialog>
  );
}

function Plan({ plan }: { plan: TenantPurge }) {
  const lines = countLines(plan);
  return (
    <>
      <p class="warning whole-text">
        {lines.length === 0 ? "Nothing of this tenant is left to delete but statistics." : `This deletes everything of ${plan.tenant}, with logs and history. It can't be undone.`}
      </p>
      <ul class="bullets" aria-label="What is deleted">
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      {plan.remains.length > 0 && (
        <div class="muted">
          <p>What stays:</p>
          <ul class="bullets" aria-label="What stays">
            {plan.remains.map((each) => (
              <li key={each}>{each}</li>
            ))}
          </ul>
        </div>
      )}
    </>
  );
}

function Progress({ deleted, total }: { deleted: Counts; total: number }) {
  const done = rowCount(deleted) - deleted.stopping;
  return (
    <div role="status">
      <progress aria-label="Progress of the purge" value={Math.min(done, total)} max={Math.max(total, 1)} />
      <p>
        {countText(done)} rows deleted.{" "}
        {deleted.stopping > 0 && `${countText(deleted.stopping)} running: asked to stop, deleted when they have ended. If you close this, they stay until the next purge.`}
      </p>
    </div>
  );
}

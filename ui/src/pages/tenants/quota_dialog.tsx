// Set the quota of a tenant, or remove it.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Quota } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { fieldErrors } from "../../parts/field_errors";
import { quotaText, wantedQuota } from "./texts";

interface QuotaDialogProps {
  /** null: the form asks for the name. */
  tenant: string | null;
  quota: Quota | null;
  onClose: () => void;
  onDone: (words: string) => void;
}

const FIELDS = ["name", "tenant", "schedules", "queued_runs"] as const;

export function QuotaDialog({ tenant, quota, onClose, onDone }: QuotaDialogProps) {
  const [name, setName] = useState(tenant ?? "");
  const [schedules, setSchedules] = useState(written(quota?.schedules));
  const [queued, setQueued] = useState(written(quota?.queued_runs));
  const set = useAction(async () => {
    const made = await call("POST /tenants/{name}/quota", { path: { name: name.trim() }, body: wantedQuota(schedules, queued) });
    onDone(`Set the quota of ${name.trim()}: ${quotaText(made)}.`);
  });
  const errors = fieldErrors(set.error, FIELDS);
  const isComplete = name.trim() !== "" && (schedules.trim() !== "" || queued.trim() !== "");
  return (
    <ActionDialog
      title={tenant === null ? "Set a quota" : `Quota of ${tenant}`}
      verb="Set"
      disabled={!isComplete}
      isBusy={set.isBusy}
      error={errors.rest}
      onSubmit={() => void set.run()}
      onClose={onClose}
    >
      {tenant === null && <TextField label="Tenant" required value={name} onText={setName} placeholder="acme" error={errors.at("name") ?? errors.at("tenant")} help="It need not have anything yet." />}
      <TextField label="Schedules" value={schedules} onText={setSchedules} placeholder="any number" error={errors.at("schedules")} help="At most so many, paused and finished ones too. Empty: any number." />
      <TextField label="Queued runs" value={queued} onText={setQueued} placeholder="any number" error={errors.at("queued_runs")} help="At most so many, due or not. Ticks of schedules count, and are never refused. Empty: any number." />
      <p class="muted">What the tenant has already stays. More is refused in all processes within 5 seconds.</p>
    </ActionDialog>
  );
}

function written(count: number | null | undefined): string {
  return count === null || count === undefined ? "" : String(count);
}

export function RemoveQuotaDialog({ tenant, quota, onClose, onDone }: { tenant: string; quota: Quota; onClose: () => void; onDone: (words: string) => void }) {
  const remove = useAction(async () => {
    await call("DELETE /tenants/{name}/quota", { path: { name: tenant } });
    onDone(`Removed the quota of ${tenant}.`);
  });
  return (
    <ActionDialog title={`Remove the quota of ${tenant}`} verb="Remove" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p class="whole-text">
        The quota was {quotaText(quota)}. Without it, {tenant} may have any number of schedules and queued runs.
      </p>
    </ActionDialog>
  );
}

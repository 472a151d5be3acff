// Set a limit, or change the numbers of one.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { RunLimit } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { fieldErrors } from "../../parts/field_errors";
import { useMe } from "../../state/session";
import { edited, FIELDS, FIRST, formOf, isComplete, type LimitField, type LimitForm, wantedOf } from "./form";

interface LimitDialogProps {
  /** null: a new one. */
  limit: RunLimit | null;
  onClose: () => void;
  onDone: (words: string) => void;
}

export function LimitDialog({ limit, onClose, onDone }: LimitDialogProps) {
  const own = useMe().tenant;
  const [first] = useState<LimitForm>(limit === null ? { ...FIRST, tenant: own ?? "" } : formOf(limit));
  const [form, setForm] = useState(first);
  const set = useAction(async () => {
    const made = await call("POST /limits", { body: wantedOf(form) });
    const warnings = made.warnings.map(({ problem, hint }) => `${problem}${hint === null ? "" : ` (${hint})`}`);
    onDone([`Set the limit: ${made.words}.`, ...warnings.map((text) => `Note: ${text}.`)].join(" "));
  });
  const errors = fieldErrors(set.error, FIELDS);
  const text = (field: LimitField) => ({
    value: form[field],
    error: errors.at(field),
    onText: (value: string) => setForm((old) => edited(old, field, value, first)),
  });
  return (
    <ActionDialog
      title={limit === null ? "New limit" : "Change the limit"}
      verb={limit === null ? "Set" : "Save"}
      disabled={!isComplete(form)}
      isBusy={set.isBusy}
      error={errors.rest}
      onSubmit={() => void set.run()}
      onClose={onClose}
    >
      {limit === null ? (
        <fieldset class="fieldset">
          <legend>For which runs</legend>
          <div class="field-pairs">
            <TextField label="Task" mono {...text("task")} placeholder="charge" help="Empty: every task." />
            <TextField label="Queue" {...text("queue")} placeholder="all queues" help="Empty: every queue." />
            {own === null && <TextField label="Tenant" {...text("tenant")} placeholder="all tenants" help="Empty: the runs of all tenants together." />}
            <TextField label="Key" mono {...text("key")} placeholder="customer" help="A field of the payload: each value has the limit for itself." />
          </div>
        </fieldset>
      ) : (
        <p class="whole-text">
          Of <code>{limit.name}</code>. Runs that have started go on.
        </p>
      )}
      <fieldset class="fieldset">
        <legend>How many</legend>
        <div class="field-pairs">
          <TextField label="At once" {...text("concurrency")} placeholder="5" help="How many may be running. Empty: any number." />
          <TextField label="Rate" mono {...text("rate")} placeholder="100/m" help="Starts in a period: 100/m, 10/30s. Empty: any." />
          <TextField label="Burst" {...text("burst")} placeholder="by the rate" help="Starts at once after a quiet time. Empty: those of 50 ms, at least 1." />
        </div>
      </fieldset>
      <p class="muted">A limit with the same names is replaced. It holds on all nodes.</p>
    </ActionDialog>
  );
}

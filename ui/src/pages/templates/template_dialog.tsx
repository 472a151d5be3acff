// Set a template: its options, then what the change means for the schedules that inherit from it, then the change.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Template, TemplateChange, TemplateEffect, WantedTemplate } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { TextField } from "../../parts/field";
import { counted, countText } from "../../time/format";
import { fieldOf, LABELS } from "../schedules/form";
import { OptionRows } from "../schedules/option_rows";
import { areComplete, OPTIONS, type OptionRow, optionText, rowsOf, valuesOf } from "../schedules/options";
import { RefusedList } from "../schedules/refused";

const LABEL = /^[A-Za-z0-9_-]{1,128}$/;

interface TemplateDialogProps {
  tenant: string;
  /** null: a new one. */
  template: Template | null;
  onClose: () => void;
  onDone: (words: string) => void;
}

export function TemplateDialog({ tenant, template, onClose, onDone }: TemplateDialogProps) {
  const [name, setName] = useState(template?.name ?? "");
  const [rows, setRows] = useState<OptionRow[]>(template === null ? [{ option: "trigger", text: "" }] : rowsOf(template.options));
  const [effect, setEffect] = useState<TemplateChange | null>(null);
  const wanted = (dry_run: boolean): WantedTemplate => ({ name: name.trim(), dry_run, ...valuesOf(rows) }) as WantedTemplate;
  const review = useAction(async () => setEffect(await call("POST /templates", { query: { tenant }, body: wanted(true) })));
  const save = useAction(async () => {
    const { changed, refused } = await call("POST /templates", { query: { tenant }, body: wanted(false) });
    const left = refused.length === 0 ? "" : ` ${counted(refused.length, "schedule")} could not be changed: ${refused.map(({ id, why }) => `${id}: ${why}`).slice(0, 3).join("; ")}`;
    onDone(`Set the template ${name.trim()}; ${counted(changed, "schedule")} changed.${left}`);
  });
  const field = fieldOf(review.error?.field ?? null);
  const isNamed = review.error?.field === "name";
  const change = (next: OptionRow[]): void => {
    setRows(next);
    review.clear();
  };
  if (effect !== null) {
    return (
      <ActionDialog title={`Set ${name.trim()}?`} verb="Set" isBusy={save.isBusy} error={save.error} onSubmit={() => void save.run()} onClose={onClose} wide>
        <Effects change={effect} />
      </ActionDialog>
    );
  }
  const isNameRight = LABEL.test(name.trim());
  return (
    <ActionDialog
      title={template === null ? "New template" : `Change ${template.name}`}
      verb="Review"
      disabled={!isNameRight || !areComplete(rows)}
      isBusy={review.isBusy}
      error={isNamed || (field !== null && rows.some(({ option }) => option === field)) ? null : review.error}
      onSubmit={() => void review.run()}
      onClose={onClose}
      wide
    >
      {template === null && (
        <TextField
          label="Name"
          value={name}
          onText={(text) => {
            setName(text);
            review.clear();
          }}
          placeholder="nightly"
          help="1 to 128 letters, digits, _ or -."
          error={isNamed && review.error ? review.error.message : name.trim() === "" || isNameRight ? null : "A template has 1 to 128 letters, digits, _ or -."}
        />
      )}
      <OptionRows rows={rows} onRows={change} errorAt={(option) => (review.error !== null && field === option ? review.error.message : null)} />
    </ActionDialog>
  );
}

function Effects({ change }: { change: TemplateChange }) {
  const more = change.changed - change.sample.length;
  return (
    <div class="stack">
      <p>
        <strong>
          {counted(change.schedules, "schedule")} {change.schedules === 1 ? "inherits" : "inherit"} from it, {countText(change.changed)} will change.
        </strong>{" "}
        No tick fires from this change.
      </p>
      {change.sample.length > 0 && (
        <ul class="sample" aria-label="What changes">
          {change.sample.map((effect) => (
            <Effect key={effect.schedule} effect={effect} />
          ))}
          {more > 0 && <li class="muted">and {countText(more)} more</li>}
        </ul>
      )}
      <RefusedList refused={change.refused} />
    </div>
  );
}

function Effect({ effect }: { effect: TemplateEffect }) {
  const changed = OPTIONS.filter((option) => option in effect.after);
  return (
    <li>
      <strong>{effect.schedule}</strong>{" "}
      {changed.map((option) => (
        <span key={option} class="template-effect">
          {LABELS[option]}: <code>{optionText(effect.before[option]) || "none"}</code> → <code>{optionText(effect.after[option]) || "none"}</code>{" "}
        </span>
      ))}
    </li>
  );
}

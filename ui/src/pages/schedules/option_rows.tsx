// Rows of an option and its value: what a bulk change changes, and what a template has.

import { Button } from "../../parts/button";
import { SelectField, TextField } from "../../parts/field";
import { CATCH_UP, ON_CRASH, OVERLAP, PRIORITIES } from "./fields";
import { LABELS } from "./form";
import { choicesOf, mayBeEmpty, type OptionName, type OptionRow, problemOf, withRow } from "./options";

const KNOWN: Partial<Record<OptionName, [value: string, words: string][]>> = { catch_up: CATCH_UP, overlap: OVERLAP, on_crash: ON_CRASH, priority: PRIORITIES };

const EXAMPLES: Partial<Record<OptionName, string>> = { trigger: "0 3 * * *", retries: "3", queue: "batch", timeout: "1h", spread: "5m", tags: "billing" };

interface OptionRowsProps {
  rows: OptionRow[];
  onRows: (rows: OptionRow[]) => void;
  /** What the server refused, by option. */
  errorAt: (option: OptionName) => string | null;
}

export function OptionRows({ rows, onRows, errorAt }: OptionRowsProps) {
  const set = (index: number, row: OptionRow): void => onRows(rows.map((each, other) => (other === index ? row : each)));
  return (
    <div class="stack" role="group" aria-label="Options">
      {rows.map((row, index) => (
        <div key={row.option} class="option-row">
          <SelectField
            label={`Option ${index + 1}`}
            value={row.option}
            onText={(option) => set(index, { option: option as OptionName, text: "" })}
            options={choicesOf(rows, index).map((option) => [option, LABELS[option]])}
          />
          <ValueField rows={rows} row={row} error={errorAt(row.option)} onText={(text) => set(index, { ...row, text })} />
          <Button small kind="quiet" aria-label={`Leave out ${LABELS[row.option]}`} onClick={() => onRows(rows.filter((each) => each !== row))}>
            Leave out
          </Button>
        </div>
      ))}
      <div>
        <Button small onClick={() => onRows(withRow(rows))}>
          Add an option
        </Button>
      </div>
    </div>
  );
}

function ValueField({ rows, row, error, onText }: { rows: OptionRow[]; row: OptionRow; error: string | null; onText: (text: string) => void }) {
  const label = `Value of ${LABELS[row.option].toLowerCase()}`;
  const known = KNOWN[row.option];
  if (known !== undefined) return <SelectField label={label} error={error} value={row.text} onText={onText} options={[["", "choose"], ...known]} />;
  return (
    <TextField
      label={label}
      error={error ?? problemOf(rows, row)}
      value={row.text}
      onText={onText}
      mono={row.option === "trigger"}
      placeholder={EXAMPLES[row.option] ?? ""}
      help={mayBeEmpty(row.option) ? "Empty: none." : undefined}
    />
  );
}

// Fields of forms: a label, the control, and below it help or what is wrong.

import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  help?: ComponentChildren;
  error?: string | null;
}

interface ControlProps {
  id: string;
  "aria-describedby": string;
  "aria-invalid": boolean;
}

/** A labelled control. `children` gets the attributes that tie the control to its label and help. */
export function Field({ label, help, error, children }: FieldProps & { children: (props: ControlProps) => ComponentChildren }) {
  const id = useId();
  const wrong = error !== null && error !== undefined && error !== "";
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": `${id}-help`, "aria-invalid": wrong })}
      <div id={`${id}-help`} class={wrong ? "help wrong" : "help"} role={wrong ? "alert" : undefined}>
        {wrong ? error : help}
      </div>
    </div>
  );
}

interface InputProps extends FieldProps {
  value: string;
  onText: (text: string) => void;
  type?: "text" | "password" | "number" | "datetime-local";
  placeholder?: string;
  required?: boolean;
  autocomplete?: "off" | "current-password";
  /** The id of a <datalist> with proposals. */
  list?: string;
  mono?: boolean;
}

export function TextField({ label, help, error, value, onText, type = "text", placeholder = "", required = false, autocomplete = "off", list, mono = false }: InputProps) {
  // Preact's types describe each type of input apart; here it is a value.
  const attributes = { type, placeholder, required, autocomplete, ...(list === undefined ? {} : { list }) } as InputHTMLAttributes<HTMLInputElement>;
  return (
    <Field label={label} help={help} error={error ?? null}>
      {(props) => <input {...attributes} {...props} class={mono ? "mono" : ""} value={value} onInput={(event) => onText(event.currentTarget.value)} />}
    </Field>
  );
}

type AreaProps = FieldProps & { value: string; onText: (text: string) => void; rows?: number; mono?: boolean; placeholder?: string };

export function AreaField({ label, help, error, value, onText, rows = 4, mono = false, placeholder }: AreaProps) {
  return (
    <Field label={label} help={help} error={error ?? null}>
      {(props) => (
        <textarea
          {...props}
          rows={rows}
          class={mono ? "mono" : ""}
          spellcheck={!mono}
          placeholder={placeholder ?? ""}
          value={value}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

type SelectProps = FieldProps & { value: string; onText: (text: string) => void; options: [value: string, label: string][] };

export function SelectField({ label, help, error, value, onText, options }: SelectProps) {
  return (
    <Field label={label} help={help} error={error ?? null}>
      {(props) => (
        <select {...props} value={value} onChange={(event) => onText(event.currentTarget.value)}>
          {options.map(([each, text]) => (
            <option key={each} value={each}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField({ label, checked, onCheck }: { label: ComponentChildren; checked: boolean; onCheck: (checked: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => onCheck(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

// The state of the form: its texts, and which problems to show.

import { type RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../../api/client";
import { type Errors, type FieldName, fieldOf, FIELDS, type Form } from "./form";
import type { TriggerPreview } from "./preview";

export interface FormState {
  values: Form;
  set: (name: FieldName, text: string, clear: () => void) => void;
  replace: (values: Form) => void;
  touchAll: () => void;
  /** Return the problem of each field: what the page finds, what the preview of the trigger says, what the server refused. */
  shownErrors: (found: Errors, preview: TriggerPreview, refused: Problem | null) => Errors;
}

export function useForm(initial: Form): FormState {
  const [values, setValues] = useState(initial);
  const [touched, setTouched] = useState<ReadonlySet<FieldName>>(new Set());
  return {
    values,
    set: (name, text, clear) => {
      setValues((old) => ({ ...old, [name]: text }));
      setTouched((old) => new Set([...old, name]));
      // What the server refused was about the text before.
      clear();
    },
    replace: setValues,
    touchAll: () => setTouched(new Set(FIELDS)),
    shownErrors: (found, preview, refused) => {
      const shown: Errors = {};
      for (const name of FIELDS) {
        if (touched.has(name) && found[name] !== undefined) shown[name] = found[name];
      }
      if (preview.problem !== null && !preview.problem.isTransient) shown.trigger ??= preview.problem.message;
      const field = fieldOf(refused?.field ?? null);
      if (field !== null && refused !== null) shown[field] = refused.message;
      return shown;
    },
  };
}

/** Return a function that leads to the first field with a wrong value, once its problem is shown. */
export function useWrongField(): [form: RefObject<HTMLFormElement | null>, show: () => void] {
  const form = useRef<HTMLFormElement>(null);
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    if (asked === 0) return;
    const field = form.current?.querySelector<HTMLElement>('[aria-invalid="true"]');
    field?.scrollIntoView({ block: "center" });
    field?.focus({ preventScroll: true });
  }, [asked]);
  return [form, () => setAsked((count) => count + 1)];
}

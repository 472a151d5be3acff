// Where a form shows what the server refused: at the field that the problem names, or below the form.

import type { Problem } from "../api/client";

export interface FieldErrors<F extends string> {
  /** Return what is wrong with a field; null if the server did not refuse it. */
  at: (field: F) => string | null;
  /** A problem that is about none of the fields. */
  rest: Problem | null;
}

/** Tell which of the fields of a form a problem is about. */
export function fieldErrors<F extends string>(problem: Problem | null, fields: readonly F[]): FieldErrors<F> {
  const found = fields.find((field) => field === problem?.field);
  if (problem === null || found === undefined) return { at: () => null, rest: problem };
  return { at: (field) => (field === found ? errorText(problem) : null), rest: null };
}

function errorText({ message, hint }: Problem): string {
  return hint === null || message.includes(hint) ? message : `${message}. ${hint}`.replace("..", ".");
}

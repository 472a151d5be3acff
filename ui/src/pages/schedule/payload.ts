// The payload that a user types. Pure.

/** Return what is wrong with the text of a payload; null if nothing is. Empty: the payload of the schedule. */
export function payloadProblem(text: string): string | null {
  if (text.trim() === "") return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : "it can't be read"}`;
  }
  if (value === null || (typeof value === "object" && !Array.isArray(value))) return null;
  return 'A payload is a JSON object, like {"user": 7}, or null.';
}

// The lines of a log, as the page shows them. Pure.

import type { LogLine } from "../../api/schema";

export const MOST_LINES = 2_000;

export type LogItem = { kind: "attempt"; attempt: number } | { kind: "line"; at: string; text: string };

/** Put a heading before the lines of each attempt, and leave out all but the last lines. */
export function logItems(lines: LogLine[], most = MOST_LINES): { items: LogItem[]; leftOut: number } {
  const leftOut = Math.max(0, lines.length - most);
  const items: LogItem[] = [];
  let attempt: number | null = null;
  for (const line of lines.slice(leftOut)) {
    if (line.attempt !== attempt) items.push({ kind: "attempt", attempt: line.attempt });
    attempt = line.attempt;
    items.push({ kind: "line", at: line.at, text: line.text });
  }
  return { items, leftOut };
}

/** Return the log as a text to copy. */
export function logText(lines: LogLine[]): string {
  return lines.map(({ at, attempt, text }) => `${at} [${attempt}] ${text}`).join("\n");
}

/** Whether a frame shows its end, with some tolerance for fractions of pixels. */
export function isAtEnd(frame: { scrollTop: number; scrollHeight: number; clientHeight: number }): boolean {
  return frame.scrollHeight - frame.scrollTop - frame.clientHeight < 24;
}

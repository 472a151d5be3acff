// A group of failed runs, in words. Pure.

import type { FailureGroup } from "../../api/schema";
import { counted } from "../../time/format";
import { errorLine } from "../run/attempts";

/** Return the error of the newest run as it is, if the words of its group leave out a part of it: "KeyError: 'name'". */
export function newestLine({ error, whole_error }: Pick<FailureGroup, "error" | "whole_error">): string | null {
  const line = errorLine(whole_error);
  return line === null || line === error ? null : line;
}

/** Return the runs of a group, as the object of "Retry": with an error that one of them has. */
export function retryWords(group: Pick<FailureGroup, "count" | "error" | "whole_error">): string {
  const newest = newestLine(group);
  const runs = counted(group.count, "run");
  if (newest === null || group.count === 1) return `${runs} that failed with ${newest ?? group.error}`;
  return `${runs} that failed as the newest did: ${newest}`;
}

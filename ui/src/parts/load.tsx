// What a view shows before its data is there, and when it can't be loaded.

import type { ComponentChildren } from "preact";
import type { Data } from "../live/data";
import { ProblemBox } from "./problem";

/** Show data; before that a placeholder, and above old data the reason why there is no newer. */
export function Loaded<T>({ data, children }: { data: Data<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {data.error && <ProblemBox problem={data.error} onRetry={data.reload} />}
      {data.value !== undefined ? children(data.value) : data.error === null && <Loading />}
    </>
  );
}

export function Loading() {
  return (
    <p class="loading" aria-busy="true">
      Loading …
    </p>
  );
}

// The present time, by the clock of the server, and a tick for texts like "3 s ago".

import { useEffect } from "preact/hooks";
import { createStore, useStore } from "../state/store";

let ahead = 0;

/** Compare our clock with the header Date of an answer, which has whole seconds. */
export function noteServerTime(date: string | null): void {
  const instant = date === null ? NaN : Date.parse(date);
  if (Number.isNaN(instant)) return;
  const difference = instant + 500 - Date.now();
  // Less than that is rounding and the way of the answer.
  ahead = Math.abs(difference) < 2_000 ? 0 : difference;
}

/** Return the present time in milliseconds, by the clock of the server. */
export function now(): number {
  return Date.now() + ahead;
}

const beat = createStore(now());
let users = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** Return the present time, and render again each second while the page is visible. */
export function useNow(): number {
  useEffect(() => {
    users += 1;
    timer ??= setInterval(() => {
      if (!document.hidden) beat.set(now());
    }, 1_000);
    return () => {
      users -= 1;
      if (users === 0) {
        clearInterval(timer);
        timer = undefined;
      }
    };
  }, []);
  useStore(beat);
  return now();
}

// An action of the user: a request that is under way, has failed, or is done.

import { useCallback, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client";

export interface Action<A extends unknown[]> {
  run: (...args: A) => Promise<boolean>;
  isBusy: boolean;
  error: Problem | null;
  clear: () => void;
}

/** Return a function that does something once at a time. It returns whether it was done; `error` says why not. */
export function useAction<A extends unknown[]>(act: (...args: A) => Promise<void>): Action<A> {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Problem | null>(null);
  const busy = useRef(false);
  const latest = useRef(act);
  latest.current = act;
  const run = useCallback(async (...args: A): Promise<boolean> => {
    // A double click adds nothing.
    if (busy.current) return false;
    busy.current = true;
    setBusy(true);
    setError(null);
    try {
      await latest.current(...args);
      return true;
    } catch (failure) {
      if (!(failure instanceof Problem)) throw failure;
      setError(failure);
      return false;
    } finally {
      busy.current = false;
      setBusy(false);
    }
  }, []);
  return { run, isBusy, error, clear: useCallback(() => setError(null), []) };
}

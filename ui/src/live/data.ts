// Data of a view: loaded when it is shown, and again when something that it shows has changed.
//
// A view is loaded again at most once a second, only while the tab is visible, and every 10 s while the stream
// is down. Old data stays on the page while new data is on its way.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client";
import { createStore } from "../state/store";
import { type Change, onChanges, streamState } from "./stream";

export interface Data<T> {
  /** What was loaded last; undefined until then. */
  value: T | undefined;
  error: Problem | null;
  isLoading: boolean;
  /** Load it again now. */
  reload: () => void;
}

export interface DataOptions {
  /** Whether a change concerns the view; without it, the view follows no changes. */
  when?: (change: Change) => boolean;
  /** Load it again after so many milliseconds, whatever happens: for data that changes with the time. It may change. */
  every?: number | undefined;
}

const SOONEST = 1_000;
/** An answer that takes the server longer than this is asked for less often: after so many times its duration, a minute at most. */
const LONG = 2_000;
const REST = 5;
const LONGEST_REST = 60_000;
const POLL = 10_000;

/** When data of the page was last loaded; 0 before that. */
export const updatedAt = createStore(0);

/** Load data, and keep it fresh. `key` names what is loaded: with another key, the old data is dropped. */
export function useData<T>(key: string, load: (signal: AbortSignal) => Promise<T>, options: DataOptions = {}): Data<T> {
  const [state, setState] = useState<{ key: string; value: T | undefined; error: Problem | null; isLoading: boolean }>({
    key,
    value: undefined,
    error: null,
    isLoading: true,
  });
  const latest = useRef({ load, options });
  latest.current = { load, options };
  const reload = useRef<() => void>(() => undefined);
  const loadSoon = useRef<() => void>(() => undefined);

  useEffect(() => {
    const loader = new Loader<T>(
      (signal) => latest.current.load(signal),
      (value) => {
        updatedAt.set(Date.now());
        setState({ key, value, error: null, isLoading: false });
      },
      (error) => setState((old) => ({ key, value: old.key === key ? old.value : undefined, error, isLoading: false })),
    );
    reload.current = () => loader.loadNow();
    loadSoon.current = () => loader.loadSoon();
    setState((old) => ({ ...old, key, value: old.key === key ? old.value : undefined, error: null, isLoading: true }));
    loader.loadNow();
    const stop = onChanges((changes) => {
      const { when } = latest.current.options;
      if (when === undefined ? changes === null : changes === null || changes.some(isNews(when))) loader.loadSoon();
    });
    const poll = setInterval(() => {
      if (streamState.get() === "reconnecting") loader.loadSoon();
    }, POLL);
    const onVisible = (): void => loader.onVisible();
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      loader.close();
      stop();
      clearInterval(poll);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [key]);

  const { every } = options;
  useEffect(() => {
    if (every === undefined) return undefined;
    const timer = setInterval(() => loadSoon.current(), every);
    return () => clearInterval(timer);
  }, [every]);

  const current = state.key === key ? state : { ...state, value: undefined, error: null, isLoading: true };
  return { ...current, reload: useCallback(() => reload.current(), []) };
}

function isNews(when: (change: Change) => boolean): (change: Change) => boolean {
  return (change) => change.kind === "many" || (change.subject === "store" ? change.kind === "back" : when(change));
}

/** Loads one thing at a time, at most once a second, and only for a visible page. */
class Loader<T> {
  private running: AbortController | null = null;
  private isWanted = false;
  /** By a clock that nobody sets. */
  private lastStart = -LONGEST_REST;
  private took = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isClosed = false;

  constructor(
    private readonly load: (signal: AbortSignal) => Promise<T>,
    private readonly onValue: (value: T) => void,
    private readonly onError: (error: Problem) => void,
  ) {}

  loadNow(): void {
    this.lastStart = -LONGEST_REST;
    this.running?.abort();
    this.running = null;
    this.loadSoon();
  }

  loadSoon(): void {
    this.isWanted = true;
    this.next();
  }

  onVisible(): void {
    if (!document.hidden) this.next();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.running?.abort();
  }

  private next(): void {
    if (this.isClosed || !this.isWanted || this.running !== null || document.hidden) return;
    clearTimeout(this.timer);
    const rest = this.took < LONG ? SOONEST : Math.min(REST * this.took, LONGEST_REST);
    const wait = this.lastStart + rest - performance.now();
    if (wait > 0) {
      this.timer = setTimeout(() => this.next(), wait);
      return;
    }
    void this.run();
  }

  private async run(): Promise<void> {
    const control = new AbortController();
    this.running = control;
    this.isWanted = false;
    this.lastStart = performance.now();
    try {
      const value = await this.load(control.signal);
      if (!control.signal.aborted) this.onValue(value);
    } catch (error) {
      if (control.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      this.onError(error);
      if (error.isTransient) this.retryLater();
    } finally {
      if (this.running === control) {
        this.took = performance.now() - this.lastStart;
        this.running = null;
        this.next();
      }
    }
  }

  private retryLater(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.loadSoon(), POLL / 2);
  }
}

export const isRun = (change: Change): boolean => change.subject === "run";
export const isSchedule = (change: Change): boolean => change.subject === "schedule";
export const isNode = (change: Change): boolean => change.subject === "node";

/** Whether a change is about a schedule, or about one of its runs. */
export function isAbout(tenant: string, name: string): (change: Change) => boolean {
  return (change) =>
    change.tenant === tenant && (change.subject === "schedule" ? change.id === name : change.schedule === name);
}

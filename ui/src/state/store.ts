// A value that components share: they render again when it changes.

import { useEffect, useState } from "preact/hooks";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  subscribe(listener: (value: T) => void): () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<(value: T) => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Return the present value of a store, and render again when it changes. */
export function useStore<T>(store: Store<T>): T {
  const [, render] = useState(0);
  const value = store.get();
  useEffect(() => {
    // It may have changed between the rendering and this effect.
    if (!Object.is(store.get(), value)) render((count) => count + 1);
    return store.subscribe(() => render((count) => count + 1));
  }, [store]);
  return value;
}

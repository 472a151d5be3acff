// The stream of changes: one connection per browser, however many tabs are open.
//
// HTTP/1.1 allows six connections to a host: with a stream per tab, the seventh tab would hang. So the visible
// tabs compete for a lock (Web Locks). The tab that holds it keeps the connection, and passes the changes on to
// the others (BroadcastChannel). A tab that is hidden for a while gives the lock back, and reads everything
// again when it is shown. Browsers offer locks only on https and on loopback addresses; elsewhere each visible
// tab has a connection of its own.

import { BASE } from "../api/client";
import { createStore } from "../state/store";

export interface Change {
  subject: "schedule" | "run" | "node" | "quarantine" | "store";
  kind: string;
  tenant?: string;
  id?: string;
  schedule?: string;
  /** Of a step of a flow: the id of the flow's run. */
  flow?: string;
}

/** `live`: changes arrive. `reconnecting`: the connection broke, the page polls. `paused`: the tab is hidden. */
export type StreamState = "connecting" | "live" | "reconnecting" | "paused";

type Message =
  | { type: "changes"; changes: Change[] }
  | { type: "reset" }
  | { type: "state"; state: StreamState }
  | { type: "hello" };

/** A listener gets the changes; null: anything may have changed. */
export type Listener = (changes: Change[] | null) => void;

const HIDDEN_PATIENCE = 5_000;
const RETRY_FIRST = 2_000;
const RETRY_LONGEST = 30_000;

export const streamState = createStore<StreamState>("connecting");
/** Whether the server said that its store does not answer. */
export const storeIsAway = createStore(false);

const listeners = new Set<Listener>();

export function onChanges(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(changes: Change[] | null): void {
  for (const change of changes ?? []) {
    if (change.subject === "store") storeIsAway.set(change.kind === "unavailable");
  }
  for (const listener of [...listeners]) listener(changes);
}

/** Keeps the page informed about the changes of some tenants, until it is closed. */
export class SharedStream {
  private readonly channel: BroadcastChannel | null;
  private readonly lockName: string;
  private source: EventSource | null = null;
  private release: (() => void) | null = null;
  private wish: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private wait = RETRY_FIRST;
  private hasConnected = false;
  private isClosed = false;

  constructor(query: string) {
    const url = new URL(`${BASE}/events${query ? `?${query}` : ""}`, document.baseURI);
    this.url = url.href;
    this.lockName = `evenbeat-stream ${url.href}`;
    this.channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(this.lockName);
    this.channel?.addEventListener("message", this.onMessage);
    document.addEventListener("visibilitychange", this.onVisibility);
    if (document.hidden) streamState.set("paused");
    else this.begin();
  }

  private readonly url: string;

  close(): void {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.hiding);
    this.end();
    this.channel?.close();
  }

  private readonly onVisibility = (): void => {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.end();
        streamState.set("paused");
      }, HIDDEN_PATIENCE);
    } else if (streamState.get() === "paused") {
      this.begin();
      // Whatever happened meanwhile was not heard.
      tell(null);
    }
  };

  /** Compete for the connection; until then listen to the tab that has it. */
  private begin(): void {
    streamState.set("connecting");
    if (this.channel === null || typeof navigator.locks === "undefined") {
      this.connect();
      return;
    }
    const wish = new AbortController();
    this.wish = wish;
    this.post({ type: "hello" });
    navigator.locks
      .request(this.lockName, { signal: wish.signal }, () => {
        if (this.isClosed || wish.signal.aborted) return undefined;
        const held = new Promise<void>((resolve) => (this.release = resolve));
        this.connect();
        return held;
      })
      .catch((error: unknown) => {
        // The wish was withdrawn before the lock was granted.
        if (!(error instanceof DOMException && error.name === "AbortError")) throw error;
      });
  }

  /** Give the connection up, for another tab. */
  private end(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
    this.wish?.abort();
    this.wish = null;
    this.release?.();
    this.release = null;
    this.wait = RETRY_FIRST;
    this.hasConnected = false;
  }

  private connect(): void {
    const source = new EventSource(this.url);
    this.source = source;
    source.addEventListener("open", () => {
      this.wait = RETRY_FIRST;
      // A connection that was taken over, or made again, may have missed changes. EventSource itself names the
      // last id when it reconnects, and the server then sends what was missed.
      if (!this.hasConnected) this.pass({ type: "reset" });
      this.hasConnected = true;
      this.show("live");
    });
    source.addEventListener("changes", (event) => {
      const { changes } = JSON.parse(event.data as string) as { changes: Change[] };
      this.pass({ type: "changes", changes });
    });
    source.addEventListener("reset", () => this.pass({ type: "reset" }));
    source.addEventListener("error", () => {
      this.show("reconnecting");
      if (source.readyState !== EventSource.CLOSED) return;
      // An answer other than 200: EventSource gives up, and we try again later. Requests of the pages notice a
      // session that has ended.
      this.hasConnected = false;
      this.retry = setTimeout(() => this.connect(), this.wait);
      this.wait = Math.min(this.wait * 2, RETRY_LONGEST);
    });
  }

  private readonly onMessage = (event: MessageEvent<Message>): void => {
    const message = event.data;
    if (message.type === "hello") {
      if (this.source !== null) this.post({ type: "state", state: streamState.get() });
    } else if (streamState.get() === "paused") {
      // A tab that is shown again reads everything. One that was hidden for a moment does not, so it listens.
      return;
    } else if (message.type === "state") {
      if (this.source === null) streamState.set(message.state);
    } else {
      tell(message.type === "changes" ? message.changes : null);
    }
  };

  private pass(message: Message): void {
    this.post(message);
    if (message.type === "changes") tell(message.changes);
    else if (message.type === "reset") tell(null);
  }

  private show(state: StreamState): void {
    streamState.set(state);
    this.post({ type: "state", state });
  }

  private post(message: Message): void {
    if (!this.isClosed) this.channel?.postMessage(message);
  }
}

// Requests to the REST API. All addresses are relative to the page: it works under any prefix.

import type { Operations } from "./schema";
import { currentMe, session } from "../state/session";
import { noteServerTime } from "../time/clock";

export type Operation = keyof Operations;
export type Answer<K extends Operation> = Operations[K]["answer"];

export interface Request<K extends Operation> {
  /** The values of `{name}` and `{id}` in the path. */
  path?: Record<string, string>;
  query?: Operations[K]["query"];
  body?: Operations[K]["body"];
  /** A body as JSON text, in the place of `body`: numbers in it keep every digit. */
  bodyText?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** What the server answered instead of a result: RFC 9457. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    detail: string,
    readonly field: string | null = null,
    readonly hint: string | null = null,
  ) {
    super(detail);
  }

  /** Whether the same request may succeed later. */
  get isTransient(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export const BASE = "api/v1";

export function urlOf(operation: Operation, request: Request<Operation> = {}): string {
  const pattern = operation.slice(operation.indexOf(" ") + 1);
  const path = pattern.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = request.path?.[name];
    if (value === undefined) throw new Error(`${operation} needs ${name}`);
    return encodeURIComponent(value);
  });
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries((request.query ?? {}) as Record<string, unknown>)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `${BASE}${path}${text ? `?${text}` : ""}`;
}

/** Send a request, and return the body of its answer. Throws a Problem for any other outcome. */
export async function call<K extends Operation>(operation: K, request: Request<K> = {}): Promise<Answer<K>> {
  const response = await answered(operation, request);
  return (response.status === 204 ? undefined : await whole(response.json())) as Answer<K>;
}

/** As `call`, but return the body as the server wrote it: numbers in it keep every digit. */
export async function callText<K extends Operation>(operation: K, request: Request<K> = {}): Promise<string> {
  return whole((await answered(operation, request)).text());
}

async function answered<K extends Operation>(operation: K, request: Request<K>, isRepeated = false): Promise<Response> {
  const method = operation.slice(0, operation.indexOf(" "));
  const headers: Record<string, string> = { Accept: "application/json", ...request.headers };
  const body = request.bodyText ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const csrf = currentMe()?.csrf;
  if (method !== "GET" && csrf) headers["X-CSRF-Token"] = csrf;
  const response = await sent(urlOf(operation, request as Request<Operation>), {
    method,
    headers,
    credentials: "same-origin",
    cache: "no-store",
    ...(body === undefined ? {} : { body }),
    ...(request.signal ? { signal: request.signal } : {}),
  });
  noteServerTime(response.headers.get("Date"));
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (problem.kind === "wrong-csrf-token") {
    await readMe();
    throw loggedInElsewhere(problem);
  }
  if (problem.status !== 401 || operation === "POST /session") throw problem;
  if (operation !== "GET /me" && session.get().state === "logged in") {
    // The session was over when the request arrived. If another tab has logged in again, the browser has a new one.
    await readMe();
    if (method === "GET" && !isRepeated) return answered(operation, request, true);
    throw method === "GET" ? problem : loggedInElsewhere(problem);
  }
  // The first of several refused requests says why.
  if (session.get().state !== "logged out") {
    const wasLoggedIn = session.get().state === "logged in";
    session.set({ state: "logged out", reason: wasLoggedIn ? "The session has ended. Log in again." : null });
  }
  throw problem;
}

/** Take over the session that the browser's cookie belongs to now. */
async function readMe(): Promise<void> {
  session.set({ state: "logged in", me: await call("GET /me") });
}

/** Somebody has logged in again in another tab of this browser: the cookie is of that session, and so is this page from now on. */
function loggedInElsewhere({ status, kind }: Problem): Problem {
  return new Problem(status, kind, "Nothing was changed: another tab of this browser has logged in again.", null, "Check who is logged in, and try again.");
}

async function sent(url: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The server does not answer.", null, "It may be restarting; this page retries.");
  }
}

/** Read the body of an answer. A server that stops, or a proxy, may cut it short or send another page. */
async function whole<T>(body: Promise<T>): Promise<T> {
  try {
    return await body;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreadable", "The answer of the server is incomplete, or not its own.", null, "It may be restarting; this page retries.");
  }
}

async function readProblem(response: Response): Promise<Problem> {
  try {
    const { type, detail, field, hint } = (await response.json()) as Record<string, string | null>;
    const kind = (type ?? "").replace("urn:evenbeat:problem:", "");
    return new Problem(response.status, kind, detail ?? response.statusText, field ?? null, hint ?? null);
  } catch {
    return new Problem(response.status, "unknown", `The server answered ${response.status} ${response.statusText}.`);
  }
}

/** Return a new key for a request that must not be done twice, however often it is sent. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The header with which a change is refused if the row has changed since it was read. */
export function ifRevision(revision: number): Record<string, string> {
  return { "If-Match": `"${revision}"` };
}

// Routes: the part of the address after "#". Every view is a link: "#/schedules?text=mail&tz=utc".
//
// The server sees none of it, so the page works under any prefix. Two parameters belong to all pages and are
// carried from link to link: `tenant` and `tz`.

import { createStore, useStore } from "./store";

export interface Route {
  /** The parts of the path, decoded: ["schedules", "default", "mail"]. */
  path: string[];
  query: URLSearchParams;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

const CARRIED = ["tenant", "tz"];

export function parseHash(hash: string): Route {
  const text = hash.replace(/^#\/?/, "");
  const mark = text.indexOf("?");
  const path = mark < 0 ? text : text.slice(0, mark);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(mark < 0 ? "" : text.slice(mark + 1)),
  };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function written(path: string[], query: URLSearchParams): string {
  const text = query.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

const route = createStore<Route>(parseHash(typeof location === "undefined" ? "" : location.hash));

if (typeof window !== "undefined") {
  window.addEventListener("hashchange", () => route.set(parseHash(location.hash)));
}

export function currentRoute(): Route {
  return route.get();
}

export function useRoute(): Route {
  return useStore(route);
}

/** Return a link to a page. The tenant and the choice of the zone stay as they are, unless `query` has them. */
export function href(path: string[], query: Query = {}): string {
  const made = new URLSearchParams();
  for (const name of CARRIED) {
    const value = route.get().query.get(name);
    if (value !== null) made.set(name, value);
  }
  assign(made, query);
  return written(path, made);
}

function assign(target: URLSearchParams, query: Query): void {
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) target.delete(name);
    else target.set(name, String(value));
  }
}

/** Go to a link made by `href`. */
export function navigate(to: string): void {
  location.hash = to;
}

/** Change parameters of the present view. Empty values are removed. The step is not added to the history. */
export function setQuery(query: Query): void {
  const { path, query: old } = route.get();
  const made = new URLSearchParams(old);
  assign(made, query);
  const to = written(path, made);
  if (to === written(path, old)) return;
  history.replaceState(null, "", to);
  route.set(parseHash(to));
}

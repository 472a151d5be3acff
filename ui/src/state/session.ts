// Who uses the page, and what they may do.

import type { Me } from "../api/schema";
import { createStore, useStore } from "./store";
import { currentRoute, useRoute } from "./route";

export type Session =
  | { state: "unknown" }
  /** The server asks for a token. */
  | { state: "logged out"; reason: string | null }
  | { state: "logged in"; me: Me };

export type Role = Me["role"];

export const session = createStore<Session>({ state: "unknown" });

const ROLES: Role[] = ["viewer", "operator", "admin"];

export function useSession(): Session {
  return useStore(session);
}

/** Return the user of the page. Only pages use it, which are shown when somebody is logged in. */
export function useMe(): Me {
  const found = useStore(session);
  if (found.state !== "logged in") throw new Error("nobody is logged in");
  return found.me;
}

export function currentMe(): Me | null {
  const found = session.get();
  return found.state === "logged in" ? found.me : null;
}

/** Return whether the user has a role. Viewers see no buttons. */
export function useMay(needed: Role): boolean {
  return may(useMe(), needed);
}

/** Return whether the user has a role for the whole store: tokens of one tenant do not. */
export function useMayInStore(needed: Role): boolean {
  const me = useMe();
  return me.tenant === null && may(me, needed);
}

export function may(me: Me, needed: Role): boolean {
  return ROLES.indexOf(me.role) >= ROLES.indexOf(needed);
}

export interface TenantScope {
  tenant?: string;
  all_tenants?: boolean;
}

/** Return the tenants that the view is about, as parameters of a request. */
export function useTenantScope(): TenantScope {
  const { query } = useRoute();
  return scopeOf(useMe(), query);
}

export function currentScope(): TenantScope {
  const me = currentMe();
  return me === null ? {} : scopeOf(me, currentRoute().query);
}

function scopeOf(me: Me, query: URLSearchParams): TenantScope {
  if (me.tenant !== null) return { tenant: me.tenant };
  const chosen = query.get("tenant");
  return chosen === null ? { all_tenants: true } : { tenant: chosen };
}

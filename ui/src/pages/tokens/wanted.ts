// What a token may do and how long it works, as the form has it. Pure.

import type { WantedToken } from "../../api/schema";

export type Role = NonNullable<WantedToken["role"]>;

export const ROLES: [Role, string][] = [
  ["viewer", "viewer: reads"],
  ["operator", "operator: pauses, runs, retries, mutes"],
  ["admin", "admin: changes everything, tokens too"],
];

export const NEVER = "never";
export const OTHER = "other";

export const EXPIRIES: [string, string][] = [
  ["1d", "in 1 day"],
  ["30d", "in 30 days"],
  ["90d", "in 90 days"],
  ["365d", "in 365 days"],
  [OTHER, "after another time"],
  [NEVER, "never: it works until it is revoked"],
];

export interface TokenForm {
  name: string;
  role: Role;
  /** Empty: all tenants. */
  tenant: string;
  expiry: string;
  /** With "other": a duration. */
  span: string;
}

export const FIRST: TokenForm = { name: "", role: "viewer", tenant: "", expiry: "90d", span: "" };

export function isComplete({ name, expiry, span }: TokenForm): boolean {
  return name.trim() !== "" && (expiry !== OTHER || span.trim() !== "");
}

export function wantedOf({ name, role, tenant, expiry, span }: TokenForm): WantedToken {
  return {
    name: name.trim(),
    role,
    tenant: tenant.trim() === "" ? null : tenant.trim(),
    expires: expiry === NEVER ? null : expiry === OTHER ? span.trim() : expiry,
  };
}

/** Return what a token may do, where: "operator of tenant acme". */
export function scopeText({ role, tenant }: { role: string; tenant: string | null }): string {
  return `${role} of ${tenant === null ? "all tenants" : `tenant ${tenant}`}`;
}

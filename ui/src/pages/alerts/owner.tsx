// Whose a rule, a channel or a window is: a tenant's, or that of all tenants.

import { call } from "../../api/client";
import { useData } from "../../live/data";
import { SelectField } from "../../parts/field";
import { useRoute } from "../../state/route";
import { useMe } from "../../state/session";

/** Return the owner that a new thing has at first: the tenant of the view. */
export function useFirstOwner(): string | null {
  const me = useMe();
  const { query } = useRoute();
  return me.tenant ?? query.get("tenant") ?? me.default_tenant;
}

const ALL = "";

/** The choice of the owner. Tokens of one tenant have no choice. */
export function OwnerField({ owner, onOwner, help }: { owner: string | null; onOwner: (owner: string | null) => void; help: string }) {
  const me = useMe();
  const tenants = useData("tenants of owners", (signal) => call("GET /tenants", { signal }));
  if (me.tenant !== null) return null;
  const names = new Set([me.default_tenant, ...(tenants.value?.items ?? []).map(({ name }) => name)]);
  if (owner !== null) names.add(owner);
  const options: [string, string][] = [...[...names].sort().map((name): [string, string] => [name, `tenant ${name}`]), [ALL, "all tenants"]];
  return <SelectField label="For" value={owner ?? ALL} onText={(value) => onOwner(value === ALL ? null : value)} options={options} help={help} />;
}

export function Owner({ tenant }: { tenant: string | null }) {
  return tenant === null ? <em>all tenants</em> : <>{tenant}</>;
}

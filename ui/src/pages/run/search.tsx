// A run whose address does not name its tenant: "#/runs/ID".

import { useEffect } from "preact/hooks";
import { call, Problem } from "../../api/client";
import { useData } from "../../live/data";
import { Loaded, Loading } from "../../parts/load";
import { href, useRoute } from "../../state/route";
import { useMe } from "../../state/session";
import { Missing } from "./missing";
import { type Place, placesOf } from "./places";

/** Of a store with more tenants, only so many are asked. */
const MOST_TENANTS = 50;

export function RunSearch({ parts }: { parts: string[] }) {
  const me = useMe();
  const chosen = useRoute().query.get("tenant");
  const likely = placesOf(parts, [...(chosen === null ? [] : [chosen]), me.default_tenant], me.tenant);
  const data = useData(`place ${JSON.stringify(likely)}`, async (signal) => {
    const found = await firstWithRun(likely, signal);
    if (found !== null || me.tenant !== null) return { found, asked: likely };
    const { items } = await call("GET /tenants", { signal });
    const others = placesOf(parts, items.slice(0, MOST_TENANTS).map(({ name }) => name), null).filter(
      ({ tenant, id }) => !likely.some((place) => place.tenant === tenant && place.id === id),
    );
    return { found: await firstWithRun(others, signal), asked: [...likely, ...others] };
  });
  const found = data.value?.found;
  useEffect(() => {
    // In the place of this step: "back" leads to where the reader was before.
    if (found) location.replace(href(["runs", found.tenant, found.id]));
  }, [found]);
  return (
    <Loaded data={data}>
      {({ asked }) => (found === null ? <Missing tenants={[...new Set(asked.map(({ tenant }) => tenant))]} id={parts.join("/")} /> : <Loading />)}
    </Loaded>
  );
}

async function firstWithRun(places: Place[], signal: AbortSignal): Promise<Place | null> {
  for (const place of places) {
    try {
      await call("GET /runs/{id}", { path: { id: place.id }, query: { tenant: place.tenant }, signal });
      return place;
    } catch (error) {
      if (!(error instanceof Problem && error.status === 404)) throw error;
    }
  }
  return null;
}

// Where a run may be that an address names without its tenant. Pure.

export interface Place {
  tenant: string;
  id: string;
}

/**
 * Return where the run of "#/runs/ID" may be, the likeliest place first. The ids of ticks begin with their tenant:
 * "acme/digest/1/1794621600000"; such an id may come in several parts. `known` are the tenants to try for any id.
 */
export function placesOf(parts: string[], known: string[], only: string | null): Place[] {
  const id = parts.join("/");
  const [first] = id.split("/");
  const places = [...(first !== undefined && first !== id ? [first] : []), ...known].map((tenant) => ({ tenant, id }));
  const [tenant, ...rest] = parts;
  if (tenant !== undefined && rest.length > 0) places.push({ tenant, id: rest.join("/") });
  const isNew = (place: Place, index: number): boolean => places.findIndex((each) => each.tenant === place.tenant && each.id === place.id) === index;
  return places.filter((place, index) => isNew(place, index) && (only === null || place.tenant === only));
}

// The zone in which times are written: the user's own, that of the schedule, or UTC. The choice is in the URL.

import { useRoute } from "../state/route";
import { isZone } from "./format";

export type ZoneChoice = "mine" | "schedule" | "utc";

export const ZONE_CHOICES: ZoneChoice[] = ["mine", "schedule", "utc"];

export function myZone(): string {
  const found = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return found && isZone(found) ? found : "UTC";
}

export function useZoneChoice(): ZoneChoice {
  const chosen = useRoute().query.get("tz");
  return chosen === "utc" || chosen === "schedule" ? chosen : "mine";
}

/** Return the zone to write times in. `ofSchedule` is the zone of the schedule that they belong to, if any. */
export function useZone(ofSchedule?: string | null): string {
  return zoneFor(useZoneChoice(), ofSchedule);
}

export function zoneFor(choice: ZoneChoice, ofSchedule?: string | null): string {
  if (choice === "utc") return "UTC";
  if (choice === "schedule" && ofSchedule && isZone(ofSchedule)) return ofSchedule;
  return myZone();
}

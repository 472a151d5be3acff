// Times and durations on the page.

import { useNow } from "../time/clock";
import { clockText, durationText, exactText, type Instant, relativeText, shortText, toMs } from "../time/format";
import { useZone } from "../time/zone";

export interface TimeProps {
  /** RFC 3339 or milliseconds; null is shown as a dash. */
  at: Instant | null | undefined;
  /** The zone of the schedule that the time belongs to. */
  zone?: string | null;
  /** `relative`: "3 min ago", exact on focus. `short`: "Tue 17 Nov, 09:30 Berlin". `clock`: "09:30:05 Berlin". `exact`. */
  form?: "relative" | "short" | "clock" | "exact";
}

/** A time, in the chosen zone. Relative times show the exact time when they have the focus or the pointer. */
export function Time({ at, zone, form = "relative" }: TimeProps) {
  const shown = useZone(zone);
  if (at === null || at === undefined) return <span class="muted">–</span>;
  const exact = exactText(at, shown);
  const iso = new Date(toMs(at)).toISOString();
  if (form === "exact") return <time dateTime={iso}>{exact}</time>;
  if (form === "relative") return <Relative at={at} iso={iso} exact={exact} />;
  const text = form === "short" ? shortText(at, shown) : `${clockText(at, shown, true)} ${shown === "UTC" ? "UTC" : (shown.split("/").pop() ?? "").replaceAll("_", " ")}`;
  return (
    <time dateTime={iso} title={exact}>
      {text}
    </time>
  );
}

function Relative({ at, iso, exact }: { at: Instant; iso: string; exact: string }) {
  const now = useNow();
  return (
    <time class="relative" dateTime={iso} tabIndex={0} data-exact={exact}>
      {relativeText(at, now)}
      <span class="off-screen">, {exact}</span>
    </time>
  );
}

/** A measured duration, in seconds. */
export function Duration({ seconds }: { seconds: number | null | undefined }) {
  return <span class="number">{durationText(seconds)}</span>;
}

// The one formatter of times and durations. Pure: the zone and the present time are arguments.
//
// A time is always written with its zone: "17 Nov, 09:30 Berlin". The whole form has the date, the seconds,
// the offset and the full name of the zone.

export type Instant = string | number;

export function toMs(instant: Instant): number {
  return typeof instant === "number" ? instant : Date.parse(instant);
}

interface Parts {
  year: number;
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
export const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

// Making a formatter takes 50 us, using one 2 us.
const formatters = new Map<string, Intl.DateTimeFormat>();

function formatterOf(zone: string): Intl.DateTimeFormat {
  let found = formatters.get(zone);
  if (found === undefined) {
    found = new Intl.DateTimeFormat("en-GB", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
    });
    formatters.set(zone, found);
  }
  return found;
}

/** Return whether the browser knows a zone. */
export function isZone(zone: string): boolean {
  try {
    formatterOf(zone);
    return true;
  } catch {
    return false;
  }
}

/** Return what calendar and clock show in a zone. */
export function partsIn(instant: Instant, zone: string): Parts {
  const found: Record<string, number> = {};
  for (const { type, value } of formatterOf(zone).formatToParts(toMs(instant))) found[type] = Number(value);
  const { year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0 } = found;
  return { year, month, day, hour, minute, second };
}

/** Return the offset of a zone from UTC at an instant, in milliseconds. */
export function offsetAt(instant: Instant, zone: string): number {
  const ms = toMs(instant);
  const { year, month, day, hour, minute, second } = partsIn(ms, zone);
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1_000) * 1_000;
}

/** Return the instant at which a clock in a zone shows "2026-11-17T09:30": the first one, if it shows it twice. */
export function instantOf(local: string, zone: string): number {
  const wanted = Date.parse(`${local}Z`);
  const guesses = [wanted - 86_400_000, wanted + 86_400_000].map((at) => wanted - offsetAt(at, zone));
  const right = guesses.filter((at) => at + offsetAt(at, zone) === wanted);
  // A time that the clocks skip is read with the offset before the change.
  return right.length > 0 ? Math.min(...right) : (guesses[0] as number);
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

export function writtenOffset(instant: Instant, zone: string): string {
  const minutes = Math.round(offsetAt(instant, zone) / 60_000);
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** Return the short name of a zone: "Berlin", "UTC". */
export function zoneName(zone: string): string {
  return (zone.split("/").pop() ?? zone).replaceAll("_", " ");
}

/** Return a day: "Tue 17 Nov". */
export function dayText(instant: Instant, zone: string): string {
  const { year, month, day } = partsIn(instant, zone);
  const weekday = WEEKDAYS[new Date(Date.UTC(year, month - 1, day)).getUTCDay()];
  return `${weekday} ${day} ${MONTHS[month - 1]}`;
}

/** Return what the clock shows: "09:30", or "09:30:05". */
export function clockText(instant: Instant, zone: string, withSeconds = false): string {
  const { hour, minute, second } = partsIn(instant, zone);
  return `${two(hour)}:${two(minute)}${withSeconds ? `:${two(second)}` : ""}`;
}

/** Return a time with its day and zone: "Tue 17 Nov, 09:30 Berlin". */
export function shortText(instant: Instant, zone: string, withSeconds = false): string {
  return `${dayText(instant, zone)}, ${clockText(instant, zone, withSeconds)} ${zoneName(zone)}`;
}

/** Return the whole form: "2026-11-17 09:30:05 +01:00 Europe/Berlin". */
export function exactText(instant: Instant, zone: string): string {
  const { year, month, day } = partsIn(instant, zone);
  const offset = zone === "UTC" ? "UTC" : `${writtenOffset(instant, zone)} ${zone}`;
  return `${year}-${two(month)}-${two(day)} ${clockText(instant, zone, true)} ${offset}`;
}

/** Return the value of an input of type datetime-local: "2026-11-17T09:30". */
export function inputText(instant: Instant, zone: string): string {
  const { year, month, day } = partsIn(instant, zone);
  return `${year}-${two(month)}-${two(day)}T${clockText(instant, zone)}`;
}

/** Return how far a time is away: "in 3 min", "12 s ago", "now". */
export function relativeText(instant: Instant, now: number): string {
  const away = toMs(instant) - now;
  if (Math.abs(away) < 1_000) return "now";
  const size = spanText(Math.abs(away));
  return away > 0 ? `in ${size}` : `${size} ago`;
}

/** Return a length of time by its largest unit: "3 min", "5 h", "2 d". */
export function spanText(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 2 * 86_400) {
    const hours = Math.floor(seconds / 3_600);
    const minutes = Math.floor((seconds % 3_600) / 60);
    return hours < 6 && minutes > 0 ? `${hours} h ${minutes} min` : `${hours} h`;
  }
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Return a measured duration, given in seconds: "3 ms", "1.24 s", "2 min 5 s", "3 h 10 min". */
export function durationText(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0005) return "0 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1_000)} ms`;
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3_600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(whole / 60);
  if (minutes < 1_440) return joined(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(minutes / 60);
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

function joined(large: number, unit: string, small: number, smaller: string): string {
  return small > 0 ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`;
}

/** Return a count with thousands apart: "1,440". */
export function countText(count: number): string {
  return count.toLocaleString("en-US");
}

/** Return a count with its noun: "1 run", "12 runs". */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${countText(count)} ${count === 1 ? noun : plural}`;
}

// The peaks of a forecast, with the schedules that make them.

import type { ForecastPeak } from "../api/schema";
import { href } from "../state/route";
import { counted, shortText } from "../time/format";

const SHOWN = 6;

export function PeakList({ peaks, zone, tenant }: { peaks: ForecastPeak[]; zone: string; tenant: string | null }) {
  if (peaks.length === 0) return null;
  return (
    <ul class="peaks" aria-label="Peaks">
      {peaks.map((peak) => (
        <li key={peak.at}>
          <strong>{shortText(peak.at, zone)}</strong>: {counted(peak.runs, "run")} {peak.runs === 1 ? "starts" : "start"} in one minute:{" "}
          <ScheduleNames names={peak.schedules} more={peak.more} tenant={tenant} />
          {peak.minutes.length > 1 && <OtherMinutes minutes={peak.minutes.slice(1)} zone={zone} />}
        </li>
      ))}
    </ul>
  );
}

function OtherMinutes({ minutes, zone }: { minutes: string[]; zone: string }) {
  return (
    <details class="more">
      <summary>{`the same in ${counted(minutes.length, "other minute")}`}</summary>
      {minutes.map((at) => shortText(at, zone)).join("; ")}
    </details>
  );
}

interface ScheduleNamesProps {
  /** "name", or "tenant/name" of a forecast of all tenants. */
  names: string[];
  more: number;
  /** The tenant of all of them; null if the names have their own. */
  tenant: string | null;
}

/** Links to schedules; with many of them, the first few, and the others on demand. */
export function ScheduleNames({ names, more, tenant }: ScheduleNamesProps) {
  const rest = names.slice(SHOWN);
  return (
    <>
      <NameLinks names={names.slice(0, SHOWN)} tenant={tenant} />
      {rest.length + more > 0 && (
        <details class="more">
          <summary>{`and ${rest.length + more} more`}</summary>
          <NameLinks names={rest} tenant={tenant} />
          {more > 0 && ` and ${counted(more, "schedule")} that the forecast does not list`}
        </details>
      )}
    </>
  );
}

function NameLinks({ names, tenant }: { names: string[]; tenant: string | null }) {
  return (
    <>
      {names.map((text, index) => {
        const [owner, name] = splitName(text, tenant);
        return (
          <span key={text}>
            {index > 0 && ", "}
            <a href={href(["schedules", owner, name])}>{name}</a>
          </span>
        );
      })}
    </>
  );
}

/** Return the tenant and the name of a schedule in a forecast. */
export function splitName(text: string, tenant: string | null): [tenant: string, name: string] {
  if (tenant !== null) return [tenant, text];
  const mark = text.indexOf("/");
  return [text.slice(0, mark), text.slice(mark + 1)];
}

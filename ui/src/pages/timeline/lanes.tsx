// A lane for each schedule: its past runs, the ticks that were skipped, and the coming ticks.

import { useState } from "preact/hooks";
import type { ScheduleTimeline, TimelineCell, TimelineLane } from "../../api/schema";
import { call } from "../../api/client";
import { useData } from "../../live/data";
import { axisTicks } from "../../parts/bars";
import { Button } from "../../parts/button";
import { Choice } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { SearchBox } from "../../parts/search";
import { href, setQuery, useRoute } from "../../state/route";
import { useTenantScope } from "../../state/session";
import { counted, shortText, toMs, zoneName } from "../../time/format";
import { useZone } from "../../time/zone";
import { changed, DEFAULT, PRESETS, presetOf, type Range, rangeOf } from "./range";

const PAGE = 50;
const LABELS: [string, string][] = PRESETS.map(({ label }) => [label, label]);

export function Lanes() {
  const { query } = useRoute();
  const scope = useTenantScope();
  const zone = useZone();
  const range: Range = { since: query.get("since") ?? DEFAULT.since, until: query.get("until") ?? DEFAULT.until };
  const filter = { text: query.get("text") ?? undefined, tag: query.get("tag") ?? undefined, cursor: query.get("cursor") ?? undefined };
  const asked = { ...scope, ...range, ...dropped(filter), limit: PAGE };
  const data = useData(`timeline ${JSON.stringify(asked)}`, (signal) => call("GET /timeline", { query: asked, signal }), {
    when: ({ subject }) => subject === "run" || subject === "schedule",
    every: 15_000,
  });
  const go = (next: Range): void => setQuery({ since: next.since, until: next.until });
  const step = (change: { zoom?: number; move?: number }): void => {
    if (data.value) go(changed({ since: toMs(data.value.since), until: toMs(data.value.until) }, toMs(data.value.now), change));
  };
  return (
    <Section
      title="Schedules over time"
      aside={data.value && `${shortText(data.value.since, zone)} to ${shortText(data.value.until, zone)}`}
    >
      <div class="row tools">
        <SearchBox label="Search schedules" value={filter.text ?? ""} onText={(text) => setQuery({ text, cursor: null })} />
        <Choice label="Range" value={presetOf(range) ?? ""} options={LABELS} onChoose={(label) => go(rangeOf(label))} />
        <div class="row" role="group" aria-label="Move and zoom">
          <Button small aria-label="Earlier" onClick={() => step({ move: -0.5 })}>
            ◀
          </Button>
          <Button small aria-label="Zoom out" onClick={() => step({ zoom: 2 })}>
            −
          </Button>
          <Button small aria-label="Zoom in" onClick={() => step({ zoom: 0.5 })}>
            +
          </Button>
          <Button small aria-label="Later" onClick={() => step({ move: 0.5 })}>
            ▶
          </Button>
        </div>
        <Legend />
      </div>
      <Loaded data={data}>
        {(timeline) =>
          timeline.lanes.length === 0 ? (
            <Empty {...(filter.text ? {} : { command: 'evenbeat schedules add hello --trigger "every 10m" --task my_task' })}>
              {filter.text ? `No schedule matches “${filter.text}”.` : "There are no schedules yet."}
            </Empty>
          ) : (
            <>
              <Drawing timeline={timeline} zone={zone} showsTenant={scope.tenant === undefined} />
              <Behind timeline={timeline} zone={zone} />
              <div class="row">
                {filter.cursor && (
                  <Button small onClick={() => setQuery({ cursor: null })}>
                    First page
                  </Button>
                )}
                {timeline.cursor && (
                  <Button small onClick={() => setQuery({ cursor: timeline.cursor })}>
                    Next page
                  </Button>
                )}
              </div>
            </>
          )
        }
      </Loaded>
    </Section>
  );
}

function dropped<T extends Record<string, string | undefined>>(values: T): { [K in keyof T]?: string } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: string };
}

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li>
        <Mark kind="good" /> ran
      </li>
      <li>
        <Mark kind="bad" /> failed
      </li>
      <li>
        <Mark kind="waiting" /> waits or runs
      </li>
      <li>
        <Mark kind="skipped" /> skipped
      </li>
      <li>
        <Mark kind="paused" /> paused
      </li>
      <li>
        <Mark kind="planned" /> planned
      </li>
    </ul>
  );
}

function Mark({ kind }: { kind: Kind }) {
  return (
    <svg width="12" height="16" viewBox="0 0 12 16" aria-hidden="true" class="lane-svg">
      <CellShape kind={kind} x={2} width={8} />
    </svg>
  );
}

type Kind = "good" | "bad" | "waiting" | "skipped" | "paused" | "planned";

function kindOf(cell: TimelineCell): Kind {
  if (cell.failed > 0) return "bad";
  if (cell.waiting > 0) return "waiting";
  if (cell.fired > 0) return "good";
  if (cell.planned > 0) return "planned";
  return cell.paused > 0 ? "paused" : "skipped";
}

/** A cell by colour and shape: full, split by a gap, half as high, a line in the middle, two lines, an outline. */
function CellShape({ kind, x, width }: { kind: Kind; x: number; width: number }) {
  if (kind === "bad") return <path class="bad" d={`M${x} 1h${width}v9h${-width}zM${x} 12h${width}v3h${-width}z`} />;
  if (kind === "waiting") return <rect class="waiting" x={x} y="8" width={width} height="7" />;
  if (kind === "paused") return <path class="paused" d={`M${x} 4h${width}v2.5h${-width}zM${x} 9.5h${width}v2.5h${-width}z`} />;
  if (kind === "skipped") return <rect class="skipped" x={x} y="7" width={width} height="2" />;
  if (kind === "planned") return <rect class="planned" x={x + 0.5} y="3.5" width={Math.max(width - 1, 0.5)} height="9" />;
  return <rect class="good" x={x} y="1" width={width} height="14" />;
}

const WIDTH = 1_000;

function Drawing({ timeline, zone, showsTenant }: { timeline: ScheduleTimeline; zone: string; showsTenant: boolean }) {
  const [over, setOver] = useState<string | null>(null);
  const start = toMs(timeline.since);
  const length = toMs(timeline.until) - start;
  const place = (instant: number): number => ((instant - start) / length) * WIDTH;
  const ticks = axisTicks(start, length, zone);
  const widthOf = (cell: TimelineCell): number => Math.max(2, (place(toMs(cell.end)) - place(toMs(cell.at))) * 0.86);
  return (
    <div class="lanes" aria-hidden="true" onPointerLeave={() => setOver(null)}>
      <div class="lane axis">
        <span class="lane-name muted">{zoneName(zone)}</span>
        <div class="bars-axis">
          {ticks.map(({ share, text }) => (
            <span key={share} style={{ left: `${share * 100}%` }}>
              {text}
            </span>
          ))}
        </div>
      </div>
      {timeline.lanes.map((lane) => (
        <div key={`${lane.tenant} ${lane.schedule}`} class="lane">
          <a class="lane-name" tabIndex={-1} href={href(["schedules", lane.tenant, lane.schedule])}>
            {lane.schedule}
            {showsTenant && lane.tenant !== "default" && <span class="muted"> {lane.tenant}</span>}
          </a>
          <svg class="lane-svg" viewBox={`0 0 ${WIDTH} 16`} preserveAspectRatio="none">
            {ticks.map(({ share }) => (
              <line key={share} class="grid" x1={share * WIDTH} x2={share * WIDTH} y1="0" y2="16" />
            ))}
            {lane.cells.map((cell) => (
              <g key={cell.at} onPointerEnter={() => setOver(cellText(lane, cell, zone))}>
                <CellShape kind={kindOf(cell)} x={place(toMs(cell.at))} width={widthOf(cell)} />
              </g>
            ))}
            <line class="now" x1={place(toMs(timeline.now))} x2={place(toMs(timeline.now))} y1="0" y2="16" />
          </svg>
        </div>
      ))}
      <p class="muted over">{over ?? "Point at a cell to see what it stands for; the vertical line is now."}</p>
    </div>
  );
}

function cellText(lane: TimelineLane, cell: TimelineCell, zone: string): string {
  const parts = [
    cell.fired > 0 && counted(cell.fired, "run"),
    cell.failed > 0 && `${cell.failed} failed`,
    cell.waiting > 0 && `${cell.waiting} of them ${cell.waiting === 1 ? "waits or runs" : "wait or run"}`,
    cell.paused > 0 && `${counted(cell.paused, "tick")} in the present pause`,
    cell.skipped > 0 && `${counted(cell.skipped, "tick")} skipped or coalesced`,
    cell.planned > 0 && `${cell.planned} planned`,
  ].filter(Boolean);
  return `${lane.schedule}, ${shortText(cell.at, zone, true)}: ${parts.join(", ")}${lane.is_exact ? "" : " (by the figures of the hour)"}`;
}

const MOST_ROWS = 1_000;

function Behind({ timeline, zone }: { timeline: ScheduleTimeline; zone: string }) {
  const rows = timeline.lanes.flatMap((lane) => lane.cells.map((cell) => ({ lane, cell }))).slice(0, MOST_ROWS);
  return (
    <details class="behind">
      <summary>Schedules over time: as a table</summary>
      <div class="table-frame" role="group" aria-label="Schedules over time" tabIndex={0}>
        <table>
          <caption class="off-screen">Schedules over time</caption>
          <thead>
            <tr>
              <th scope="col">schedule</th>
              <th scope="col">{`from (${zone})`}</th>
              <th scope="col" class="number">
                runs
              </th>
              <th scope="col" class="number">
                waiting
              </th>
              <th scope="col" class="number">
                failed
              </th>
              <th scope="col" class="number">
                skipped
              </th>
              <th scope="col" class="number">
                paused
              </th>
              <th scope="col" class="number">
                planned
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ lane, cell }) => (
              <tr key={`${lane.tenant} ${lane.schedule} ${cell.at}`}>
                <th scope="row">
                  <a href={href(["schedules", lane.tenant, lane.schedule])}>{lane.schedule}</a>
                </th>
                <td>{shortText(cell.at, zone, true)}</td>
                <td class="number">{cell.fired}</td>
                <td class="number">{cell.waiting}</td>
                <td class="number">{cell.failed}</td>
                <td class="number">{cell.skipped}</td>
                <td class="number">{cell.paused}</td>
                <td class="number">{cell.planned}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

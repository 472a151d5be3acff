// The heat map of past and planned runs. Each cell, also an empty one, answers why.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { HeatCell, HeatMap } from "../../api/schema";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { setQuery, useRoute } from "../../state/route";
import { now } from "../../time/clock";
import { exactText, toMs, writtenOffset } from "../../time/format";
import { useZone } from "../../time/zone";
import { type About, useReloadOnChange } from "./about";
import {
  type Bounds,
  cellAt,
  type CellLength,
  cellTime,
  countsText,
  isRepeated,
  layoutOf,
  lengthFor,
  levelOf,
  type Look,
  LOOK_WORDS,
  lookOf,
  MARKS,
  middleOf,
  pagesBack,
  periodOf,
  runsOf,
  stepTo,
} from "./cells";
import { Choice, chosen } from "../../parts/choice";
import { COMING } from "./plan";
import { WhyPanel } from "./why_panel";

const LENGTHS: [CellLength, string][] = [
  ["hour", "by hour"],
  ["day", "by day"],
];
const LOOKS: Look[] = ["succeeded", "failed", "running", "paused", "skipped", "coalesced", "cancelled", "overdue", "planned", "empty", "absent", "unknown"];

export function HeatSection(about: About) {
  const { tenant, name } = about;
  // Rare schedules are drawn by the day, unless the user has chosen.
  const ticks = useData(`rhythm ${tenant} ${name}`, (signal) =>
    call("GET /schedules/{name}/ticks", { path: { name }, query: { tenant, count: COMING }, signal }),
  );
  const { query } = useRoute();
  const usual = ticks.value === undefined ? null : lengthFor(ticks.value.items);
  const by = query.has("by") || ticks.error !== null ? chosen(query, "by", LENGTHS, usual ?? "hour") : usual;
  return (
    <Section
      title="Past and planned runs"
      aside={<Choice label="Length of the cells" value={by ?? "hour"} options={LENGTHS} onChoose={(value) => setQuery({ by: value === usual ? null : value, back: null })} />}
    >
      {by !== null && <Map about={about} by={by} />}
    </Section>
  );
}

function Map({ about, by }: { about: About; by: CellLength }) {
  const { tenant, name, revision } = about;
  const zone = useZone(about.zone);
  const back = Math.min(Math.max(0, Math.floor(Number(useRoute().query.get("back") ?? 0)) || 0), pagesBack(by));
  const data = useData(
    `cells ${tenant} ${name} ${by} ${zone} ${back}`,
    (signal) => call("GET /schedules/{name}/cells", { path: { name }, query: { tenant, by, tz: zone, ...periodOf(by, back, now()) }, signal }),
    { every: 15_000 },
  );
  useReloadOnChange(data, revision);
  return (
    <>
      <Pager back={back} most={pagesBack(by)} />
      <Loaded data={data}>{(map) => <Drawn map={map} about={about} />}</Loaded>
    </>
  );
}

/** Buttons that move the map into the past, and back to the present. */
function Pager({ back, most }: { back: number; most: number }) {
  const go = (to: number): void => setQuery({ back: to === 0 ? null : to, why: null });
  return (
    <div class="row heat-pager">
      <Button small disabled={back >= most} onClick={() => go(back + 1)}>
        ← Earlier
      </Button>
      <Button small disabled={back === 0} onClick={() => go(back - 1)}>
        Later →
      </Button>
      {back > 1 && (
        <Button small onClick={() => go(0)}>
          Now
        </Button>
      )}
    </div>
  );
}

function Drawn({ map, about }: { map: HeatMap; about: About }) {
  const { query } = useRoute();
  const asked = query.get("why");
  const selected = asked === null ? null : cellAt(map.cells, toMs(asked));
  const chosenCell = selected === null ? null : (map.cells[selected] ?? null);
  // A cell asks about its most telling tick; a link asks about one instant.
  const bounds = boundsOf(map, about);
  const isCell = chosenCell !== null && toMs(asked ?? "") === middleOf(chosenCell);
  return (
    <div class="heat-part">
      <div class="heat-left">
        <p class="muted heat-zone">
          {map.by === "hour" ? "Hours" : "Days"} of {map.zone} ({writtenOffset(map.now, map.zone)} now). Choose a cell to learn why; arrow keys move.
        </p>
        <Grid map={map} bounds={bounds} selected={selected} onPick={(index) => setQuery({ why: pickOf(map.cells[index]) })} />
        <Legend map={map} bounds={bounds} />
        <HeatTable map={map} />
      </div>
      <WhyPanel
        about={about}
        map={map}
        bounds={bounds}
        cell={chosenCell}
        asked={isCell ? null : asked}
        onClose={() => setQuery({ why: null })}
      />
    </div>
  );
}

function boundsOf(map: HeatMap, { createdAt }: About): Bounds {
  return { now: toMs(map.now), countedFrom: toMs(map.counted_from), createdAt: toMs(createdAt) };
}

function pickOf(cell: HeatCell | undefined): string | null {
  return cell === undefined ? null : new Date(middleOf(cell)).toISOString();
}

function Grid({ map, bounds, selected, onPick }: { map: HeatMap; bounds: Bounds; selected: number | null; onPick: (index: number) => void }) {
  const layout = useMemo(() => layoutOf(map.cells, map.by, map.zone), [map]);
  const most = useMemo(() => Math.max(0, ...map.cells.map(runsOf)), [map]);
  const present = cellAt(map.cells, bounds.now);
  const [focused, setFocused] = useState<number | null>(null);
  const table = useRef<HTMLTableElement>(null);
  // One cell is in the order of the Tab key; arrow keys go to the others.
  const reachable = [focused, selected, present, 0].find((index) => index !== null && index < map.cells.length) ?? 0;
  useEffect(() => {
    // On a narrow screen the map is wider than its frame: show the present first.
    const frame = table.current?.parentElement;
    const cell = table.current?.querySelector<HTMLElement>(".present")?.closest("td");
    if (frame && cell) frame.scrollLeft = cell.offsetLeft - frame.clientWidth / 2;
  }, []);
  const onKey = (event: KeyboardEvent): void => {
    const to = stepTo(layout, reachable, event.key);
    if (to === reachable) return;
    event.preventDefault();
    setFocused(to);
    table.current?.querySelector<HTMLElement>(`[data-cell="${to}"]`)?.focus();
  };
  const cellButton = (index: number, isSecond: boolean) => {
    const cell = map.cells[index] as HeatCell;
    const look = lookOf(cell, bounds);
    const repeated = map.by === "hour" && isRepeated(cell, map.zone) ? (isSecond ? ", the second time the clock shows this hour" : "") : "";
    const label = `${cellTime(cell, map.by, map.zone)}${repeated}: ${countsText(cell, bounds)}`;
    return (
      <button
        key={cell.at}
        type="button"
        data-cell={index}
        class={`heat-cell ${look} level-${levelOf(cell, most)}${index === present ? " present" : ""}`}
        tabIndex={index === reachable ? 0 : -1}
        aria-pressed={index === selected}
        aria-label={label}
        title={label}
        onFocus={() => setFocused(index)}
        onClick={() => onPick(index)}
      >
        <span aria-hidden="true">{MARKS[look]}</span>
        {isSecond && <sup aria-hidden="true">2</sup>}
      </button>
    );
  };
  return (
    <div class="heat-frame">
      <table ref={table} class={`heat by-${map.by}`} onKeyDown={onKey}>
        <caption class="off-screen">{`Runs by the ${map.by}, past and planned, in ${map.zone}`}</caption>
        <thead>
          <tr>
            <th scope="col">
              <span class="off-screen">{map.by === "hour" ? "Day" : "Week"}</span>
            </th>
            {layout.titles.map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {layout.rows.map((row) => (
            <tr key={row.key}>
              <th scope="row">
                {row.label}
                {row.note && <span class="heat-note" title="The clocks change on this day.">{row.note}</span>}
              </th>
              {row.columns.map((indexes, column) => (
                <td key={layout.titles[column]}>
                  {indexes.length > 0 ? (
                    <div class="slot">{indexes.map((index, at) => cellButton(index, at > 0))}</div>
                  ) : (
                    row.note && <SkippedHour map={map} date={row.key} hour={column} />
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The place of an hour that the clock skips. */
function SkippedHour({ map, date, hour }: { map: HeatMap; date: string; hour: number }) {
  const first = map.cells[0];
  const last = map.cells[map.cells.length - 1];
  const at = Date.parse(`${date}T${String(hour).padStart(2, "0")}:00:00Z`);
  // Days at the edges of the map lack cells for another reason.
  const margin = 15 * 3_600_000;
  if (first === undefined || last === undefined || at - margin < toMs(first.at) || at + margin > toMs(last.end)) return null;
  return (
    <span class="no-hour" title="The clock skips this hour.">
      <span class="off-screen">the clock skips this hour</span>
    </span>
  );
}

function Legend({ map, bounds }: { map: HeatMap; bounds: Bounds }) {
  const shown = useMemo(() => {
    const found = new Set(map.cells.map((cell) => lookOf(cell, bounds)));
    return LOOKS.filter((look) => found.has(look));
  }, [map]);
  return (
    <ul class="heat-legend" aria-label="Legend">
      {shown.map((look) => (
        <li key={look}>
          <span class={`heat-cell heat-sample ${look} level-3`} aria-hidden="true">
            {MARKS[look]}
          </span>
          {LOOK_WORDS[look]}
        </li>
      ))}
      <li hidden={cellAt(map.cells, toMs(map.now)) === null}>
        <span class="heat-cell heat-sample present" aria-hidden="true" />
        now
      </li>
      {!map.is_exact && <li class="muted">Counted from hourly figures: runs are in the hour in which they ended.</li>}
    </ul>
  );
}

const COUNTS: [keyof HeatCell, string][] = [
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
  ["running", "queued or running"],
  ["paused", "paused"],
  ["skipped", "skipped"],
  ["coalesced", "coalesced"],
  ["planned", "planned"],
];

/** The same as a table; cells in which nothing happens are left out. */
function HeatTable({ map }: { map: HeatMap }) {
  const [isOpen, setOpen] = useState(false);
  const title = `Runs by the ${map.by}`;
  const rows = isOpen ? map.cells.filter((cell) => COUNTS.some(([name]) => (cell[name] as number) > 0)) : [];
  return (
    <details class="behind" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}: as a table</summary>
      <div class="table-frame" role="group" aria-label={title} tabIndex={0}>
        <table>
          <caption class="off-screen">{title}</caption>
          <thead>
            <tr>
              <th scope="col">{`from (${map.zone})`}</th>
              {COUNTS.map(([name, words]) => (
                <th key={name} scope="col" class="number">
                  {words}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((cell) => (
              <tr key={cell.at}>
                <th scope="row" data-title="from">
                  {exactText(cell.at, map.zone)}
                </th>
                {COUNTS.map(([name, words]) => (
                  <td key={name} class="number" data-title={words}>
                    {(cell[name] as number).toLocaleString("en-US")}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="muted">
        Counted until <Time at={map.now} zone={map.zone} form="short" />; what lies after it is planned.
      </p>
    </details>
  );
}

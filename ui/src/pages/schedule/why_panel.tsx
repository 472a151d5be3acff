// Why: the answer about a cell of the heat map or about one instant, with the evidence and what to do.

import { useEffect, useRef } from "preact/hooks";
import { call } from "../../api/client";
import type { HeatCell, HeatMap, Run, Why } from "../../api/schema";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Loaded } from "../../parts/load";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { exactText, toMs } from "../../time/format";
import { useZone } from "../../time/zone";
import type { About } from "./about";
import { askedOf, type Bounds, cellTime, countsText, isIn, runsOf } from "./cells";
import { Remedy } from "./remedy";
import { asSentence } from "./sentences";

const RUNS = 8;

interface Answered {
  why: Why;
  runs: Run[];
  more: boolean;
}

interface PanelProps {
  about: About;
  map: HeatMap;
  bounds: Bounds;
  /** The chosen cell; null if none is, or if the instant lies outside of the map. */
  cell: HeatCell | null;
  /** An instant, in the place of the cell's most telling tick. */
  asked: string | null;
  onClose: () => void;
}

export function WhyPanel({ about, map, bounds, cell, asked, onClose }: PanelProps) {
  const zone = useZone(about.zone);
  if (cell === null && asked === null) {
    return (
      <aside class="why-panel" aria-label="Why">
        <p class="muted">Choose a cell, also an empty one: this is where it says why.</p>
      </aside>
    );
  }
  if (asked !== null && Number.isNaN(toMs(asked))) {
    return (
      <aside class="why-panel" aria-label="Why">
        <p class="muted">“{asked}” in the address is not a time.</p>
      </aside>
    );
  }
  const title = asked === null && cell !== null ? cellTime(cell, map.by, map.zone) : exactText(asked ?? "", zone);
  return (
    <aside class="why-panel" aria-label="Why">
      <header>
        <h3>{title}</h3>
        <Button kind="quiet" small aria-label="Close the answer" onClick={onClose}>
          ✕
        </Button>
      </header>
      {asked === null && cell !== null && <p class="muted">{asSentence(countsText(cell, bounds))}</p>}
      <Answer about={about} cell={cell} asked={asked} counts={cell === null ? "" : countsText(cell, bounds)} />
    </aside>
  );
}

function Answer({ about, cell, asked, counts }: { about: About; cell: HeatCell | null; asked: string | null; counts: string }) {
  const { tenant, name } = about;
  const what = asked ?? `${cell?.at} ${cell?.end}`;
  // It is asked again when the cell's counts have changed.
  const tz = useZone(about.zone);
  const data = useData(`why ${tenant} ${name} ${what} ${tz}`, (signal) => answer(about, cell, asked, tz, signal));
  const last = useRef(counts);
  useEffect(() => {
    if (last.current === counts) return;
    last.current = counts;
    data.reload();
  }, [counts]);
  return (
    <div aria-live="polite">
      <Loaded data={data}>{(found) => <Shown found={found} about={about} />}</Loaded>
    </div>
  );
}

async function answer(about: About, cell: HeatCell | null, asked: string | null, tz: string, signal: AbortSignal): Promise<Answered> {
  const { tenant, name } = about;
  const explain = (at: string): Promise<Why> => call("GET /schedules/{name}/why", { path: { name }, query: { tenant, at, tz }, signal });
  if (asked !== null || cell === null) return { why: await explain(asked ?? ""), runs: [], more: false };
  const found = await runsIn(about, cell, signal);
  const ledger =
    cell.skipped > 0 || cell.coalesced > 0
      ? (await call("GET /schedules/{name}/skipped", { path: { name }, query: { tenant, limit: 500 }, signal })).items
      : [];
  let why = await explain(askedOf(cell, found.runs, ledger));
  // The middle of a cell is seldom a tick: a tick of the same cell says more.
  const near = [why.before, why.after].find((tick) => tick !== null && isIn(cell, tick));
  if (why.tick === null && near) why = await explain(near);
  return { why, ...found };
}

/** Return runs whose ticks are in the cell, failed ones first. */
async function runsIn(about: About, cell: HeatCell, signal: AbortSignal): Promise<{ runs: Run[]; more: boolean }> {
  if (runsOf(cell) === 0) return { runs: [], more: false };
  const query = { tenant: about.tenant, schedule: about.name, since: cell.at, until: cell.end, brief: true, limit: 50 };
  const pages = [call("GET /runs", { query, signal })];
  if (cell.failed > 0) pages.unshift(call("GET /runs", { query: { ...query, state: "failed" }, signal }));
  const all = (await Promise.all(pages)).flatMap(({ items }) => items);
  const inside = all.filter((run, index) => isIn(cell, run.tick ?? run.scheduled_at) && all.findIndex(({ id }) => id === run.id) === index);
  return { runs: inside.slice(0, RUNS), more: runsOf(cell) > RUNS };
}

function Shown({ found, about }: { found: Answered; about: About }) {
  const { why, runs, more } = found;
  // The ticks before and after are links below.
  const evidence = why.evidence.filter(({ text }) => text !== "tick before" && text !== "tick after");
  return (
    <div class="stack">
      <p class="why-sentence">{asSentence(why.sentence, about.name)}</p>
      {evidence.length > 0 && (
        <ul class="why-evidence" aria-label="Evidence">
          {evidence.map(({ text, at }, index) => (
            <li key={index}>
              {asSentence(text)}
              {at !== null && (
                <span class="muted">
                  {" "}
                  <Time at={at} zone={about.zone} form="exact" />
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
      <Remedy text={why.remedy} />
      {why.run !== null && (
        <p>
          <a href={href(["runs", about.tenant, why.run])}>Open the run</a>
        </p>
      )}
      <NearTicks why={why} about={about} />
      {runs.length > 0 && (
        <ul class="cell-runs" aria-label="Runs">
          {runs.map((run) => (
            <li key={run.id}>
              <State state={run.state} />{" "}
              <a href={href(["runs", about.tenant, run.id])}>
                <Time at={run.scheduled_at} zone={about.zone} form="clock" />
              </a>
            </li>
          ))}
          {more && <li class="muted">and more</li>}
        </ul>
      )}
    </div>
  );
}

/** Links to the answers about the ticks before and after. */
function NearTicks({ why, about }: { why: Why; about: About }) {
  const link = (tick: string | null, words: string) =>
    tick !== null && (
      <a href={href(["schedules", about.tenant, about.name], { why: tick })}>
        {words} <Time at={tick} zone={about.zone} form="short" />
      </a>
    );
  if ((why.before === null && why.after === null) || why.verdict === "not_yet_created") return null;
  return (
    <p class="near-ticks">
      {link(why.before, "← tick before:")}
      {link(why.after, "tick after: →")}
    </p>
  );
}

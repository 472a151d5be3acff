// How long runs take and how late they start, over time. Few runs are drawn as they are, many as percentiles.

import { useMemo } from "preact/hooks";
import { call } from "../../api/client";
import type { FigureSeries, Run } from "../../api/schema";
import { useData } from "../../live/data";
import { Chart } from "../../parts/chart";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { setQuery, useRoute } from "../../state/route";
import { durationText } from "../../time/format";
import { useZone } from "../../time/zone";
import type { About } from "./about";
import { Choice, chosen } from "../../parts/choice";
import { DURATION_STEPS, durationAxis, endsOf, type Measure, MOST_RUNS, percentilesPlot, type Plot, runsPlot } from "./plots";

const PERIODS: ["3h" | "24h" | "7d" | "40d", string][] = [
  ["3h", "3 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["40d", "40 d"],
];

interface Drawn {
  figures: FigureSeries;
  /** Each run of the period; null if there are too many. */
  runs: Run[] | null;
}

export function ChartsSection({ tenant, name, zone }: About) {
  const { query } = useRoute();
  const shown = useZone(zone);
  const period = chosen(query, "charts", PERIODS, "24h");
  const data = useData(`figures ${tenant} ${name} ${period}`, (signal) => drawn(tenant, name, period, signal), { every: 30_000 });
  const choice = <Choice label="Period of the charts" value={period} options={PERIODS} onChoose={(value) => setQuery({ charts: value === "24h" ? null : value })} />;
  return (
    <Section title="Duration and lateness" aside={choice}>
      <Loaded data={data}>{(found) => <Charts found={found} zone={shown} />}</Loaded>
    </Section>
  );
}

async function drawn(tenant: string, name: string, period: string, signal: AbortSignal): Promise<Drawn> {
  const by = period === "3h" ? "minute" : "hour";
  const figures = await call("GET /statistics", { query: { tenant, schedule: name, since: period, by }, signal });
  if (endsOf(figures.points) > MOST_RUNS) return { figures, runs: null };
  const { items, cursor } = await call("GET /runs", { query: { tenant, schedule: name, since: period, brief: true, limit: MOST_RUNS }, signal });
  return { figures, runs: cursor === null ? items : null };
}

function Charts({ found: { figures, runs }, zone }: { found: Drawn; zone: string }) {
  const plots = useMemo(() => {
    const plot = (measure: Measure): Plot => (runs === null ? percentilesPlot(figures.points, measure) : runsPlot(runs, measure));
    return { duration: plot("duration"), lateness: plot("lateness") };
  }, [figures, runs]);
  if (![plots.duration, plots.lateness].some(({ series }) => series.some(({ values }) => values.some((value) => value !== null)))) {
    return <Empty>No run ended in this period.</Empty>;
  }
  return (
    <>
      <div class="grid">
        <Measured title="Duration" plot={plots.duration} zone={zone} />
        <Measured title="Lateness" plot={plots.lateness} zone={zone} />
      </div>
      <p class="muted">
        {runs === null
          ? `By the ${figures.by}. p50: half of the runs took less. p95: all but one of twenty. Both are at most a factor of two off: nodes count runs by ranges of durations.`
          : "Each run is a point, at its planned start."}{" "}
        Lateness is the time from the planned start to the start.
        {runs === null && !figures.is_complete && " Some figures of this period are not kept: too many schedules ran at once, or they are too old."}
      </p>
    </>
  );
}

function Measured({ title, plot: { times, series }, zone }: { title: string; plot: Plot; zone: string }) {
  return (
    <div class="chart-part">
      <h3>{title}</h3>
      <Chart caption={title} times={times} series={series} zone={zone} write={durationText} writeAxis={durationAxis} steps={DURATION_STEPS} height={170} />
    </div>
  );
}

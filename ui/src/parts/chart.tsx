// Charts over time, by uPlot. It draws on a canvas, which nobody can read aloud: each chart has its table.
// uPlot is as large as all other code of a page, so it is loaded with the first chart.

import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { clockText, dayText, exactText, zoneName } from "../time/format";
import { useStore } from "../state/store";
import { theme } from "./theme";

export interface Series {
  label: string;
  /** The name of a colour in the style sheet, such as "good" for --good. */
  colour: string;
  values: (number | null)[];
  kind?: "line" | "bars" | "points";
}

export interface ChartProps {
  /** What the chart shows, in a sentence: the caption of its table. */
  caption: string;
  /** Instants in milliseconds, ascending. */
  times: number[];
  series: Series[];
  zone: string;
  /** How a value is written: "3 ms". */
  write: (value: number) => string;
  /** How the values of the axis are written; by default as others are. */
  writeAxis?: (values: number[]) => string[];
  /** The steps that the axis may have, ascending; by default 1, 2, 2.5 and 5 with any number of zeros. */
  steps?: number[];
  height?: number;
  logarithmic?: boolean;
  /** The instant that is marked as the present. */
  now?: number;
  onPick?: (instant: number) => void;
}

/** A chart, with a table behind it that has the same values. */
export function Chart(props: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shownTheme = useStore(theme);
  const [isMissing, setMissing] = useState(false);
  const latest = useRef(props);
  latest.current = props;
  // Another zone, theme or set of series needs another plot; new values do not.
  const shape = JSON.stringify([props.series.map(({ label, colour, kind }) => [label, colour, kind]), props.zone, props.height, shownTheme, props.logarithmic]);
  useEffect(() => {
    const target = frame.current;
    if (target === null) return undefined;
    let isOver = false;
    const watch = new ResizeObserver(() => {
      const made = plot.current;
      const width = target.clientWidth;
      if (made !== null && width > 0 && width !== made.width) made.setSize({ width, height: made.height });
    });
    import("uplot").then(
      ({ default: Plot }) => {
        if (isOver) return;
        plot.current = new Plot(options(Plot, latest, target), data(latest.current), target);
        watch.observe(target);
      },
      // After an upgrade of the server, its file has another name.
      () => setMissing(true),
    );
    return () => {
      isOver = true;
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data(props)), [props.times, props.series]);
  return (
    <figure class="chart" aria-label={props.caption}>
      <div ref={frame} class="chart-frame" aria-hidden="true" />
      {isMissing && <p class="muted">The chart could not be loaded; the table has its values.</p>}
      <ChartTable {...props} />
    </figure>
  );
}

function data({ times, series }: ChartProps): uPlot.AlignedData {
  return [times.map((at) => at / 1_000), ...series.map(({ values }) => values)];
}

function options(Plot: typeof uPlot, latest: { current: ChartProps }, target: HTMLElement): uPlot.Options {
  const { series, zone, height = 180, logarithmic = false, steps } = latest.current;
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  const bars = Plot.paths.bars?.({ size: [0.9, 40], gap: 1 });
  return {
    width: Math.max(target.clientWidth, 200),
    height,
    legend: { live: true },
    cursor: { drag: { x: false, y: false }, points: { show: series.some(({ kind }) => kind !== "bars") } },
    scales: { x: { time: true }, y: logarithmic ? { distr: 3 } : { range: (_, __, most) => [0, Math.max(most * 1.1, 1e-9)] } },
    axes: [
      { ...axis, values: (_, splits) => splits.map((at, index) => axisText(at * 1_000, splits, index, zone)) },
      {
        ...axis,
        size: (plot, texts) => widestOf(plot, texts),
        ...(steps === undefined ? {} : { incrs: steps }),
        values: (_, splits) => latest.current.writeAxis?.(splits) ?? splits.map((value) => latest.current.write(value)),
      },
    ],
    series: [
      { label: zoneName(zone), value: (_, at) => (at === null ? "–" : exactText(at * 1_000, zone)) },
      ...series.map(({ label, colour: name, kind }) => ({
        label,
        stroke: colour(name),
        ...(kind === "bars" ? { fill: colour(name), width: 0, ...(bars ? { paths: bars } : {}), points: { show: false } } : {}),
        ...(kind === "points" ? { paths: () => null, points: { show: true, size: 6, fill: colour(name) } } : {}),
        ...(kind === undefined || kind === "line" ? { width: 1.5 } : {}),
        value: (_: uPlot, value: number | null) => (value === null ? "–" : latest.current.write(value)),
      })),
    ],
    hooks: {
      // Without a pointer over the chart there are no values to write: the legend has the names alone.
      setCursor: [(plot) => plot.root.classList.toggle("pointed", (plot.cursor.left ?? -1) >= 0)],
      draw: [(plot) => drawNow(plot, latest.current.now, colour("accent"))],
      ready: [
        (plot) =>
          plot.over.addEventListener("click", () => {
            const index = plot.cursor.idx;
            const at = index === null || index === undefined ? undefined : latest.current.times[index];
            if (at !== undefined) latest.current.onPick?.(at);
          }),
      ],
    },
  };
}

/** Return the width of the axis of values, in pixels: its longest text, the tick and the gaps. */
function widestOf(plot: uPlot, texts: string[] | null): number {
  const ratio = devicePixelRatio || 1;
  plot.ctx.save();
  plot.ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  const widest = Math.max(0, ...(texts ?? []).map((text) => plot.ctx.measureText(text).width / ratio));
  plot.ctx.restore();
  return Math.ceil(widest) + 24;
}

function axisText(at: number, splits: number[], index: number, zone: string): string {
  const step = ((splits[1] ?? splits[0] ?? 0) - (splits[0] ?? 0)) * 1_000;
  if (step >= 86_400_000) return dayText(at, zone);
  const clock = clockText(at, zone, step < 60_000);
  return index === 0 || clock.startsWith("00:00") ? `${clock}\n${dayText(at, zone)}` : clock;
}

function drawNow(plot: uPlot, now: number | undefined, colour: string): void {
  if (now === undefined) return;
  const x = plot.valToPos(now / 1_000, "x", true);
  const { left, top, width, height } = plot.bbox;
  if (x < left || x > left + width) return;
  plot.ctx.save();
  plot.ctx.strokeStyle = colour;
  plot.ctx.lineWidth = 2;
  plot.ctx.beginPath();
  plot.ctx.moveTo(x, top);
  plot.ctx.lineTo(x, top + height);
  plot.ctx.stroke();
  plot.ctx.restore();
}

const MOST_ROWS = 500;

function ChartTable({ caption, times, series, zone, write }: ChartProps) {
  // Minutes in which nothing happens are left out. A run that took 0 ms is a point as others are.
  const isShown = ({ index }: { index: number }) => series.some(({ values, kind }) => values[index] != null && (values[index] !== 0 || kind === "points"));
  const rows = times.map((at, index) => ({ at, index })).filter(isShown);
  return (
    <details class="behind">
      <summary>{caption}: as a table</summary>
      <div class="table-frame" role="group" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="off-screen">{caption}</caption>
          <thead>
            <tr>
              <th scope="col">{`time (${zone})`}</th>
              {series.map(({ label }) => (
                <th key={label} scope="col" class="number">
                  {label}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST_ROWS).map(({ at, index }) => (
              <tr key={index}>
                <th scope="row">{exactText(at, zone)}</th>
                {series.map(({ label, values }) => (
                  <td key={label} class="number">
                    {values[index] == null ? "–" : write(values[index])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > MOST_ROWS && <p class="muted">The first {MOST_ROWS} of {rows.length} rows.</p>}
    </details>
  );
}

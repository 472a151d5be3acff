// Counts by the minute or the hour, as bars that can be read aloud, walked through by keyboard, and clicked.

import { useState } from "preact/hooks";
import { clockText, counted, dayText, instantOf, partsIn, shortText, zoneName } from "../time/format";

export interface BarsProps {
  /** What is counted: the caption of the table. */
  caption: string;
  /** The start of the first bar, in milliseconds. */
  start: number;
  /** The length of a bar, in milliseconds. */
  step: number;
  counts: number[];
  zone: string;
  noun?: string;
  height?: number;
  /** The count of a bar of full height; by default the largest. */
  most?: number;
  /** Bars that are named, by their index, and what that means. */
  marked?: Set<number>;
  markedLabel?: string;
  onPick?: (instant: number) => void;
}

const WIDTH = 960;

/** Bars, with a text about the one under the pointer, and a table of those that are not empty. */
export function Bars({ caption, start, step, counts, zone, noun = "run", height = 120, most: full, marked, markedLabel, onPick }: BarsProps) {
  const [over, setOver] = useState<number | null>(null);
  const most = Math.max(...counts, 1);
  const scale = Math.max(full ?? most, 1);
  const width = WIDTH / counts.length;
  const at = (index: number): number => start + index * step;
  const find = (event: MouseEvent & { currentTarget: Element }): number => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.min(counts.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * counts.length)));
  };
  const ticks = axisTicks(start, step * counts.length, zone);
  const filled = counts.map((count, index) => ({ count, index })).filter(({ count }) => count > 0);
  return (
    <figure class="bars">
      <svg
        viewBox={`0 0 ${WIDTH} ${height + 4}`}
        preserveAspectRatio="none"
        height={height}
        aria-hidden="true"
        class={onPick ? "pickable" : ""}
        onPointerMove={(event) => setOver(find(event))}
        onPointerLeave={() => setOver(null)}
        onClick={(event) => onPick?.(at(find(event)))}
      >
        {counts.map((count, index) => {
          const size = (count / scale) * height;
          return (
            count > 0 && (
              <rect
                key={index}
                class={marked?.has(index) ? "peak" : ""}
                x={index * width}
                y={height - size}
                width={Math.max(width * 0.86, 0.6)}
                height={size}
              />
            )
          );
        })}
        <line x1="0" x2={WIDTH} y1={height} y2={height} />
        {over !== null && <rect class="over" x={over * width} y="0" width={width} height={height} />}
      </svg>
      <div class="bars-axis" aria-hidden="true">
        {ticks.map(({ share, text }) => (
          <span key={share} style={{ left: `${share * 100}%` }}>
            {text}
          </span>
        ))}
      </div>
      <figcaption class="muted">
        {over === null
          ? `${caption}; times in ${zoneName(zone)}; at most ${counted(most, noun)}`
          : `${shortText(at(over), zone)}: ${counted(counts[over] ?? 0, noun)}`}
        {markedLabel !== undefined && marked !== undefined && marked.size > 0 && (
          <span class="bars-legend">
            <span class="bars-mark" aria-hidden="true" /> {markedLabel}
          </span>
        )}
      </figcaption>
      <details class="behind">
        <summary>{caption}: as a table</summary>
        <div class="table-frame" role="group" aria-label={caption} tabIndex={0}>
          <table>
            <caption class="off-screen">{caption}</caption>
            <thead>
              <tr>
                <th scope="col">{`from (${zone})`}</th>
                <th scope="col" class="number">
                  {noun}s
                </th>
              </tr>
            </thead>
            <tbody>
              {filled.slice(0, MOST_ROWS).map(({ count, index }) => (
                <tr key={index}>
                  <th scope="row">{shortText(at(index), zone)}</th>
                  <td class="number">{count}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {filled.length > MOST_ROWS && <p class="muted">{`The first ${MOST_ROWS} of ${filled.length} rows.`}</p>}
      </details>
    </figure>
  );
}

const MOST_ROWS = 500;
const LABELS = 8;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const STEPS = [60_000, 300_000, 600_000, 900_000, 1_800_000, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY];

export interface AxisTick {
  /** Where it is, from 0 to 1. */
  share: number;
  text: string;
}

/** Return where the axis has labels: at most eight or so, at round times of the zone. */
export function axisTicks(start: number, length: number, zone: string): AxisTick[] {
  const wanted = STEPS.find((each) => length / each <= LABELS);
  const ticks = wanted === undefined || wanted === DAY ? dayTicks(start, length, zone) : clockTicks(start, length, zone, wanted);
  // A label at the edge would be cut.
  return ticks.filter(({ share }) => share > 0.02 && share < 0.98);
}

function clockTicks(start: number, length: number, zone: string, wanted: number): AxisTick[] {
  const ticks: AxisTick[] = [];
  for (let at = Math.ceil(start / 60_000) * 60_000; at < start + length; at += 60_000) {
    const [hour = 0, minute = 0] = clockText(at, zone).split(":").map(Number);
    if ((hour * 60 + minute) % (wanted / 60_000) !== 0) continue;
    ticks.push({ share: (at - start) / length, text: clockText(at, zone) });
    // Round times are at least this far apart, apart from clock changes.
    at += Math.max(0, wanted - HOUR - 60_000);
  }
  return ticks;
}

/** Midnights of the zone, or each nth of them. */
function dayTicks(start: number, length: number, zone: string): AxisTick[] {
  const apart = Math.ceil(length / DAY / LABELS);
  const ticks: AxisTick[] = [];
  const { year, month, day } = partsIn(start, zone);
  for (let number = 1; ; number += apart) {
    const date = new Date(Date.UTC(year, month - 1, day + number)).toISOString().slice(0, 10);
    const at = instantOf(`${date}T00:00`, zone);
    if (at >= start + length) return ticks;
    ticks.push({ share: (at - start) / length, text: dayText(at, zone) });
  }
}

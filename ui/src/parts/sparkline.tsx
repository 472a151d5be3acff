// The last runs of a schedule or flow as small bars: colour and shape say how they ended, height how long they took.

import { href, navigate } from "../state/route";
import { counted, durationText } from "../time/format";
import { toneOf } from "./state";

export interface SparkRun {
  id: string;
  state: string;
  scheduled_at: string;
  duration: number | null;
  /** Of runs of several tenants: whose it is. */
  tenant?: string;
}

const WIDTH = 4;
const HEIGHT = 24;

export function Sparkline({ runs, tenant, slots = 60 }: { runs: SparkRun[]; tenant: string; slots?: number }) {
  if (runs.length === 0) return <span class="muted">no runs yet</span>;
  const longest = Math.max(...runs.map((run) => run.duration ?? 0), 0.001);
  const failed = runs.filter((run) => run.state === "failed").length;
  const words = `${counted(runs.length, "run")}, ${failed === 0 ? "none failed" : `${failed} failed`}`;
  return (
    <svg
      class="sparkline"
      role="img"
      aria-label={words}
      viewBox={`0 0 ${slots * WIDTH} ${HEIGHT}`}
      width={slots * WIDTH}
      height={HEIGHT}
    >
      <title>{words}</title>
      {runs.map((run, index) => (
        <SparkBar
          key={run.id}
          run={run}
          x={(slots - runs.length + index) * WIDTH}
          share={Math.sqrt((run.duration ?? 0) / longest)}
          onOpen={() => navigate(href(["runs", run.tenant ?? tenant, run.id]))}
        />
      ))}
    </svg>
  );
}

function SparkBar({ run, x, share, onOpen }: { run: SparkRun; x: number; share: number; onOpen: () => void }) {
  const tone = toneOf(run.state);
  const height = 4 + share * (HEIGHT - 8);
  return (
    <g class={`spark ${tone}`} onClick={onOpen}>
      <title>{`${run.state}, ${durationText(run.duration)}`}</title>
      {tone === "bad" ? (
        // Failures hang from the top with a gap below: the shape differs, not only the colour.
        <path d={`M${x} 0h3v${HEIGHT - 7}h-3zM${x} ${HEIGHT - 4}h3v3h-3z`} />
      ) : (
        <rect x={x} y={HEIGHT - height} width="3" height={height} rx="1" />
      )}
    </g>
  );
}

// The attempts of a run as bars over time, each with its fencing token.

import type { Run } from "../../api/schema";
import { State, toneOf } from "../../parts/state";
import { Table } from "../../parts/table";
import { Duration, Time } from "../../parts/time";
import { useNow } from "../../time/clock";
import { clockText, dayText, durationText, toMs, zoneName } from "../../time/format";
import { useZone } from "../../time/zone";
import { type AttemptBar, attemptChart, errorLine, gapSentence, hasLostFirst, lostSentence } from "./attempts";

export function AttemptTimeline({ run, zone }: { run: Run; zone: string | null }) {
  if (run.attempts.length === 0 && run.state !== "running") return <p class="muted">No attempt yet.</p>;
  return run.state === "running" ? <Live run={run} zone={zone} /> : <Drawn run={run} zone={zone} now={0} />;
}

function Live({ run, zone }: { run: Run; zone: string | null }) {
  return <Drawn run={run} zone={zone} now={useNow()} />;
}

function Drawn({ run, zone, now }: { run: Run; zone: string | null; now: number }) {
  const shown = useZone(zone);
  const { from, to, bars } = attemptChart(run, now);
  const isCut = hasLostFirst(run);
  const before = (index: number): number => (index === 0 ? (isCut ? (bars[0]?.number ?? 1) - 1 : 0) : (bars[index - 1]?.number ?? 0));
  return (
    <div class="stack">
      {isCut && <p class="muted">Earlier attempts are not kept.</p>}
      <div class="attempts">
        <ol aria-label="Attempts over time">
          {bars.map((bar, index) => (
            <Attempt key={bar.number} bar={bar} zone={zone} gap={gapSentence(bar.number, before(index))} />
          ))}
        </ol>
        <p class="attempt-axis muted number">
          <span>
            {dayText(from, shown)}, {clockText(from, shown, true)} {zoneName(shown)}
          </span>
          <span>
            {clockText(to, shown, true)} {zoneName(shown)}
          </span>
        </p>
      </div>
      <details class="behind">
        <summary>What is the token?</summary>
        <p class="muted">
          The number of an attempt is its fencing token: the store takes a result only with the latest number. So a worker that was
          cut off and comes back can't overwrite the result of another one.
        </p>
      </details>
      <details class="behind">
        <summary>Attempts as a table</summary>
        <Table
          caption="Attempts"
          columns={[
            { title: "Token", kind: "main", cell: (bar) => bar.number },
            { title: "Outcome", cell: (bar) => <State state={bar.outcome} /> },
            { title: "Worker", cell: (bar) => bar.worker ?? "–" },
            { title: "Started", cell: (bar) => <Time at={bar.startedAt} zone={zone} form="exact" /> },
            { title: "Ended", cell: (bar) => <Time at={bar.endedAt} zone={zone} form="exact" /> },
            { title: "Took", kind: "number", cell: (bar) => <Duration seconds={bar.duration} /> },
            { title: "Late result refused", cell: (bar) => <Time at={bar.refusedAt} zone={zone} form="exact" /> },
            { title: "Error", kind: "wide", cell: (bar) => errorLine(bar.error) ?? "–" },
          ]}
          rows={bars}
          keyOf={(bar) => String(bar.number)}
        />
      </details>
    </div>
  );
}

function Attempt({ bar, zone, gap }: { bar: AttemptBar; zone: string | null; gap: string | null }) {
  const shown = useZone(zone);
  const lost = lostSentence(bar, shown);
  const line = errorLine(bar.error);
  return (
    <li class="attempt">
      {gap !== null && <p class="muted">{gap}</p>}
      <div class="attempt-words">
        <strong class="number">Attempt {bar.number}</strong>
        <State state={bar.outcome} />
        <span class="muted">
          token {bar.number}
          {bar.worker !== null && (
            <>
              {" on "}
              <span class="worker mono">{bar.worker}</span>
            </>
          )}
          {bar.duration !== null && `, ${durationText(bar.duration)}${bar.outcome === "running" ? " so far" : ""}`}
        </span>
        {bar.leaseUntil !== null && <Lease until={bar.leaseUntil} zone={zone} />}
      </div>
      <div class="attempt-track" aria-hidden="true">
        <span
          class={`attempt-bar ${toneOf(bar.outcome)}${bar.outcome === "lost" ? " lost" : ""}`}
          style={{ left: `${bar.left}%`, width: `${bar.width}%` }}
        />
      </div>
      {lost !== null && <p class="attempt-lost">{lost}</p>}
      {line !== null && <p class="attempt-error mono">{line}</p>}
    </li>
  );
}

/** The lease of the running attempt. If its worker does not renew it, another worker takes the run. */
function Lease({ until, zone }: { until: string; zone: string | null }) {
  const isOver = toMs(until) < useNow();
  return (
    <span class={isOver ? "attempt-lost" : "muted"}>
      {isOver ? "lease ended at " : "lease until "}
      <Time at={until} zone={zone} form="clock" />
      {isOver && ": its worker does not heartbeat, and another one may take the run"}
    </span>
  );
}

// What a change of a schedule does: the options that differ, and its next ticks before and after.

import { useEffect, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { Loading } from "../../parts/load";
import { ProblemBox } from "../../parts/problem";
import { Time } from "../../parts/time";
import { counted } from "../../time/format";
import { COMPARED, type TickChange, tickChanges } from "./ticks";

export interface OptionChange {
  name: string;
  before: string;
  after: string;
}

export function OptionChanges({ changes, before = "Now", after = "After saving" }: { changes: OptionChange[]; before?: string; after?: string }) {
  return (
    <div class="table-frame" role="group" aria-label="Changed options" tabIndex={0}>
      <table class="changes">
        <caption class="off-screen">Changed options</caption>
        <thead>
          <tr>
            <th scope="col">Option</th>
            <th scope="col">{before}</th>
            <th scope="col">{after}</th>
          </tr>
        </thead>
        <tbody>
          {changes.map((change) => (
            <tr key={change.name}>
              <th scope="row" data-title="Option">{change.name}</th>
              <td class="wide" data-title={before}><Value text={change.before} /></td>
              <td class="wide" data-title={after}><Value text={change.after} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Value({ text }: { text: string }) {
  return text === "" ? <span class="muted">none</span> : <code class="value">{text}</code>;
}

interface Compared {
  changes: TickChange[];
  zone: string;
  isSame: boolean;
  words: [before: string, after: string];
}

/** The next ticks of a schedule, and what they would be with another trigger. */
export function TickComparison({ schedule, trigger }: { schedule: Schedule; trigger: string }) {
  const [found, setFound] = useState<Compared | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    let isShown = true;
    compare(schedule, trigger)
      .then((compared) => isShown && setFound(compared))
      .catch((error: unknown) => {
        if (!(error instanceof Problem)) throw error;
        if (isShown) setProblem(error);
      });
    return () => {
      isShown = false;
    };
  }, [schedule, trigger]);
  if (problem !== null) return <ProblemBox problem={problem} />;
  if (found === null) return <Loading />;
  if (found.isSame) return <p>The new text of the trigger means the same: all ticks stay.</p>;
  return <TickDiff {...found} />;
}

async function compare(schedule: Schedule, trigger: string): Promise<Compared> {
  const { name, tenant } = schedule;
  const [before, after, old] = await Promise.all([
    call("GET /schedules/{name}/ticks", { path: { name }, query: { tenant, count: COMPARED } }),
    call("POST /preview", { body: { trigger, name, count: COMPARED } }),
    call("POST /preview", { body: { trigger: schedule.trigger, name, count: 1 } }),
  ]);
  const changes = tickChanges(before.items, after.ticks.map(({ at }) => at), Date.parse(after.since));
  return { changes, zone: after.zone, isSame: old.written === after.written, words: [schedule.words, after.words] };
}

const SIGNS: Record<TickChange["kind"], string> = { kept: "=", removed: "−", added: "+" };

function TickDiff({ changes, zone, words }: Compared) {
  const count = (kind: TickChange["kind"]): number => changes.filter((change) => change.kind === kind).length;
  return (
    <div class="stack">
      <p>
        <del>{words[0]}</del> <br />
        <ins>{words[1]}</ins>
      </p>
      <p class="muted">
        Of the next ticks: {counted(count("removed"), "tick")} removed, {count("added")} added, {count("kept")} kept.
      </p>
      <ul class="tick-diff" aria-label="The next ticks before and after">
        {changes.map(({ at, kind }) => (
          <li key={at} class={kind}>
            <span class="sign" aria-hidden="true">{SIGNS[kind]}</span>
            <Time at={at} zone={zone} form="exact" />
            <span class="kind">{kind}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

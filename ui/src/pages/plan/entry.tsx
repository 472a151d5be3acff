// One schedule of a plan: the options that differ, and its next ticks before and after.

import type { PlanEntry } from "../../api/schema";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { OptionChanges } from "../schedules/compare";
import type { TickChange } from "../schedules/ticks";
import { optionChanges, plannedTicks } from "./texts";

export function Entry({ entry }: { entry: PlanEntry }) {
  const { tenant, name, action, why, command, changes } = entry;
  const [before, after] = action === "drift" ? ["Edited to", "As declared"] : ["Stored", "As declared"];
  return (
    <article class="card" aria-label={name}>
      <h3>
        {action === "add" ? name : <a href={href(["schedules", tenant, name])}>{name}</a>} <Source entry={entry} />
      </h3>
      {why !== "" && <p>{asSentence(why)}</p>}
      {changes.length > 0 && <OptionChanges changes={optionChanges(changes)} before={before} after={after} />}
      <Ticks entry={entry} />
      {command !== "" && (
        <p class="muted">
          On the command line: <code>{command}</code>
        </p>
      )}
    </article>
  );
}

function Source({ entry: { managed_by, source, tenant } }: { entry: PlanEntry }) {
  const owner = tenant === "default" ? "" : `, tenant ${tenant}`;
  return <span class="muted">{`${managed_by}${source === "" ? "" : ` of ${source}`}${owner}`}</span>;
}

const SIGNS: Record<TickChange["kind"], string> = { kept: "=", removed: "−", added: "+" };

function Ticks({ entry }: { entry: PlanEntry }) {
  if (!["add", "change", "remove"].includes(entry.action)) return null;
  const ticks = plannedTicks(entry.ticks_before, entry.ticks_after);
  if (ticks.length === 0) return <p class="muted">No tick is to come.</p>;
  if (ticks.every(({ kind }) => kind === "kept")) return <p>All ticks stay where they are.</p>;
  return (
    <ul class="tick-diff" aria-label={`The next ticks of ${entry.name}`}>
      {ticks.map(({ at, kind }) => (
        <li key={at} class={kind}>
          <span class="sign" aria-hidden="true">
            {SIGNS[kind]}
          </span>
          <Time at={at} form="exact" />
          <span class="kind">{kind}</span>
        </li>
      ))}
    </ul>
  );
}

function asSentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}

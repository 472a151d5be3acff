// The head of the page: the state, the trigger in words, the next run; above it what needs attention.

import type { ComponentChildren } from "preact";
import { call } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { useData } from "../../live/data";
import { Command } from "../../parts/copy";
import { Facts } from "../../parts/page";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { now } from "../../time/clock";
import { counted } from "../../time/format";
import { useZone } from "../../time/zone";
import { type FieldName, LABELS } from "../schedules/form";
import { useReloadOnChange } from "./about";
import { Remedy } from "./remedy";
import { actorText, asSentence, endedText, isBlocked, managedByText, placeOf } from "./sentences";

export function Head({ schedule }: { schedule: Schedule }) {
  const { tenant, task, trigger, words, timezone: zone, tags, stats } = schedule;
  return (
    <section class="card schedule-head" aria-label="Overview">
      <p class="schedule-words">
        {schedule.damage ? <State state="damaged" tone="bad" /> : <State state={schedule.state} />}
        {!schedule.damage && <strong>{asSentence(words)}</strong>}
      </p>
      {schedule.description && <p class="schedule-description">{schedule.description}</p>}
      <Facts
        items={[
          ["Next run", <NextRun schedule={schedule} />],
          ["Trigger", <code>{trigger}</code>],
          ["Zone", zone],
          ["Last run", <Time at={schedule.last_run_at} zone={zone} />],
          ["Ended runs", <Ended stats={stats} />],
          ["Task", <a href={href(["schedules"], { task })}>{task}</a>],
          ["Tenant", <a href={href(["schedules"], { tenant })}>{tenant}</a>],
          ["Managed by", managedByText(schedule.managed_by, schedule.source)],
          ...(schedule.template === null ? [] : [["Template", <Template schedule={schedule} />] as [string, ComponentChildren]]),
          ["Tags", tags.length === 0 ? <span class="muted">none</span> : <Tags tags={tags} />],
        ]}
      />
      <Payload schedule={schedule} />
    </section>
  );
}

function Template({ schedule: { template, inherited, tenant } }: { schedule: Schedule }) {
  const words = inherited.map((option) => LABELS[option as FieldName].toLowerCase()).join(", ");
  return (
    <>
      <a href={href(["templates", template ?? ""], { tenant })}>{template}</a>
      <span class="muted">{words === "" ? ", inherits nothing: all options are its own" : `, inherits ${words}`}</span>
    </>
  );
}

function NextRun({ schedule }: { schedule: Schedule }) {
  const { state, next_run, timezone: zone } = schedule;
  if (schedule.damage) return <span class="muted">none: nodes can't read it</span>;
  if (state === "paused" && schedule.paused_until === null) return <span class="muted">none until somebody resumes it</span>;
  if (next_run === null) return <span class="muted">none: no tick is to come</span>;
  return (
    <>
      <Time at={next_run} zone={zone} /> · <Time at={next_run} zone={zone} form="short" />
      {state === "paused" && <span class="muted">, after the pause</span>}
      {schedule.is_waiting && <span class="muted"> (a tick waits for {schedule.after === null ? "a run to end" : "other schedules to succeed"})</span>}
      {schedule.catch_up_at !== null && (
        <span class="muted">
          {" "}
          (catching up, {counted(schedule.catch_up_left, "tick")} left, next at <Time at={schedule.catch_up_at} zone={zone} form="short" />)
        </span>
      )}
    </>
  );
}

/** How often a run ended. The list of runs has each once, with its last end. */
function Ended({ stats: { run_count: ends, failure_count: failures } }: Pick<Schedule, "stats">) {
  if (ends === 0) return <span class="muted">none yet</span>;
  return (
    <>
      {endedText(ends, failures)}
      {failures > 0 && <span class="muted"> (a run that is retried by hand counts again)</span>}
    </>
  );
}

function Tags({ tags }: { tags: string[] }) {
  return (
    <span class="row">
      {tags.map((tag) => (
        <a key={tag} class="tag" href={href(["schedules"], { tag })}>
          {tag}
        </a>
      ))}
    </span>
  );
}

export function payloadText({ payload, payload_text }: Pick<Schedule, "payload" | "payload_text">): string {
  return payload_text ?? JSON.stringify(payload, null, 2) ?? "null";
}

function Payload({ schedule }: { schedule: Schedule }) {
  const text = payloadText(schedule);
  if (text === "null" || text === "{}") return null;
  return (
    <details class="behind">
      <summary>Payload</summary>
      <pre tabIndex={0}>{text}</pre>
    </details>
  );
}

/** What keeps the schedule from running, and what to do about it: the answer about its last tick. */
function Blocked({ schedule }: { schedule: Schedule }) {
  const { tenant, name, revision, last_error, timezone } = schedule;
  const tz = useZone(timezone);
  const data = useData(
    `blocked ${tenant} ${name} ${tz}`,
    (signal) => call("GET /schedules/{name}/why", { path: { name }, query: { tenant, tz }, signal }),
    { every: 15_000 },
  );
  useReloadOnChange(data, revision);
  const why = data.value;
  if (why !== undefined && isBlocked(why, now())) {
    return (
      <div class="problem" role="alert">
        <p>
          <strong>{asSentence(why.sentence, name)}</strong>
        </p>
        <Remedy text={why.remedy} />
        {why.run !== null && (
          <p>
            <a href={href(["runs", tenant, why.run])}>Open the run</a>
          </p>
        )}
      </div>
    );
  }
  if (!last_error) return null;
  return (
    <div class="problem" role="alert">
      <p>A node could not fire this schedule: {last_error}</p>
    </div>
  );
}

/** What needs attention: what keeps it from running, a pause, damage, an edit that differs from the code. */
export function Banners({ schedule }: { schedule: Schedule }) {
  return (
    <>
      {schedule.damage && (
        <div class="problem" role="alert">
          <p>Nodes can't read this schedule, and do not fire it: {schedule.damage}</p>
          <p>Fields that can't be read are shown with their defaults. Edit the schedule to write it again.</p>
          <Command text={`evenbeat why ${quoted(schedule.name)}${schedule.tenant === "default" ? "" : ` --tenant ${quoted(schedule.tenant)}`}`} />
        </div>
      )}
      {!schedule.damage && schedule.state === "active" && <Blocked schedule={schedule} />}
      {schedule.state === "paused" && <PauseBanner schedule={schedule} />}
      {schedule.state === "finished" && (
        <p class="schedule-banner">This schedule is finished: its trigger has no further tick. Edit the trigger to give it more.</p>
      )}
      {Object.keys(schedule.edited).length > 0 && (
        <p class="schedule-banner">
          Edited by hand, so it differs from the {placeOf(schedule)}: {fieldsOf(schedule.edited).join(", ")}. “Back to {placeOf(schedule)}” undoes the edits.
        </p>
      )}
    </>
  );
}

export function fieldsOf(edited: { [key: string]: unknown }): string[] {
  return Object.keys(edited).filter((name) => !(name.endsWith("_text") && name.slice(0, -"_text".length) in edited));
}

function PauseBanner({ schedule }: { schedule: Schedule }) {
  const { pause_note, paused_by, paused_at, paused_until, timezone: zone } = schedule;
  return (
    <div class="schedule-banner" role="note" aria-label="Pause">
      <p>
        <State state="paused" /> {pause_note === "" ? <span class="muted">without a note</span> : <strong class="pause-note">{pause_note}</strong>}
      </p>
      <p class="muted">
        Paused{paused_by && ` by ${actorText(paused_by)}`} <Time at={paused_at} zone={zone} />
        {paused_until === null ? (
          ", until somebody resumes it."
        ) : (
          <>
            , until <Time at={paused_until} zone={zone} form="short" /> (<Time at={paused_until} zone={zone} />).
          </>
        )}
      </p>
    </div>
  );
}

/** Return a word for a shell. */
export function quoted(word: string): string {
  return /^[\w./:@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

// The dialogs of one schedule.

import { useState } from "preact/hooks";
import { call, idempotencyKey, ifRevision, Problem } from "../../api/client";
import type { Pause } from "../../api/schema";
import { type Action, useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Choice } from "../../parts/choice";
import { ActionDialog } from "../../parts/dialog";
import { AreaField, CheckField, TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Facts } from "../../parts/page";
import { Time } from "../../parts/time";
import { href, navigate } from "../../state/route";
import { now } from "../../time/clock";
import { countText, inputText, instantOf, shortText } from "../../time/format";
import { useZone } from "../../time/zone";
import type { DialogOfSchedule } from "./actions";
import { Changed } from "./audit";
import { changesOf } from "./changes";
import { payloadProblem } from "./payload";
import { payloadText } from "./head";
import { timeProblem } from "./pause_end";
import { asSentence, placeOf, RESUMES, waitText } from "./sentences";
import { PAUSE_WARNING, UntilFields, useUntil } from "./until";

/** An action that compares the revision which the user saw when the dialog was opened. */
function useChange({ schedule, onChange, onClose }: DialogOfSchedule, change: (headers: Record<string, string>) => Promise<string>): Action<[]> {
  const [seen] = useState(schedule.revision);
  return useAction(async () => {
    try {
      notify(await change(ifRevision(seen)));
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 412) throw error;
      onChange();
      throw new Problem(412, error.kind, "The schedule changed meanwhile. Close this, look at it again, and repeat what you wanted.");
    }
    onChange();
    onClose();
  });
}

/** The parts of an ActionDialog that come from an action. */
function shown({ isBusy, error, run }: Action<[]>) {
  return { isBusy, error, onSubmit: () => void run() };
}

export function RunDialog(props: DialogOfSchedule) {
  const { schedule, onChange, onClose } = props;
  const { tenant, name, next_run, timezone } = schedule;
  const zone = useZone(timezone);
  const [text, setText] = useState("");
  // One key for each opened dialog: a double click, or a repetition after a lost reply, adds nothing.
  const [key] = useState(idempotencyKey);
  const wrong = payloadProblem(text);
  const stays = next_run === null ? "" : ` The next tick stays at ${shortText(next_run, zone)}.`;
  const action = useAction(async () => {
    const bodyText = text.trim() === "" ? "{}" : `{"payload": ${text}}`;
    await call("POST /schedules/{name}/run", { path: { name }, query: { tenant }, bodyText, headers: { "Idempotency-Key": key } });
    notify(`Added one run of ${name}.${stays}`);
    onChange();
    onClose();
  });
  return (
    <ActionDialog title={`Run ${name} now`} verb="Run now" disabled={wrong !== null} onClose={onClose} {...shown(action)}>
      <p>One run is added at once, beside the ticks.{stays}</p>
      <AreaField
        label="Payload of this run"
        mono
        rows={5}
        value={text}
        onText={setText}
        placeholder={payloadText(schedule)}
        error={wrong}
        help="A JSON object. Empty: the payload of the schedule. Each digit is kept."
      />
    </ActionDialog>
  );
}

export function PauseDialog(props: DialogOfSchedule) {
  const { schedule, onClose } = props;
  const { tenant, name, timezone } = schedule;
  const zone = useZone(timezone);
  const [note, setNote] = useState("");
  const until = useUntil(zone);
  const [cancelsQueued, setCancelsQueued] = useState(false);
  const action = useChange(props, async (headers) => {
    const end = until.value();
    const body: Pause = { note, cancel_queued: cancelsQueued, ...(end === undefined ? {} : { until: end }) };
    await call("POST /schedules/{name}/pause", { path: { name }, query: { tenant }, body, headers });
    return `Paused ${name}.`;
  });
  return (
    <ActionDialog title={`Pause ${name}`} verb="Pause" disabled={until.wrong !== null} onClose={onClose} {...shown(action)}>
      <p>{PAUSE_WARNING}</p>
      <TextField label="Note" value={note} onText={setNote} placeholder="Why it is paused" help="Everybody who looks at the schedule reads it." />
      <UntilFields until={until} />
      <CheckField label="Cancel its queued runs, too" checked={cancelsQueued} onCheck={setCancelsQueued} />
    </ActionDialog>
  );
}

export function ResumeDialog(props: DialogOfSchedule) {
  const { schedule, onClose } = props;
  const { tenant, name, timezone } = schedule;
  const tz = useZone(timezone);
  const [choice, setChoice] = useState<"skip" | "catch-up">("skip");
  const catch_up = choice === "catch-up";
  const data = useData(`resume ${tenant} ${name} ${tz} ${choice}`, (signal) => call("GET /schedules/{name}/resume", { path: { name }, query: { tenant, tz, catch_up }, signal }), {
    every: 5_000,
  });
  const action = useChange(props, async (headers) => {
    await call("POST /schedules/{name}/resume", { path: { name }, query: { tenant }, body: { catch_up }, headers });
    return `Resumed ${name}.`;
  });
  return (
    <ActionDialog title={`Resume ${name}`} verb="Resume" disabled={data.value === undefined} onClose={onClose} {...shown(action)}>
      <Choice label="The missed ticks" value={choice} options={RESUMES} onChoose={setChoice} />
      <Loaded data={data}>
        {({ sentence, missed, runs, coalesced, skipped, next_run }) => (
          <>
            <p>
              <strong>{asSentence(sentence)}</strong>
            </p>
            <Facts
              items={[
                ["Missed ticks", countText(missed)],
                ["Runs at once", countText(runs)],
                ["Coalesced", countText(coalesced)],
                ["Skipped", countText(skipped)],
                ["Next run", <Time at={next_run} zone={timezone} form="short" />],
              ]}
            />
          </>
        )}
      </Loaded>
    </ActionDialog>
  );
}

export function RescheduleDialog(props: DialogOfSchedule) {
  const { schedule, onClose } = props;
  const { tenant, name, next_run, timezone } = schedule;
  const zone = useZone(timezone);
  const [at, setAt] = useState(() => inputText(next_run ?? now(), zone));
  const wrong = timeProblem(at, zone, now());
  const action = useChange(props, async (headers) => {
    const instant = new Date(instantOf(at, zone)).toISOString();
    await call("POST /schedules/{name}/reschedule", { path: { name }, query: { tenant }, body: { at: instant }, headers });
    return `Moved the next tick of ${name} to ${shortText(instant, zone)}.`;
  });
  return (
    <ActionDialog title={`Move the next tick of ${name}`} verb="Move" disabled={wrong !== null} onClose={onClose} {...shown(action)}>
      <p>
        The next tick is at <Time at={next_run} zone={timezone} form="short" />. Only this one moves; later ticks follow the trigger. Ticks that the
        move passes over are recorded as skipped.
      </p>
      <TextField label="New time" type="datetime-local" value={at} onText={setAt} error={wrong} help={`By the clock of ${zone}.`} />
    </ActionDialog>
  );
}

export function ResetDialog(props: DialogOfSchedule) {
  const { schedule, onClose } = props;
  const { tenant, name, edited, timezone } = schedule;
  const its = placeOf(schedule);
  const action = useChange(props, async (headers) => {
    await call("POST /schedules/{name}/reset", { path: { name }, query: { tenant }, headers });
    return `${name} is what the ${its} declares.`;
  });
  const present = Object.fromEntries(Object.keys(edited).map((field) => [field, (schedule as unknown as Record<string, unknown>)[field]]));
  return (
    <ActionDialog title={`Take ${name} back to the ${its}`} verb={`Back to ${its}`} onClose={onClose} {...shown(action)}>
      <p>The edits by hand are undone. A pause stays, and no tick fires from this change.</p>
      <ul class="change-list">
        {changesOf(present, edited).map((change) => (
          <li key={change.name}>
            <Changed change={change} zone={timezone} />
          </li>
        ))}
      </ul>
    </ActionDialog>
  );
}

export function DeleteDialog(props: DialogOfSchedule) {
  const { schedule, onClose } = props;
  const { tenant, name, words, declared } = schedule;
  const linked = useData(`dependencies ${tenant} ${name}`, (signal) => call("GET /schedules/{name}/dependencies", { path: { name }, query: { tenant }, signal }));
  const action = useChange({ ...props, onChange: () => undefined }, async (headers) => {
    await call("DELETE /schedules/{name}", { path: { name }, query: { tenant }, headers });
    navigate(href(["schedules"]));
    return `Deleted ${name}.`;
  });
  return (
    <ActionDialog title={`Delete ${name}`} verb="Delete" kind="danger" onClose={onClose} {...shown(action)}>
      <p>
        This goes: the schedule <strong>{name}</strong> of tenant <strong>{tenant}</strong> ({words}), with its payload and its policies. It does not fire again.
      </p>
      <p>This stays: its runs and their history, and the audit. Runs that are queued or running go on.</p>
      {linked.value !== undefined && linked.value.followers.length > 0 && <p class="warning">{waitText(linked.value.followers)}</p>}
      {declared && <p class="muted">The {placeOf(schedule)} declares this schedule: the next start of the app creates it again, unless it is removed there.</p>}
    </ActionDialog>
  );
}

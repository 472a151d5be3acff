// Schedules that code declares: what was edited by hand since, and the way back.

import { useState } from "preact/hooks";
import { call, ifRevision } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { useAction } from "../../live/action";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { notify } from "../../parts/notice";
import { useMay } from "../../state/session";
import { placeOf } from "../schedule/sentences";
import { type OptionChange, OptionChanges, TickComparison } from "./compare";
import { durationIn, payloadText } from "./form";

const DURATIONS: ReadonlySet<string> = new Set(["spread", "grace", "catch_up_max_age", "backoff", "max_backoff", "timeout", "expires"]);

/** Return the options that were edited by hand, as they are now (`before`) and as the code has them (`after`). */
export function driftOf(schedule: Schedule): OptionChange[] {
  const names = Object.keys(schedule.edited).filter((name) => !(name.endsWith("_text") && name.slice(0, -5) in schedule.edited));
  return names.map((name) => ({ name, before: present(schedule, name), after: asText(schedule.edited[`${name}_text`] ?? schedule.edited[name]) }));
}

function present(schedule: Schedule, name: string): string {
  if (name === "payload") return payloadText(schedule);
  const value = (schedule as unknown as Record<string, unknown>)[name];
  return DURATIONS.has(name) ? durationIn(value as number | null) : asText(value);
}

function asText(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join(" ");
  return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

/** Say that code declares the schedule and, if it was edited by hand, what the code has instead. */
export function CodeNotice({ schedule, onReset }: { schedule: Schedule; onReset: () => void }) {
  const [isAsking, setAsking] = useState(false);
  const isAdmin = useMay("admin");
  const drift = driftOf(schedule);
  const its = placeOf(schedule);
  const owner = its === "file" ? "A file" : "Code";
  if (!schedule.declared) return null;
  return (
    <section class="card notice" aria-label={`${owner} declares this schedule`}>
      <p>
        <strong>{owner} declares this schedule.</strong> Edits by hand stay until its definition in the {its} changes, or until somebody takes it back
        to the {its}.
      </p>
      {drift.length > 0 && (
        <>
          <OptionChanges changes={drift} before="Edited to" after={`In the ${its}`} />
          {isAdmin && (
            <div>
              <Button onClick={() => setAsking(true)}>Back to {its} …</Button>
            </div>
          )}
        </>
      )}
      {isAsking && <ResetDialog schedule={schedule} drift={drift} onReset={onReset} onClose={() => setAsking(false)} />}
    </section>
  );
}

interface ResetProps {
  schedule: Schedule;
  drift: OptionChange[];
  onReset: () => void;
  onClose: () => void;
}

function ResetDialog({ schedule, drift, onReset, onClose }: ResetProps) {
  const { name, tenant, revision } = schedule;
  const its = placeOf(schedule);
  const reset = useAction(async () => {
    await call("POST /schedules/{name}/reset", { path: { name }, query: { tenant }, headers: ifRevision(revision) });
    notify(`${name} is as the ${its} declares it.`);
    onReset();
    onClose();
  });
  const trigger = schedule.edited["trigger"];
  return (
    <ActionDialog title={`Take ${name} back to the ${its}?`} verb={`Back to ${its}`} isBusy={reset.isBusy} error={reset.error} onSubmit={() => void reset.run()} onClose={onClose} wide>
      <OptionChanges changes={drift} before="Now" after={`As the ${its} declares it`} />
      {typeof trigger === "string" ? <TickComparison schedule={schedule} trigger={trigger} /> : <p>All ticks stay where they are.</p>}
      <p>
        <strong>No tick fires from this edit.</strong>
      </p>
    </ActionDialog>
  );
}

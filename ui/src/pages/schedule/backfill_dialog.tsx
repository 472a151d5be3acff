// Backfill the schedule: choose a range, look at what would be added, then add it.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Backfill, BackfillTick, NewBackfill } from "../../api/schema";
import { useAction } from "../../live/action";
import { ActionDialog } from "../../parts/dialog";
import { CheckField, SelectField, TextField } from "../../parts/field";
import { fieldErrors } from "../../parts/field_errors";
import { notify } from "../../parts/notice";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { now } from "../../time/clock";
import { counted, countText, inputText, instantOf } from "../../time/format";
import { useZone } from "../../time/zone";
import { type BackfillForm, beforeText, numberOf, statesText } from "../backfills/texts";
import type { DialogOfSchedule } from "./actions";

const DAY = 86_400_000;
const SHOWN = 10;
const FIELDS = ["start", "end", "max_concurrent"] as const;

export function BackfillDialog({ schedule, onChange, onClose }: DialogOfSchedule) {
  const { tenant, name, timezone } = schedule;
  const zone = useZone(timezone);
  const [form, setForm] = useState<BackfillForm>(() => ({
    start: inputText(now() - DAY, zone),
    end: inputText(now(), zone),
    atOnce: "1",
    order: "oldest",
    missingOnly: false,
  }));
  // What the server answered to this form; another form needs another look.
  const [look, setLook] = useState<Backfill | null>(null);
  const edit = (change: Partial<BackfillForm>): void => {
    setForm((old) => ({ ...old, ...change }));
    setLook(null);
  };
  const action = useAction(async () => {
    const body: NewBackfill = {
      start: new Date(instantOf(form.start, zone)).toISOString(),
      end: new Date(instantOf(form.end, zone)).toISOString(),
      max_concurrent: numberOf(form.atOnce),
      order: form.order,
      missing_only: form.missingOnly,
      dry_run: look === null,
    };
    const found = await call("POST /schedules/{name}/backfill", { path: { name }, query: { tenant }, body });
    if (look === null) {
      setLook(found);
      return;
    }
    const isNew = found.existed_since === null;
    notify(isNew ? `The backfill ${found.id} adds ${counted(found.total, "run")} of ${name}.` : `The backfill ${found.id} exists: nothing was added.`);
    onChange();
    onClose();
  });
  const errors = fieldErrors(action.error, FIELDS);
  return (
    <ActionDialog
      title={`Backfill ${name}`}
      verb={look === null ? "Look first" : `Add ${counted(look.total, "run")}`}
      disabled={form.start === "" || form.end === "" || look?.total === 0}
      isBusy={action.isBusy}
      error={errors.rest}
      onSubmit={() => void action.run()}
      onClose={onClose}
      wide
    >
      <p>
        Each tick of a past range gets a run, at a low priority. {schedule.state === "paused" && "The schedule is paused: runs are added when it is resumed."}
      </p>
      <div class="field-pairs">
        <TextField label="From" type="datetime-local" value={form.start} onText={(start) => edit({ start })} error={errors.at("start")} help={`By the clock of ${zone}.`} />
        <TextField label="To" type="datetime-local" value={form.end} onText={(end) => edit({ end })} error={errors.at("end")} help="Ticks before this time." />
        <TextField
          label="At once"
          value={form.atOnce}
          onText={(atOnce) => edit({ atOnce })}
          error={errors.at("max_concurrent")}
          help="How many of its runs may be queued or running."
        />
        <SelectField
          label="Order"
          value={form.order}
          onText={(order) => edit({ order: order as BackfillForm["order"] })}
          options={[
            ["oldest", "oldest first"],
            ["newest", "newest first"],
          ]}
        />
      </div>
      <CheckField label="Leave out ticks that have a succeeded run" checked={form.missingOnly} onCheck={(missingOnly) => edit({ missingOnly })} />
      {look !== null && <Look backfill={look} zone={timezone} />}
    </ActionDialog>
  );
}

function Look({ backfill, zone }: { backfill: Backfill; zone: string }) {
  const { existed_since, id, plan, tenant, ticks, total } = backfill;
  if (plan === null) return null;
  const columns: Column<BackfillTick>[] = [
    { title: "Tick", kind: "main", cell: ({ tick }) => <Time at={tick} zone={zone} form="short" /> },
    { title: "Before", kind: "wide", cell: (tick) => (tick.run === null ? beforeText(tick) : <a href={href(["runs", tenant, tick.run])}>{beforeText(tick)}</a>) },
    { title: "Gets a run", cell: ({ is_made }) => (is_made ? "yes" : "no") },
  ];
  const shown = plan.ticks.slice(0, SHOWN);
  return (
    <div role="status" class="stack">
      <p>
        <strong>
          {counted(ticks, "tick")}: {statesText(plan)}. {existed_since === null && (total === 0 ? "No run is missing." : `${counted(total, "run")} would be added.`)}
        </strong>
      </p>
      {existed_since !== null && (
        <p>
          The same <a href={href(["backfills"])}>backfill {id}</a> exists since <Time at={existed_since} zone={zone} form="short" />: nothing would be added.
          To run the range again, give it an id of its own: <code>evenbeat schedules backfill --id</code>.
        </p>
      )}
      {plan.unknown_before !== null && total > 0 && (
        <p>
          History before <Time at={plan.unknown_before} zone={zone} form="short" /> may be deleted: such ticks would run again.
        </p>
      )}
      <Table caption="The first ticks of the range" columns={columns} rows={shown} keyOf={({ tick }) => tick} />
      {ticks > shown.length && <p class="muted">and {countText(ticks - shown.length)} more</p>}
    </div>
  );
}

// Create a calendar, or change what it contains.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Calendar } from "../../api/schema";
import { useAction } from "../../live/action";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { AreaField, TextField } from "../../parts/field";
import { fieldErrors } from "../../parts/field_errors";
import { Time } from "../../parts/time";
import { counted } from "../../time/format";
import { type CalendarForm, FIELDS, FIRST, formOf, isComplete, wantedOf } from "./form";

interface CalendarDialogProps {
  /** null: a new one. */
  calendar: Calendar | null;
  tenant: string | undefined;
  onClose: () => void;
  onDone: (words: string) => void;
}

export function CalendarDialog({ calendar, tenant, onClose, onDone }: CalendarDialogProps) {
  const [form, setForm] = useState<CalendarForm>(calendar === null ? FIRST : formOf(calendar));
  const set = useAction(async () => {
    const made = await call("POST /calendars/{name}", { path: { name: form.name.trim() }, query: { tenant }, body: wantedOf(form) });
    const warnings = made.warnings.map(({ problem, hint }) => `${problem}${hint === null ? "" : ` (${hint})`}`);
    onDone([`Set ${made.name}; ${counted(made.replanned, "schedule")} planned anew.`, ...warnings.map((text) => `Warning: ${text}.`)].join(" "));
  });
  const [effects, setEffects] = useState<Calendar | null>(null);
  const look = useAction(async () => {
    const body = { ...wantedOf(form), dry_run: true };
    setEffects(await call("POST /calendars/{name}", { path: { name: form.name.trim() }, query: { tenant }, body }));
  });
  const errors = fieldErrors(set.error ?? look.error, FIELDS);
  const text = (field: keyof CalendarForm) => ({
    value: form[field],
    error: errors.at(field),
    onText: (value: string) => {
      setEffects(null);
      setForm((old) => ({ ...old, [field]: value }));
    },
  });
  return (
    <ActionDialog
      title={calendar === null ? "New calendar" : `Change ${calendar.name}`}
      verb={calendar === null ? "Create" : "Save"}
      disabled={!isComplete(form)}
      isBusy={set.isBusy}
      error={errors.rest}
      onSubmit={() => void set.run()}
      onClose={onClose}
      wide
    >
      {calendar === null && <TextField label="Name" mono {...text("name")} placeholder="company-days" help="Triggers name it: 0 9 * * * skip=company-days" />}
      <div class="field-pairs">
        <AreaField label="Days" mono {...text("days")} placeholder={"2026-12-24..2026-12-31\n12-25"} help="One per line: a day, a range, or a day of every year." />
        <AreaField label="Weekly windows" mono {...text("weekly")} placeholder="mon-fri 09:00-17:00" help="One per line." />
        <AreaField label="Without" mono {...text("without")} rows={2} help="Days to take out again." />
        <AreaField label="iCalendar file" mono {...text("ics")} rows={2} placeholder="BEGIN:VCALENDAR" help={calendar !== null && calendar.events > 0 ? "Paste it again to keep its events." : "The text of a file, at most 1 MB."} />
        <TextField label="Country" {...text("country")} placeholder="US" help="Its holidays, for ten years." />
        <TextField label="Subdivision" {...text("subdivision")} placeholder="CA" help="A part of the country." />
        <TextField label="Zone" mono {...text("tz")} placeholder="Europe/Berlin" help="Empty: the zone of each schedule." />
      </div>
      <p class="muted">Schedules that use it are planned anew. This starts no run.</p>
      {calendar !== null && (
        <p>
          <Button disabled={!isComplete(form) || look.isBusy} onClick={() => void look.run()}>
            What would change
          </Button>
        </p>
      )}
      {effects !== null && <Effects calendar={effects} />}
    </ActionDialog>
  );
}

/** The next ticks of the schedules that would be planned anew, before and after. */
function Effects({ calendar }: { calendar: Calendar }) {
  const more = calendar.replanned - calendar.effects.length;
  return (
    <div class="stack" role="status">
      <p>{calendar.replanned === 0 ? "No schedule would change." : `${counted(calendar.replanned, "schedule")} would be planned anew:`}</p>
      <ul class="dependencies">
        {calendar.effects.map(({ schedule, before, after }) => (
          <li key={schedule}>
            <strong>{schedule}</strong>: next <Ticks ticks={before} /> → <Ticks ticks={after} />
          </li>
        ))}
      </ul>
      {more > 0 && <p class="muted">and {more} more</p>}
      {calendar.warnings.map(({ problem, hint }) => (
        <p key={problem} class="warning whole-text">
          {problem}
          {hint !== null && ` (${hint})`}
        </p>
      ))}
    </div>
  );
}

function Ticks({ ticks }: { ticks: string[] }) {
  if (ticks.length === 0) return <>none</>;
  return (
    <>
      {ticks.map((at, index) => (
        <span key={at}>
          {index > 0 && ", "}
          <Time at={at} form="short" />
        </span>
      ))}
    </>
  );
}

// What a user may do with the schedule, by role. A change names the revision that the user saw: if somebody
// else changed the schedule meanwhile, the server refuses it.

import { useState } from "preact/hooks";
import type { Schedule } from "../../api/schema";
import { Button } from "../../parts/button";
import { href } from "../../state/route";
import { useMay } from "../../state/session";
import { BackfillDialog } from "./backfill_dialog";
import { DeleteDialog, PauseDialog, RescheduleDialog, ResetDialog, ResumeDialog, RunDialog } from "./dialogs";
import { placeOf } from "./sentences";

export interface DialogOfSchedule {
  schedule: Schedule;
  /** Load the schedule again. */
  onChange: () => void;
  onClose: () => void;
}

const DIALOGS = {
  run: RunDialog,
  pause: PauseDialog,
  resume: ResumeDialog,
  reschedule: RescheduleDialog,
  backfill: BackfillDialog,
  reset: ResetDialog,
  delete: DeleteDialog,
};

type Name = keyof typeof DIALOGS;

export function Actions({ schedule, onChange }: { schedule: Schedule; onChange: () => void }) {
  const mayOperate = useMay("operator");
  const mayChange = useMay("admin");
  const [open, setOpen] = useState<Name | null>(null);
  if (!mayOperate) return null;
  const button = (name: Name, words: string, kind: "plain" | "primary" | "danger" = "plain") => (
    <Button kind={kind} onClick={() => setOpen(name)}>
      {words}
    </Button>
  );
  const { state, damage, tenant, name } = schedule;
  const OpenDialog = open === null ? null : DIALOGS[open];
  return (
    <>
      {!damage && button("run", "Run now", "primary")}
      {state === "active" && !damage && button("pause", "Pause")}
      {state === "paused" && !damage && button("resume", "Resume")}
      {state === "active" && !damage && schedule.next_run !== null && button("reschedule", "Move next tick")}
      {!damage && button("backfill", "Backfill")}
      {mayChange && (
        <a class="button" href={href(["schedules", tenant, name, "edit"])}>
          Edit
        </a>
      )}
      {mayChange && Object.keys(schedule.edited).length > 0 && button("reset", `Back to ${placeOf(schedule)}`)}
      {mayChange && button("delete", "Delete", "danger")}
      {OpenDialog && <OpenDialog schedule={schedule} onChange={onChange} onClose={() => setOpen(null)} />}
    </>
  );
}

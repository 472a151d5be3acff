// Parts that the list of runs, the failures and the page of one run share.

import type { Run } from "../../api/schema";
import { State } from "../../parts/state";
import { href } from "../../state/route";
import { shortId } from "./names";

/** The state of a run. A queued run that has failed before is retrying; a running one may have been asked to stop. */
export function RunState({ run }: { run: Pick<Run, "state" | "failures" | "cancel_requested"> }) {
  if (run.state === "queued" && run.failures > 0) return <State state="retrying" />;
  if (run.state === "running" && run.cancel_requested) return <State state="running" label="stopping" tone="warn" />;
  return <State state={run.state} />;
}

/** A link to a run: its short id, and the whole one as the title and for screen readers. */
export function RunLink({ tenant, id }: { tenant: string; id: string }) {
  return (
    <a class="run-id mono" href={href(["runs", tenant, id])} title={id} aria-label={`run ${id}`} data-whole={id}>
      {shortId(id)}
    </a>
  );
}

export function ScheduleLink({ tenant, name }: { tenant: string; name: string | null }) {
  if (name === null) return <span class="muted">–</span>;
  return <a href={href(["schedules", tenant, name])}>{name}</a>;
}

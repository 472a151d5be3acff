// A table of backfills, for their own page and for the page of a schedule.

import type { Backfill } from "../../api/schema";
import { Empty } from "../../parts/empty";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { BackfillProgress, CancelBackfill } from "./progress";

const TONES = { running: "busy", done: "good", cancelling: "warn", cancelled: "off", dry_run: "off" } as const;

interface BackfillTableProps {
  rows: Backfill[];
  onChange: () => void;
  /** Whether each row names its schedule, and with that its tenant. */
  schedules?: "none" | "names" | "tenants";
}

export function BackfillTable({ rows, onChange, schedules = "none" }: BackfillTableProps) {
  const columns: Column<Backfill>[] = [
    { title: "Range", kind: "main", cell: (each) => <Range backfill={each} /> },
    { title: "State", cell: ({ state, failed }) => <State state={state} tone={state === "done" && failed > 0 ? "bad" : TONES[state]} /> },
    { title: "Progress", kind: "wide", cell: (each) => <BackfillProgress backfill={each} /> },
    { title: "Failed runs", cell: (each) => <Failed backfill={each} /> },
    { title: "Made", cell: (each) => <Made backfill={each} /> },
    { title: "Actions", cell: (each) => <CancelBackfill backfill={each} onChange={onChange} /> },
  ];
  if (schedules !== "none") columns.splice(1, 0, { title: "Schedule", cell: (each) => <OfSchedule backfill={each} hasTenant={schedules === "tenants"} /> });
  return (
    <Table
      caption="Backfills, the newest first"
      columns={columns}
      rows={rows}
      keyOf={({ tenant, id }) => `${tenant} ${id}`}
      empty={
        <Empty command="evenbeat schedules backfill NAME --from 7d --to 0s --dry-run">
          No backfill. The page of a schedule makes one, and so does a command:
        </Empty>
      }
    />
  );
}

function Range({ backfill: { id, start, end } }: { backfill: Backfill }) {
  return (
    <span class="limit-name">
      <span>
        <Time at={start} form="short" /> to <Time at={end} form="short" />
      </span>
      <code>{id}</code>
    </span>
  );
}

function OfSchedule({ backfill: { tenant, schedule }, hasTenant }: { backfill: Backfill; hasTenant: boolean }) {
  return (
    <>
      <a href={href(["schedules", tenant, schedule])}>{schedule}</a>
      {hasTenant && <span class="muted"> of {tenant}</span>}
    </>
  );
}

function Failed({ backfill: { id, tenant, failed_runs } }: { backfill: Backfill }) {
  const last = failed_runs.at(-1);
  if (last === undefined) return <span class="muted">–</span>;
  return (
    <a href={href(["runs", tenant, last])} aria-label={`The last failed run of the backfill ${id}`}>
      the last one
    </a>
  );
}

function Made({ backfill: { created_at, created_by } }: { backfill: Backfill }) {
  return (
    <>
      <Time at={created_at} /> <span class="muted">by {created_by}</span>
    </>
  );
}

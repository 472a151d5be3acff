// The last runs, live. Rows stay where they are while the pointer or the focus is on them.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Run } from "../../api/schema";
import { isAbout, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Duration, Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";
import type { About } from "./about";
import { steadyRows } from "./changes";
import { quoted } from "./head";

const SHOWN = 10;
const CAUSES: Record<Run["cause"], string> = { tick: "tick", run_now: "by hand", backfill: "backfill", enqueue: "enqueued" };

export function HistorySection({ tenant, name, zone }: About) {
  const data = useData(
    `runs ${tenant} ${name}`,
    (signal) => call("GET /runs", { query: { tenant, schedule: name, brief: true, limit: SHOWN }, signal }),
    { when: isAbout(tenant, name) },
  );
  const all = <a href={href(["runs"], { tenant, schedule: name })}>All runs</a>;
  return (
    <Section title="Last runs" aside={all}>
      <Loaded data={data}>{({ items }) => <Rows fresh={items} tenant={tenant} name={name} zone={zone} />}</Loaded>
    </Section>
  );
}

const idOf = (run: Run): string => run.id;

function Rows({ fresh, tenant, name, zone }: { fresh: Run[]; tenant: string; name: string; zone: string }) {
  const [shown, setShown] = useState(fresh);
  const [isHeld, setHeld] = useState(false);
  useEffect(() => {
    if (!isHeld) setShown(fresh);
  }, [fresh, isHeld]);
  const { rows, added } = isHeld ? steadyRows(shown, fresh, idOf) : { rows: fresh, added: 0 };
  const columns: Column<Run>[] = [
    { title: "State", cell: (run) => <State state={run.state} /> },
    {
      title: "Planned for",
      kind: "main",
      cell: (run) => (
        <a href={href(["runs", tenant, run.id])}>
          <Time at={run.scheduled_at} zone={zone} form="exact" />
        </a>
      ),
    },
    { title: "Cause", cell: (run) => `${CAUSES[run.cause]}${run.coalesced > 0 ? `, for ${counted(run.coalesced, "earlier tick")}, too` : ""}` },
    { title: "Late", cell: (run) => <Duration seconds={run.lateness} />, kind: "number" },
    { title: "Took", cell: (run) => <Duration seconds={run.duration} />, kind: "number" },
    { title: "Attempt", cell: (run) => run.attempt, kind: "number" },
    { title: "Worker", cell: (run) => run.worker ?? <span class="muted">–</span> },
    { title: "Ended", cell: (run) => <Time at={run.finished_at} zone={zone} /> },
  ];
  const command = `evenbeat schedules run ${quoted(name)}${tenant === "default" ? "" : ` --tenant ${quoted(tenant)}`}`;
  return (
    <div
      class="stack last-runs"
      onPointerEnter={() => setHeld(true)}
      onPointerLeave={() => setHeld(false)}
      onFocusCapture={() => setHeld(true)}
      onBlurCapture={() => setHeld(false)}
    >
      {added > 0 && (
        <p class="new-runs">
          <Button small onClick={() => setShown(fresh)}>{`${added} new`}</Button>
        </p>
      )}
      <Table
        caption={`The last ${SHOWN} runs`}
        columns={columns}
        rows={rows}
        keyOf={idOf}
        empty={<Empty command={command}>No run yet. To run it once now:</Empty>}
      />
    </div>
  );
}

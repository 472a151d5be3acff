// The schedules and runs that nodes can't process.

import { call } from "../../api/client";
import type { QuarantineNote } from "../../api/schema";
import { useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { href } from "../../state/route";
import { useTenantScope } from "../../state/session";

const COLUMNS: Column<QuarantineNote>[] = [
  { title: "What", cell: ({ kind }) => <NoteKind kind={kind} /> },
  { title: "Schedule or run", kind: "main", cell: ({ tenant, name }) => <a href={href(["order", tenant, name])}>{name}</a> },
  { title: "Tenant", cell: ({ tenant }) => tenant },
  { title: "Reason", kind: "wide", cell: ({ reason }) => reason },
  { title: "What to do", kind: "wide", cell: ({ remedy }) => remedy },
];

export function NoteKind({ kind }: { kind: QuarantineNote["kind"] }) {
  return kind === "quarantine" ? <State state="fail" label="quarantined" /> : <State state="warn" label="deferred" />;
}

export function QuarantineSection() {
  const scope = useTenantScope();
  const data = useData(`quarantine ${JSON.stringify(scope)}`, (signal) => call("GET /quarantine", { query: scope, signal }), {
    when: ({ subject }) => subject === "quarantine",
    every: 30_000,
  });
  return (
    <Section title="Quarantine">
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption="Schedules and runs that nodes can't process"
            columns={COLUMNS}
            rows={items}
            keyOf={({ kind, tenant, name }) => `${kind} ${tenant} ${name}`}
            empty={
              <p class="calm">
                <State state="ok" label="empty" /> Nodes can process every schedule and every run.
              </p>
            }
          />
        )}
      </Loaded>
    </Section>
  );
}

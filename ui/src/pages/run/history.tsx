// What people did to a run by hand.

import { call } from "../../api/client";
import type { AuditEntry } from "../../api/schema";
import { useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { Table } from "../../parts/table";
import { Time } from "../../parts/time";

export function History({ tenant, id, zone }: { tenant: string; id: string; zone: string | null }) {
  const data = useData(
    `history ${tenant} ${id}`,
    async (signal) => (await call("GET /runs/{id}/history", { path: { id }, query: { tenant, limit: 100 }, signal })).items,
    { when: (change) => change.subject === "run" && change.id === id },
  );
  return (
    <Section title="Changes by hand">
      <Loaded data={data}>{(entries) => <Entries entries={entries} zone={zone} />}</Loaded>
    </Section>
  );
}

function Entries({ entries, zone }: { entries: AuditEntry[]; zone: string | null }) {
  return (
    <Table
      caption="Changes by hand, the newest first"
      columns={[
        { title: "When", kind: "main", cell: (entry) => <Time at={entry.at} zone={zone} form="short" /> },
        { title: "Who", cell: (entry) => entry.actor },
        { title: "Action", cell: (entry) => entry.action },
        { title: "By", cell: (entry) => entry.via },
        { title: "Change", kind: "wide", cell: (entry) => <Change entry={entry} /> },
      ]}
      rows={entries}
      keyOf={(entry) => entry.id}
      empty={<p class="muted">Nobody changed this run by hand.</p>}
    />
  );
}

function Change({ entry }: { entry: AuditEntry }) {
  const names = [...new Set([...Object.keys(entry.before), ...Object.keys(entry.after)])];
  if (names.length === 0) return <span class="muted">–</span>;
  return (
    <ul class="entry-changes">
      {names.map((name) => (
        <li key={name}>
          {name}: {shown(entry.before[name])} → {shown(entry.after[name])}
        </li>
      ))}
    </ul>
  );
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

// What alert rules have found wrong: now, and in the last 30 days.

import { call } from "../../api/client";
import type { Incident } from "../../api/schema";
import { useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useTenantScope } from "../../state/session";
import { counted } from "../../time/format";
import { announcedText, arrival, conditionText, subjectPath } from "./texts";

const MOST = 200;

export function OpenTab() {
  return <Incidents isOpen />;
}

export function PastTab() {
  return <Incidents isOpen={false} />;
}

function Incidents({ isOpen }: { isOpen: boolean }) {
  const scope = useTenantScope();
  const data = useData(
    `incidents ${isOpen} ${JSON.stringify(scope)}`,
    (signal) => call("GET /alerts/incidents", { query: { ...scope, open: isOpen, limit: MOST }, signal }),
    { every: 10_000 },
  );
  const title = isOpen ? "Open incidents" : "Incidents that are over";
  return (
    <Section title={title} aside={data.value && (isOpen ? counted(data.value.items.length, "incident") : "of the last 30 days")}>
      <Loaded data={data}>
        {({ items }) => <Table caption={title} columns={columnsOf(isOpen)} rows={items} keyOf={({ id }) => id} empty={<NoIncidents isOpen={isOpen} />} />}
      </Loaded>
    </Section>
  );
}

function columnsOf(isOpen: boolean): Column<Incident>[] {
  return [
    { title: "State", cell: ({ muted_by }) => <State state={isOpen ? (muted_by === null ? "open" : "muted") : "closed"} /> },
    { title: "About", kind: "main", cell: (incident) => <Subject incident={incident} /> },
    { title: "What", kind: "wide", cell: (incident) => <What incident={incident} /> },
    { title: "Since", cell: ({ opened_at }) => <Time at={opened_at} /> },
    isOpen
      ? { title: "Last success", cell: ({ last_success }) => <Time at={last_success} /> }
      : { title: "Ended", cell: ({ closed_at }) => <Time at={closed_at} /> },
    { title: "Rule", cell: ({ rule, condition }) => <span title={condition}>{`${rule}: ${conditionText(condition)}`}</span> },
    { title: "Announced", cell: (incident) => <Announced incident={incident} /> },
  ];
}

function Announced({ incident }: { incident: Incident }) {
  const arrived = arrival(incident);
  return (
    <div>
      {announcedText(incident)}
      {arrived !== null && (
        <div>
          <State state={arrived.label} {...arrived} />
        </div>
      )}
      {arrived !== null && arrived.tone !== "good" && (
        <div>
          <a href={href(["alerts"], { tab: "log" })}>Show the log</a>
        </div>
      )}
    </div>
  );
}

function Subject({ incident }: { incident: Incident }) {
  const { subject_kind, subject, tenant } = incident;
  const path = subjectPath(incident);
  return (
    <span>
      <span class="muted">{subject_kind} </span>
      {path === null ? subject : <a href={href(path)}>{subject}</a>}
      {tenant !== null && tenant !== "default" && <span class="muted"> of {tenant}</span>}
    </span>
  );
}

function What({ incident }: { incident: Incident }) {
  const { reason, error, run, tenant, failures } = incident;
  return (
    <div>
      {reason}
      {error !== null && <div class="mono error-line">{error}</div>}
      {run !== null && tenant !== null && (
        <div>
          <a href={href(["runs", tenant, run])}>{failures > 0 ? "First failed run" : "Show the run"}</a>
        </div>
      )}
    </div>
  );
}

function NoIncidents({ isOpen }: { isOpen: boolean }) {
  if (!isOpen) return <Empty>No incident has ended in the last 30 days.</Empty>;
  return (
    <p class="calm">
      <State state="ok" label="none" /> No alert rule finds anything wrong.
    </p>
  );
}

// Queues: what waits, whether it gets less, and which nodes take from it.

import { call } from "../../api/client";
import type { QueueStats } from "../../api/schema";
import { isNode, useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Page, Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href } from "../../state/route";
import { useNow } from "../../time/clock";
import { counted, countText } from "../../time/format";
import { byNeed, PERIOD, trendOf } from "./trend";

const COLUMNS: Column<QueueStats>[] = [
  { title: "Queue", kind: "main", cell: ({ name }) => <a href={href(["runs"], { queue: name })}>{name}</a> },
  { title: "Waiting", kind: "number", cell: (queue) => <Count queue={queue} count={queue.due} state="queued" /> },
  { title: "Oldest", cell: ({ oldest_due }) => <Time at={oldest_due} /> },
  { title: "Later", kind: "number", cell: ({ later }) => countText(later) },
  { title: "Retrying", kind: "number", cell: (queue) => <Count queue={queue} count={queue.retrying} state="retrying" /> },
  { title: "Running", kind: "number", cell: (queue) => <Count queue={queue} count={queue.running} state="running" /> },
  { title: "Came due, 5 min", kind: "number", cell: ({ came_due }) => countText(came_due) },
  { title: "Ended, 5 min", kind: "number", cell: ({ ended }) => countText(ended) },
  { title: "Trend", cell: (queue) => <TrendSign queue={queue} /> },
  { title: "Nodes", kind: "wide", cell: (queue) => <Nodes queue={queue} /> },
];

export function QueuesPage(_: PageProps) {
  const data = useData("queues", (signal) => call("GET /queues", { query: { period: PERIOD }, signal }), {
    when: isNode,
    every: 5_000,
  });
  return (
    <Page title="Queues">
      <Section title="All queues" aside={data.value && `${counted(data.value.items.length, "queue")}, over all tenants`}>
        <Loaded data={data}>
          {({ items }) => (
            <Table
              caption="Queues, over all tenants"
              columns={COLUMNS}
              rows={[...items].sort(byNeed)}
              keyOf={({ name }) => name}
              empty={<Empty command="evenbeat run app.py">No run waits, and no node takes from a queue. Start a node:</Empty>}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function Count({ queue, count, state }: { queue: QueueStats; count: number; state: string }) {
  if (count === 0) return <>0</>;
  return <a href={href(["runs"], { queue: queue.name, state })} aria-label={`${countText(count)} ${state} in ${queue.name}`}>{countText(count)}</a>;
}

function TrendSign({ queue }: { queue: QueueStats }) {
  const { label, tone, reason } = trendOf(queue, useNow());
  return (
    <span title={reason}>
      <State state={queue.trend} label={label} tone={tone} />
    </span>
  );
}

function Nodes({ queue }: { queue: QueueStats }) {
  if (queue.nodes.length === 0) return <State state="warn" label="no node takes from this queue" />;
  return (
    <span>
      {queue.nodes.map((node, index) => (
        <span key={node}>
          {index > 0 && ", "}
          <a href={href(["runs"], { worker: node })}>{node}</a>
        </span>
      ))}
    </span>
  );
}

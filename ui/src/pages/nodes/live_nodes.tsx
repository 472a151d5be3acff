// The live nodes.

import { call } from "../../api/client";
import type { NodeView } from "../../api/schema";
import { isNode, useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useNow } from "../../time/clock";
import { counted } from "../../time/format";
import { isSilent, slotsText, tasksOf } from "./texts";

const COLUMNS: Column<NodeView>[] = [
  { title: "Node", kind: "main", cell: (node) => <NodeName node={node} /> },
  { title: "Host", cell: ({ host, pid }) => (host === null ? <Unknown /> : `${host}${pid === null ? "" : `, pid ${pid}`}`) },
  { title: "Version", cell: ({ version }) => version ?? <Unknown /> },
  { title: "Started", cell: ({ started_at }) => <Time at={started_at} /> },
  { title: "Last seen", cell: ({ seen_at }) => <Time at={seen_at} /> },
  { title: "Fires schedules", cell: (node) => <Fires node={node} /> },
  { title: "Slots in use", cell: (node) => <span>{slotsText(node)}</span> },
  { title: "Queues", cell: (node) => <Queues node={node} /> },
  { title: "Tasks", kind: "wide", cell: (node) => <Tasks node={node} /> },
];

export function LiveNodes() {
  const data = useData("nodes", (signal) => call("GET /nodes", { signal }), { when: isNode, every: 10_000 });
  return (
    <Section title="Live nodes" aside={data.value && counted(data.value.items.length, "node")}>
      <Loaded data={data}>
        {({ items }) => (
          <>
            <Table
              caption="Live nodes"
              columns={COLUMNS}
              rows={items}
              keyOf={({ name }) => name}
              empty={<Empty command="evenbeat run app.py">No node is alive: nothing fires, and no run starts. Start one:</Empty>}
            />
            {items.length > 0 && !items.some(({ ticker }) => ticker) && (
              <p class="warning">No live node fires schedules: start one without --no-ticker.</p>
            )}
          </>
        )}
      </Loaded>
    </Section>
  );
}

function NodeName({ node }: { node: NodeView }) {
  const isLate = isSilent(node, useNow());
  return (
    <span class="node-name">
      <State state={isLate ? "late" : "live"} label={isLate ? "silent" : "alive"} />
      <a href={href(["runs"], { worker: node.name })} title="Its runs">
        {node.name}
      </a>
    </span>
  );
}

function Fires({ node }: { node: NodeView }) {
  if (node.fallback_since !== null) {
    return (
      <span class="warning">
        from memory since <Time at={node.fallback_since} />: rows can’t be read
      </span>
    );
  }
  if (node.code_only.length === 0) return <span>{node.ticker ? "yes" : "no"}</span>;
  return (
    <details class="unfold">
      <summary>{`yes, ${counted(node.code_only.length, "schedule")} in the code only`}</summary>
      <ul>
        {node.code_only.map((name) => (
          <li key={name}>
            <a href={href(["runs"], { schedule: name })}>{name}</a>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Queues({ node }: { node: NodeView }) {
  if (!node.worker) return <Unknown />;
  return (
    <span>
      {node.queues.map((queue, index) => (
        <span key={queue}>
          {index > 0 && ", "}
          <a href={href(["runs"], { queue })}>{queue}</a>
        </span>
      ))}
    </span>
  );
}

function Tasks({ node }: { node: NodeView }) {
  const tasks = tasksOf(node);
  if (tasks.length === 0) return <Unknown />;
  return (
    <details class="unfold tasks">
      <summary>{counted(tasks.length, "task")}</summary>
      <ul>
        {tasks.map(([task, executor]) => (
          <li key={task}>
            <a href={href(["runs"], { task })}>{task}</a> <span class="muted">{executor}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Unknown() {
  return <span class="muted">–</span>;
}

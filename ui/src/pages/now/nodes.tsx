// The nodes, in short.

import { call } from "../../api/client";
import { isNode, useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { now } from "../../time/clock";
import { counted, toMs } from "../../time/format";

/** Nodes write that they are alive every 20 seconds; one that is silent for longer is shown as late. */
const SILENT = 45_000;

export function NodesNow() {
  const data = useData("nodes now", (signal) => call("GET /nodes", { signal }), { when: isNode, every: 10_000 });
  return (
    <Section title="Nodes" aside={<a href={href(["nodes"])}>all about them</a>}>
      <Loaded data={data}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty command="evenbeat run app.py">No node is alive: nothing fires, and no run starts.</Empty>
          ) : (
            <ul class="feed">
              {items.map((node) => {
                const isLate = node.seen_at === null || now() - toMs(node.seen_at) > SILENT;
                const slots = Object.values(node.slots).reduce((sum, count) => sum + count, 0);
                return (
                  <li key={node.name}>
                    <State state={isLate ? "late" : "ok"} label={isLate ? "silent" : "alive"} />
                    <span>{node.name}</span>
                    <span class="muted">
                      {[node.ticker && "fires", node.worker && `runs ${node.running ?? 0} of ${slots}`, counted(Object.keys(node.tasks).length, "task")]
                        .filter(Boolean)
                        .join(", ")}
                    </span>
                    <span class="muted">
                      seen <Time at={node.seen_at} />
                    </span>
                  </li>
                );
              })}
            </ul>
          )
        }
      </Loaded>
    </Section>
  );
}

// The live feed: the newest runs. It holds still while somebody points at it, and says how many are new.

import { useRef, useState } from "preact/hooks";
import type { Run } from "../../api/schema";
import { call } from "../../api/client";
import { isRun, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { Duration, Time } from "../../parts/time";
import { href } from "../../state/route";
import { useTenantScope } from "../../state/session";

const SHOWN = 15;

export function Feed() {
  const scope = useTenantScope();
  const data = useData(
    `feed ${JSON.stringify(scope)}`,
    (signal) => call("GET /runs", { query: { ...scope, limit: SHOWN, brief: true }, signal }),
    { when: isRun },
  );
  const [isHeld, setHeld] = useState(false);
  return (
    <Section title="At this moment" aside={<a href={href(["runs"])}>all runs</a>}>
      <Loaded data={data}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty command="evenbeat dev app.py">No run yet. Start a node, and its runs appear here:</Empty>
          ) : (
            <div onPointerEnter={() => setHeld(true)} onPointerLeave={() => setHeld(false)} onFocusIn={() => setHeld(true)} onFocusOut={() => setHeld(false)}>
              <FeedList runs={items} isHeld={isHeld} />
            </div>
          )
        }
      </Loaded>
    </Section>
  );
}

function FeedList({ runs, isHeld }: { runs: Run[]; isHeld: boolean }) {
  const shown = useRef<Run[]>([]);
  const [, render] = useState(0);
  const known = new Map(runs.map((run) => [keyOf(run), run]));
  if (!isHeld || shown.current.length === 0) shown.current = runs;
  // A held run that newer ones have pushed off the list stays as it was.
  else shown.current = shown.current.map((run) => known.get(keyOf(run)) ?? run);
  const held = new Set(shown.current.map(keyOf));
  const fresh = runs.filter((run) => !held.has(keyOf(run))).length;
  const release = (): void => {
    shown.current = runs;
    render((count) => count + 1);
  };
  return (
    <>
      <div class="new-rows">{fresh > 0 && <Button small onClick={release}>{`${fresh} new`}</Button>}</div>
      <ul class="feed">
        {shown.current.map((run) => (
          <FeedRow key={keyOf(run)} run={run} />
        ))}
      </ul>
    </>
  );
}

function keyOf(run: Run): string {
  return `${run.tenant} ${run.id}`;
}

function FeedRow({ run }: { run: Run }) {
  return (
    <li>
      <State state={run.state === "queued" && run.failures > 0 ? "retrying" : run.state} />
      <a href={href(["runs", run.tenant, run.id])}>{run.schedule ?? run.task}</a>
      <span class="muted">
        <Time at={run.finished_at ?? run.started_at ?? run.run_at} />
      </span>
      <Duration seconds={run.duration} />
    </li>
  );
}

// Tasks that schedules need and no live node has.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay, useTenantScope } from "../../state/session";
import { MoveRunsDialog } from "./move_runs";

export function MissingTasks() {
  const scope = useTenantScope();
  const mayMove = useMay("operator");
  const [moved, setMoved] = useState<{ task: string; tenant: string } | null>(null);
  const data = useData(`missing tasks ${JSON.stringify(scope)}`, (signal) => call("GET /attention", { query: scope, signal }), {
    when: ({ subject }) => subject === "node" || subject === "schedule",
    every: 10_000,
  });
  return (
    <Section title="Tasks without a node">
      <Loaded data={data}>
        {({ items }) => {
          const missing = items.filter(({ kind }) => kind === "no_node");
          if (missing.length === 0) {
            return (
              <p class="calm">
                <State state="ok" label="none" /> Live nodes have the task of every run that is due.
              </p>
            );
          }
          return (
            <ul class="attention">
              {missing.map((item) => (
                <li key={`${item.tenant} ${item.task ?? ""} ${item.sentence}`} class={item.level}>
                  <State state={item.level} label="no node" />
                  <div class="attention-text">
                    <p>{item.sentence}</p>
                    <ul class="evidence">
                      {item.evidence.map(({ text, at }) => (
                        <li key={text}>
                          {text} {at !== null && <Time at={at} form="short" />}
                        </li>
                      ))}
                      {item.remedy !== null && <li>To do: {item.remedy}</li>}
                    </ul>
                  </div>
                  <div class="attention-act">
                    {item.schedule !== null && (
                      <a class="button small" href={href(["schedules", item.tenant ?? "default", item.schedule])}>
                        Open the schedule
                      </a>
                    )}
                    {item.task !== null && (
                      <a class="button small" href={href(["runs"], { task: item.task, state: "queued" })}>
                        Show the runs
                      </a>
                    )}
                    {item.task !== null && mayMove && (
                      <Button small aria-label={`Move the runs of ${item.task}`} onClick={() => setMoved({ task: item.task ?? "", tenant: item.tenant ?? "default" })}>
                        Move the runs …
                      </Button>
                    )}
                  </div>
                </li>
              ))}
            </ul>
          );
        }}
      </Loaded>
      {moved !== null && <MoveRunsDialog {...moved} onClose={() => setMoved(null)} />}
    </Section>
  );
}

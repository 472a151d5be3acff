// One flow: its graph, a button that starts it, and its last runs.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Run } from "../../api/schema";
import { isRun, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Page, Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Duration, Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay, useMe, useTenantScope } from "../../state/session";
import { counted } from "../../time/format";
import { RunLink, RunState, ScheduleLink } from "../runs/parts";
import { StartFlowDialog } from "./actions";
import { Steps } from "./steps";

const SHOWN = 20;

const COLUMNS: Column<Run>[] = [
  { title: "Run", kind: "main", cell: ({ tenant, id }) => <RunLink tenant={tenant} id={id} /> },
  { title: "State", cell: (run) => <RunState run={run} /> },
  { title: "Started", cell: ({ started_at }) => <Time at={started_at} /> },
  { title: "Took", kind: "number", cell: ({ duration }) => <Duration seconds={duration} /> },
  { title: "Schedule", cell: ({ tenant, schedule }) => <ScheduleLink tenant={tenant} name={schedule} /> },
  { title: "Tenant", cell: ({ tenant }) => tenant },
];

export function FlowPage({ name }: { name: string }) {
  const scope = useTenantScope();
  const tenant = useStartTenant();
  const graph = useData(`graph ${tenant} ${name}`, (signal) => call("GET /flows/{flow}", { path: { flow: name }, query: { tenant }, signal }));
  const runs = useData(
    `flow runs ${name} ${JSON.stringify(scope)}`,
    (signal) => call("GET /runs", { query: { ...scope, task: name, limit: SHOWN, brief: true }, signal }),
    { when: isRun },
  );
  return (
    <Page title={`Flow ${name}`} actions={<StartButton flow={name} />}>
      <Section title="Steps" aside={graph.value && `${counted(graph.value.steps.length, "step")}, as the server's app has them`}>
        <Loaded data={graph}>{(found) => <Steps graph={found} run={null} />}</Loaded>
      </Section>
      <Section title="Last runs" aside={<a href={href(["runs"], { task: name })}>All runs</a>}>
        <Loaded data={runs}>
          {({ items }) => (
            <Table
              caption={`Last runs of ${name}, the newest first`}
              columns={COLUMNS}
              rows={items}
              keyOf={({ id }) => id}
              empty={<Empty command={`evenbeat flows run ${name}`}>It has not run. Start it here, by a schedule, or by a command:</Empty>}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

/** Return the tenant for which a flow is started: the chosen one, or the server's. */
function useStartTenant(): string {
  const scope = useTenantScope();
  const me = useMe();
  return scope.tenant ?? me.default_tenant;
}

export function StartButton({ flow, small = false }: { flow: string; small?: boolean }) {
  const mayAct = useMay("operator");
  const tenant = useStartTenant();
  const [isOpen, setOpen] = useState(false);
  if (!mayAct) return null;
  return (
    <>
      <Button kind={small ? "plain" : "primary"} small={small} aria-label={`Start ${flow} …`} onClick={() => setOpen(true)}>
        Start …
      </Button>
      {isOpen && <StartFlowDialog flow={flow} tenant={tenant} onClose={() => setOpen(false)} />}
    </>
  );
}

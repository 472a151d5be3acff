// Flows: graphs of tasks, with their last runs.

import { call } from "../../api/client";
import type { ListedFlow } from "../../api/schema";
import { isRun, useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Page, Section } from "../../parts/page";
import { Sparkline } from "../../parts/sparkline";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Duration, Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href } from "../../state/route";
import { useMay, useTenantScope } from "../../state/session";
import { counted, countText } from "../../time/format";
import { FlowPage, StartButton } from "./flow";

const RECENT = 30;

const COLUMNS: Column<ListedFlow>[] = [
  { title: "Flow", kind: "main", cell: ({ name }) => <a href={href(["flows", name])}>{name}</a> },
  { title: "Steps", kind: "number", cell: ({ steps }) => countText(steps) },
  { title: "Last run", cell: (flow) => <LastRun flow={flow} /> },
  { title: "Started", cell: ({ recent }) => <Time at={recent.at(-1)?.started_at} /> },
  { title: "Took", kind: "number", cell: ({ recent }) => <Duration seconds={recent.at(-1)?.duration} /> },
  { title: "Last runs", cell: ({ recent }) => <Sparkline runs={recent} tenant="" slots={RECENT} /> },
];

const WITH_BUTTON: Column<ListedFlow>[] = [...COLUMNS, { title: "Actions", cell: ({ name }) => <StartButton flow={name} small /> }];

export function FlowsPage({ rest }: PageProps) {
  return rest.length === 0 ? <FlowList /> : <FlowPage name={rest.join("/")} />;
}

function FlowList() {
  const scope = useTenantScope();
  const mayAct = useMay("operator");
  const data = useData(`flows ${JSON.stringify(scope)}`, (signal) => call("GET /flows", { query: { ...scope, recent: RECENT }, signal }), { when: isRun });
  return (
    <Page title="Flows">
      <Section title="Graphs of tasks" aside={data.value && counted(data.value.items.length, "flow")}>
        <Loaded data={data}>
          {({ items, hint }) => (
            <Table
              caption="Flows, by name"
              columns={mayAct ? WITH_BUTTON : COLUMNS}
              rows={items}
              keyOf={({ name }) => name}
              empty={<NoFlows hint={hint} />}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

function NoFlows({ hint }: { hint: string | null }) {
  const why = hint ?? "there is no flow with a run of this tenant";
  return (
    <Empty>
      {why.charAt(0).toUpperCase() + why.slice(1)}. Runs of flows are on the page <a href={href(["runs"])}>Runs</a>.
    </Empty>
  );
}

function LastRun({ flow: { name, recent } }: { flow: ListedFlow }) {
  const last = recent.at(-1);
  if (last === undefined) return <span class="muted">no runs yet</span>;
  return (
    <a class="flow-last" href={href(["runs", last.tenant, last.id])} aria-label={`The last run of ${name}: ${last.state}`}>
      <State state={last.state} />
    </a>
  );
}

// Tenants: what each has and does, its quota, and one tenant by itself.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { TenantView } from "../../api/schema";
import { isRun, isSchedule, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import type { PageProps } from "../../shell/routes";
import { href } from "../../state/route";
import { useMayInStore } from "../../state/session";
import { counted, countText } from "../../time/format";
import { QuotaDialog } from "./quota_dialog";
import { TenantPage } from "./tenant";
import { isFull, usesOf, useText } from "./texts";

const COLUMNS: Column<TenantView>[] = [
  { title: "Tenant", kind: "main", cell: ({ name }) => <a href={href(["tenants", name])}>{name}</a> },
  { title: "Schedules", kind: "number", cell: ({ name, schedules }) => <Count page="schedules" tenant={name} count={schedules} words="schedules" /> },
  { title: "Paused", kind: "number", cell: ({ paused_schedules }) => countText(paused_schedules) },
  { title: "Waiting", kind: "number", cell: ({ name, due }) => <Count page="runs" tenant={name} count={due} words="waiting" state="queued" /> },
  { title: "Later", kind: "number", cell: ({ later }) => countText(later) },
  { title: "Running", kind: "number", cell: ({ name, running }) => <Count page="runs" tenant={name} count={running} words="running" state="running" /> },
  { title: "Succeeded, 24 h", kind: "number", cell: ({ succeeded }) => countText(succeeded) },
  { title: "Failed, 24 h", kind: "number", cell: ({ failed }) => countText(failed) },
  { title: "Quota", kind: "wide", cell: (tenant) => <QuotaUse tenant={tenant} /> },
];

export function TenantsPage({ rest: [name] }: PageProps) {
  return name === undefined ? <TenantList /> : <TenantPage key={name} name={name} />;
}

function TenantList() {
  const data = useData("tenant list", (signal) => call("GET /tenants", { signal }), {
    when: (change) => isRun(change) || isSchedule(change),
    every: 15_000,
  });
  const [sets, setSets] = useState(false);
  const mayAct = useMayInStore("admin");
  return (
    <Page
      title="Tenants"
      actions={
        mayAct && (
          <Button kind="primary" onClick={() => setSets(true)}>
            Set a quota …
          </Button>
        )
      }
    >
      <Section title="All tenants" aside={data.value && counted(data.value.items.length, "tenant")}>
        <Loaded data={data}>
          {({ items }) => (
            <Table
              caption="Tenants that have schedules, runs or a quota"
              columns={COLUMNS}
              rows={items}
              keyOf={({ name }) => name}
              empty={<Empty command="evenbeat schedules add NAME 'every 1h' TASK --tenant acme">No tenant has a schedule, a run or a quota yet. A tenant begins to exist with its first schedule or run.</Empty>}
            />
          )}
        </Loaded>
      </Section>
      {sets && (
        <QuotaDialog
          tenant={null}
          quota={null}
          onClose={() => setSets(false)}
          onDone={(words) => {
            notify(words);
            setSets(false);
            data.reload();
          }}
        />
      )}
    </Page>
  );
}

interface CountProps {
  page: "runs" | "schedules";
  tenant: string;
  count: number;
  words: string;
  state?: string;
}

function Count({ page, tenant, count, words, state }: CountProps) {
  if (count === 0) return <>0</>;
  return (
    <a href={href([page], { tenant, state })} aria-label={`${countText(count)} ${words} of ${tenant}`}>
      {countText(count)}
    </a>
  );
}

/** How much of its quota a tenant uses; a warning where it has reached it. */
export function QuotaUse({ tenant }: { tenant: TenantView }) {
  const uses = usesOf(tenant);
  if (uses.length === 0) return <span class="muted">none</span>;
  return (
    <ul class="plain-list">
      {uses.map((use) => (
        <li key={use.what}>
          {useText(use)} {isFull(use) && <State state="warn" label="reached" />}
        </li>
      ))}
    </ul>
  );
}

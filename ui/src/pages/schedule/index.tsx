// One schedule: what it does, whether all its ticks are accounted for, when it ran and will run, and why not.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { isAbout, useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Page } from "../../parts/page";
import { AccountSection } from "./account";
import { Actions } from "./actions";
import { AuditSection } from "./audit";
import { CalendarsSection } from "./calendars";
import { ChartsSection } from "./charts";
import { Absent } from "./absent";
import { BackfillsSection } from "./backfills";
import { DependenciesSection } from "./dependencies";
import { Banners, Head } from "./head";
import { HeatSection } from "./heat_map";
import { HistorySection } from "./history";
import { LedgerSection } from "./ledger";
import { PoliciesSection, TicksSection } from "./plan";

export function SchedulePage({ tenant, name }: { tenant: string; name: string }) {
  // Runs and the audit link to deleted schedules, too: no error of the server, but the page that says so.
  const data = useData(
    `schedule ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}", { path: { name }, query: { tenant, deleted: true }, signal }),
    { when: isAbout(tenant, name) },
  );
  const [changes, setChanges] = useState(0);
  const onChange = (): void => {
    setChanges((count) => count + 1);
    data.reload();
  };
  if (data.error?.status === 404 || data.value?.state === "deleted") return <Absent tenant={tenant} name={name} />;
  const actions = data.value === undefined ? undefined : <Actions schedule={data.value} onChange={onChange} />;
  return (
    <Page title={name} actions={actions}>
      <Loaded data={data}>{(schedule) => <Sections schedule={schedule} changes={changes} />}</Loaded>
    </Page>
  );
}

function Sections({ schedule, changes }: { schedule: Schedule; changes: number }) {
  const { tenant, name, timezone: zone, revision, state, created_at: createdAt } = schedule;
  const about = { tenant, name, zone, revision, state, createdAt };
  return (
    <>
      <Banners schedule={schedule} />
      <Head schedule={schedule} />
      {!schedule.damage && <DependenciesSection {...about} />}
      {!schedule.damage && <CalendarsSection {...about} />}
      {!schedule.damage && <AccountSection {...about} />}
      {!schedule.damage && <HeatSection {...about} />}
      <BackfillsSection {...about} made={changes} />
      <ChartsSection {...about} />
      <HistorySection {...about} />
      <div class="grid">
        {!schedule.damage && <TicksSection schedule={schedule} />}
        <PoliciesSection schedule={schedule} />
      </div>
      <LedgerSection {...about} />
      <AuditSection {...about} />
    </>
  );
}

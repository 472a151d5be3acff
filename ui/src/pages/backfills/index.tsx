// Backfills: runs for the ticks of past ranges, how far they are, and a button to cancel each.

import { call } from "../../api/client";
import { isRun, useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Page, Section } from "../../parts/page";
import type { PageProps } from "../../shell/routes";
import { useMe, useTenantScope } from "../../state/session";
import { counted } from "../../time/format";
import { BackfillTable } from "./table";
import { isOver } from "./texts";

export function BackfillsPage(_: PageProps) {
  const scope = useTenantScope();
  const me = useMe();
  const data = useData(`backfills ${JSON.stringify(scope)}`, (signal) => call("GET /backfills", { query: scope, signal }), { when: isRun, every: 10_000 });
  const items = data.value?.items;
  const open = items?.filter((each) => !isOver(each)).length;
  const hasTenants = scope.all_tenants === true && items?.some(({ tenant }) => tenant !== me.default_tenant);
  return (
    <Page title="Backfills">
      <Section title="Runs for past ranges" aside={items && `${counted(items.length, "backfill")}, ${open} not over; kept for 90 days`}>
        <Loaded data={data}>{({ items: rows }) => <BackfillTable rows={rows} onChange={data.reload} schedules={hasTenants ? "tenants" : "names"} />}</Loaded>
      </Section>
    </Page>
  );
}

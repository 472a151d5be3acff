// All runs, the newest first.

import { useState } from "preact/hooks";
import type { Run } from "../../api/schema";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Page } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { type Column, Table } from "../../parts/table";
import { Duration, Time } from "../../parts/time";
import { href, useRoute } from "../../state/route";
import { useMay, useMe, useTenantScope } from "../../state/session";
import { latenessOf } from "../run/attempts";
import { BulkDialog, type BulkTarget } from "./bulk";
import { bulkActions, filterOf, isFiltered, type RunFilter } from "./filter";
import { FilterBar } from "./filter_bar";
import { useRunList } from "./live";
import { freshText, rowKey, shownText } from "./merge";
import { RunLink, RunState, ScheduleLink } from "./parts";
import { RunTabs } from "./tabs";

export function RunListPage() {
  const scope = useTenantScope();
  const me = useMe();
  const mayAct = useMay("operator");
  const filter = filterOf(useRoute().query);
  const runs = useRunList(scope, filter);
  const [bulk, setBulk] = useState<BulkTarget | null>(null);
  const rows = runs.list?.rows ?? [];
  const hasTenants = scope.all_tenants === true && rows.some(({ tenant }) => tenant !== me.default_tenant);
  return (
    <Page title="Runs" actions={mayAct && <BulkButtons filter={filter} onChoose={setBulk} />}>
      <RunTabs current="runs" />
      <FilterBar />
      <section class="card run-rows" aria-label="Runs">
        <div class="fresh">
          <span class="muted">{rows.length > 0 && shownText(rows.length, runs.list?.cursor != null)}</span>
          {runs.list !== null && runs.list.fresh.length > 0 && (
            <Button small kind="primary" onClick={runs.showFresh}>
              {freshText(runs.list)}
            </Button>
          )}
        </div>
        <Loaded data={runs.data}>
          {() => (
            <Table
              caption="Runs, the newest first"
              columns={columnsOf(hasTenants)}
              rows={rows}
              keyOf={rowKey}
              empty={<NoRuns filter={filter} />}
            />
          )}
        </Loaded>
        {runs.olderError && <ProblemBox problem={runs.olderError} />}
        {runs.list?.cursor != null && (
          <p class="older">
            <Button isBusy={runs.isLoadingOlder} onClick={runs.loadOlder}>
              Show older runs
            </Button>
          </p>
        )}
      </section>
      {bulk !== null && (
        <BulkDialog
          target={bulk}
          onClose={() => {
            setBulk(null);
            runs.data.reload();
          }}
        />
      )}
    </Page>
  );
}

function BulkButtons({ filter, onChoose }: { filter: RunFilter; onChoose: (target: BulkTarget) => void }) {
  const { state, ...rest } = filter;
  const actions = bulkActions(state);
  const retried = state === "cancelled" ? "cancelled" : "failed";
  const cancelled = state === "retrying" || state === "running" ? state : "queued";
  return (
    <>
      {actions.includes("retry") && (
        <Button onClick={() => onChoose({ action: "retry", state: retried, filter: rest })}>Retry all {retried} …</Button>
      )}
      {actions.includes("cancel") && (
        <Button kind="danger" onClick={() => onChoose({ action: "cancel", state: cancelled, filter: rest })}>
          Cancel all {cancelled} …
        </Button>
      )}
    </>
  );
}

function NoRuns({ filter }: { filter: RunFilter }) {
  if (isFiltered(filter)) return <Empty>No run matches this filter.</Empty>;
  return <Empty command="evenbeat runs enqueue TASK">No run yet. A schedule adds one at each tick; a command adds one now:</Empty>;
}

function columnsOf(hasTenants: boolean): Column<Run>[] {
  const columns: Column<Run>[] = [
    { title: "State", cell: (run) => <RunState run={run} /> },
    { title: "Run", kind: "main", cell: (run) => <RunLink tenant={run.tenant} id={run.id} /> },
    { title: "Task", cell: (run) => <a href={href(["runs"], { task: run.task })}>{run.task}</a> },
    { title: "Schedule", cell: (run) => <ScheduleLink tenant={run.tenant} name={run.schedule} /> },
  ];
  if (hasTenants) columns.push({ title: "Tenant", cell: ({ tenant }) => tenant });
  columns.push(
    { title: "Due", cell: (run) => <Time at={run.scheduled_at} /> },
    { title: "Late by", kind: "number", cell: (run) => <Duration seconds={latenessOf(run)} /> },
    { title: "Took", kind: "number", cell: (run) => <Duration seconds={run.duration} /> },
    { title: "Attempt", kind: "number", cell: (run) => run.attempt || "–" },
    { title: "Worker", cell: (run) => (run.worker === null ? <span class="muted">–</span> : <span class="worker mono">{run.worker}</span>) },
  );
  return columns;
}

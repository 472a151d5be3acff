// The newest failed runs, grouped by error.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { FailureGroup, FailureReport } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Page } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { Time } from "../../parts/time";
import { href, useRoute } from "../../state/route";
import { useMay, useMe, useTenantScope } from "../../state/session";
import { counted, countText, exactText } from "../../time/format";
import { useZone } from "../../time/zone";
import { BulkDialog, type BulkTarget } from "./bulk";
import { filterOf } from "./filter";
import { FilterBar } from "./filter_bar";
import { newestLine, retryWords } from "./group";
import { stableGroups } from "./merge";
import { RunLink } from "./parts";
import { RunTabs } from "./tabs";

const MOST = 1_000;
const LISTED_RUNS = 50;

export function FailuresPage() {
  const scope = useTenantScope();
  const { schedule, task, since } = filterOf(useRoute().query);
  const query = { ...scope, ...(schedule && { schedule }), ...(task && { task }), ...(since && { since }), limit: MOST };
  const key = JSON.stringify(query);
  const data = useData(key, (signal) => call("GET /failures", { query, signal }), {
    when: ({ subject, kind }) => subject === "run" && (kind === "failed" || kind === "queued"),
  });
  const [held, setHeld] = useState<{ key: string; shown: FailureGroup[] }>({ key, shown: [] });
  const shown = held.key === key ? held.shown : [];
  const report = data.value;
  const { groups, fresh } = stableGroups(shown, report?.groups ?? []);
  useEffect(() => {
    if (report !== undefined) setHeld((old) => ({ key, shown: stableGroups(old.key === key ? old.shown : [], report.groups).groups }));
  }, [report, key]);
  const [bulk, setBulk] = useState<BulkTarget | null>(null);
  return (
    <Page title="Failures">
      <RunTabs current="failures" />
      <FilterBar withState={false} />
      <div class="fresh">
        {report && <Window report={report} />}
        {fresh.length > 0 && (
          <Button small kind="primary" onClick={() => setHeld({ key, shown: report?.groups ?? [] })}>
            {counted(fresh.length, "new error")}
          </Button>
        )}
      </div>
      <Loaded data={data}>
        {(value) =>
          groups.length === 0 ? (
            <Empty>Nothing to do: no run has failed, or those that did were retried.</Empty>
          ) : (
            <ul class="failure-groups" aria-label="Errors">
              {groups.map((group) => (
                <Group key={group.id} group={group} since={value.since ?? undefined} onRetry={setBulk} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {bulk !== null && (
        <BulkDialog
          target={bulk}
          onClose={() => {
            setBulk(null);
            data.reload();
          }}
        />
      )}
    </Page>
  );
}

/** Say which runs the groups are made of. */
function Window({ report }: { report: FailureReport }) {
  const zone = useZone();
  const since = report.since === null ? "" : ` since ${exactText(report.since, zone)}`;
  if (report.count === 0) return <p class="muted window">No failed runs{since}.</p>;
  const text = report.more
    ? `The newest ${countText(report.count)} failed runs${since}; older ones are not counted.`
    : `${report.count === 1 ? "1 failed run" : `All ${counted(report.count, "failed run")}`}${since}.`;
  return <p class="muted window">{text} Errors that differ only in numbers, ids and quoted values are one group.</p>;
}

interface GroupProps {
  group: FailureGroup;
  since: string | undefined;
  onRetry: (target: BulkTarget) => void;
}

function Group({ group, since, onRetry }: GroupProps) {
  const mayAct = useMay("operator");
  const me = useMe();
  const { error, count, tasks, schedules, tenants } = group;
  const newest = newestLine(group);
  const isGone = count === 0;
  const owner = tenants.length === 1 ? tenants[0] : undefined;
  const hasTenants = tenants.length > 1 || tenants.some((tenant) => tenant !== me.default_tenant);
  const one = { state: "failed", since, task: tasks.length === 1 ? tasks[0] : null, schedule: schedules.length === 1 ? schedules[0] : null };
  return (
    <li class={isGone ? "card failure-group gone" : "card failure-group"}>
      <div class="failure-head">
        <span class="failure-count number" aria-hidden="true">
          {countText(count)}
        </span>
        <div class="failure-text">
          <h2 class="mono">{error}</h2>
          {newest !== null && (
            <p>
              <span class="muted">newest: </span>
              <span class="mono">{newest}</span>
            </p>
          )}
          <p class="muted">
            {isGone ? (
              "None of these runs is failed any more."
            ) : (
              <>
                <span class="off-screen">{counted(count, "run")}, </span>
                last <Time at={group.newest} />
                {count > 1 && (
                  <>
                    , first <Time at={group.oldest} />
                  </>
                )}
              </>
            )}
          </p>
          <p class="failure-where">
            <Names title="task" names={tasks} />
            <Names title="schedule" names={schedules} link={owner === undefined ? undefined : (name) => href(["schedules", owner, name])} />
            {hasTenants && <Names title="tenant" names={tenants} />}
          </p>
        </div>
        {mayAct && !isGone && (
          <Button
            onClick={() =>
              onRetry({ action: "retry", state: "failed", filter: {}, ids: group.runs, words: retryWords(group) })
            }
          >
            Retry this group …
          </Button>
        )}
      </div>
      {!isGone && (
        <details class="behind">
          <summary>Traceback of the newest, and the runs</summary>
          <GroupDetails group={group} link={href(["runs"], one)} />
        </details>
      )}
    </li>
  );
}

function Names({ title, names, link }: { title: string; names: string[]; link?: ((name: string) => string) | undefined }) {
  if (names.length === 0) return null;
  const shown = names.slice(0, 5);
  return (
    <span>
      <span class="muted">{names.length === 1 ? title : `${title}s`} </span>
      {shown.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          {link ? <a href={link(name)}>{name}</a> : name}
        </span>
      ))}
      {names.length > shown.length && ` and ${names.length - shown.length} more`}
    </span>
  );
}

function GroupDetails({ group, link }: { group: FailureGroup; link: string }) {
  return (
    <div class="stack">
      {group.whole_error && (
        <div class="copyable">
          <CopyButton text={group.whole_error} label="Copy the error" />
          <pre tabIndex={0} aria-label="Error of the newest run">
            {group.whole_error}
          </pre>
        </div>
      )}
      <GroupRuns group={group} />
      <p>
        <a href={link}>Failed runs of {group.tasks.length === 1 ? `task ${group.tasks[0]}` : "these tasks"} in the list</a>
      </p>
    </div>
  );
}

/** The runs of a group. With several tenants, their tenants are read first: a link names the tenant. */
function GroupRuns({ group }: { group: FailureGroup }) {
  const scope = useTenantScope();
  const ids = group.runs.slice(0, LISTED_RUNS);
  const [owner] = group.tenants;
  const [read, setRead] = useState<{ tenant: string; id: string }[] | null>(null);
  const found = group.tenants.length === 1 && owner !== undefined ? ids.map((id) => ({ tenant: owner, id })) : read;
  const find = useAction(async () => {
    const { tasks } = group;
    const wanted = new Set(ids);
    const task = tasks.length === 1 && tasks[0] ? { task: tasks[0] } : {};
    const { items } = await call("GET /runs", { query: { ...scope, ...task, state: "failed", brief: true, limit: 500 } });
    setRead(items.filter(({ id }) => wanted.has(id)));
  });
  if (found === null) {
    return (
      <div>
        {find.error && <ProblemBox problem={find.error} />}
        <Button small isBusy={find.isBusy} onClick={() => void find.run()}>
          List the runs
        </Button>
      </div>
    );
  }
  return (
    <div>
      <h3>Runs</h3>
      <ul class="run-links">
        {found.map(({ tenant, id }) => (
          <li key={id}>
            <RunLink tenant={tenant} id={id} />
          </li>
        ))}
      </ul>
      {group.runs.length > found.length && <p class="muted">The newest {found.length} of {countText(group.runs.length)}.</p>}
    </div>
  );
}

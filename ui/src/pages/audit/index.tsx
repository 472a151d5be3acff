// Audit: who changed what, when, and how it was before.

import { call } from "../../api/client";
import type { AuditEntry } from "../../api/schema";
import { usePages } from "../../live/paging";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { SelectField } from "../../parts/field";
import { FilterText } from "../../parts/filter_text";
import { NewRows, Paged } from "../../parts/paged";
import { Page, Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href, setQuery, useRoute } from "../../state/route";
import { useMe, useTenantScope } from "../../state/session";
import { useZone } from "../../time/zone";
import { Changed } from "../schedule/audit";
import { changesOf, type FieldChange } from "../schedule/changes";
import { ACTIONS, filterOf, pageOf, words } from "./filter";

const PAGE = 50;

export function AuditPage(_: PageProps) {
  const scope = useTenantScope();
  const me = useMe();
  const filter = filterOf(useRoute().query);
  const list = usePages<AuditEntry>(
    `audit ${JSON.stringify([scope, filter])}`,
    (cursor, signal) => call("GET /audit", { query: { ...scope, ...filter, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) }, signal }),
    15_000,
  );
  const isFiltered = Object.keys(filter).length > 0;
  return (
    <Page title="Audit">
      <AuditFilterBar isFiltered={isFiltered} />
      <Section title="Changes by hand" aside={<NewRows list={list}>kept for 365 days</NewRows>}>
        <Paged list={list} more={isFiltered ? "Search on" : "Show older entries"}>
          {(rows) => (
            <Table
              caption="Changes by hand, the newest first"
              columns={columnsOf(scope.all_tenants === true && rows.some(({ tenant }) => tenant !== me.default_tenant))}
              rows={rows}
              keyOf={({ id }) => id}
              empty={<NoEntries hasMore={list.hasMore} isFiltered={isFiltered} />}
            />
          )}
        </Paged>
      </Section>
    </Page>
  );
}

function NoEntries({ hasMore, isFiltered }: { hasMore: boolean; isFiltered: boolean }) {
  if (hasMore) return <Empty>Nothing found yet among the newest entries. Older ones have not been searched.</Empty>;
  return <Empty>{isFiltered ? "No entry matches this filter." : "Nobody has changed anything by hand yet."}</Empty>;
}

function columnsOf(hasTenants: boolean): Column<AuditEntry>[] {
  const columns: Column<AuditEntry>[] = [
    { title: "When", cell: ({ at }) => <Time at={at} /> },
    {
      title: "Who",
      cell: ({ actor, via }) => (
        <span class="who">
          <FilterLink name="actor" value={actor} /> <span class="muted">{via}</span>
        </span>
      ),
    },
    { title: "Action", cell: ({ action }) => <strong>{words(action)}</strong> },
    { title: "Subject", kind: "main", cell: (entry) => <Subject entry={entry} /> },
  ];
  if (hasTenants) columns.push({ title: "Tenant", cell: ({ tenant }) => tenant });
  columns.push({ title: "Change", kind: "wide", cell: (entry) => <Changes entry={entry} /> });
  return columns;
}

function FilterLink({ name, value }: { name: string; value: string }) {
  const { query } = useRoute();
  return (
    <a href={href(["audit"], { ...Object.fromEntries(query), [name]: value })} title={`Only entries of ${value}`}>
      {value}
    </a>
  );
}

function Subject({ entry }: { entry: AuditEntry }) {
  const page = pageOf(entry);
  return (
    <span>
      <span class="muted">{words(entry.kind)} </span>
      {page === null ? entry.subject : <a href={href(page.path, page.query)}>{entry.subject}</a>}
    </span>
  );
}

const SHOWN = 3;

function Changes({ entry }: { entry: AuditEntry }) {
  const changes = changesOf(entry.before, entry.after);
  if (changes.length === 0) return <span class="muted">–</span>;
  const more = changes.slice(SHOWN);
  return (
    <div>
      <ChangeList changes={changes.slice(0, SHOWN)} />
      {more.length > 0 && (
        <details class="unfold">
          <summary>{more.length} more</summary>
          <ChangeList changes={more} />
        </details>
      )}
    </div>
  );
}

function ChangeList({ changes }: { changes: FieldChange[] }) {
  const zone = useZone();
  return (
    <ul class="changes">
      {changes.map((change) => (
        <li key={change.name}>
          <Changed change={change} zone={zone} />
        </li>
      ))}
    </ul>
  );
}

const PERIODS: [string, string][] = [
  ["", "any time"],
  ["1h", "the last hour"],
  ["24h", "the last 24 hours"],
  ["7d", "the last 7 days"],
  ["30d", "the last 30 days"],
];

function AuditFilterBar({ isFiltered }: { isFiltered: boolean }) {
  const filter = filterOf(useRoute().query);
  const periods = [...PERIODS];
  if (filter.since !== undefined && !periods.some(([value]) => value === filter.since)) periods.push([filter.since, `since ${filter.since}`]);
  return (
    <form class="run-filter" role="search" aria-label="Filter" onSubmit={(event) => event.preventDefault()}>
      <FilterText kind="search" name="subject" label="Subject" placeholder="name or id" />
      <FilterText kind="search" name="actor" label="Who" placeholder="the whole name" />
      <SelectField
        label="Action"
        value={filter.action ?? ""}
        onText={(action) => setQuery({ action })}
        options={[["", "any"], ...ACTIONS.map((action): [string, string] => [action, words(action)])]}
      />
      <SelectField label="Time" value={filter.since ?? ""} onText={(since) => setQuery({ since })} options={periods} />
      {isFiltered && (
        <Button kind="quiet" onClick={() => setQuery({ subject: null, actor: null, action: null, since: null })}>
          Clear the filter
        </Button>
      )}
    </form>
  );
}

// The list of schedules: one page of 50, searched, filtered and sorted by the server.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Schedule, Schedules } from "../../api/schema";
import { isSchedule, useData } from "../../live/data";
import type { Change } from "../../live/stream";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loading } from "../../parts/load";
import { Page } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { Sparkline } from "../../parts/sparkline";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href, navigate, setQuery, useRoute } from "../../state/route";
import { type TenantScope, useMay, useMe, useTenantScope } from "../../state/session";
import { useNow } from "../../time/clock";
import { counted } from "../../time/format";
import { BulkBar, type Selection } from "./bulk";
import { CodeOnly } from "./code_only";
import { FilterBar } from "./filter_bar";
import { filtersOf, isFiltered, NO_FILTERS, type ScheduleFilter, type Sort, sortOf } from "./filters";
import { isLate, type Key, keyOf, lastRun, matchText, refreshed, type ShownRows } from "./rows";

const PAGE = 50;
const RECENT = 60;

export function SchedulesList() {
  const { query } = useRoute();
  const scope = useTenantScope();
  const filters = filtersOf(query);
  const sort = sortOf(query);
  const cursor = query.get("cursor");
  const list = useRows(scope, filters, sort, cursor);
  const mayChange = useMay("operator");
  const isAdmin = useMay("admin");
  const [selection, setSelection] = useSelection(JSON.stringify([scope, filters]));
  const { answer } = list;
  return (
    <Page title="Schedules" actions={isAdmin && <a class="button primary" href={href(["schedules", "new"])}>+ New schedule</a>}>
      <FilterBar filters={filters} sort={sort} />
      {list.error && <ProblemBox problem={list.error} onRetry={list.reload} />}
      {answer === null ? (
        list.error === null && <Loading />
      ) : (
        <section class="card" aria-label="List of schedules" aria-busy={list.isOld}>
          <div class="list-head">
            <p role="status">{matchText(answer.matched, answer.more_match)}</p>
            {list.moved > 0 && (
              <Button small onClick={list.showNew}>
                {counted(list.moved, "change")} in the list: show
              </Button>
            )}
            {mayChange && answer.items.length > 0 && (
              <BulkBar selection={selection} onSelect={setSelection} rows={list.rows} answer={answer} filters={filters} scope={scope} onDone={list.reload} />
            )}
          </div>
          <Rows list={list} sort={sort} filters={filters} selection={mayChange ? selection : null} onSelect={setSelection} />
          <Pager cursor={cursor} next={answer.cursor} />
        </section>
      )}
      <CodeOnly />
    </Page>
  );
}

/** The selected schedules. They stay selected from page to page; another filter drops them. */
function useSelection(of: string): [Selection, (selection: Selection) => void] {
  const [held, setHeld] = useState<{ of: string; selection: Selection }>({ of, selection: NOTHING });
  return [held.of === of ? held.selection : NOTHING, (selection) => setHeld({ of, selection })];
}

const NOTHING: Selection = { isAll: false, keys: [] };

interface List extends ShownRows {
  /** The newest answer; null before the first one. */
  answer: Schedules | null;
  /** Whether the rows belong to the filters before these. */
  isOld: boolean;
  error: ReturnType<typeof useData>["error"];
  showNew: () => void;
  reload: () => void;
}

/** Load a page. The rows of the page before stay until it is there; a refresh moves no row. */
function useRows(scope: TenantScope, filters: ScheduleFilter, sort: Sort, cursor: string | null): List {
  const key = `schedules ${JSON.stringify([scope, filters, sort, cursor])}`;
  const kept = useRef<{ key: string; answer: Schedules; shown: ShownRows } | null>(null);
  const [, render] = useState(0);
  const data = useData(
    key,
    (signal) =>
      call("GET /schedules", { query: { ...scope, ...filters, sort, limit: PAGE, recent: RECENT, ...(cursor === null ? {} : { cursor }) }, signal }),
    { when: (change) => isSchedule(change) || isRunOf(change, kept.current?.shown.rows ?? []), every: 60_000 },
  );
  const fresh = data.value;
  if (fresh !== undefined && kept.current?.answer !== fresh) {
    const before = kept.current?.key === key ? kept.current.shown.rows : null;
    kept.current = { key, answer: fresh, shown: before === null ? asTheyAre(fresh) : refreshed(before, fresh.items) };
  }
  const held = kept.current;
  return {
    answer: held?.answer ?? null,
    isOld: held !== null && held.key !== key,
    error: data.error,
    ...(held?.shown ?? { rows: [], gone: new Set<string>(), moved: 0 }),
    showNew: () => {
      if (held !== null) kept.current = { ...held, shown: asTheyAre(held.answer) };
      render((count) => count + 1);
    },
    reload: () => {
      // What the user did may move rows.
      if (held !== null) kept.current = { ...held, key: "" };
      data.reload();
    },
  };
}

function asTheyAre({ items }: Schedules): ShownRows {
  return { rows: items, gone: new Set(), moved: 0 };
}

function isRunOf(change: Change, rows: Schedule[]): boolean {
  return change.subject === "run" && rows.some((row) => row.name === change.schedule && row.tenant === change.tenant);
}

interface RowsProps {
  list: List;
  sort: Sort;
  filters: ScheduleFilter;
  /** Null for users who may change nothing. */
  selection: Selection | null;
  onSelect: (selection: Selection) => void;
}

function Rows({ list, sort, filters, selection, onSelect }: RowsProps) {
  const me = useMe();
  const { rows, gone } = list;
  const showsTenant = rows.some((row) => row.tenant !== me.default_tenant);
  const columns: Column<Schedule>[] = [
    { title: "Name", kind: "main", sort: "name", cell: (row) => <NameCell row={row} isGone={gone.has(keyOf(row))} filters={filters} showsTenant={showsTenant} /> },
    { title: "State", cell: (row) => <StateCell row={row} /> },
    { title: "Trigger", kind: "wide", cell: (row) => <TriggerCell row={row} /> },
    { title: "Last 60 runs", cell: (row) => <Sparkline runs={row.recent ?? []} tenant={row.tenant} slots={RECENT} /> },
    { title: "Last run", cell: (row) => <LastRunCell row={row} /> },
    { title: "Next run", cell: (row) => <NextRunCell row={row} /> },
    { title: "Tags", cell: (row) => <Tags tags={row.tags} filters={filters} /> },
  ];
  if (selection !== null) {
    columns.unshift({
      title: "Select",
      head: <SelectPage rows={rows} selection={selection} onSelect={onSelect} />,
      cell: (row) => <SelectRow row={row} rows={rows} selection={selection} onSelect={onSelect} />,
    });
  }
  return (
    <div class={list.isOld ? "schedules old" : "schedules"}>
      <Table
        caption="Schedules"
        columns={columns}
        rows={rows}
        keyOf={keyOf}
        sort={sort}
        onSort={(by) => setQuery({ sort: by === "name" ? null : by.replace("-task", "task"), cursor: null })}
        empty={<Nothing filters={filters} />}
      />
    </div>
  );
}

function Nothing({ filters }: { filters: ScheduleFilter }) {
  const { query } = useRoute();
  if (isFiltered(filters) || query.get("cursor") !== null) {
    return (
      <div class="empty">
        <p>No schedule matches.</p>
        <Button onClick={() => setQuery(NO_FILTERS)}>Clear the filters</Button>
      </div>
    );
  }
  return <Empty command={'evenbeat schedules add hello "every 1m" --task hello'}>There are no schedules yet. Declare one in the code, or add one here or by a command.</Empty>;
}

function filterLink(filters: ScheduleFilter, more: ScheduleFilter): string {
  return href(["schedules"], { ...filters, ...more });
}

interface NameCellProps {
  row: Schedule;
  isGone: boolean;
  filters: ScheduleFilter;
  showsTenant: boolean;
}

function NameCell({ row, isGone, filters, showsTenant }: NameCellProps) {
  const edited = Object.keys(row.edited).filter((name) => !name.endsWith("_text") || !(name.slice(0, -5) in row.edited));
  const now = useNow();
  return (
    <span class="schedule-name">
      <a href={href(["schedules", row.tenant, row.name])}>{row.name}</a>
      <span class="badges">
        {isGone && <State state="closed" label="no longer in this list" />}
        {isLate(row, now) && <State state="late" />}
        {row.damage !== "" && <State state="fail" label="damaged" />}
        {edited.length > 0 && (
          <span class="hinted" title={`The code has other values: ${edited.join(", ")}`}>
            <State state="warn" label="edited by hand" />
          </span>
        )}
      </span>
      {row.description !== "" && <span class="description" title={row.description}>{row.description}</span>}
      <span class="belongs">
        <a class="plain" title={`task ${row.task}`} href={filterLink(filters, { task: row.task })}>{row.task}</a>
        {row.queue !== "default" && <a class="plain" title={`queue ${row.queue}`} href={filterLink(filters, { queue: row.queue })}>{`queue ${row.queue}`}</a>}
        {showsTenant && <span>{`tenant ${row.tenant}`}</span>}
      </span>
    </span>
  );
}

/** The trigger in words; what happens at clock changes only on the page of the schedule. */
function TriggerCell({ row }: { row: Schedule }) {
  return <span title={`${row.words} (${row.trigger})`}>{row.words.split(";")[0]}</span>;
}

function StateCell({ row }: { row: Schedule }) {
  return (
    <span class="stacked">
      <State state={row.state} />
      {row.paused_until !== null && (
        <span class="muted">
          until <Time at={row.paused_until} zone={row.timezone} />
        </span>
      )}
      {row.state === "paused" && row.pause_note !== "" && <span class="muted clipped" title={row.pause_note}>{row.pause_note}</span>}
    </span>
  );
}

function NextRunCell({ row }: { row: Schedule }) {
  if (row.state === "paused" && row.paused_until === null) return <span class="muted">not while paused</span>;
  return <Time at={row.next_run} zone={row.timezone} />;
}

function LastRunCell({ row }: { row: Schedule }) {
  const last = lastRun(row);
  if (last === null) return <span class="muted">never</span>;
  return (
    <span class="stacked">
      {last.id === null ? <State state={last.state} /> : <a class="plain" href={href(["runs", row.tenant, last.id])}><State state={last.state} /></a>}
      <Time at={last.at} zone={row.timezone} />
    </span>
  );
}

function Tags({ tags, filters }: { tags: string[]; filters: ScheduleFilter }) {
  if (tags.length === 0) return <span class="muted">–</span>;
  return (
    <span class="tags">
      {tags.map((tag) => (
        <a key={tag} class="tag" href={filterLink(filters, { tag })}>{tag}</a>
      ))}
    </span>
  );
}

interface SelectProps {
  selection: Selection;
  onSelect: (selection: Selection) => void;
}

function SelectRow({ row, rows, selection, onSelect }: SelectProps & { row: Schedule; rows: Schedule[] }) {
  const key = keyOf(row);
  const isSelected = selection.isAll || selection.keys.some((each) => keyOf(each) === key);
  return (
    <input
      type="checkbox"
      aria-label={`Select ${row.name}`}
      checked={isSelected}
      onChange={() => {
        // Without one of them, "all that match" becomes the others of this page.
        const kept = selection.isAll ? rows.map(keyIn) : selection.keys;
        onSelect({ isAll: false, keys: isSelected ? kept.filter((each) => keyOf(each) !== key) : [...kept, keyIn(row)] });
      }}
    />
  );
}

function SelectPage({ rows, selection, onSelect }: SelectProps & { rows: Schedule[] }) {
  const chosen = new Set(selection.keys.map(keyOf));
  const isWhole = selection.isAll || rows.every((row) => chosen.has(keyOf(row)));
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = !isWhole && chosen.size > 0;
  });
  return (
    <input
      ref={box}
      type="checkbox"
      aria-label="Select all of this page"
      checked={isWhole}
      onChange={() => {
        const here = new Set(rows.map(keyOf));
        const others = selection.isAll ? [] : selection.keys.filter((key) => !here.has(keyOf(key)));
        onSelect({ isAll: false, keys: isWhole ? others : [...others, ...rows.map(keyIn)] });
      }}
    />
  );
}

function keyIn({ tenant, name }: Schedule): Key {
  return { tenant, name };
}

// From the cursor of a page to that of the page before it. The API knows only the next page.
const pageBefore = new Map<string, string | null>();

function Pager({ cursor, next }: { cursor: string | null; next: string | null }) {
  const { query } = useRoute();
  if (cursor === null && next === null) return null;
  const to = (target: string | null): string => href(["schedules"], { ...Object.fromEntries(query), cursor: target });
  const before = cursor === null ? undefined : pageBefore.get(cursor);
  return (
    <nav class="pager" aria-label="Pages of the list">
      {cursor !== null && <Button onClick={() => navigate(to(before ?? null))}>{before === undefined ? "First page" : "Back"}</Button>}
      {next !== null && (
        <Button
          onClick={() => {
            pageBefore.set(next, cursor);
            navigate(to(next));
            window.scrollTo(0, 0);
          }}
        >
          Next
        </Button>
      )}
    </nav>
  );
}

// The filter above the list of runs. Every choice is in the address.

import { useEffect, useId, useState } from "preact/hooks";
import { call } from "../../api/client";
import { setQuery, useRoute } from "../../state/route";
import { useTenantScope } from "../../state/session";
import { inputText, instantOf, zoneName } from "../../time/format";
import { useZone } from "../../time/zone";
import { Button } from "../../parts/button";
import { SelectField, TextField } from "../../parts/field";
import { FilterText } from "../../parts/filter_text";
import { filterOf, isFiltered, isSpan, STATES } from "./filter";

const PERIODS: [value: string, label: string][] = [
  ["", "any time"],
  ["15m", "last 15 minutes"],
  ["1h", "last hour"],
  ["24h", "last 24 hours"],
  ["7d", "last 7 days"],
];

/** The API groups the failures of a day, unless it is asked for another time. */
const FAILURE_PERIODS: typeof PERIODS = [
  ["", "last 24 hours"],
  ["1h", "last hour"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
];

/** The names of schedules that contain the text, for a list of proposals. */
function useScheduleNames(): string[] {
  const text = useRoute().query.get("schedule") ?? "";
  const scope = useTenantScope();
  const [names, setNames] = useState<string[]>([]);
  useEffect(() => {
    const control = new AbortController();
    call("GET /schedules", { query: { ...scope, text, limit: 50 }, signal: control.signal })
      .then(({ items }) => setNames([...new Set(items.map(({ name }) => name))]))
      // Without proposals the field still works.
      .catch(() => undefined);
    return () => control.abort();
  }, [text, scope.tenant]);
  return names;
}

export function FilterBar({ withState = true }: { withState?: boolean }) {
  const filter = filterOf(useRoute().query);
  const names = useScheduleNames();
  const list = useId();
  const clear = (): void => setQuery({ state: null, schedule: null, task: null, queue: null, worker: null, since: null, until: null });
  return (
    <form class="run-filter" role="search" aria-label="Filter" onSubmit={(event) => event.preventDefault()}>
      {withState && (
        <SelectField
          label="State"
          value={filter.state ?? ""}
          onText={(state) => setQuery({ state })}
          options={[["", "any"], ...STATES.map((state): [string, string] => [state, state])]}
        />
      )}
      <FilterText name="schedule" label="Schedule" kind="search" list={list} />
      <datalist id={list}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <FilterText name="task" label="Task" />
      {withState && <FilterText name="queue" label="Queue" />}
      {withState && <FilterText name="worker" label="Worker" />}
      <Period periods={withState ? PERIODS : FAILURE_PERIODS} hasEnd={withState} />
      {isFiltered(filter) && (
        <Button kind="quiet" onClick={clear}>
          Clear the filter
        </Button>
      )}
    </form>
  );
}

function Period({ periods, hasEnd }: { periods: typeof PERIODS; hasEnd: boolean }) {
  const filter = filterOf(useRoute().query);
  const zone = useZone();
  const [isOpen, setOpen] = useState(false);
  const isBetween = isOpen || filter.until !== undefined || (filter.since !== undefined && !isSpan(filter.since));
  const options = [...periods];
  if (filter.since !== undefined && isSpan(filter.since) && !periods.some(([value]) => value === filter.since)) {
    options.push([filter.since, `last ${filter.since}`]);
  }
  options.push(["between", hasEnd ? "between two times …" : "since a time …"]);
  const choose = (value: string): void => {
    setOpen(value === "between");
    if (value !== "between") setQuery({ since: value, until: null });
  };
  return (
    <>
      <SelectField label="Time" value={isBetween ? "between" : (filter.since ?? "")} onText={choose} options={options} />
      {isBetween && <Moment name="since" label="From" zone={zone} value={filter.since} />}
      {isBetween && hasEnd && <Moment name="until" label="To" zone={zone} value={filter.until} />}
    </>
  );
}

/** A time of the filter, in the chosen zone. */
function Moment({ name, label, zone, value }: { name: "since" | "until"; label: string; zone: string; value: string | undefined }) {
  const shown = value === undefined || isSpan(value) || Number.isNaN(Date.parse(value)) ? "" : inputText(value, zone);
  const onText = (text: string): void => setQuery({ [name]: text === "" ? null : new Date(instantOf(text, zone)).toISOString() });
  return <TextField label={`${label}, ${zoneName(zone)}`} type="datetime-local" value={shown} onText={onText} />;
}

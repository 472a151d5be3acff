// Search, filters and order of the list. All of them are in the URL.

import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../../parts/button";
import { setQuery } from "../../state/route";
import { isFiltered, LONGEST_TEXT, NO_FILTERS, type ScheduleFilter, type Sort, STATES } from "./filters";

/** A search starts so many milliseconds after the last key. */
const WAIT = 150;

const ORDERS: [Sort, string][] = [
  ["name", "by name"],
  ["-name", "by name, from Z to A"],
  ["task", "by task"],
  ["-updated_at", "last changed first"],
  ["updated_at", "longest unchanged first"],
];

export function FilterBar({ filters, sort }: { filters: ScheduleFilter; sort: Sort }) {
  const set = (name: string, value: string | boolean | null): void => setQuery({ [name]: value, cursor: null });
  const [isOpen, setOpen] = useState(false);
  const { text: _, ...others } = filters;
  const count = Object.keys(others).length;
  return (
    <search class={isOpen ? "filters open" : "filters"}>
      <DelayedInput type="search" label="Search" placeholder="name, description, task or tag" value={filters.text ?? ""} onText={(text) => set("text", text)} />
      <div class="filter-toggle">
        <Button small aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Fewer filters" : count === 0 ? "Filters and order" : `Filters and order (${count} set)`}
        </Button>
      </div>
      <label>
        <span>State</span>
        <select value={filters.state ?? ""} onChange={(event) => set("state", event.currentTarget.value)}>
          <option value="">any</option>
          {STATES.map((state) => (
            <option key={state} value={state}>{state}</option>
          ))}
        </select>
      </label>
      <label>
        <span>Managed by</span>
        <select value={filters.managed_by ?? ""} onChange={(event) => set("managed_by", event.currentTarget.value)}>
          <option value="">any</option>
          <option value="code">code</option>
          <option value="file">file</option>
          <option value="api">API, command or page</option>
        </select>
      </label>
      <DelayedInput label="Name" placeholder="report-*" value={filters.name ?? ""} onText={(text) => set("name", text)} />
      <DelayedInput label="Template" value={filters.template ?? ""} onText={(text) => set("template", text)} />
      <DelayedInput label="Tag" value={filters.tag ?? ""} onText={(text) => set("tag", text)} />
      <DelayedInput label="Task" value={filters.task ?? ""} onText={(text) => set("task", text)} />
      <DelayedInput label="Queue" value={filters.queue ?? ""} onText={(text) => set("queue", text)} />
      <label>
        <span>Order</span>
        <select value={sort} onChange={(event) => set("sort", event.currentTarget.value === "name" ? null : event.currentTarget.value)}>
          {ORDERS.map(([value, words]) => (
            <option key={value} value={value}>{words}</option>
          ))}
        </select>
      </label>
      <div class="filter-flags">
        <label class="check">
          <input type="checkbox" checked={filters.failing === true} onChange={(event) => set("failing", event.currentTarget.checked)} />
          <span>last run failed</span>
        </label>
        <label class="check">
          <input type="checkbox" checked={filters.late === true} onChange={(event) => set("late", event.currentTarget.checked)} />
          <span>late</span>
        </label>
        {isFiltered(filters) && (
          <Button kind="quiet" small onClick={() => setQuery(NO_FILTERS)}>
            Clear the filters
          </Button>
        )}
      </div>
    </search>
  );
}

interface DelayedProps {
  label: string;
  type?: "search" | "text";
  placeholder?: string;
  value: string;
  onText: (text: string) => void;
}

/** An input whose text is taken a moment after the last key. */
function DelayedInput({ label, type = "text", placeholder = "", value, onText }: DelayedProps) {
  const [typed, setTyped] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const sent = useRef(value);
  useEffect(() => {
    // The value changed elsewhere: by a link, or by "Clear the filters".
    if (value === sent.current) return;
    clearTimeout(timer.current);
    sent.current = value;
    setTyped(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const send = (text: string): void => {
    clearTimeout(timer.current);
    sent.current = text.trim();
    onText(sent.current);
  };
  return (
    <label class={type === "search" ? "search-text" : ""}>
      <span>{label}</span>
      <input
        {...(type === "search" ? { type } : { type, list: undefined })}
        value={typed}
        placeholder={placeholder}
        maxLength={LONGEST_TEXT}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          const text = event.currentTarget.value;
          setTyped(text);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => send(text), WAIT);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") send(event.currentTarget.value);
        }}
      />
    </label>
  );
}

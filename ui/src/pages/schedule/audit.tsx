// The audit of a schedule: who changed what, before and after.

import { call } from "../../api/client";
import type { AuditEntry } from "../../api/schema";
import { useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";
import { type About, useReloadOnChange } from "./about";
import { changesOf, type FieldChange } from "./changes";

const SHOWN = 20;

export function AuditSection({ tenant, name, zone, revision }: Pick<About, "tenant" | "name" | "zone" | "revision">) {
  const data = useData(
    `changes ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}/history", { path: { name }, query: { tenant, limit: SHOWN }, signal }),
    { every: 30_000 },
  );
  useReloadOnChange(data, revision);
  const columns: Column<AuditEntry>[] = [
    { title: "When", cell: (entry) => <Time at={entry.at} zone={zone} />, kind: "main" },
    { title: "Who", cell: (entry) => `${entry.actor} (${entry.via})` },
    { title: "Action", cell: (entry) => entry.action.replaceAll("_", " ") },
    { title: "Change", cell: (entry) => <Changes entry={entry} zone={zone} />, kind: "wide" },
  ];
  return (
    <Section title="Changes" aside={<a href={href(["audit"], { tenant, subject: name })}>All in the audit</a>}>
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption={`Changes by hand, the last ${counted(SHOWN, "entry", "entries")}`}
            columns={columns}
            rows={items}
            keyOf={(entry) => entry.id}
            empty={<Empty>No change is recorded.</Empty>}
          />
        )}
      </Loaded>
    </Section>
  );
}

function Changes({ entry, zone }: { entry: AuditEntry; zone: string }) {
  const changes = changesOf(entry.before, entry.after);
  if (changes.length === 0) return <span class="muted">–</span>;
  return (
    <ul class="change-list">
      {changes.map((change) => (
        <li key={change.name}>
          <Changed change={change} zone={zone} />
        </li>
      ))}
    </ul>
  );
}

/** One field: what it was, crossed out, and what it became. */
export function Changed({ change, zone }: { change: FieldChange; zone: string }) {
  const { name, before, after, isTime } = change;
  return (
    <>
      <span class="muted">{name.replaceAll("_", " ")}: </span>
      {before !== null && (
        <del>
          <span class="off-screen">before: </span>
          <Value text={before} isTime={isTime} zone={zone} />
        </del>
      )}
      {before !== null && after !== null && " → "}
      {after !== null && (
        <ins>
          <span class="off-screen">after: </span>
          <Value text={after} isTime={isTime} zone={zone} />
        </ins>
      )}
    </>
  );
}

function Value({ text, isTime, zone }: { text: string; isTime: boolean; zone: string }) {
  return isTime && text !== "none" ? <Time at={text} zone={zone} form="short" /> : <>{text}</>;
}

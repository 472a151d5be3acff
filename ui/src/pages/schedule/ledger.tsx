// The ledger: ticks that did not become runs of their own, and why.

import { call } from "../../api/client";
import type { SkippedTicks } from "../../api/schema";
import { useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted, countText } from "../../time/format";
import { type About, useReloadOnChange } from "./about";
import { asSentence, reasonText } from "./sentences";

const SHOWN = 20;

export function LedgerSection({ tenant, name, zone, revision, state }: About) {
  const data = useData(
    `ledger ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}/skipped", { path: { name }, query: { tenant, limit: SHOWN }, signal }),
    { every: 15_000 },
  );
  useReloadOnChange(data, revision);
  const columns: Column<SkippedTicks>[] = [
    { title: "Ticks", cell: (row) => <Range row={row} zone={zone} />, kind: "main" },
    { title: "Count", cell: (row) => countText(row.count), kind: "number" },
    { title: "Reason", cell: (row) => asSentence(reasonText(row.reason, row.count)), kind: "wide" },
    {
      title: "Run",
      cell: (row) => (row.run === null ? <span class="muted">–</span> : <a href={href(["runs", tenant, row.run])}>the run that stands for {row.count === 1 ? "it" : "them"}</a>),
    },
    { title: "Recorded", cell: (row) => <Time at={row.recorded_at} zone={zone} /> },
    { title: "Why", cell: (row) => <a href={href(["schedules", tenant, name], { why: row.first })}>Why?</a> },
  ];
  return (
    <Section title="Ledger" aside="ticks that did not become runs of their own">
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption={`Ticks that did not run, the last ${counted(SHOWN, "entry", "entries")}`}
            columns={columns}
            rows={items}
            keyOf={(row) => `${row.first} ${row.recorded_at} ${row.reason}`}
            empty={
              <Empty>
                {state === "paused" ? "Each tick before the present pause became a run of its own." : "Each tick so far became a run of its own."}
              </Empty>
            }
          />
        )}
      </Loaded>
      {state === "paused" && <p class="muted">The ticks of the present pause are recorded here when it ends.</p>}
    </Section>
  );
}

function Range({ row, zone }: { row: SkippedTicks; zone: string }) {
  if (row.first === row.last) return <Time at={row.first} zone={zone} form="short" />;
  return (
    <>
      <Time at={row.first} zone={zone} form="short" /> to <Time at={row.last} zone={zone} form="short" />
    </>
  );
}

// The delivery log: each announcement, and whether it arrived.

import { call } from "../../api/client";
import type { Delivery } from "../../api/schema";
import { usePages } from "../../live/paging";
import { Empty } from "../../parts/empty";
import { NewRows, Paged } from "../../parts/paged";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { useTenantScope } from "../../state/session";
import { deliveryState } from "./texts";

const PAGE = 50;

const COLUMNS: Column<Delivery>[] = [
  { title: "State", cell: (delivery) => <State state={delivery.state} {...deliveryState(delivery)} /> },
  { title: "Message", kind: "main", cell: ({ title }) => title },
  { title: "Announces", cell: ({ announcement }) => announcement },
  { title: "Channel", cell: ({ channel }) => channel },
  { title: "Rule", cell: ({ rule }) => rule ?? <span class="muted">–</span> },
  { title: "Written", cell: ({ created_at }) => <Time at={created_at} /> },
  { title: "Attempts", kind: "number", cell: ({ tries }) => tries },
  { title: "Last", cell: ({ last_try_at }) => <Time at={last_try_at} /> },
  { title: "Next", cell: ({ next_try_at, state }) => <Time at={state === "pending" ? next_try_at : null} /> },
  { title: "Error", kind: "wide", cell: ({ error }) => (error === null ? <span class="muted">–</span> : <span class="mono">{error}</span>) },
];

export function DeliveriesTab() {
  const scope = useTenantScope();
  const list = usePages<Delivery>(
    `deliveries ${JSON.stringify(scope)}`,
    (cursor, signal) => call("GET /alerts/deliveries", { query: { ...scope, limit: PAGE, ...(cursor === undefined ? {} : { cursor }) }, signal }),
    10_000,
  );
  return (
    <Section title="Delivery log" aside={<NewRows list={list}>of the last 30 days</NewRows>}>
      <Paged list={list} more="Show older messages">
        {(rows) => (
          <Table
            caption="Announcements, the newest first"
            columns={COLUMNS}
            rows={rows}
            keyOf={({ id }) => id}
            empty={<Empty>{list.hasMore ? "None on this page." : "Nothing has been announced in the last 30 days."}</Empty>}
          />
        )}
      </Paged>
    </Section>
  );
}

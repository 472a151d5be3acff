// The backfills of the schedule. Without any, the page says nothing about them.

import { call } from "../../api/client";
import { isAbout, useData } from "../../live/data";
import { Section } from "../../parts/page";
import { counted } from "../../time/format";
import { BackfillTable } from "../backfills/table";
import { type About, useReloadOnChange } from "./about";

export function BackfillsSection({ tenant, name, revision, made }: About & { /** Counts the backfills that this page has made. */ made: number }) {
  const data = useData(`backfills ${tenant} ${name} ${made}`, (signal) => call("GET /backfills", { query: { tenant, schedule: name }, signal }), {
    when: isAbout(tenant, name),
    every: 10_000,
  });
  useReloadOnChange(data, revision);
  const items = data.value?.items ?? [];
  if (items.length === 0) return null;
  return (
    <Section title="Backfills" aside={counted(items.length, "backfill")}>
      <BackfillTable rows={items} onChange={data.reload} />
    </Section>
  );
}

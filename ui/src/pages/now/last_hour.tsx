// The last hour in figures.

import { call } from "../../api/client";
import { useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { href } from "../../state/route";
import { useTenantScope } from "../../state/session";
import { countText, durationText } from "../../time/format";

export function LastHour() {
  const scope = useTenantScope();
  const data = useData(
    `last hour ${JSON.stringify(scope)}`,
    (signal) => call("GET /statistics", { query: { ...scope, since: "1h", by: "minute" }, signal }),
    { every: 30_000 },
  );
  return (
    <Section title="The last hour" aside="counted once a minute">
      <Loaded data={data}>
        {({ total }) => {
          const skipped = Object.values(total.skipped).reduce((sum, count) => sum + count, 0);
          return (
            <ul class="figures">
              <Figure label="ticks fired" value={countText(total.fired)} />
              <Figure label="runs succeeded" value={countText(total.succeeded)} link={href(["runs"], { state: "succeeded", since: "1h" })} />
              <Figure label="runs failed" value={countText(total.failed)} link={href(["runs", "failures"])} isBad={total.failed > 0} />
              <Figure label="attempts retried" value={countText(total.retried)} />
              <Figure label="ticks skipped or coalesced" value={countText(skipped)} title="each has its reason in the ledger of its schedule" />
              <Figure label="lateness (95 % start sooner)" value={durationText(total.lateness?.p95)} />
            </ul>
          );
        }}
      </Loaded>
    </Section>
  );
}

interface FigureProps {
  label: string;
  value: string;
  link?: string;
  title?: string;
  isBad?: boolean;
}

function Figure({ label, value, link, title, isBad = false }: FigureProps) {
  return (
    <li title={title ?? ""}>
      <strong class={isBad ? "bad" : ""}>{link === undefined ? value : <a href={link} aria-label={`${value} ${label}`}>{value}</a>}</strong>
      <span>{label}</span>
    </li>
  );
}

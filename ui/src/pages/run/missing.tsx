// A run that is not there.

import { call } from "../../api/client";
import { useData } from "../../live/data";
import { Page, Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";

/** `tenants` are those that were asked. */
export function Missing({ tenants, id }: { tenants: string[]; id: string }) {
  return (
    <Page title="Run not found">
      <Section title="There is no such run">
        <div class="stack">
          <p>
            {whoHas(tenants)} no run <code class="whole-id">{id}</code>.
          </p>
          <ul class="notes">
            <li>It may have been purged: ended runs are kept as long as the option “retention” of the nodes says, 30 days by default.</li>
            <li>It may belong to another tenant, or the address may be incomplete.</li>
          </ul>
          {tenants[0] !== undefined && <Traces tenant={tenants[0]} id={id} />}
          <p>
            <a href={href(["runs"])}>All runs</a>
          </p>
        </div>
      </Section>
    </Page>
  );
}

const NAMED = 5;

function whoHas(tenants: string[]): string {
  if (tenants.length === 1) return `The tenant ${tenants[0]} has`;
  const more = tenants.length - NAMED;
  return `The tenants ${tenants.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${counted(more, "other")}` : ""} have`;
}

/** The audit is kept longer than the runs. */
function Traces({ tenant, id }: { tenant: string; id: string }) {
  const data = useData(`traces ${tenant} ${id}`, (signal) => call("GET /audit", { query: { tenant, subject: id, limit: 20 }, signal }));
  const entries = data.value?.items ?? [];
  if (entries.length === 0) return null;
  return (
    <div>
      <h3>The audit knows it</h3>
      <ul class="notes">
        {entries.map((entry) => (
          <li key={entry.id}>
            {entry.action} by {entry.actor}, <Time at={entry.at} form="short" />
          </li>
        ))}
      </ul>
    </div>
  );
}

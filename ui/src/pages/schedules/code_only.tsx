// The schedules without a row: live nodes plan them in memory. Only users who see the nodes see them.

import { call } from "../../api/client";
import { isNode, useData } from "../../live/data";
import { Section } from "../../parts/page";
import { href } from "../../state/route";
import { useMayInStore, useMe } from "../../state/session";
import { counted } from "../../time/format";

export function CodeOnly() {
  return useMayInStore("viewer") ? <CodeOnlyList /> : null;
}

function CodeOnlyList() {
  const { default_tenant } = useMe();
  const data = useData("nodes", (signal) => call("GET /nodes", { signal }), { when: isNode, every: 10_000 });
  const names = [...new Set((data.value?.items ?? []).flatMap(({ code_only }) => code_only))].sort();
  if (names.length === 0) return null;
  return (
    <Section title="In the code only" aside={counted(names.length, "schedule")}>
      <p class="muted">These have no row: nodes plan them in memory, and they can’t be paused or edited.</p>
      <ul class="plain-list">
        {names.map((name) => (
          <li key={name}>
            <a href={href(["schedules", default_tenant, name])}>{name}</a>
          </li>
        ))}
      </ul>
    </Section>
  );
}

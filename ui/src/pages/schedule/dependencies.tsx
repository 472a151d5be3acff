// What the schedule waits for, with the last successes, and the schedules that wait for it.

import { call } from "../../api/client";
import type { Dependencies, Predecessor } from "../../api/schema";
import { isAbout, useData } from "../../live/data";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";
import { type About, useReloadOnChange } from "./about";
import { metText } from "./sentences";

export function DependenciesSection({ tenant, name, zone, revision }: About) {
  const data = useData(
    `dependencies ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}/dependencies", { path: { name }, query: { tenant }, signal }),
    { when: isAbout(tenant, name), every: 15_000 },
  );
  useReloadOnChange(data, revision);
  const linked = data.value;
  // Most schedules stand alone: they have no such section.
  if (linked === undefined || (linked.predecessors.length === 0 && linked.followers.length === 0)) return null;
  return (
    <Section title="Dependencies">
      <div class="stack">
        {linked.predecessors.length > 0 && <Before linked={linked} zone={zone} />}
        {linked.followers.length > 0 && (
          <div>
            <h3>{linked.followers.length === 1 ? "This schedule waits for it" : "These schedules wait for it"}</h3>
            <ul class="dependencies">
              {linked.followers.map((follower) => (
                <li key={follower}>
                  <a href={href(["schedules", tenant, follower])}>{follower}</a>
                </li>
              ))}
            </ul>
          </div>
        )}
      </div>
    </Section>
  );
}

function Before({ linked, zone }: { linked: Dependencies; zone: string }) {
  return (
    <div>
      <h3>{linked.on_success_of === null ? "A tick fires only after" : "Each success of this schedule starts a run"}</h3>
      {linked.after !== null && (
        <p>
          <code>{linked.after}</code>
        </p>
      )}
      <ul class="dependencies">
        {linked.predecessors.map((each) => (
          <li key={each.name}>
            <a href={href(["schedules", linked.tenant, each.name])}>{each.name}</a> <Last predecessor={each} zone={zone} />
          </li>
        ))}
      </ul>
      {linked.waits_until !== null && (
        <p>
          A tick is due and waits, at most until <Time at={linked.waits_until} zone={zone} form="short" />.
        </p>
      )}
      {linked.pending > 0 && <p>{counted(linked.pending, "success", "successes")} not fired yet.</p>}
    </div>
  );
}

function Last({ predecessor, zone }: { predecessor: Predecessor; zone: string }) {
  const words = metText(predecessor);
  if (predecessor.last_success === null || words.startsWith("does not exist")) return <span class="muted">{words}</span>;
  return (
    <>
      {words} <Time at={predecessor.last_success} zone={zone} form="short" />
    </>
  );
}

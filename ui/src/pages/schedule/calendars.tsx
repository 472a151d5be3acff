// The calendars that the trigger names, and the next ticks that they remove or move.

import { call } from "../../api/client";
import type { RemovedTicks } from "../../api/schema";
import { isAbout, useData } from "../../live/data";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";
import { type About, useReloadOnChange } from "./about";

export function CalendarsSection({ tenant, name, zone, revision }: About) {
  const data = useData(
    `calendars of ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}/calendars", { path: { name }, query: { tenant }, signal }),
    { when: isAbout(tenant, name) },
  );
  useReloadOnChange(data, revision);
  const found = data.value;
  // Most schedules have none: they have no such section.
  if (found === undefined || found.skip.length + found.only.length === 0) return null;
  return (
    <Section title="Calendars">
      <div class="stack">
        <p class="names">
          <Names word="Skips" names={found.skip} tenant={tenant} />
          {found.skip.length > 0 && found.only.length > 0 && "; "}
          <Names word={found.skip.length > 0 ? "only in" : "Only in"} names={found.only} tenant={tenant} />
        </p>
        {found.removed.length === 0 ? (
          <p class="muted">They remove no tick within a year.</p>
        ) : (
          <ul class="dependencies" aria-label="Removed next">
            {found.removed.map((each) => (
              <li key={each.first}>
                <Removed removed={each} zone={zone} />
              </li>
            ))}
          </ul>
        )}
      </div>
    </Section>
  );
}

function Names({ word, names, tenant }: { word: string; names: string[]; tenant: string }) {
  if (names.length === 0) return null;
  return (
    <>
      {word}{" "}
      {names.map((each, at) => (
        <span key={each}>
          {at > 0 && ", "}
          <a href={href(["calendars", each], { tenant })}>{each}</a>
        </span>
      ))}
    </>
  );
}

function Removed({ removed, zone }: { removed: RemovedTicks; zone: string }) {
  const many = removed.count > 1;
  return (
    <>
      {many && `${counted(removed.count, "tick")} from `}
      <Time at={removed.first} zone={zone} form="short" /> {removed.moved_to === null ? `${many ? "are" : "is"} left out` : `${many ? "move" : "moves"} to `}
      {removed.moved_to !== null && <Time at={removed.moved_to} zone={zone} form="short" />} <span class="muted">({removed.calendars.join(", ")})</span>
    </>
  );
}

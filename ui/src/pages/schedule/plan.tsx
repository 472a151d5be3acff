// What will happen: the coming ticks, and the policies in words.

import { call } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { isAbout, useData } from "../../live/data";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { policiesOf } from "./sentences";

export const COMING = 10;

export function TicksSection({ schedule }: { schedule: Schedule }) {
  const { state, paused_until } = schedule;
  if (state === "paused" && paused_until === null) {
    return (
      <Section title="Coming ticks">
        <Empty>No tick fires until somebody resumes the schedule.</Empty>
      </Section>
    );
  }
  return <Ticks schedule={schedule} />;
}

function Ticks({ schedule: { tenant, name, timezone: zone, state, trigger } }: { schedule: Schedule }) {
  const data = useData(
    `ticks ${tenant} ${name}`,
    (signal) => call("GET /schedules/{name}/ticks", { path: { name }, query: { tenant, count: COMING }, signal }),
    { when: isAbout(tenant, name) },
  );
  return (
    <Section title="Coming ticks" aside={state === "paused" ? "these fire after the end of the pause" : undefined}>
      <Loaded data={data}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty>{trigger.startsWith("on success of ") ? "It has no ticks of its own: the success of another schedule starts its runs." : "No tick is to come."}</Empty>
          ) : (
            <ol class="coming-ticks">
              {items.map((tick) => (
                <li key={tick}>
                  <Time at={tick} zone={zone} form="exact" /> <Time at={tick} zone={zone} />
                </li>
              ))}
            </ol>
          )
        }
      </Loaded>
    </Section>
  );
}

export function PoliciesSection({ schedule }: { schedule: Schedule }) {
  return (
    <Section title="Policies">
      <dl class="policies">
        {policiesOf(schedule).map(({ name, sentence }) => (
          <div key={name}>
            <dt>
              <code>{name}</code>
            </dt>
            <dd>{sentence}</dd>
          </div>
        ))}
      </dl>
    </Section>
  );
}

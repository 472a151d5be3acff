// The next hour by the minute: how many runs start, and which schedules make the peaks.

import { call } from "../../api/client";
import { isSchedule, useData } from "../../live/data";
import { Bars } from "../../parts/bars";
import { Command } from "../../parts/copy";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { PeakList } from "../../parts/peaks";
import { href } from "../../state/route";
import { useTenantScope } from "../../state/session";
import { counted, toMs } from "../../time/format";
import { useZone } from "../../time/zone";

const MINUTE = 60_000;
const NAMED = 3;

export function NextHour() {
  const scope = useTenantScope();
  const zone = useZone();
  const data = useData(
    `next hour ${JSON.stringify(scope)}`,
    (signal) => call("GET /forecast", { query: { ...scope, hours: 1, by: "minute" }, signal }),
    { when: isSchedule, every: MINUTE },
  );
  return (
    <Section title="The next hour, by the minute" aside={<a href={href(["timeline"], { view: "herd" })}>7 days, quiet windows, spreads</a>}>
      <Loaded data={data}>
        {(forecast) => {
          const start = toMs(forecast.start);
          const peaks = forecast.peaks.filter(({ runs }) => runs > 1).slice(0, NAMED);
          const marked = new Set(peaks.flatMap(({ minutes }) => minutes.map((at) => Math.floor((toMs(at) - start) / MINUTE))));
          if (forecast.total === 0) {
            return (
              <div class="empty">
                <p>No run starts in the next hour.</p>
                {forecast.schedules === 0 && <Command text={'evenbeat schedules add hello --trigger "every 10m" --task my_task'} />}
              </div>
            );
          }
          return (
            <>
              <Bars caption={`Runs that start: ${counted(forecast.total, "run")}`} start={start} step={MINUTE} counts={forecast.counts} zone={zone} marked={marked} markedLabel="peaks, named below" />
              <PeakList peaks={peaks} zone={zone} tenant={scope.tenant ?? null} />
            </>
          );
        }}
      </Loaded>
    </Section>
  );
}

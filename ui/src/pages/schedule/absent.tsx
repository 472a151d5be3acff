// The page of a schedule that does not exist, or no longer.

import { call } from "../../api/client";
import { useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Page } from "../../parts/page";
import { href } from "../../state/route";
import { useZone } from "../../time/zone";
import { AuditSection } from "./audit";
import { Remedy } from "./remedy";
import { asSentence, proposedNames } from "./sentences";

const TITLES: { [verdict: string]: string } = { deleted: "This schedule was deleted", code_only: "This schedule is in the code only" };

export function Absent({ tenant, name }: { tenant: string; name: string }) {
  const tz = useZone();
  const data = useData(`absent ${tenant} ${name} ${tz}`, (signal) => call("GET /schedules/{name}/why", { path: { name }, query: { tenant, tz }, signal }));
  return (
    <Page title={name}>
      <Loaded data={data}>
        {({ sentence, verdict, remedy }) => {
          const names = proposedNames(remedy);
          const isDeleted = verdict === "deleted";
          const hasRuns = isDeleted || verdict === "code_only";
          return (
            <>
              <section class="card stack" aria-label="Not found">
                <h2>{TITLES[verdict] ?? "There is no such schedule"}</h2>
                <p>{asSentence(sentence, name)}</p>
                {names.length === 0 ? (
                  <Remedy text={remedy} />
                ) : (
                  <p class="row">
                    Did you mean
                    {names.map((each) => (
                      <a key={each} href={href(["schedules", tenant, each])}>
                        {each}
                      </a>
                    ))}
                  </p>
                )}
                <p class="row">
                  <a href={href(["schedules"], { tenant, text: name })}>Search schedules like it</a>
                  {hasRuns && <a href={href(["runs"], { tenant, schedule: name })}>Its runs</a>}
                </p>
              </section>
              {isDeleted && <AuditSection tenant={tenant} name={name} zone="UTC" revision={0} />}
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

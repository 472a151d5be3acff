// One tenant: what it has and does, its quota, the limits that name it, and its purge.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { TenantDetails } from "../../api/schema";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Facts, Page, Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { href, navigate } from "../../state/route";
import { useMayInStore } from "../../state/session";
import { countText } from "../../time/format";
import { QuotaUse } from "./index";
import { PurgeDialog } from "./purge_dialog";
import { QuotaDialog, RemoveQuotaDialog } from "./quota_dialog";

export function TenantPage({ name }: { name: string }) {
  const data = useData(`tenant ${name}`, (signal) => call("GET /tenants/{name}", { path: { name }, signal }), {
    when: (change) => change.tenant === name,
    every: 15_000,
  });
  const [asked, setAsked] = useState<"quota" | "remove" | "purge" | null>(null);
  const mayAct = useMayInStore("admin");
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  if (data.error?.status === 404 && asked !== "purge") return <Absent name={name} />;
  const quota = data.value?.quota ?? null;
  return (
    <Page
      title={`Tenant ${name}`}
      actions={
        mayAct &&
        data.value && (
          <Button kind="danger" onClick={() => setAsked("purge")}>
            Purge …
          </Button>
        )
      }
    >
      <Loaded data={data}>{(tenant) => <Shown tenant={tenant} />}</Loaded>
      {data.value && (
        <Section
          title="Quota"
          aside={
            mayAct && (
              <span class="row-buttons">
                <Button small onClick={() => setAsked("quota")}>
                  {quota === null ? "Set a quota …" : "Change …"}
                </Button>
                {quota !== null && (
                  <Button small kind="danger" onClick={() => setAsked("remove")}>
                    Remove …
                  </Button>
                )}
              </span>
            )
          }
        >
          {quota === null ? <p class="muted">It may have any number of schedules and queued runs.</p> : <QuotaUse tenant={data.value} />}
        </Section>
      )}
      {data.value && <LimitNames names={data.value.limits} />}
      {asked === "quota" && <QuotaDialog tenant={name} quota={quota} onClose={close} onDone={done} />}
      {asked === "remove" && quota !== null && <RemoveQuotaDialog tenant={name} quota={quota} onClose={close} onDone={done} />}
      {asked === "purge" && (
        <PurgeDialog
          tenant={name}
          onClose={() => {
            close();
            data.reload();
          }}
          onDone={(words) => {
            notify(words);
            navigate(href(["tenants"], { tenant: null }));
          }}
        />
      )}
    </Page>
  );
}

function Shown({ tenant }: { tenant: TenantDetails }) {
  const { name, ended } = tenant;
  const runs = (state: string, count: number) => (count === 0 ? "0" : <a href={href(["runs"], { tenant: name, state })}>{countText(count)}</a>);
  return (
    <Section title="Work">
      <Facts
        items={[
          ["Schedules", tenant.schedules === 0 ? "0" : <a href={href(["schedules"], { tenant: name })}>{countText(tenant.schedules)}</a>],
          ["Active", countText(tenant.active_schedules)],
          ["Paused", countText(tenant.paused_schedules)],
          ["Next fire", <Time at={tenant.next_fire} />],
          ["Waiting", runs("queued", tenant.due)],
          ["Oldest waiting", <Time at={tenant.oldest_due} />],
          ["Due later", countText(tenant.later)],
          ["Running", runs("running", tenant.running)],
          ["Started, 24 h", countText(tenant.started)],
          ["Succeeded, 24 h", countText(tenant.succeeded)],
          ["Failed, 24 h", countText(tenant.failed)],
          ["Kept: succeeded", runs("succeeded", ended["succeeded"] ?? 0)],
          ["Kept: failed", runs("failed", ended["failed"] ?? 0)],
          ["Kept: cancelled", runs("cancelled", ended["cancelled"] ?? 0)],
        ]}
      />
    </Section>
  );
}

function LimitNames({ names }: { names: string[] }) {
  return (
    <Section title="Limits" aside={<a href={href(["limits"])}>All limits</a>}>
      {names.length === 0 ? (
        <p class="muted">No limit names it.</p>
      ) : (
        <ul class="plain-list">
          {names.map((name) => (
            <li key={name}>
              <code>{name}</code>
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Absent({ name }: { name: string }) {
  return (
    <Page title={`Tenant ${name}`}>
      <Empty>Nothing of this tenant is in the store: no schedule, no run and no quota.</Empty>
      <p>
        <a href={href(["tenants"])}>All tenants</a>
      </p>
    </Page>
  );
}

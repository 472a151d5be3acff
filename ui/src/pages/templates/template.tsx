// One template: its options, and the schedules that inherit from it.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { isSchedule, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { State } from "../../parts/state";
import { Table } from "../../parts/table";
import { href } from "../../state/route";
import { useMay } from "../../state/session";
import { countText } from "../../time/format";
import { type FieldName, LABELS } from "../schedules/form";
import { TemplateOptions } from "./options";
import { TemplateDialog } from "./template_dialog";

/** So many schedules are shown; the list has all of them. */
const SHOWN = 100;

export function TemplatePage({ tenant, name }: { tenant: string; name: string }) {
  const data = useData(`template ${tenant} ${name}`, (signal) => call("GET /templates/{name}", { path: { name }, query: { tenant }, signal }), { every: 30_000 });
  const users = useData(`users of ${tenant} ${name}`, (signal) => call("GET /schedules", { query: { tenant, template: name, limit: SHOWN }, signal }), { when: isSchedule });
  const [isChanging, setChanging] = useState(false);
  const isAdmin = useMay("admin");
  const template = data.value;
  const mayChange = isAdmin && template !== undefined && !template.built_in;
  const done = (words: string): void => {
    notify(words);
    setChanging(false);
    data.reload();
    users.reload();
  };
  const matched = users.value?.matched ?? 0;
  return (
    <Page
      title={`Template ${name}`}
      actions={
        mayChange && (
          <Button kind="primary" onClick={() => setChanging(true)}>
            Change …
          </Button>
        )
      }
    >
      <Section title="Options">
        <Loaded data={data}>
          {(found) => (
            <>
              <TemplateOptions template={found} />
              {found.built_in && <p class="muted">Built in: every tenant has it, and nobody can change it.</p>}
            </>
          )}
        </Loaded>
      </Section>
      <Section title="Schedules that inherit from it" aside={users.value && `${users.value.more_match ? "more than " : ""}${countText(matched)}`}>
        <Loaded data={users}>{({ items }) => <Users items={items} name={name} tenant={tenant} matched={matched} />}</Loaded>
      </Section>
      {isChanging && template && <TemplateDialog tenant={tenant} template={template} onClose={() => setChanging(false)} onDone={done} />}
    </Page>
  );
}

function Users({ items, name, tenant, matched }: { items: Schedule[]; name: string; tenant: string; matched: number }) {
  return (
    <>
      <Table
        caption={`Schedules that inherit from ${name}`}
        rows={items}
        keyOf={(schedule) => schedule.name}
        columns={[
          { title: "Schedule", kind: "main", cell: (schedule) => <a href={href(["schedules", schedule.tenant, schedule.name])}>{schedule.name}</a> },
          { title: "State", cell: ({ state }) => <State state={state} /> },
          { title: "Inherits", kind: "wide", cell: ({ inherited }) => inheritedText(inherited) },
        ]}
        empty={<Empty command={`evenbeat schedules update NAME --template ${name}`}>No schedule inherits from it. Choose it when you create one, or by a command:</Empty>}
      />
      {matched > items.length && (
        <p>
          <a href={href(["schedules"], { tenant, template: name })}>Show all of them</a>
        </p>
      )}
    </>
  );
}

function inheritedText(inherited: string[]): string {
  return inherited.map((option) => LABELS[option as FieldName].toLowerCase()).join(", ") || "nothing: all options are its own";
}

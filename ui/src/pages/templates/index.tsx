// Templates: named sets of options that schedules inherit. A change shows first what it changes.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Template } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href, useRoute } from "../../state/route";
import { useMay, useMe } from "../../state/session";
import { counted } from "../../time/format";
import { TemplateOptions } from "./options";
import { TemplatePage } from "./template";
import { TemplateDialog } from "./template_dialog";

type Asked = { act: "set"; template: Template | null } | { act: "delete"; template: Template };

/** The tenant whose templates are shown: they belong to one tenant. */
function useTenant(): string {
  const me = useMe();
  const { query } = useRoute();
  return me.tenant ?? query.get("tenant") ?? me.default_tenant;
}

export function TemplatesPage({ rest: [name] }: PageProps) {
  const tenant = useTenant();
  return name === undefined ? <TemplateList tenant={tenant} /> : <TemplatePage tenant={tenant} name={name} />;
}

function TemplateList({ tenant }: { tenant: string }) {
  const data = useData(`templates ${tenant}`, (signal) => call("GET /templates", { query: { tenant }, signal }), { every: 30_000 });
  const [asked, setAsked] = useState<Asked | null>(null);
  const isAdmin = useMay("admin");
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  return (
    <Page
      title="Templates"
      actions={
        isAdmin && (
          <Button kind="primary" onClick={() => setAsked({ act: "set", template: null })}>
            New template …
          </Button>
        )
      }
    >
      <Section title={`Templates of ${tenant}`} aside={data.value && counted(data.value.items.length, "template")}>
        <p class="muted">Schedules inherit the options of their template, except for those that they have of their own.</p>
        <Loaded data={data}>
          {({ items }) => <Table caption="Templates, and their options" columns={columnsOf(isAdmin, setAsked)} rows={items} keyOf={({ name }) => name} />}
        </Loaded>
      </Section>
      {asked?.act === "set" && <TemplateDialog tenant={tenant} template={asked.template} onClose={close} onDone={done} />}
      {asked?.act === "delete" && <DeleteDialog template={asked.template} onClose={close} onDone={done} />}
    </Page>
  );
}

function columnsOf(isAdmin: boolean, onAsk: (asked: Asked) => void): Column<Template>[] {
  const columns: Column<Template>[] = [
    { title: "Template", kind: "main", cell: ({ name, tenant }) => <a href={href(["templates", name], { tenant })}>{name}</a> },
    { title: "Origin", cell: ({ built_in }) => <State state={built_in ? "built in" : "own"} tone={built_in ? "off" : "good"} /> },
    { title: "Options", kind: "wide", cell: (template) => <TemplateOptions template={template} /> },
    { title: "Changed", cell: ({ updated_at }) => <Time at={updated_at} /> },
  ];
  if (isAdmin) columns.push({ title: "Actions", cell: (template) => <TemplateButtons template={template} onAsk={onAsk} /> });
  return columns;
}

function TemplateButtons({ template, onAsk }: { template: Template; onAsk: (asked: Asked) => void }) {
  if (template.built_in) return null;
  return (
    <span class="row-buttons">
      <Button small aria-label={`Change ${template.name}`} onClick={() => onAsk({ act: "set", template })}>
        Change
      </Button>
      <Button small kind="danger" aria-label={`Delete ${template.name}`} onClick={() => onAsk({ act: "delete", template })}>
        Delete
      </Button>
    </span>
  );
}

function DeleteDialog({ template, onClose, onDone }: { template: Template; onClose: () => void; onDone: (words: string) => void }) {
  const { name, tenant } = template;
  const remove = useAction(async () => {
    await call("DELETE /templates/{name}", { path: { name }, query: { tenant } });
    onDone(`Deleted the template ${name}.`);
  });
  return (
    <ActionDialog title={`Delete ${name}`} verb="Delete" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p>A template that schedules inherit from is not deleted: give these schedules another template, or none, first.</p>
    </ActionDialog>
  );
}

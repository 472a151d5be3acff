// The form of a new schedule.

import { useRef, useState } from "preact/hooks";
import { call, idempotencyKey } from "../../api/client";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { CheckField, SelectField, TextField } from "../../parts/field";
import { notify } from "../../parts/notice";
import { Page } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { href, navigate, useRoute } from "../../state/route";
import { useMe } from "../../state/session";
import { PolicyFields, WhatFields, WrongFields } from "./fields";
import { createBody, EMPTY, errorsOf, fieldOf, LABELS } from "./form";
import { optionText, rowsOf } from "./options";
import { PreviewCard, usePreview } from "./preview";
import { useForm, useWrongField } from "./use_form";

export function CreateSchedule() {
  const me = useMe();
  const { query } = useRoute();
  const [tenant, setTenant] = useState(me.tenant ?? query.get("tenant") ?? me.default_tenant);
  const [isPaused, setPaused] = useState(false);
  const [note, setNote] = useState("");
  const form = useForm({ ...EMPTY, task: query.get("task") ?? "" });
  const templates = useData(`templates of ${tenant}`, (signal) => call("GET /templates", { query: { tenant }, signal }));
  const [templateName, setTemplate] = useState(query.get("template") ?? "");
  const template = templates.value?.items.find(({ name }) => name === templateName) ?? null;
  const hasTrigger = template !== null && "trigger" in template.options;
  const trigger = form.values.trigger.trim() || optionText(template?.options["trigger"]);
  const preview = usePreview(trigger, form.values.name, null, tenant);
  // One key for one content: a second click, or a repetition after a lost reply, adds nothing.
  const key = useRef({ of: "", key: "" });
  const create = useAction(async () => {
    const body = createBody(form.values, { ...(isPaused ? { paused: true, note: note.trim() } : {}), ...(template === null ? {} : { template: template.name }) });
    if (key.current.of !== `${tenant} ${body}`) key.current = { of: `${tenant} ${body}`, key: idempotencyKey() };
    const made = await call("POST /schedules", { query: { tenant }, bodyText: body, headers: { "Idempotency-Key": key.current.key } });
    notify(`Created ${made.name}.`);
    for (const warning of made.warnings) notify(warning.problem);
    navigate(href(["schedules", made.tenant, made.name]));
  });
  const isOtherProblem = create.error !== null && fieldOf(create.error.field) === null;
  const found = errorsOf(form.values, null);
  // The template has a trigger.
  if (hasTrigger && form.values.trigger.trim() === "") delete found.trigger;
  const errors = form.shownErrors(found, preview, create.error);
  const [element, showWrong] = useWrongField();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    form.touchAll();
    const isDone = Object.keys(found).length === 0 && (await create.run());
    if (!isDone) showWrong();
  };
  return (
    <Page title="New schedule">
      <form ref={element} class="editor" onSubmit={(event) => void submit(event)} noValidate>
        <WhatFields form={form.values} errors={errors} onField={(name, text) => form.set(name, text, create.clear)} isNew hasTemplateTrigger={hasTrigger} triggerWords={preview.explanation !== null && !preview.isOld ? preview.explanation.words : <TriggerHelp />}>
          {me.tenant === null && <TextField label="Tenant" help="Whose schedule it is." value={tenant} onText={setTenant} error={create.error?.field === "tenant" ? create.error.message : null} />}
          <SelectField
            label="Template"
            help={template === null ? "Options that are left empty below come from it." : `Gives ${rowsOf(template.options).map(({ option, text }) => `${LABELS[option].toLowerCase()} ${text || "none"}`).join(", ")}, where you leave the field empty.`}
            value={template?.name ?? ""}
            onText={setTemplate}
            options={[["", "none"], ...(templates.value?.items ?? []).map(({ name, built_in }): [string, string] => [name, built_in ? `${name} (built in)` : name])]}
          />
        </WhatFields>
        <div class="beside">
          <PreviewCard preview={preview} />
        </div>
        <PolicyFields form={form.values} errors={errors} onField={(name, text) => form.set(name, text, create.clear)} isNew />
        <div class="editor-end stack">
          <CheckField label="Create it paused: it waits to be resumed" checked={isPaused} onCheck={setPaused} />
          {isPaused && <TextField label="Note" help="Why it is paused." value={note} onText={setNote} />}
          {isOtherProblem && create.error && <ProblemBox problem={create.error} />}
          <div class="row">
            <Button kind="primary" type="submit" isBusy={create.isBusy}>
              {create.isBusy ? "Create …" : "Create schedule"}
            </Button>
            <a class="button" href={href(["schedules"])}>Cancel</a>
            <WrongFields errors={errors} onShow={showWrong} />
          </div>
        </div>
      </form>
    </Page>
  );
}

export function TriggerHelp() {
  return (
    <>
      A cron (<code>0 9 * * mon-fri tz=Europe/Berlin</code>), a period (<code>every 10m</code>), or a date.
    </>
  );
}

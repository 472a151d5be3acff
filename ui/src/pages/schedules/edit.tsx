// The form that edits a schedule: before it is saved, it shows what changes.

import { useState } from "preact/hooks";
import { call, callText, ifRevision } from "../../api/client";
import type { Schedule } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { href, navigate } from "../../state/route";
import { memberTexts, prettyJson } from "../../api/json_text";
import { OptionChanges, TickComparison } from "./compare";
import { TriggerHelp } from "./create";
import { CodeNotice } from "./drift";
import { PolicyFields, WhatFields, WrongFields } from "./fields";
import { changeBody, changedFields, errorsOf, type FieldName, fieldOf, formOf, LABELS, rebased } from "./form";
import { PreviewCard, usePreview } from "./preview";
import { useForm, useWrongField } from "./use_form";

export function EditSchedule({ tenant, name }: { tenant: string; name: string }) {
  // Not refreshed: what is edited must not change under the hands. A save notices that it has changed.
  const data = useData(`edit ${tenant}/${name}`, (signal) => loaded(tenant, name, signal));
  return (
    <Page title={`Edit ${name}`} actions={<a class="button" href={href(["schedules", tenant, name])}>Back to the schedule</a>}>
      <Loaded data={data}>{(schedule) => <Editor first={schedule} />}</Loaded>
    </Page>
  );
}

/** Read a schedule. The text of its payload is as the server wrote it: every digit is there. */
async function loaded(tenant: string, name: string, signal?: AbortSignal): Promise<Schedule> {
  const text = await callText("GET /schedules/{name}", { path: { name }, query: { tenant }, signal });
  const schedule = JSON.parse(text) as Schedule;
  const payload = schedule.payload_text ?? memberTexts(text)["payload"] ?? "null";
  return { ...schedule, payload_text: payload === "null" ? null : prettyJson(payload) };
}

/** Say which options come from a template: a change here makes them the schedule's own. */
function TemplateNotice({ schedule: { template, inherited, tenant } }: { schedule: Schedule }) {
  if (template === null || inherited.length === 0) return null;
  const options = inherited.map((option) => LABELS[option as FieldName].toLowerCase()).join(", ");
  return (
    <p class="muted" role="note" aria-label="Template">
      It inherits {options} from the template <a href={href(["templates", template], { tenant })}>{template}</a>. An option that you change here becomes its own.
    </p>
  );
}

function Editor({ first }: { first: Schedule }) {
  const [schedule, setSchedule] = useState(first);
  const [isReviewing, setReviewing] = useState(false);
  const { name, tenant } = schedule;
  const before = formOf(schedule);
  const form = useForm(before);
  const preview = usePreview(form.values.trigger, name, schedule);
  const save = useAction(async () => {
    await call("PATCH /schedules/{name}", {
      path: { name },
      query: { tenant },
      bodyText: changeBody(form.values, before),
      headers: ifRevision(schedule.revision),
    });
    notify(`Saved ${name}. No tick fired from this edit.`);
    navigate(href(["schedules", tenant, name]));
  });
  /** Read the schedule again. What the user has changed stays. */
  const reload = useAction(async () => {
    const fresh = await loaded(tenant, name);
    form.replace(rebased(form.values, before, formOf(fresh)));
    setSchedule(fresh);
    setReviewing(false);
    save.clear();
    notify("Loaded again. Your entries stay.");
  });
  const changed = changedFields(form.values, before);
  const found = errorsOf(form.values, before);
  const isStale = save.error?.status === 412;
  const field = isStale ? null : fieldOf(save.error?.field ?? null);
  const errors = form.shownErrors(found, preview, isStale ? null : save.error);
  const [element, showWrong] = useWrongField();
  const review = (event: Event): void => {
    event.preventDefault();
    form.touchAll();
    save.clear();
    const isRight = Object.keys(found).length === 0 && (preview.problem === null || preview.problem.isTransient);
    if (isRight && changed.length > 0) setReviewing(true);
    if (!isRight) showWrong();
  };
  const saveNow = async (): Promise<void> => {
    const done = await save.run();
    // A refused value is shown at its field.
    if (!done) {
      setReviewing(false);
      showWrong();
    }
  };
  const set = (each: Parameters<typeof form.set>[0], text: string): void => form.set(each, text, save.clear);
  return (
    <form ref={element} class="editor" onSubmit={review} noValidate>
      <div class="across">
        <CodeNotice schedule={schedule} onReset={() => void reload.run()} />
        <TemplateNotice schedule={schedule} />
      </div>
      <WhatFields form={form.values} errors={errors} onField={set} isNew={false} triggerWords={preview.explanation !== null && !preview.isOld ? preview.explanation.words : <TriggerHelp />} />
      <div class="beside">
        <PreviewCard preview={preview} />
      </div>
      <PolicyFields form={form.values} errors={errors} onField={set} isNew={false} />
      <div class="editor-end stack">
        {isStale && (
          <div class="problem" role="alert">
            <p>The schedule has changed meanwhile. Load it again; your entries stay.</p>
            <Button small isBusy={reload.isBusy} onClick={() => void reload.run()}>
              Load again
            </Button>
          </div>
        )}
        {save.error !== null && !isStale && field === null && <ProblemBox problem={save.error} />}
        {reload.error && <ProblemBox problem={reload.error} />}
        <div class="row">
          <Button kind="primary" type="submit" disabled={changed.length === 0}>
            Review and save
          </Button>
          <a class="button" href={href(["schedules", tenant, name])}>Cancel</a>
          <span class="muted">{changed.length === 0 ? "Nothing is changed yet." : `Changed: ${changed.map((each) => LABELS[each].toLowerCase()).join(", ")}.`}</span>
          <WrongFields errors={errors} onShow={showWrong} />
        </div>
      </div>
      {isReviewing && (
        <ActionDialog title={`Save the changes of ${name}?`} verb="Save" isBusy={save.isBusy} error={null} onSubmit={() => void saveNow()} onClose={() => setReviewing(false)} wide>
          <OptionChanges changes={changed.map((each) => ({ name: LABELS[each], before: before[each], after: form.values[each].trim() }))} />
          {changed.includes("trigger") ? <TickComparison schedule={schedule} trigger={form.values.trigger.trim()} /> : <p>All ticks stay where they are.</p>}
          {schedule.state === "paused" && <p>It is paused, and stays so: no tick fires until it is resumed.</p>}
          <p>
            <strong>No tick fires from this edit.</strong>
          </p>
        </ActionDialog>
      )}
    </form>
  );
}

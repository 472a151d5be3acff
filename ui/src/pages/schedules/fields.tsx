// The fields of the form of a schedule, in groups, each with its help in words.

import type { ComponentChildren } from "preact";
import { call } from "../../api/client";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { AreaField, SelectField, TextField } from "../../parts/field";
import { Section } from "../../parts/page";
import { useMe } from "../../state/session";
import { type Errors, type FieldName, type Form, LABELS, usesOption, wrongText } from "./form";

export interface FieldsProps {
  form: Form;
  errors: Errors;
  onField: (name: FieldName, text: string) => void;
  isNew: boolean;
}

const TASKS = "tasks-of-nodes";

/** Proposals for the task: the tasks of live nodes, which only tokens of all tenants may read. */
function TaskList() {
  const nodes = useData("tasks of nodes", (signal) => call("GET /nodes", { signal }), { every: 60_000 });
  const names = [...new Set((nodes.value?.items ?? []).flatMap(({ tasks }) => Object.keys(tasks)))].sort();
  return (
    <datalist id={TASKS}>
      {names.map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}

interface WhatProps extends FieldsProps {
  triggerWords: ComponentChildren;
  /** Whether the trigger may come from a template. */
  hasTemplateTrigger?: boolean;
  children?: ComponentChildren;
}

export function WhatFields({ form, errors, onField, isNew, triggerWords, hasTemplateTrigger = false, children }: WhatProps) {
  const me = useMe();
  return (
    <Section title="What runs when">
      <div class="stack">
        {children}
        {isNew && <Text name="name" {...{ form, errors, onField }} help="How people find it, such as mail-digest. It can't be changed later." required />}
        <Text name="task" {...{ form, errors, onField }} help="The function to call, by the name that nodes know it by." list={TASKS} required />
        {me.tenant === null && <TaskList />}
        <Text
          name="trigger"
          {...{ form, errors, onField }}
          help={triggerWords}
          placeholder="0 9 * * mon-fri tz=Europe/Berlin, or every 10m"
          required={!hasTemplateTrigger}
          mono
        />
        <AreaField
          label={LABELS.payload}
          help={'The arguments of the task, as a JSON object: {"to": "ops"}. Numbers keep every digit. Empty: none.'}
          error={errors.payload ?? null}
          value={form.payload}
          onText={(text) => onField("payload", text)}
          mono
          rows={Math.min(12, Math.max(3, form.payload.split("\n").length))}
        />
        <Text name="tags" {...{ form, errors, onField }} help="Words by which it is found: billing team:ops" />
        <AreaField label={LABELS.description} help="What it is for, at most 1,000 characters." error={errors.description ?? null} value={form.description} onText={(text) => onField("description", text)} rows={2} />
      </div>
    </Section>
  );
}

/** How many fields need another value, at the button that saves, and the way to the first of them. */
export function WrongFields({ errors, onShow }: { errors: Errors; onShow: () => void }) {
  const text = wrongText(errors);
  if (text === "") return null;
  return (
    <>
      <span class="help wrong">{text}</span>
      <Button kind="quiet" small onClick={onShow}>
        {Object.keys(errors).length === 1 ? "Show it" : "Show the first"}
      </Button>
    </>
  );
}

type TextProps = Pick<FieldsProps, "form" | "errors" | "onField"> & { name: FieldName; help: ComponentChildren; list?: string; placeholder?: string; required?: boolean; mono?: boolean };

function Text({ name, form, errors, onField, help, list, placeholder = "", required = false, mono = false }: TextProps) {
  return (
    <TextField
      label={LABELS[name]}
      help={help}
      error={errors[name] ?? null}
      value={form[name]}
      onText={(text) => onField(name, text)}
      placeholder={placeholder}
      required={required}
      mono={mono}
      {...(list === undefined ? {} : { list })}
    />
  );
}

export const CATCH_UP: [string, string][] = [
  ["latest", "the latest runs, for all of them"],
  ["all", "all run, one after another"],
  ["skip", "none run, except within the grace"],
];
export const OVERLAP: [string, string][] = [
  ["allow", "starts beside it"],
  ["skip", "is skipped"],
  ["queue", "waits; only the latest that waits runs"],
  ["queue_all", "waits; all that wait run in turn"],
  ["cancel_running", "cancels it, and then starts"],
];
export const ON_CRASH: [string, string][] = [
  ["rerun", "the run starts again"],
  ["fail", "the run fails"],
];
export const PRIORITIES = ["9", "8", "7", "6", "5", "4", "3", "2", "1", "0"].map((value): [string, string] => [value, value === "8" ? "8, high" : value === "5" ? "5, normal" : value === "2" ? "2, low" : value]);

/** A new schedule takes what it does not name from its task, or else the default of the server. */
function options(isNew: boolean, fallback: string, known: [string, string][]): [string, string][] {
  return isNew ? [["", `as the task says, or ${fallback}`], ...known] : known;
}

export function PolicyFields({ form, errors, onField, isNew }: FieldsProps) {
  const shared = { form, errors, onField };
  const choice = (name: FieldName, help: string, known: [string, string][]) => (
    <SelectField label={LABELS[name]} help={help} error={errors[name] ?? null} value={form[name]} onText={(text) => onField(name, text)} options={known} />
  );
  const fallback = (text: string): string => (isNew ? text : "");
  return (
    <>
      <Section title="Missed and overlapping ticks">
        <div class="field-grid">
          {choice("catch_up", "Which ticks run that were missed while no node was up.", options(isNew, "latest", CATCH_UP))}
          {usesOption(form.catch_up, "grace") && <Text name="grace" {...shared} help="Ticks that are at most this late still run." placeholder={fallback("1m")} />}
          {usesOption(form.catch_up, "catch_up_limit") && <Text name="catch_up_limit" {...shared} help="At most this many missed ticks run, the newest ones." placeholder={fallback("100")} />}
          {usesOption(form.catch_up, "catch_up_max_age") && <Text name="catch_up_max_age" {...shared} help="Ticks that are later than this do not run. Empty: any age." />}
          {usesOption(form.catch_up, "catch_up_rate") && <Text name="catch_up_rate" {...shared} help="Missed ticks run no faster than this: 10/m. Empty: at once." />}
          {choice("overlap", "What a tick does while the last run is active.", options(isNew, "allow", OVERLAP))}
          <Text name="max_concurrent" {...shared} help="How many of its runs may be active at once; further ticks wait. Empty: any number." />
          <Text name="spread" {...shared} help="Ticks fire up to this much later, by an amount that depends on the name alone. Spreads out schedules that share a minute." placeholder={fallback("0s")} />
          <Text name="after" {...shared} help="Schedules that must have succeeded lately before a tick fires: load within 1h wait 30m. Empty: none." />
        </div>
      </Section>
      <Section title="Failures">
        <div class="field-grid">
          <Text name="retries" {...shared} help="How many times a failed run is retried." placeholder={fallback("0")} />
          <Text name="backoff" {...shared} help="It doubles with each retry." placeholder={fallback("10s")} />
          <Text name="max_backoff" {...shared} help="The wait stops doubling there." placeholder={fallback("1h")} />
          <Text name="timeout" {...shared} help="An attempt that takes longer is asked to stop, and fails unless it returns all the same. Empty: none." />
          {choice("on_crash", "What becomes of a run that lost its worker.", options(isNew, "rerun", ON_CRASH))}
          <Text name="max_crashes" {...shared} help="How many times at most a run starts again after its worker died." placeholder={fallback("3")} />
          <Text name="expires" {...shared} help="A run that has not started so long after its planned start is cancelled instead. Empty: never." />
        </div>
      </Section>
      <Section title="Queue">
        <div class="field-grid">
          <Text name="queue" {...shared} help="Where its runs wait for a worker." placeholder={fallback("default")} />
          {choice("priority", "Runs with a higher priority start first.", options(isNew, "5", PRIORITIES))}
        </div>
      </Section>
    </>
  );
}

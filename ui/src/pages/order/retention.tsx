// The retention rules: how long, and how many, ended runs are kept.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { RetentionRule } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { SelectField, TextField } from "../../parts/field";
import { fieldErrors } from "../../parts/field_errors";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { useMayInStore } from "../../state/session";
import { countText } from "../../time/format";
import { coverText, FIRST, formOf, idOf, isComplete, keepText, type RuleForm, STATES, wantedOf } from "./texts";

type Asked = { act: "set"; rule: RetentionRule | null } | { act: "remove"; rule: RetentionRule };

export function RetentionSection() {
  const data = useData("retention", (signal) => call("GET /retention", { signal }), { every: 15_000 });
  const [asked, setAsked] = useState<Asked | null>(null);
  const mayAct = useMayInStore("admin");
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  return (
    <Section title="Retention" aside={mayAct && <Button small onClick={() => setAsked({ act: "set", rule: null })}>New rule …</Button>}>
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption="Retention rules"
            columns={columnsOf(mayAct, setAsked)}
            rows={items}
            keyOf={({ tenant, state }) => JSON.stringify([tenant, state])}
            empty={<Empty command="evenbeat retention set --state failed --keep 30d">No rule: the setting “retention” of the nodes says how long ended runs are kept. A rule overrides it:</Empty>}
          />
        )}
      </Loaded>
      {asked?.act === "set" && <RuleDialog rule={asked.rule} onClose={close} onDone={done} />}
      {asked?.act === "remove" && <RemoveDialog rule={asked.rule} onClose={close} onDone={done} />}
    </Section>
  );
}

function columnsOf(mayAct: boolean, onAsk: (asked: Asked) => void): Column<RetentionRule>[] {
  const columns: Column<RetentionRule>[] = [
    { title: "Rule", kind: "main", cell: ({ words }) => words },
    { title: "Tenant", cell: ({ tenant }) => tenant ?? <em class="keep-whole">all tenants</em> },
    { title: "State", cell: ({ state }) => state ?? <em class="keep-whole">every state</em> },
    { title: "Keep for", kind: "number", cell: ({ keep }) => keepText(keep) },
    { title: "Keep at most", kind: "number", cell: ({ most }) => (most === null ? "–" : countText(most)) },
    { title: "Changed", cell: ({ updated_at }) => <Time at={updated_at} /> },
    { title: "By", kind: "wide", cell: ({ updated_by }) => updated_by },
  ];
  if (mayAct) {
    columns.push({
      title: "Actions",
      cell: (rule) => (
        <span class="row-buttons">
          <Button small aria-label={`Change the rule for ${coverText(rule)}`} onClick={() => onAsk({ act: "set", rule })}>
            Change
          </Button>
          <Button small kind="danger" aria-label={`Remove the rule for ${coverText(rule)}`} onClick={() => onAsk({ act: "remove", rule })}>
            Remove
          </Button>
        </span>
      ),
    });
  }
  return columns;
}

interface RuleProps {
  onClose: () => void;
  onDone: (words: string) => void;
}

const FIELDS = ["tenant", "state", "keep", "most"] as const;

function RuleDialog({ rule, onClose, onDone }: RuleProps & { rule: RetentionRule | null }) {
  const [form, setForm] = useState<RuleForm>(rule === null ? FIRST : formOf(rule));
  const put = (changes: Partial<RuleForm>): void => setForm((old) => ({ ...old, ...changes }));
  const set = useAction(async () => {
    const made = await call("POST /retention", { body: wantedOf(form) });
    onDone(`Set the rule: ${made.words}`);
  });
  const errors = fieldErrors(set.error, FIELDS);
  return (
    <ActionDialog
      title={rule === null ? "New retention rule" : `Rule for ${coverText(rule)}`}
      verb={rule === null ? "Set" : "Save"}
      disabled={!isComplete(form)}
      isBusy={set.isBusy}
      error={errors.rest}
      onSubmit={() => void set.run()}
      onClose={onClose}
    >
      {rule === null && (
        <div class="field-pairs">
          <TextField label="Tenant" value={form.tenant} onText={(tenant) => put({ tenant })} placeholder="all tenants" error={errors.at("tenant")} help="Empty: all tenants." />
          <SelectField label="State of the runs" value={form.state} onText={(state) => put({ state })} options={STATES} error={errors.at("state")} />
        </div>
      )}
      <div class="field-pairs">
        <TextField label="Keep for" value={form.keep} onText={(keep) => put({ keep })} placeholder="30d" error={errors.at("keep")} help="A duration after the end: 12h, 30d. Empty: another rule decides." />
        <TextField label="Keep at most" value={form.most} onText={(most) => put({ most })} placeholder="any number" error={errors.at("most")} help="Only so many, the newest. Empty: any number." />
      </div>
      <p class="warning">Nodes delete the runs that are too old or too many, with their logs, within a minute. This can't be undone.</p>
    </ActionDialog>
  );
}

function RemoveDialog({ rule, onClose, onDone }: RuleProps & { rule: RetentionRule }) {
  const remove = useAction(async () => {
    await call("DELETE /retention", { query: idOf(rule) });
    onDone(`Removed the rule for ${coverText(rule)}.`);
  });
  return (
    <ActionDialog title="Remove the retention rule" verb="Remove" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p class="whole-text">The rule was: {rule.words}</p>
      <p>A less specific rule, or the setting “retention” of the nodes, decides from now on. It may delete more than this rule.</p>
    </ActionDialog>
  );
}

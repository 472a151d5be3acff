// Create or change an alert rule.

import { useState } from "preact/hooks";
import { call, ifRevision } from "../../api/client";
import type { AlertRule } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { CheckField, SelectField, TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { CoverFields, type Cover, coverBody, coverOf } from "./cover";
import { OwnerField, useFirstOwner } from "./owner";
import { type Condition, CONDITIONS, managedText, ownedBy, readCondition, writtenCondition } from "./texts";

interface RuleDialogProps {
  /** null: a new one. */
  rule: AlertRule | null;
  onClose: () => void;
  onDone: (words: string) => void;
}

export function RuleDialog({ rule, onClose, onDone }: RuleDialogProps) {
  const firstOwner = useFirstOwner();
  const [owner, setOwner] = useState(rule === null ? firstOwner : rule.tenant);
  const [name, setName] = useState(rule?.name ?? "");
  const [conditions, setConditions] = useState<Condition[]>((rule?.on ?? ["failed"]).map(readCondition));
  const [to, setTo] = useState<string[]>(rule?.to ?? []);
  const [cover, setCover] = useState<Cover>(coverOf(rule));
  const [recovery, setRecovery] = useState(rule?.recovery ?? true);
  const save = useAction(async () => {
    const body = { on: conditions.map(writtenCondition), to, recovery, ...coverBody(cover) };
    if (rule === null) {
      await call("POST /alerts/rules", { query: ownedBy(owner), body: { ...body, name: name.trim() } });
      onDone(`Created the rule ${name.trim()}.`);
    } else {
      await call("PATCH /alerts/rules/{name}", { path: { name: rule.name }, query: ownedBy(owner), body, headers: ifRevision(rule.revision) });
      onDone(`Changed the rule ${rule.name}.`);
    }
  });
  const isComplete = (rule !== null || name.trim() !== "") && conditions.length > 0 && to.length > 0 && (cover.kind === "all" || cover.name.trim() !== "");
  const managed = rule && managedText(rule.managed_by);
  return (
    <ActionDialog
      title={rule === null ? "New alert rule" : `Edit the rule ${rule.name}`}
      verb={rule === null ? "Create" : "Save"}
      disabled={!isComplete}
      isBusy={save.isBusy}
      error={save.error}
      onSubmit={() => void save.run()}
      onClose={onClose}
    >
      {managed && <p class="warning">The rule is {managed}: the next node that starts with this declaration undoes changes made here.</p>}
      {rule === null && (
        <>
          <TextField label="Name" required value={name} onText={setName} placeholder="failures" />
          <OwnerField
            owner={owner}
            onOwner={(chosen) => {
              setOwner(chosen);
              setTo([]);
              if (chosen !== null) setConditions((old) => old.filter(({ kind }) => !isShared(kind)));
            }}
            help="A rule for all tenants uses channels for all tenants. Tenants do not see it."
          />
        </>
      )}
      <ConditionFields conditions={conditions} onConditions={setConditions} withShared={owner === null} />
      <CoverFields cover={cover} onCover={setCover} />
      <ChannelChoice owner={owner} chosen={to} onChosen={setTo} />
      <CheckField label="Announce the end, too" checked={recovery} onCheck={setRecovery} />
    </ActionDialog>
  );
}

function isShared(kind: string): boolean {
  return CONDITIONS.some((each) => each.kind === kind && each.isShared === true);
}

interface ConditionFieldsProps {
  conditions: Condition[];
  onConditions: (conditions: Condition[]) => void;
  withShared: boolean;
}

const MOST = 10;

function ConditionFields({ conditions, onConditions, withShared }: ConditionFieldsProps) {
  const offered = CONDITIONS.filter(({ isShared: shared }) => withShared || shared !== true);
  const put = (index: number, condition: Condition): void => onConditions(conditions.map((old, each) => (each === index ? condition : old)));
  return (
    <fieldset class="fieldset">
      <legend>Announce if</legend>
      {conditions.map((condition, index) => {
        const value = CONDITIONS.find(({ kind }) => kind === condition.kind)?.value;
        return (
          <div class="condition" key={index}>
            <SelectField
              label={`Condition ${index + 1}`}
              value={condition.kind}
              options={offered.map(({ kind, label }) => [kind, label])}
              onText={(kind) => put(index, { kind, value: CONDITIONS.find((each) => each.kind === kind)?.value?.initial ?? "" })}
            />
            {value && <TextField label={value.label} value={condition.value} onText={(text) => put(index, { ...condition, value: text })} placeholder={value.initial} />}
            {conditions.length > 1 && (
              <Button small kind="quiet" aria-label={`Remove condition ${index + 1}`} onClick={() => onConditions(conditions.filter((_, each) => each !== index))}>
                Remove
              </Button>
            )}
          </div>
        );
      })}
      {conditions.length < MOST && (
        <div>
          <Button small onClick={() => onConditions([...conditions, { kind: "failing", value: "3" }])}>
            Add a condition
          </Button>
        </div>
      )}
    </fieldset>
  );
}

function ChannelChoice({ owner, chosen, onChosen }: { owner: string | null; chosen: string[]; onChosen: (names: string[]) => void }) {
  const data = useData(`channels of ${JSON.stringify(owner)}`, (signal) => call("GET /alerts/channels", { query: ownedBy(owner), signal }));
  return (
    <fieldset class="fieldset">
      <legend>To the channels</legend>
      <Loaded data={data}>
        {({ items }) => {
          const names = items.filter(({ tenant }) => tenant === owner).map(({ name }) => name);
          if (names.length === 0) return <p class="muted">There is no channel {owner === null ? "for all tenants" : `of tenant ${owner}`} yet: create one first.</p>;
          return names.map((name) => (
            <CheckField
              key={name}
              label={name}
              checked={chosen.includes(name)}
              onCheck={(isChosen) => onChosen(isChosen ? [...chosen, name] : chosen.filter((each) => each !== name))}
            />
          ));
        }}
      </Loaded>
    </fieldset>
  );
}

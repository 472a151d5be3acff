// The alert rules: what is announced, of which schedules, on which channels.

import { useState } from "preact/hooks";
import { call, ifRevision } from "../../api/client";
import type { AlertRule } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { useMay, useTenantScope } from "../../state/session";
import { now } from "../../time/clock";
import { toMs } from "../../time/format";
import { Owner } from "./owner";
import { RuleDialog } from "./rule_dialog";
import { conditionText, coversText, managedText, ownedBy, ownedKey } from "./texts";
import { type Moment, MomentField } from "./until";

type Asked = { act: "create" } | { act: "edit" | "delete" | "mute" | "unmute"; rule: AlertRule };

export function RulesTab() {
  const scope = useTenantScope();
  const data = useData(`rules ${JSON.stringify(scope)}`, (signal) => call("GET /alerts/rules", { query: scope, signal }), { every: 15_000 });
  const [asked, setAsked] = useState<Asked | null>(null);
  const isAdmin = useMay("admin");
  const mayMute = useMay("operator");
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  return (
    <Section title="Rules" aside={isAdmin && <Button small onClick={() => setAsked({ act: "create" })}>New rule …</Button>}>
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption="Alert rules"
            columns={columnsOf(isAdmin, mayMute, setAsked)}
            rows={items}
            keyOf={ownedKey}
            empty={
              <Empty command="evenbeat alerts add failures --on failed --on failing:3 --to CHANNEL">
                No rule: nobody is told when something fails. A rule needs a channel first.
              </Empty>
            }
          />
        )}
      </Loaded>
      {asked?.act === "create" && <RuleDialog rule={null} onClose={close} onDone={done} />}
      {asked?.act === "edit" && <RuleDialog rule={asked.rule} onClose={close} onDone={done} />}
      {asked?.act === "delete" && <DeleteDialog rule={asked.rule} onClose={close} onDone={done} />}
      {asked?.act === "mute" && <MuteDialog rule={asked.rule} onClose={close} onDone={done} />}
      {asked?.act === "unmute" && <UnmuteDialog rule={asked.rule} onClose={close} onDone={done} />}
    </Section>
  );
}

function isMuted({ muted_until }: AlertRule): boolean {
  return muted_until !== null && toMs(muted_until) > now();
}

function columnsOf(isAdmin: boolean, mayMute: boolean, onAsk: (asked: Asked) => void): Column<AlertRule>[] {
  const columns: Column<AlertRule>[] = [
    { title: "Rule", kind: "main", cell: (rule) => <RuleName rule={rule} /> },
    { title: "State", cell: (rule) => <RuleState rule={rule} /> },
    { title: "On", kind: "wide", cell: ({ on }) => <span title={on.join(", ")}>{on.map(conditionText).join(", ")}</span> },
    { title: "Covers", cell: (rule) => <span class="keep-whole">{coversText(rule)}</span> },
    { title: "Tenant", cell: ({ tenant }) => <Owner tenant={tenant} /> },
    { title: "To", cell: ({ to }) => <Channels names={to} /> },
    { title: "Recovery", cell: ({ recovery }) => (recovery ? "announced" : "not announced") },
  ];
  if (mayMute) columns.push({ title: "Actions", cell: (rule) => <RuleButtons rule={rule} isAdmin={isAdmin} onAsk={onAsk} /> });
  return columns;
}

function RuleName({ rule }: { rule: AlertRule }) {
  const managed = managedText(rule.managed_by);
  return (
    <span>
      {rule.name} {managed && <span class="tag">{managed}</span>}
    </span>
  );
}

function Channels({ names }: { names: string[] }) {
  return (
    <span>
      {names.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <span class="keep-whole">{name}</span>
        </span>
      ))}
    </span>
  );
}

function RuleState({ rule }: { rule: AlertRule }) {
  if (!isMuted(rule)) return <State state="active" />;
  return (
    <span>
      <State state="muted" /> until <Time at={rule.muted_until} form="short" />
    </span>
  );
}

function RuleButtons({ rule, isAdmin, onAsk }: { rule: AlertRule; isAdmin: boolean; onAsk: (asked: Asked) => void }) {
  return (
    <span class="row-buttons">
      {isMuted(rule) ? (
        <Button small aria-label={`Unmute ${rule.name}`} onClick={() => onAsk({ act: "unmute", rule })}>
          Unmute
        </Button>
      ) : (
        <Button small aria-label={`Mute ${rule.name}`} onClick={() => onAsk({ act: "mute", rule })}>
          Mute
        </Button>
      )}
      {isAdmin && (
        <>
          <Button small aria-label={`Edit ${rule.name}`} onClick={() => onAsk({ act: "edit", rule })}>
            Edit
          </Button>
          <Button small kind="danger" aria-label={`Delete ${rule.name}`} onClick={() => onAsk({ act: "delete", rule })}>
            Delete
          </Button>
        </>
      )}
    </span>
  );
}

interface RuleActionProps {
  rule: AlertRule;
  onClose: () => void;
  onDone: (words: string) => void;
}

const MUTES: [string, string][] = [
  ["1h", "in 1 hour"],
  ["4h", "in 4 hours"],
  ["1d", "in 1 day"],
];

function MuteDialog({ rule, onClose, onDone }: RuleActionProps) {
  const [until, setUntil] = useState<Moment>({ value: "1h", problem: null });
  const mute = useAction(async () => {
    await call("POST /alerts/rules/{name}/mute", { path: { name: rule.name }, query: ownedBy(rule.tenant), body: { until: until.value }, headers: ifRevision(rule.revision) });
    onDone(`Muted ${rule.name}.`);
  });
  return (
    <ActionDialog
      title={`Mute ${rule.name}`}
      verb="Mute"
      disabled={until.problem !== null}
      isBusy={mute.isBusy}
      error={mute.error}
      onSubmit={() => void mute.run()}
      onClose={onClose}
    >
      <p>The rule announces nothing that begins during the mute. What is still wrong when the mute ends is announced then.</p>
      <MomentField label="The mute ends" presets={MUTES} moment={until} onMoment={setUntil} />
    </ActionDialog>
  );
}

function UnmuteDialog({ rule, onClose, onDone }: RuleActionProps) {
  const unmute = useAction(async () => {
    await call("POST /alerts/rules/{name}/unmute", { path: { name: rule.name }, query: ownedBy(rule.tenant), headers: ifRevision(rule.revision) });
    onDone(`${rule.name} announces again.`);
  });
  return (
    <ActionDialog title={`Unmute ${rule.name}`} verb="Unmute" isBusy={unmute.isBusy} error={unmute.error} onSubmit={() => void unmute.run()} onClose={onClose}>
      <p>The rule announces again. What is wrong now is announced now, to {rule.to.join(", ")}.</p>
    </ActionDialog>
  );
}

function DeleteDialog({ rule, onClose, onDone }: RuleActionProps) {
  const remove = useAction(async () => {
    await call("DELETE /alerts/rules/{name}", { path: { name: rule.name }, query: ownedBy(rule.tenant), headers: ifRevision(rule.revision) });
    onDone(`Deleted the rule ${rule.name}.`);
  });
  const managed = managedText(rule.managed_by);
  return (
    <ActionDialog title={`Delete the rule ${rule.name}`} verb="Delete" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p>
        Nobody is told any more about: {rule.on.map(conditionText).join(", ")} ({coversText(rule)}). Its open incidents end without an announcement.
      </p>
      {managed && <p class="warning">The rule is {managed}: the next node that starts with this declaration creates it again.</p>}
    </ActionDialog>
  );
}

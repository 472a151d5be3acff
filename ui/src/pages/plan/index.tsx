// Plan: what a deploy of the server's app would change about schedules, and the button that applies it.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { DeployPlan, DeployResult, PlanEntry } from "../../api/schema";
import { useAction } from "../../live/action";
import { isSchedule, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { CheckField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { State } from "../../parts/state";
import type { PageProps } from "../../shell/routes";
import { useMay, useTenantScope } from "../../state/session";
import { counted } from "../../time/format";
import { Entry } from "./entry";
import { countsText, HELP, ofAction, ORDER, resultText, TITLES, toDo } from "./texts";

export function PlanPage(_: PageProps) {
  const scope = useTenantScope();
  const [prune, setPrune] = useState(false);
  const [adopt, setAdopt] = useState(false);
  const data = useData(`plan ${JSON.stringify([scope, prune, adopt])}`, (signal) => call("GET /plan", { query: { ...scope, prune, adopt }, signal }), {
    when: isSchedule,
    every: 30_000,
  });
  const [asks, setAsks] = useState(false);
  const [result, setResult] = useState<DeployResult | null>(null);
  const isAdmin = useMay("admin");
  const changes = data.value ? toDo(data.value).length : 0;
  return (
    <Page
      title="Plan"
      actions={
        isAdmin && (
          <Button kind="primary" disabled={changes === 0} onClick={() => setAsks(true)}>
            Apply …
          </Button>
        )
      }
    >
      <Section title="What a deploy changes" aside={data.value && countsText(data.value)}>
        <div class="stack">
          <p>The schedules that the code of the server's app and its file declare, compared with the stored ones. Nodes that start with this code add and change them, too; only an apply removes any.</p>
          <div class="row">
            <CheckField label="Remove what is not declared any more" checked={prune} onCheck={setPrune} />
            <CheckField label="Take over what was made by hand" checked={adopt} onCheck={setAdopt} />
          </div>
          <Loaded data={data}>{(plan) => <Summary plan={plan} />}</Loaded>
        </div>
      </Section>
      {result !== null && result.refused.length > 0 && <Refused result={result} />}
      {data.value && <Groups plan={data.value} />}
      {asks && data.value && (
        <ApplyDialog
          plan={data.value}
          prune={prune}
          adopt={adopt}
          onClose={() => setAsks(false)}
          onDone={(done) => {
            setResult(done);
            setAsks(false);
            data.reload();
          }}
        />
      )}
    </Page>
  );
}

function Summary({ plan }: { plan: DeployPlan }) {
  if (plan.entries.length === 0 && plan.unchanged === 0) {
    return <Empty command="evenbeat web app.py">This server declares no schedules: it was started without an app, or the app declares none. Start it with one:</Empty>;
  }
  return (
    <>
      {toDo(plan).length === 0 && (
        <p class="calm">
          <State state="ok" label="nothing to apply" /> {counted(plan.unchanged, "declared schedule")} {plan.unchanged === 1 ? "is" : "are"} as declared.
        </p>
      )}
      {plan.warnings.length > 0 && (
        <ul class="plain-list" aria-label="Warnings">
          {plan.warnings.map(({ problem, hint }) => (
            <li key={problem}>
              <State state="warn" label="warning" /> {problem}
              {hint !== null && `; ${hint}`}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Groups({ plan }: { plan: DeployPlan }) {
  return (
    <>
      {ORDER.map((action) => (
        <Group key={action} title={TITLES[action]} help={HELP[action]} entries={ofAction(plan, action)} />
      ))}
    </>
  );
}

function Group({ title, help, entries }: { title: string; help: string; entries: PlanEntry[] }) {
  if (entries.length === 0) return null;
  return (
    <Section title={title} aside={counted(entries.length, "schedule")}>
      <div class="stack">
        <p class="muted">{help}</p>
        {entries.map((entry) => (
          <Entry key={`${entry.tenant} ${entry.name}`} entry={entry} />
        ))}
      </div>
    </Section>
  );
}

function Refused({ result }: { result: DeployResult }) {
  return (
    <Section title="Refused" aside={counted(result.refused.length, "schedule")}>
      <ul class="plain-list" role="status">
        {result.refused.map(({ tenant, name, why }) => (
          <li key={`${tenant} ${name}`}>
            <strong>{name}</strong>: {why}
          </li>
        ))}
      </ul>
    </Section>
  );
}

interface ApplyProps {
  plan: DeployPlan;
  prune: boolean;
  adopt: boolean;
  onClose: () => void;
  onDone: (result: DeployResult) => void;
}

/** Says how many schedules change, and applies the plan that the page shows. */
function ApplyDialog({ plan: shown, prune, adopt, onClose, onDone }: ApplyProps) {
  // The plan as it was when the dialog was opened: what changes since is refused.
  const [plan] = useState(shown);
  const scope = useTenantScope();
  const changes = toDo(plan);
  const apply = useAction(async () => {
    const result = await call("POST /apply", { query: scope, body: { plan: changes.map(({ token }) => token), prune, adopt } });
    notify(resultText(result));
    onDone(result);
  });
  const removed = ofAction(plan, "remove").length;
  return (
    <ActionDialog
      title="Apply the plan?"
      verb={`Apply ${counted(changes.length, "change")}`}
      kind={removed > 0 ? "danger" : "primary"}
      isBusy={apply.isBusy}
      error={apply.error}
      onSubmit={() => void apply.run()}
      onClose={onClose}
    >
      <p>
        <strong>{countsText(plan)}</strong>, in one step.
      </p>
      {removed > 0 && <p>To be removed: {ofAction(plan, "remove").map(({ name }) => name).join(", ")}. Runs that are queued already stay.</p>}
      <p>A schedule that somebody changes meanwhile is refused, and the others are written.</p>
    </ActionDialog>
  );
}

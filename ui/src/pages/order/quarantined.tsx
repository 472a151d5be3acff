// One row in quarantine: why, what can be read of it, and what a retry and a drop would do.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { QuarantinedRow } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Facts, Page, Section } from "../../parts/page";
import { href, navigate } from "../../state/route";
import { useMay } from "../../state/session";
import { NoteKind } from "./quarantine";
import { valueText } from "./texts";

export function QuarantinedPage({ tenant, name }: { tenant: string; name: string }) {
  const data = useData(`quarantined ${tenant} ${name}`, (signal) => call("GET /quarantine/{id}", { path: { id: name }, query: { tenant }, signal }), {
    when: ({ subject }) => subject === "quarantine",
    every: 15_000,
  });
  const [asked, setAsked] = useState<"retry" | "drop" | null>(null);
  const mayAct = useMay("operator");
  if (data.error?.status === 404) return <Absent name={name} />;
  const row = data.value;
  return (
    <Page
      title={name}
      actions={
        mayAct &&
        row && (
          <>
            <Button kind="primary" onClick={() => setAsked("retry")}>
              Retry …
            </Button>
            {row.kind === "quarantine" && (
              <Button kind="danger" onClick={() => setAsked("drop")}>
                Drop …
              </Button>
            )}
          </>
        )
      }
    >
      <Loaded data={data}>{(shown) => <Shown row={shown} />}</Loaded>
      {asked !== null && row && <ChangeDialog row={row} act={asked} onClose={() => setAsked(null)} />}
    </Page>
  );
}

function Shown({ row }: { row: QuarantinedRow }) {
  const page = row.subject === "schedule" ? "schedules" : "runs";
  return (
    <>
      <Section title="Quarantine" aside={<a href={href(["order"])}>All of the quarantine</a>}>
        <div class="stack">
          <p>
            <NoteKind kind={row.kind} />
          </p>
          <Facts
            items={[
              ["What", <a href={href([page, row.tenant, row.name])}>{`the ${row.subject}`}</a>],
              ["Tenant", row.tenant],
              ["Reason", row.reason],
              ["Still wrong", row.problem ?? "nothing: a retry works"],
              ["A retry", row.on_retry],
              ["A drop", row.on_drop],
            ]}
          />
        </div>
      </Section>
      <Section title="What can be read">
        {row.unreadable.length > 0 && <p class="warning whole-text">Can't be read: {row.unreadable.join(", ")}.</p>}
        {Object.keys(row.fields).length === 0 ? <p class="muted">Nothing.</p> : <Facts items={Object.entries(row.fields).map(([field, value]) => [field, <code class="whole-text">{valueText(value)}</code>])} />}
      </Section>
    </>
  );
}

function ChangeDialog({ row, act, onClose }: { row: QuarantinedRow; act: "retry" | "drop"; onClose: () => void }) {
  const change = useAction(async () => {
    const request = { path: { id: row.name }, query: { tenant: row.tenant } };
    const done = await (act === "retry" ? call("POST /quarantine/{id}/retry", request) : call("DELETE /quarantine/{id}", request));
    notify(`${row.name}: ${done.words}`);
    navigate(href(["order"]));
  });
  const verb = act === "retry" ? "Retry" : "Drop";
  return (
    <ActionDialog title={`${verb} ${row.name}`} verb={verb} kind={act === "retry" ? "primary" : "danger"} isBusy={change.isBusy} error={change.error} onSubmit={() => void change.run()} onClose={onClose}>
      <p class="whole-text">{act === "retry" ? row.on_retry : row.on_drop}</p>
      {act === "drop" && <p>This can't be undone.</p>}
    </ActionDialog>
  );
}

function Absent({ name }: { name: string }) {
  return (
    <Page title={name}>
      <Empty>This schedule or run is not in quarantine, or not any more.</Empty>
      <p>
        <a href={href(["order"])}>All of the quarantine</a>
      </p>
    </Page>
  );
}

// Limits: how many runs may run at once or start in a period over all machines, and what waits for that.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { LimitValue, RunLimit } from "../../api/schema";
import { useAction } from "../../live/action";
import { isRun, useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { href, useRoute } from "../../state/route";
import { useMay } from "../../state/session";
import { counted, countText } from "../../time/format";
import { admitsText, concerns, namesOf, runsOf } from "./form";
import { LimitDialog } from "./limit_dialog";

type Asked = { act: "set"; limit: RunLimit | null } | { act: "remove"; limit: RunLimit };

export function LimitsPage(_: PageProps) {
  // What a rate admits changes with the time.
  const data = useData("limits", (signal) => call("GET /limits", { signal }), { when: isRun, every: 5_000 });
  const [asked, setAsked] = useState<Asked | null>(null);
  const isAdmin = useMay("admin");
  const tenant = useRoute().query.get("tenant");
  const items = data.value?.items.filter((limit) => concerns(limit, tenant));
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  return (
    <Page
      title="Limits"
      actions={
        isAdmin && (
          <Button kind="primary" onClick={() => setAsked({ act: "set", limit: null })}>
            New limit …
          </Button>
        )
      }
    >
      <Section title="Limits over all machines" aside={items && counted(items.length, "limit")}>
        <Loaded data={data}>
          {() => (
            <Table
              caption="Limits, and what waits for each"
              columns={columnsOf(isAdmin, setAsked)}
              rows={items ?? []}
              keyOf={({ name }) => name}
              empty={<Empty command="evenbeat limits set --task TASK --concurrency 5">No limit: every due run starts as soon as a node has a free slot. Set one, here or by a command:</Empty>}
            />
          )}
        </Loaded>
      </Section>
      {asked?.act === "set" && <LimitDialog limit={asked.limit} onClose={close} onDone={done} />}
      {asked?.act === "remove" && <RemoveDialog limit={asked.limit} onClose={close} onDone={done} />}
    </Page>
  );
}

function columnsOf(isAdmin: boolean, onAsk: (asked: Asked) => void): Column<RunLimit>[] {
  const columns: Column<RunLimit>[] = [
    { title: "Limit", kind: "main", cell: (limit) => <LimitName limit={limit} /> },
    { title: "Running", kind: "number", cell: (limit) => <Count limit={limit} count={limit.running} state="running" /> },
    { title: "Waiting", kind: "number", cell: (limit) => <Count limit={limit} count={limit.waiting} state="queued" /> },
    { title: "Oldest waiting", cell: ({ oldest_waiting }) => <Time at={oldest_waiting} /> },
    { title: "May start now", cell: (limit) => <Admits limit={limit} /> },
    { title: "Busiest values", kind: "wide", cell: (limit) => <Values limit={limit} /> },
  ];
  if (isAdmin) columns.push({ title: "Actions", cell: (limit) => <LimitButtons limit={limit} onAsk={onAsk} /> });
  return columns;
}

function LimitName({ limit }: { limit: RunLimit }) {
  return (
    <span class="limit-name">
      {limit.words}
      <code>{limit.name}</code>
    </span>
  );
}

function Count({ limit, count, state }: { limit: RunLimit; count: number; state: "queued" | "running" }) {
  if (count === 0) return <>0</>;
  const words = state === "running" ? "running" : "waiting";
  return (
    <a href={href(["runs"], runsOf(limit, state))} aria-label={`${countText(count)} ${words} under ${limit.name}`}>
      {countText(count)}
    </a>
  );
}

function Admits({ limit }: { limit: RunLimit }) {
  const text = admitsText(limit);
  if (text !== null) return <>{text}</>;
  return (
    <>
      the next <Time at={limit.admits_at} />
    </>
  );
}

/** So many values are shown at once; the others unfold. */
const FEW = 3;

function Values({ limit }: { limit: RunLimit }) {
  const { key, values, value_count } = limit;
  if (values.length === 0) return <span class="muted">–</span>;
  const more = value_count - values.length;
  const rest = values.slice(FEW);
  return (
    <>
      <ul class="plain-list" aria-label={`Busiest values of ${key}`}>
        {values.slice(0, FEW).map((each) => (
          <Value key={each.value} {...each} />
        ))}
      </ul>
      {rest.length > 0 && (
        <details class="unfold">
          <summary>{counted(rest.length + Math.max(more, 0), "more value")}</summary>
          <ul aria-label={`More values of ${key}`}>
            {rest.map((each) => (
              <Value key={each.value} {...each} />
            ))}
            {more > 0 && <li class="muted">and {countText(more)} less busy</li>}
          </ul>
        </details>
      )}
    </>
  );
}

function Value({ value, running, waiting }: LimitValue) {
  return (
    <li>
      <strong>{value}</strong>: {countText(running)} running, {countText(waiting)} waiting
    </li>
  );
}

function LimitButtons({ limit, onAsk }: { limit: RunLimit; onAsk: (asked: Asked) => void }) {
  return (
    <span class="row-buttons">
      <Button small aria-label={`Change ${limit.name}`} onClick={() => onAsk({ act: "set", limit })}>
        Change
      </Button>
      <Button small kind="danger" aria-label={`Remove ${limit.name}`} onClick={() => onAsk({ act: "remove", limit })}>
        Remove
      </Button>
    </span>
  );
}

function RemoveDialog({ limit, onClose, onDone }: { limit: RunLimit; onClose: () => void; onDone: (words: string) => void }) {
  const remove = useAction(async () => {
    await call("DELETE /limits", { query: namesOf(limit) });
    onDone(`Removed the limit ${limit.name}.`);
  });
  return (
    <ActionDialog title="Remove the limit" verb="Remove" kind="danger" isBusy={remove.isBusy} error={remove.error} onSubmit={() => void remove.run()} onClose={onClose}>
      <p class="whole-text">
        The limit was: {limit.words} (<code>{limit.name}</code>).
      </p>
      <p>{limit.waiting === 0 ? "No run waits for it." : `${counted(limit.waiting, "run")} that ${limit.waiting === 1 ? "waits" : "wait"} for it may start at once.`}</p>
    </ActionDialog>
  );
}

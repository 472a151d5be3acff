// Maintenance windows: alerts of some schedules are muted from one time to another.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { MaintenanceWindow, NewWindow } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { useMay, useTenantScope } from "../../state/session";
import { now } from "../../time/clock";
import { toMs } from "../../time/format";
import { type Cover, coverBody, CoverFields, coverOf } from "./cover";
import { Owner, OwnerField, useFirstOwner } from "./owner";
import { coversText, ownedBy, ownedKey } from "./texts";
import { type Moment, MomentField } from "./until";

export function WindowsTab() {
  const scope = useTenantScope();
  const data = useData(`windows ${JSON.stringify(scope)}`, (signal) => call("GET /alerts/windows", { query: scope, signal }), { every: 15_000 });
  const [adds, setAdds] = useState(false);
  const [ends, setEnds] = useState<MaintenanceWindow | null>(null);
  const mayAct = useMay("operator");
  const done = (words: string): void => {
    notify(words);
    setAdds(false);
    setEnds(null);
    data.reload();
  };
  return (
    <Section title="Maintenance windows" aside={mayAct && <Button small onClick={() => setAdds(true)}>New window …</Button>}>
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption="Maintenance windows that are not over"
            columns={columnsOf(mayAct, setEnds)}
            rows={items}
            keyOf={ownedKey}
            empty={<Empty command="evenbeat alerts windows add NAME --until 2h">No maintenance window is open or planned.</Empty>}
          />
        )}
      </Loaded>
      {adds && <WindowDialog onClose={() => setAdds(false)} onDone={done} />}
      {ends && <EndDialog window={ends} onClose={() => setEnds(null)} onDone={done} />}
    </Section>
  );
}

function hasBegun({ starts_at }: MaintenanceWindow): boolean {
  return toMs(starts_at) <= now();
}

function columnsOf(mayAct: boolean, onEnd: (window: MaintenanceWindow) => void): Column<MaintenanceWindow>[] {
  const columns: Column<MaintenanceWindow>[] = [
    { title: "Window", kind: "main", cell: ({ name }) => name },
    { title: "State", cell: (window) => (hasBegun(window) ? <State state="muted" label="mutes now" /> : <State state="waiting" label="planned" />) },
    { title: "From", cell: ({ starts_at }) => <Time at={starts_at} form="short" /> },
    { title: "Until", cell: ({ ends_at }) => <Time at={ends_at} form="short" /> },
    { title: "Covers", cell: coversText },
    { title: "Tenant", cell: ({ tenant }) => <Owner tenant={tenant} /> },
    { title: "Note", kind: "wide", cell: ({ note }) => note || <span class="muted">–</span> },
    { title: "By", kind: "wide", cell: ({ created_by }) => created_by },
  ];
  if (mayAct) {
    columns.push({
      title: "Actions",
      cell: (window) => (
        <Button small aria-label={`${hasBegun(window) ? "End" : "Remove"} ${window.name}`} onClick={() => onEnd(window)}>
          {hasBegun(window) ? "End" : "Remove"}
        </Button>
      ),
    });
  }
  return columns;
}

const STARTS: [string, string][] = [
  ["", "now"],
  ["1h", "in 1 hour"],
];

const UNTILS: [string, string][] = [
  ["1h", "in 1 hour"],
  ["4h", "in 4 hours"],
  ["1d", "in 1 day"],
];

function WindowDialog({ onClose, onDone }: { onClose: () => void; onDone: (words: string) => void }) {
  const [owner, setOwner] = useState(useFirstOwner());
  const [name, setName] = useState("");
  const [starts, setStarts] = useState<Moment>({ value: "", problem: null });
  const [until, setUntil] = useState<Moment>({ value: "1h", problem: null });
  const [cover, setCover] = useState<Cover>(coverOf(null));
  const [note, setNote] = useState("");
  const add = useAction(async () => {
    const body: NewWindow = { name: name.trim(), until: until.value, note, ...coverBody(cover) };
    if (starts.value !== "") body.starts = starts.value;
    await call("POST /alerts/windows", { query: ownedBy(owner), body });
    onDone(`Added the window ${name.trim()}.`);
  });
  const isComplete = name.trim() !== "" && starts.problem === null && until.problem === null && (cover.kind === "all" || cover.name.trim() !== "");
  return (
    <ActionDialog title="New maintenance window" verb="Add" disabled={!isComplete} isBusy={add.isBusy} error={add.error} onSubmit={() => void add.run()} onClose={onClose}>
      <p>During the window, incidents of these schedules are not announced. Those that are still open at its end are announced then.</p>
      <TextField label="Name" required value={name} onText={setName} placeholder="database-upgrade" />
      <OwnerField owner={owner} onOwner={setOwner} help="A window for all tenants mutes the alerts of all of them." />
      <MomentField label="From" presets={STARTS} moment={starts} onMoment={setStarts} />
      <MomentField label="Until" presets={UNTILS} moment={until} onMoment={setUntil} />
      <CoverFields cover={cover} onCover={setCover} />
      <TextField label="Note" value={note} onText={setNote} placeholder="Why" />
    </ActionDialog>
  );
}

function EndDialog({ window, onClose, onDone }: { window: MaintenanceWindow; onClose: () => void; onDone: (words: string) => void }) {
  const end = useAction(async () => {
    await call("DELETE /alerts/windows/{name}", { path: { name: window.name }, query: ownedBy(window.tenant) });
    onDone(`The window ${window.name} is over.`);
  });
  return (
    <ActionDialog title={`End the window ${window.name}`} verb="End" isBusy={end.isBusy} error={end.error} onSubmit={() => void end.run()} onClose={onClose}>
      <p>
        Alerts of {coversText(window)} are announced again. The window would last until <Time at={window.ends_at} form="short" />.
      </p>
    </ActionDialog>
  );
}

// The alert channels: where announcements go. Their secrets are never shown.

import { useState } from "preact/hooks";
import { call, ifRevision } from "../../api/client";
import type { AlertChannel, AlertChannelChanges, Delivery, NewAlertChannel } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { SelectField, TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay, useTenantScope } from "../../state/session";
import { TestDialog } from "./channel_test";
import { Owner, OwnerField, useFirstOwner } from "./owner";
import { type Health, healthOf, managedText, ownedBy, ownedKey } from "./texts";

/** So many of the newest messages say how channels do. */
const LOG = 200;

type Asked = { act: "create" } | { act: "edit" | "delete" | "test"; channel: AlertChannel };

export function ChannelsTab() {
  const scope = useTenantScope();
  const data = useData(`channels ${JSON.stringify(scope)}`, (signal) => call("GET /alerts/channels", { query: scope, signal }), { every: 30_000 });
  const log = useData(`newest deliveries ${JSON.stringify(scope)}`, (signal) => call("GET /alerts/deliveries", { query: { ...scope, limit: LOG }, signal }), {
    every: 10_000,
  });
  const [asked, setAsked] = useState<Asked | null>(null);
  const isAdmin = useMay("admin");
  const mayTest = useMay("operator");
  const close = (): void => setAsked(null);
  const done = (words: string): void => {
    notify(words);
    close();
    data.reload();
  };
  return (
    <Section title="Channels" aside={isAdmin && <Button small onClick={() => setAsked({ act: "create" })}>New channel …</Button>}>
      <Loaded data={data}>
        {({ items }) => (
          <Table
            caption="Alert channels"
            columns={columnsOf(log.value?.items, isAdmin, mayTest, setAsked)}
            rows={items}
            keyOf={ownedKey}
            empty={<Empty command="evenbeat alerts channels add ops webhook https://hooks.example.com/evenbeat">No channel: announcements have nowhere to go.</Empty>}
          />
        )}
      </Loaded>
      {asked?.act === "create" && <ChannelDialog channel={null} onClose={close} onDone={done} />}
      {asked?.act === "edit" && <ChannelDialog channel={asked.channel} onClose={close} onDone={done} />}
      {asked?.act === "delete" && <DeleteDialog channel={asked.channel} onClose={close} onDone={done} />}
      {asked?.act === "test" && (
        <TestDialog
          channel={asked.channel}
          onClose={() => {
            close();
            log.reload();
          }}
        />
      )}
    </Section>
  );
}

/** `log` is undefined until it is there. */
function columnsOf(log: Delivery[] | undefined, isAdmin: boolean, mayTest: boolean, onAsk: (asked: Asked) => void): Column<AlertChannel>[] {
  const columns: Column<AlertChannel>[] = [
    { title: "Channel", kind: "main", cell: (channel) => <ChannelName channel={channel} /> },
    { title: "Kind", cell: ({ kind }) => kind },
    { title: "Address", kind: "wide", cell: ({ address }) => <span class="mono">{address}</span> },
    { title: "Tenant", cell: ({ tenant }) => <Owner tenant={tenant} /> },
    { title: "Last message", kind: "wide", cell: (channel) => (log === undefined ? <span class="muted">–</span> : <LastMessage health={healthOf(channel, log)} />) },
  ];
  if (mayTest) columns.push({ title: "Actions", cell: (channel) => <ChannelButtons channel={channel} isAdmin={isAdmin} onAsk={onAsk} /> });
  return columns;
}

function LastMessage({ health }: { health: Health }) {
  return (
    <div>
      <State state={health.label} label={health.label} tone={health.tone} /> {health.at !== null && <Time at={health.at} />}
      {health.error !== null && (
        <>
          <div class="mono error-line">{health.error}</div>
          <div class="muted">
            {health.lastSent === null ? (
              "No message has arrived lately. "
            ) : (
              <>
                The last one that arrived: <Time at={health.lastSent} />.{" "}
              </>
            )}
            <a href={href(["alerts"], { tab: "log" })}>Show the log</a>
          </div>
        </>
      )}
    </div>
  );
}

function ChannelName({ channel }: { channel: AlertChannel }) {
  const managed = managedText(channel.managed_by);
  return (
    <span>
      {channel.name} {managed && <span class="tag">{managed}</span>}
    </span>
  );
}

function ChannelButtons({ channel, isAdmin, onAsk }: { channel: AlertChannel; isAdmin: boolean; onAsk: (asked: Asked) => void }) {
  return (
    <span class="row-buttons">
      <Button small aria-label={`Test ${channel.name}`} onClick={() => onAsk({ act: "test", channel })}>
        Test
      </Button>
      {isAdmin && (
        <>
          <Button small aria-label={`Edit ${channel.name}`} onClick={() => onAsk({ act: "edit", channel })}>
            Edit
          </Button>
          <Button small kind="danger" aria-label={`Delete ${channel.name}`} onClick={() => onAsk({ act: "delete", channel })}>
            Delete
          </Button>
        </>
      )}
    </span>
  );
}

interface ChannelDialogProps {
  /** null: a new one. */
  channel: AlertChannel | null;
  onClose: () => void;
  onDone: (words: string) => void;
}

type Kind = AlertChannel["kind"];

const KINDS: [Kind, string][] = [
  ["webhook", "webhook: a POST to a URL of yours"],
  ["apprise", "apprise: mail, chat, phones"],
  ["sentry", "Sentry Crons"],
  ["healthchecks", "Healthchecks"],
];

const URLS: Record<Kind, string> = {
  webhook: "https://hooks.example.com/evenbeat",
  apprise: "slack://…",
  sentry: "the DSN of a project",
  healthchecks: "the ping URL of a check",
};

function ChannelDialog({ channel, onClose, onDone }: ChannelDialogProps) {
  const firstOwner = useFirstOwner();
  const [owner, setOwner] = useState(channel === null ? firstOwner : channel.tenant);
  const [name, setName] = useState(channel?.name ?? "");
  const [kind, setKind] = useState<Kind>(channel?.kind ?? "webhook");
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState("");
  const save = useAction(async () => {
    const given = { ...(url.trim() === "" ? {} : { url: url.trim() }), ...(secret === "" || kind !== "webhook" ? {} : { secret }) };
    if (channel === null) {
      const body: NewAlertChannel = { name: name.trim(), kind, url: "", ...given };
      await call("POST /alerts/channels", { query: ownedBy(owner), body });
      onDone(`Created the channel ${name.trim()}. Test it to see whether messages arrive.`);
    } else {
      const body: AlertChannelChanges = { ...given, ...(kind === channel.kind ? {} : { kind }) };
      await call("PATCH /alerts/channels/{name}", { path: { name: channel.name }, query: ownedBy(owner), body, headers: ifRevision(channel.revision) });
      onDone(`Changed the channel ${channel.name}.`);
    }
  });
  const isComplete = channel === null ? name.trim() !== "" && url.trim() !== "" : url.trim() !== "" || secret !== "" || kind !== channel.kind;
  const managed = channel && managedText(channel.managed_by);
  return (
    <ActionDialog
      title={channel === null ? "New channel" : `Edit the channel ${channel.name}`}
      verb={channel === null ? "Create" : "Save"}
      disabled={!isComplete}
      isBusy={save.isBusy}
      error={save.error}
      onSubmit={() => void save.run()}
      onClose={onClose}
    >
      {managed && <p class="warning">The channel is {managed}: the next node that starts with this declaration undoes changes made here.</p>}
      {channel === null && (
        <>
          <TextField label="Name" required value={name} onText={setName} placeholder="on-call" />
          <OwnerField owner={owner} onOwner={setOwner} help="Rules for all tenants use the channels for all tenants." />
        </>
      )}
      <SelectField label="Kind" value={kind} onText={(value) => setKind(value as Kind)} options={KINDS} />
      <TextField
        label="URL"
        required={channel === null}
        mono
        value={url}
        onText={setUrl}
        placeholder={channel === null ? URLS[kind] : "as it is"}
        help="It is never shown again. env:EVENBEAT_SECRET_NAME names a variable of the processes that send."
      />
      {kind === "webhook" && (
        <TextField
          label="Key of the signature"
          type="password"
          value={secret}
          onText={setSecret}
          placeholder={channel === null ? "none" : "as it is"}
          help="Optional, at least 16 characters: receivers check by it that Evenbeat sent the message."
        />
      )}
    </ActionDialog>
  );
}

function DeleteDialog({ channel, onClose, onDone }: { channel: AlertChannel; onClose: () => void; onDone: (words: string) => void }) {
  const remove = useAction(async () => {
    await call("DELETE /alerts/channels/{name}", { path: { name: channel.name }, query: ownedBy(channel.tenant), headers: ifRevision(channel.revision) });
    onDone(`Deleted the channel ${channel.name}.`);
  });
  const managed = managedText(channel.managed_by);
  return (
    <ActionDialog
      title={`Delete the channel ${channel.name}`}
      verb="Delete"
      kind="danger"
      isBusy={remove.isBusy}
      error={remove.error}
      onSubmit={() => void remove.run()}
      onClose={onClose}
    >
      <p>
        The {channel.kind} channel to {channel.address} goes, with its URL and key: nobody can read them back. A channel that a rule uses can't be deleted.
      </p>
      {managed && <p class="warning">The channel is {managed}: the next node that starts with this declaration creates it again.</p>}
    </ActionDialog>
  );
}

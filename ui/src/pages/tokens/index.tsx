// Tokens: who may use the API and this page. Secrets are shown once, when a token is created.

import { useId, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { NewToken, Token } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Command } from "../../parts/copy";
import { ActionDialog } from "../../parts/dialog";
import { Empty } from "../../parts/empty";
import { SelectField, TextField } from "../../parts/field";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Page, Section } from "../../parts/page";
import { type Column, Table } from "../../parts/table";
import { Time } from "../../parts/time";
import type { PageProps } from "../../shell/routes";
import { useMe } from "../../state/session";
import { counted } from "../../time/format";
import { EXPIRIES, FIRST, isComplete, OTHER, type Role, ROLES, scopeText, type TokenForm, wantedOf } from "./wanted";

export function TokensPage(_: PageProps) {
  const data = useData("tokens", (signal) => call("GET /tokens", { signal }), { every: 30_000 });
  const [creates, setCreates] = useState(false);
  const [revokes, setRevokes] = useState<Token | null>(null);
  const [made, setMade] = useState<NewToken | null>(null);
  return (
    <Page
      title="Tokens"
      actions={
        <Button kind="primary" onClick={() => setCreates(true)}>
          New token …
        </Button>
      }
    >
      {made && <Made made={made} onDone={() => setMade(null)} />}
      <Section title="Valid tokens" aside={data.value && counted(data.value.items.length, "token")}>
        <Loaded data={data}>
          {({ items }) => (
            <Table
              caption="Tokens that are neither expired nor revoked"
              columns={columnsOf(setRevokes)}
              rows={items}
              keyOf={({ id }) => id}
              empty={<Empty command="evenbeat tokens create NAME --role admin">No token yet. Without one, only a server without log-in can be used.</Empty>}
            />
          )}
        </Loaded>
      </Section>
      {creates && (
        <CreateDialog
          onClose={() => setCreates(false)}
          onMade={(token) => {
            setMade(token);
            setCreates(false);
            data.reload();
          }}
        />
      )}
      {revokes && (
        <RevokeDialog
          token={revokes}
          onClose={() => setRevokes(null)}
          onDone={() => {
            setRevokes(null);
            if (made?.token.id === revokes.id) setMade(null);
            data.reload();
          }}
        />
      )}
    </Page>
  );
}

function columnsOf(onRevoke: (token: Token) => void): Column<Token>[] {
  return [
    { title: "Name", kind: "main", cell: ({ name }) => name },
    { title: "Role", cell: ({ role }) => role },
    { title: "Tenant", cell: ({ tenant }) => tenant ?? <em>all tenants</em> },
    { title: "Created", cell: ({ created_at }) => <Time at={created_at} /> },
    { title: "By", kind: "wide", cell: ({ created_by }) => created_by },
    { title: "Expires", cell: ({ expires_at }) => (expires_at === null ? "never" : <Time at={expires_at} />) },
    { title: "Last used", cell: ({ last_used_at }) => (last_used_at === null ? "never" : <Time at={last_used_at} />) },
    {
      title: "Actions",
      cell: (token) => (
        <Button small kind="danger" aria-label={`Revoke ${token.name}`} onClick={() => onRevoke(token)}>
          Revoke
        </Button>
      ),
    },
  ];
}

/** The secret of a new token, until the reader says that they have it. It is nowhere else. */
function Made({ made, onDone }: { made: NewToken; onDone: () => void }) {
  return (
    <section class="card stack made" aria-label="The new token">
      <p role="status">
        Created the token <strong>{made.token.name}</strong>: {scopeText(made.token)}. Copy its secret now: nobody can read it again, not even an admin.
      </p>
      <Command text={made.secret} />
      <div>
        <Button onClick={onDone}>I have copied it</Button>
      </div>
    </section>
  );
}

function CreateDialog({ onClose, onMade }: { onClose: () => void; onMade: (made: NewToken) => void }) {
  const [form, setForm] = useState<TokenForm>(FIRST);
  const put = (changes: Partial<TokenForm>): void => setForm((old) => ({ ...old, ...changes }));
  const tenants = useData("tenants of tokens", (signal) => call("GET /tenants", { signal }));
  const list = useId();
  const create = useAction(async () => onMade(await call("POST /tokens", { body: wantedOf(form) })));
  return (
    <ActionDialog title="New token" verb="Create" disabled={!isComplete(form)} isBusy={create.isBusy} error={create.error} onSubmit={() => void create.run()} onClose={onClose}>
      <TextField label="Name" required value={form.name} onText={(name) => put({ name })} placeholder="grafana" help="Who uses it: the audit names changes by it." />
      <SelectField label="Role" value={form.role} onText={(role) => put({ role: role as Role })} options={ROLES} />
      <TextField label="Tenant" value={form.tenant} onText={(tenant) => put({ tenant })} placeholder="all tenants" list={list} help="Empty: all tenants, and the pages about nodes and queues." />
      <datalist id={list}>
        {(tenants.value?.items ?? []).map(({ name }) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <SelectField label="Expires" value={form.expiry} onText={(expiry) => put({ expiry })} options={EXPIRIES} />
      {form.expiry === OTHER && <TextField label="After" required value={form.span} onText={(span) => put({ span })} placeholder="12h" help="A duration: 12h, 7d, 1h30m." />}
    </ActionDialog>
  );
}

function RevokeDialog({ token, onClose, onDone }: { token: Token; onClose: () => void; onDone: () => void }) {
  const me = useMe();
  const revoke = useAction(async () => {
    await call("DELETE /tokens/{id}", { path: { id: token.id } });
    notify(`Revoked ${token.name}.`);
    onDone();
  });
  return (
    <ActionDialog title={`Revoke ${token.name}`} verb="Revoke" kind="danger" isBusy={revoke.isBusy} error={revoke.error} onSubmit={() => void revoke.run()} onClose={onClose}>
      <p>
        The token {token.name} ({scopeText(token)}) stops working within 5 seconds, and with it all sessions that were opened with it.{" "}
        {token.last_used_at === null ? (
          "It was never used."
        ) : (
          <>
            It was last used <Time at={token.last_used_at} />.
          </>
        )}{" "}
        This can't be undone.
      </p>
      {me.has_session && me.name === token.name && <p class="warning">You are logged in with a token of this name: you may have to log in again.</p>}
    </ActionDialog>
  );
}

// Log in with a token. The server keeps the session in a cookie that scripts can't read.

import { useEffect, useState } from "preact/hooks";
import { call } from "../api/client";
import { useAction } from "../live/action";
import { Button } from "../parts/button";
import { Command } from "../parts/copy";
import { TextField } from "../parts/field";
import { ProblemBox } from "../parts/problem";
import { session } from "../state/session";

export function LogIn({ reason }: { reason: string | null }) {
  const [token, setToken] = useState("");
  const logIn = useAction(async () => {
    const me = await call("POST /session", { body: { token: token.trim() } });
    session.set({ state: "logged in", me });
  });
  useEffect(() => {
    document.title = "Log in – Evenbeat";
  }, []);
  return (
    <main class="lone">
      <form
        class="card stack log-in"
        onSubmit={(event) => {
          event.preventDefault();
          void logIn.run();
        }}
      >
        <h1>Log in to Evenbeat</h1>
        {reason && <p role="status">{reason}</p>}
        <TextField
          label="Token"
          type="password"
          autocomplete="current-password"
          placeholder="evb_…"
          required
          value={token}
          onText={setToken}
          help="The session ends after 12 hours, or when the token is revoked."
        />
        {logIn.error && <ProblemBox problem={logIn.error} />}
        <Button kind="primary" type="submit" isBusy={logIn.isBusy} disabled={token.trim() === ""}>
          Log in
        </Button>
        <p class="muted">No token yet? Create one on the server:</p>
        <Command text="evenbeat tokens create NAME --role operator" />
      </form>
    </main>
  );
}

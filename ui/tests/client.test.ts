import assert from "node:assert/strict";
import { test } from "node:test";
import { call, Problem, urlOf } from "../src/api/client";
import { session } from "../src/state/session";

const ME = { name: "ana", role: "operator", tenant: null, default_tenant: "default", csrf: "c", has_session: true } as const;

function answering(status: number, body: unknown): void {
  globalThis.fetch = async () => new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/problem+json" } });
}

test("several refused requests leave the reason of the first", async () => {
  answering(401, { type: "urn:evenbeat:problem:unauthorized", detail: "the session is over", status: 401 });
  session.set({ state: "logged in", me: ME });
  const both = await Promise.allSettled([call("GET /nodes"), call("GET /tenants")]);
  assert.deepEqual(both.map(({ status }) => status), ["rejected", "rejected"]);
  assert.deepEqual(session.get(), { state: "logged out", reason: "The session has ended. Log in again." });
});

/** Refuse the requests of the old session, as the server does once another tab has logged in. */
function answeringAfterALogin(): string[] {
  const asked: string[] = [];
  let isOver = true;
  globalThis.fetch = async (url, options) => {
    asked.push(`${options?.method} ${String(url)}`);
    const isMe = String(url).endsWith("/me");
    const isRefused = isOver && !isMe;
    if (isMe) isOver = false;
    const body = isRefused ? { type: "urn:evenbeat:problem:unauthorized", detail: "over", status: 401 } : isMe ? { ...ME, csrf: "d" } : { items: [] };
    return new Response(JSON.stringify(body), { status: isRefused ? 401 : 200 });
  };
  return asked;
}

test("a reading request that the login of another tab overtook is sent again", async () => {
  const asked = answeringAfterALogin();
  session.set({ state: "logged in", me: ME });
  assert.deepEqual(await call("GET /nodes"), { items: [] });
  assert.deepEqual(asked, ["GET api/v1/nodes", "GET api/v1/me", "GET api/v1/nodes"]);
  assert.deepEqual(session.get(), { state: "logged in", me: { ...ME, csrf: "d" } });
});

test("a change that the login of another tab overtook is not", async () => {
  const asked = answeringAfterALogin();
  session.set({ state: "logged in", me: ME });
  await assert.rejects(call("POST /schedules/{name}/run", { path: { name: "mail" } }), /another tab of this browser has logged in again/);
  assert.deepEqual(asked, ["POST api/v1/schedules/mail/run", "GET api/v1/me"]);
  assert.equal(session.get().state, "logged in");
});

test("the first visit has no reason", async () => {
  answering(401, { type: "urn:evenbeat:problem:unauthorized", detail: "the request has no token", status: 401 });
  session.set({ state: "unknown" });
  await assert.rejects(call("GET /me"), Problem);
  assert.deepEqual(session.get(), { state: "logged out", reason: null });
});

test("a problem has its field and hint", async () => {
  answering(422, { type: "urn:evenbeat:problem:invalid-trigger", detail: "no", status: 422, field: "trigger", hint: "write every 5m" });
  session.set({ state: "logged in", me: ME });
  await assert.rejects(call("GET /nodes"), (error: Problem) => error.kind === "invalid-trigger" && error.field === "trigger" && error.hint === "write every 5m");
});

test("names are encoded in paths, and empty parameters are left out", () => {
  assert.equal(urlOf("GET /runs/{id}", { path: { id: "a/b c?" }, query: { tenant: "acme" } }), "api/v1/runs/a%2Fb%20c%3F?tenant=acme");
  assert.equal(urlOf("GET /schedules", { query: { text: "", limit: 50 } }), "api/v1/schedules?limit=50");
  assert.throws(() => urlOf("GET /runs/{id}"), /needs id/);
});

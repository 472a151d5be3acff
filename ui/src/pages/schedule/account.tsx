// The account: each tick of a period ran, was coalesced or skipped; none is missing, none ran twice.

import { call } from "../../api/client";
import type { Account, Run, Why } from "../../api/schema";
import { useData } from "../../live/data";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { href, setQuery, useRoute } from "../../state/route";
import { now } from "../../time/clock";
import { counted, countText } from "../../time/format";
import { useZone } from "../../time/zone";
import { type About, useReloadOnChange } from "./about";
import { Choice, chosen } from "../../parts/choice";
import { accountText, asSentence, countedFromText, reasonText, runStates, waitingLongest, waitsSince } from "./sentences";

const PERIODS: ["24h" | "7d" | "all", string][] = [
  ["24h", "24 h"],
  ["7d", "7 d"],
  ["all", "all"],
];
const LISTED = 20;

export function AccountSection(about: About) {
  const { tenant, name, revision } = about;
  const { query } = useRoute();
  const period = chosen(query, "account", PERIODS, "24h");
  const data = useData(
    `account ${tenant} ${name} ${period}`,
    (signal) =>
      call("GET /schedules/{name}/account", { path: { name }, query: { tenant, ...(period === "all" ? {} : { since: period }) }, signal }),
    { every: 15_000 },
  );
  useReloadOnChange(data, revision);
  const choice = (
    <Choice label="Period of the account" value={period} options={PERIODS} onChoose={(value) => setQuery({ account: value === "24h" ? null : value })} />
  );
  return (
    <Section title="Account" aside={choice}>
      <Loaded data={data}>{(account) => <Shown account={account} about={about} />}</Loaded>
    </Section>
  );
}

function Shown({ account, about }: { account: Account; about: About }) {
  const why = countedFromText(account);
  const skipped = Object.entries(account.skipped);
  const hasWaiting = runStates(account).waiting > 0;
  const held = useHeld(about, hasWaiting);
  const tone = !account.adds_up ? "bad" : hasWaiting && held ? "warn" : "good";
  return (
    <div class="stack">
      <p class={`account ${tone}`}>
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d={tone === "good" ? "M3 8.5l3.2 3.2L13 5" : "M8 3v6M8 11.6v1"} />
        </svg>
        <span class="off-screen">{account.adds_up ? "It adds up: " : "It does not add up: "}</span>
        {accountText(account, about.state === "paused")}
      </p>
      {hasWaiting && held && (
        <p class="account-held">
          No tick is missing, but a run has waited since <Time at={waitsSince(held.run)} zone={about.zone} form="short" />.{" "}
          {asSentence(held.why.sentence, about.name)}{" "}
          <a href={href(["runs"], { tenant: about.tenant, schedule: about.name, state: "queued" })}>Runs that wait</a>
        </p>
      )}
      <p class="muted">
        Ticks from <Time at={account.counted_from} zone={about.zone} form="short" /> {why && `(${why}) `}to{" "}
        <Time at={account.counted_until} zone={about.zone} form="short" />.
        {skipped.length > 0 && ` Skipped: ${skipped.map(([reason, count]) => `${countText(count)} because ${reasonText(reason, count)}`).join("; ")}.`}
      </p>
      <TickLinks title="Missing" ticks={account.missing_ticks} count={account.missing} about={about} />
      <TickLinks title="Twice" ticks={account.doubled_ticks} count={account.doubled} about={about} />
    </div>
  );
}

interface Held {
  run: Run;
  why: Why;
}

/** Return the run that has waited longest, and why, if it has waited for more than a minute. */
function useHeld({ tenant, name, zone }: About, hasWaiting: boolean): Held | null {
  const tz = useZone(zone);
  const data = useData<Held | null>(
    `held ${tenant} ${name} ${hasWaiting} ${tz}`,
    async (signal) => {
      if (!hasWaiting) return null;
      const { items } = await call("GET /runs", { query: { tenant, schedule: name, state: "queued", brief: true, limit: 100 }, signal });
      const run = waitingLongest(items, now());
      return run === null ? null : { run, why: await call("GET /runs/{id}/why", { path: { id: run.id }, query: { tenant, tz }, signal }) };
    },
    { every: 15_000 },
  );
  return data.value ?? null;
}

/** Ticks that should not be there; each answers why. */
function TickLinks({ title, ticks, count, about }: { title: string; ticks: string[]; count: number; about: About }) {
  if (count === 0) return null;
  return (
    <div>
      <h3>{`${title}: ${counted(count, "tick")}`}</h3>
      <ul class="tick-links">
        {ticks.slice(0, LISTED).map((tick) => (
          <li key={tick}>
            <a href={href(["schedules", about.tenant, about.name], { why: tick })}>
              <Time at={tick} zone={about.zone} form="exact" />
            </a>
          </li>
        ))}
        {count > LISTED && <li class="muted">and {countText(count - LISTED)} more</li>}
      </ul>
    </div>
  );
}

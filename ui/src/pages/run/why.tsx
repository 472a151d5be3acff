// Why a run waits, runs, has failed or was cancelled: a sentence, the evidence, and what to do.

import { call } from "../../api/client";
import type { Run, Why } from "../../api/schema";
import { useData } from "../../live/data";
import { Command } from "../../parts/copy";
import { Loaded } from "../../parts/load";
import { toneOf } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useZone } from "../../time/zone";
import { asSentence, remedyParts } from "./attempts";
import { useReload } from "./reload";

const AGAIN = 5_000;

export function WhyBox({ run, zone }: { run: Run; zone: string | null }) {
  return run.state === "succeeded" ? null : <Asked run={run} zone={zone} />;
}

function Asked({ run, zone }: { run: Run; zone: string | null }) {
  // Times in the sentence are in the zone of all others.
  const tz = useZone(zone);
  const data = useData(
    `why ${run.tenant} ${run.id} ${tz}`,
    (signal) => call("GET /runs/{id}/why", { path: { id: run.id }, query: { tenant: run.tenant, tz }, signal }),
    { every: run.state === "queued" || run.state === "running" ? AGAIN : undefined },
  );
  useReload(data, `${run.state} ${run.attempt} ${run.cancel_requested}`);
  return (
    <section class={`card run-why ${toneOf(run.state)}`} aria-label="Why">
      <h2 class="off-screen">Why</h2>
      <Loaded data={data}>{(why) => <Explained why={why} zone={zone} />}</Loaded>
    </section>
  );
}

function Remedy({ text }: { text: string }) {
  const { words, command } = remedyParts(text);
  return (
    <div class="remedy">
      <p>
        <strong>What to do:</strong> {words}
      </p>
      {command !== null && <Command text={command} />}
    </div>
  );
}

function Explained({ why, zone }: { why: Why; zone: string | null }) {
  return (
    <>
      <p class="why-sentence">{asSentence(why.sentence)}</p>
      {why.verdict === "limited" && (
        <p>
          <a href={href(["limits"])}>Show the limits and what waits for them</a>
        </p>
      )}
      {why.remedy && <Remedy text={why.remedy} />}
      {why.evidence.length > 0 && (
        <ul class="evidence" aria-label="Evidence">
          {why.evidence.map((fact) => (
            <li key={`${fact.text} ${fact.at}`}>
              {fact.text}
              {fact.at !== null && (
                <>
                  {" "}
                  <span class="muted">
                    (<Time at={fact.at} zone={zone} form="short" />)
                  </span>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

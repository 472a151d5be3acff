// A trigger while it is typed: its words, its next ticks and the effect of clock changes, or what is wrong with it.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, Problem } from "../../api/client";
import type { Schedule, TriggerExplanation } from "../../api/schema";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { isLabel, isName } from "./form";
import { SHOWN } from "./ticks";

/** The server is asked so many milliseconds after the last key. */
const WAIT = 200;

export interface TriggerPreview {
  /** The last trigger that was valid. */
  explanation: TriggerExplanation | null;
  /** What is wrong with the trigger that is typed now. */
  problem: Problem | null;
  /** Whether `explanation` is about an earlier text. */
  isOld: boolean;
}

/** Explain a trigger as it is typed. An older answer never replaces a newer one. `edited`: the schedule that has it. */
export function usePreview(trigger: string, name: string, edited: Schedule | null = null, tenant = edited?.tenant ?? ""): TriggerPreview {
  const [state, setState] = useState<TriggerPreview>({ explanation: null, problem: null, isOld: false });
  const latest = useRef(0);
  useEffect(() => {
    latest.current += 1;
    const mine = latest.current;
    const text = trigger.trim();
    if (text === "") {
      setState({ explanation: null, problem: null, isOld: false });
      return undefined;
    }
    setState((old) => ({ ...old, isOld: true }));
    const timer = setTimeout(() => {
      explained(text, name, tenant, edited)
        .then((explanation) => {
          if (mine === latest.current) setState({ explanation, problem: null, isOld: false });
        })
        .catch((error: unknown) => {
          if (!(error instanceof Problem)) throw error;
          if (mine === latest.current) setState((old) => ({ ...old, problem: error, isOld: true }));
        });
    }, WAIT);
    return () => clearTimeout(timer);
  }, [trigger, name, tenant, edited]);
  return state;
}

async function explained(trigger: string, name: string, tenant: string, edited: Schedule | null): Promise<TriggerExplanation> {
  // The calendars that it names are those of the tenant.
  const whose = isLabel(tenant) ? { tenant } : {};
  const explanation = await call("POST /preview", { body: { trigger, count: SHOWN, ...whose, ...(isName(name) ? { name } : {}) } });
  if (edited === null || edited.trigger !== trigger) return explanation;
  // A period counts from the time at which the schedule got it, not from now.
  const { items } = await call("GET /schedules/{name}/ticks", { path: { name }, query: { tenant: edited.tenant, count: SHOWN } });
  const notes = new Map(explanation.ticks.map(({ at, note }) => [Date.parse(at), note]));
  return {
    ...explanation,
    words: edited.words,
    ticks: items.map((at) => ({ at, away: 0, note: notes.get(Date.parse(at)) ?? null })),
    notes: items.length === 0 ? ["no tick is left"] : [],
  };
}

export function PreviewCard({ preview }: { preview: TriggerPreview }) {
  const { explanation, isOld } = preview;
  return (
    <Section title="The next ten ticks" aside={explanation?.zone}>
      {explanation === null ? (
        <p class="muted">{preview.problem === null ? "Type a trigger to see when it runs." : "The trigger can't be read yet."}</p>
      ) : (
        <div class={isOld ? "preview old" : "preview"} aria-live="polite" aria-busy={isOld}>
          <p class="words">{explanation.words}</p>
          <Ticks explanation={explanation} />
          {explanation.notes.map((note) => (
            <p key={note} class="muted">{note}</p>
          ))}
          {explanation.clock_changes.length > 0 && <ClockChanges explanation={explanation} />}
        </div>
      )}
    </Section>
  );
}

function Ticks({ explanation }: { explanation: TriggerExplanation }) {
  return (
    <ol class="ticks" aria-label="The next ten ticks">
      {explanation.ticks.map(({ at, note }) => (
        <li key={at}>
          <Time at={at} zone={explanation.zone} form="exact" />
          {note && <span class="tick-note">{note}</span>}
        </li>
      ))}
    </ol>
  );
}

function ClockChanges({ explanation }: { explanation: TriggerExplanation }) {
  return (
    <div class="stack">
      <h3>Clock changes</h3>
      <ul class="clock-changes">
        {explanation.clock_changes.map(({ at, clock_from, clock_to, effect }) => (
          <li key={at}>
            <Time at={at} zone={explanation.zone} form="short" />: {clock_from} → {clock_to}; {effect}
          </li>
        ))}
      </ul>
    </div>
  );
}

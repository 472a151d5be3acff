// The end of a pause: a control that the pause of one schedule and that of many share.

import { useState } from "preact/hooks";
import { SelectField, TextField } from "../../parts/field";
import { now } from "../../time/clock";
import { inputText, instantOf } from "../../time/format";
import { type PauseEnd, pauseEnd, timeProblem, tomorrowAt } from "./pause_end";

/** What the ticks of a pause become; both dialogs say it. */
export const PAUSE_WARNING = "Ticks during the pause do not run, and nothing makes up for them: the ledger records each as paused.";

const ENDS: [PauseEnd, string][] = [
  ["", "a resume by hand"],
  ["1h", "1 hour from now"],
  ["1d", "1 day from now"],
  ["tomorrow", "tomorrow 09:00"],
  ["at", "a time"],
];

export interface UntilState {
  end: PauseEnd;
  local: string;
  setEnd: (end: PauseEnd) => void;
  setLocal: (local: string) => void;
  zone: string;
  /** What is wrong with the time; null if nothing is. */
  wrong: string | null;
  /** Return what the API takes as `until`; undefined for a pause without an end. */
  value: () => string | undefined;
}

export function useUntil(zone: string): UntilState {
  const [end, setEnd] = useState<PauseEnd>("");
  const [local, setLocal] = useState(() => inputText(now() + 2 * 3_600_000, zone));
  const wrong = end === "at" ? timeProblem(local, zone, now()) : null;
  return { end, local, setEnd, setLocal, zone, wrong, value: () => pauseEnd(end, local, zone, now()) };
}

export function UntilFields({ until: { end, local, setEnd, setLocal, zone, wrong }, error = null }: { until: UntilState; error?: string | null }) {
  const tomorrow = instantOf(tomorrowAt(now(), zone), zone);
  return (
    <>
      <SelectField
        label="Until"
        value={end}
        onText={(text) => setEnd(text as PauseEnd)}
        options={ENDS}
        error={end === "at" ? null : error}
        help={end === "tomorrow" ? `${inputText(tomorrow, zone).replace("T", " ")} by the clock of ${zone}.` : undefined}
      />
      {end === "at" && <TextField label="Time" type="datetime-local" value={local} onText={setLocal} error={wrong ?? error} help={`By the clock of ${zone}.`} />}
    </>
  );
}

// The choice of a time to come: after a while, or at a time.

import { SelectField, TextField } from "../../parts/field";
import { now } from "../../time/clock";
import { inputText, instantOf } from "../../time/format";
import { useZone } from "../../time/zone";
import { useState } from "preact/hooks";

export interface Moment {
  /** What the API gets: a duration from now, or RFC 3339. */
  value: string;
  /** Why it can't be used. */
  problem: string | null;
}

interface MomentFieldProps {
  label: string;
  presets: [value: string, label: string][];
  moment: Moment;
  onMoment: (moment: Moment) => void;
}

const OTHER = "other";

export function MomentField({ label, presets, moment, onMoment }: MomentFieldProps) {
  const zone = useZone();
  const [choice, setChoice] = useState(moment.value);
  const [local, setLocal] = useState(() => inputText(now() + 2 * 3_600_000, zone));
  const tell = (chosen: string, at: string): void => onMoment(chosen === OTHER ? momentOf(at, zone, now()) : { value: chosen, problem: null });
  return (
    <>
      <SelectField
        label={label}
        value={choice}
        options={[...presets, [OTHER, "another time"]]}
        onText={(chosen) => {
          setChoice(chosen);
          tell(chosen, local);
        }}
      />
      {choice === OTHER && (
        <TextField
          label={`${label}, date and time`}
          type="datetime-local"
          value={local}
          error={moment.problem}
          help={`By the clock of ${zone}.`}
          onText={(text) => {
            setLocal(text);
            tell(choice, text);
          }}
        />
      )}
    </>
  );
}

/** Return the instant that a clock in a zone shows, if it is still to come. */
export function momentOf(local: string, zone: string, present: number): Moment {
  const instant = local === "" || Number.isNaN(Date.parse(`${local}Z`)) ? null : instantOf(local, zone);
  if (instant === null) return { value: "", problem: "Give a date and a time." };
  const value = new Date(instant).toISOString();
  return { value, problem: instant <= present ? "This time is over." : null };
}

// Which schedules a rule or a window covers.

import { SelectField, TextField } from "../../parts/field";

export interface Cover {
  kind: "all" | "schedule" | "tag";
  name: string;
}

export function coverOf(found: { schedule: string | null; tag: string | null } | null): Cover {
  if (found?.schedule) return { kind: "schedule", name: found.schedule };
  return found?.tag ? { kind: "tag", name: found.tag } : { kind: "all", name: "" };
}

/** Return the fields of a request. */
export function coverBody({ kind, name }: Cover): { schedule: string | null; tag: string | null } {
  return { schedule: kind === "schedule" ? name.trim() : null, tag: kind === "tag" ? name.trim() : null };
}

export function CoverFields({ cover, onCover }: { cover: Cover; onCover: (cover: Cover) => void }) {
  return (
    <>
      <SelectField
        label="Covers"
        value={cover.kind}
        onText={(kind) => onCover({ kind: kind as Cover["kind"], name: "" })}
        options={[
          ["all", "all schedules"],
          ["schedule", "one schedule"],
          ["tag", "schedules with a tag"],
        ]}
      />
      {cover.kind !== "all" && (
        <TextField label={cover.kind === "tag" ? "Tag" : "Name of the schedule"} required value={cover.name} onText={(name) => onCover({ ...cover, name })} />
      )}
    </>
  );
}

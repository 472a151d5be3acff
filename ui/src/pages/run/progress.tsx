// How far a task says it is.

import type { Run } from "../../api/schema";
import { Section } from "../../parts/page";
import { Time } from "../../parts/time";
import { progressText } from "./progress_text";

export function RunProgress({ run }: { run: Run }) {
  const { progress } = run;
  if (progress === null) return null;
  return (
    <Section
      title={run.state === "running" ? "Progress" : "Progress at the end"}
      aside={
        <>
          reported <Time at={progress.at} />
        </>
      }
    >
      <div class="progress">
        <progress
          aria-label="Progress of the run"
          {...(progress.total === null ? {} : { value: Math.min(progress.done, progress.total), max: progress.total || 1 })}
        />
        <span class="number">{progressText(progress)}</span>
      </div>
      {progress.note && <p class="progress-note">{progress.note}</p>}
    </Section>
  );
}

// Repair: what is wrong in the store, and mending it. A dry run shows first what would change.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { RepairFinding, RepairReport } from "../../api/schema";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { ActionDialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { counted } from "../../time/format";
import { isMendable, KINDS, OUTCOMES } from "./texts";

export function RepairSection() {
  const [report, setReport] = useState<RepairReport | null>(null);
  const [asks, setAsks] = useState(false);
  return (
    <Section title="Repair" aside={report && <>repaired <Time at={report.checked_at} /></>}>
      <div class="stack">
        <p>A repair looks for ticks that were settled twice, runs without a live worker, schedules without a wake-up and leftovers, of all tenants. It shows what it found before it changes anything.</p>
        <div class="row">
          <Button onClick={() => setAsks(true)}>Look for what is wrong …</Button>
        </div>
        {report && <RepairResult report={report} />}
      </div>
      {asks && <RepairDialog onClose={() => setAsks(false)} onDone={setReport} />}
    </Section>
  );
}

/** Shows what a dry run finds, and repairs it. */
export function RepairDialog({ onClose, onDone }: { onClose: () => void; onDone: (report: RepairReport) => void }) {
  const found = useData("repair, dry run", (signal) => call("POST /repair", { body: { dry_run: true }, signal }));
  const repair = useAction(async () => {
    const report = await call("POST /repair", { body: { dry_run: false } });
    notify(report.mended === 0 ? "There was nothing to repair." : `Repaired ${counted(report.mended, "finding")}. The audit has each change.`);
    onDone(report);
    onClose();
  });
  const count = found.value?.findings.filter(isMendable).length ?? 0;
  return (
    <ActionDialog
      wide
      title="Repair what is safe"
      verb={count > 0 ? `Repair ${counted(count, "finding")}` : "Repair"}
      disabled={count === 0}
      isBusy={repair.isBusy}
      error={repair.error}
      onSubmit={() => void repair.run()}
      onClose={onClose}
    >
      <Loaded data={found}>
        {(report) => (
          <>
            {report.findings.length === 0 ? (
              <p class="calm">
                <State state="ok" label="in order" /> Nothing is wrong in the store.
              </p>
            ) : (
              <p>A repair is safe beside live nodes: it leaves alone what changes meanwhile, and what only a person can decide. The audit records each change.</p>
            )}
            <FindingList findings={report.findings} />
            <Exact report={report} />
          </>
        )}
      </Loaded>
    </ActionDialog>
  );
}

/** What a repair did. */
export function RepairResult({ report }: { report: RepairReport }) {
  return (
    <div role="status" class="stack">
      <p>
        {report.mended === 0 ? "There was nothing to repair." : `Repaired ${counted(report.mended, "finding")}.`}{" "}
        {report.mended > 0 && <a href={href(["audit"], { action: "repair", tenant: null })}>Show the entries of the audit</a>}
      </p>
      <FindingList findings={report.findings} />
      <Exact report={report} />
    </div>
  );
}

function Exact({ report }: { report: RepairReport }) {
  return report.is_exact ? null : <p class="muted">Not everything was read: duplicates are searched in the newest 100,000 runs.</p>;
}

function FindingList({ findings }: { findings: RepairFinding[] }) {
  if (findings.length === 0) return null;
  return (
    <ul class="findings" aria-label="Findings of the repair">
      {findings.map((finding) => (
        <li key={`${finding.kind} ${finding.tenant} ${finding.subject}`}>
          <State state={finding.outcome === "mended" ? "ok" : "warn"} label={KINDS[finding.kind]} />
          <div>
            <p>{finding.what}</p>
            {finding.tenant !== null && <p class="muted">Tenant {finding.tenant}</p>}
            {finding.evidence.map(({ text, at }) => (
              <p class="muted" key={`${text} ${at}`}>
                {text}
                {at !== null && (
                  <>
                    {" "}
                    (<Time at={at} form="short" />)
                  </>
                )}
              </p>
            ))}
            <p>{finding.outcome === "found" ? (finding.mending === null ? "Repair leaves it: a person has to decide." : `Repair ${finding.mending}.`) : `Outcome: ${OUTCOMES[finding.outcome]}.`}</p>
          </div>
        </li>
      ))}
    </ul>
  );
}

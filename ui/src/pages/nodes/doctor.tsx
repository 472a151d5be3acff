// The check of the store, and the repair of what is safe to repair.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { Finding, Findings, RepairReport } from "../../api/schema";
import { useAction } from "../../live/action";
import { Button } from "../../parts/button";
import { Section } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { now } from "../../time/clock";
import { RepairDialog, RepairResult } from "../order/repair";
import { linksOf, placeOf } from "./texts";

const LEVELS: Record<Finding["level"], number> = { fail: 0, warn: 1, ok: 2 };

export function Doctor() {
  const [found, setFound] = useState<{ findings: Findings; at: number } | null>(null);
  const [repaired, setRepaired] = useState<RepairReport | null>(null);
  const [asks, setAsks] = useState(false);
  const check = useAction(async () => setFound({ findings: await call("GET /doctor"), at: now() }));
  return (
    <Section title="Check of the store" aside={found && <>checked <Time at={found.at} /></>}>
      <div class="stack">
        <div class="row">
          <Button isBusy={check.isBusy} onClick={() => void check.run()}>
            {check.isBusy ? "Checking …" : "Check the store"}
          </Button>
          <Button onClick={() => setAsks(true)}>Repair what is safe …</Button>
        </div>
        {check.error && <ProblemBox problem={check.error} />}
        {repaired && <RepairResult report={repaired} />}
        {found && <FindingList findings={found.findings} />}
      </div>
      {asks && (
        <RepairDialog
          onClose={() => setAsks(false)}
          onDone={(done) => {
            setRepaired(done);
            void check.run();
          }}
        />
      )}
    </Section>
  );
}

function FindingList({ findings }: { findings: Findings }) {
  const items = [...findings.items].sort((one, other) => LEVELS[one.level] - LEVELS[other.level]);
  return (
    <ul class="findings" aria-label="Findings">
      {items.map((finding) => (
        <li key={`${finding.check} ${finding.message}`}>
          <State state={finding.level} label={finding.check} />
          <div>
            <p>{finding.message}</p>
            {finding.hint !== null && <p class="muted">To do: {finding.hint}</p>}
            <FindingLinks finding={finding} />
            {finding.details.length > 0 && (
              <details class="unfold" open={finding.level === "fail"}>
                <summary>details</summary>
                <ul>
                  {finding.details.map((detail, index) => (
                    <li key={index}>{detail}</li>
                  ))}
                </ul>
              </details>
            )}
          </div>
        </li>
      ))}
    </ul>
  );
}

function FindingLinks({ finding }: { finding: Finding }) {
  const place = placeOf(finding);
  const links = linksOf(finding);
  return (
    <>
      {place !== null && <p>{place}</p>}
      {links.length > 0 && (
        <p class="links">
          {links.map(({ words, path, query }) => (
            <a key={words} href={href(path, query)}>
              {words}
            </a>
          ))}
        </p>
      )}
    </>
  );
}

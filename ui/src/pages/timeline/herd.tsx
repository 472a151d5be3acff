// The load by the minute over the next seven days: peaks, quiet windows, and spreads that lower the peaks.

import { useMemo, useState } from "preact/hooks";
import type { Forecast, SpreadProposal } from "../../api/schema";
import { call } from "../../api/client";
import { useAction } from "../../live/action";
import { isSchedule, useData } from "../../live/data";
import { Bars } from "../../parts/bars";
import { Button } from "../../parts/button";
import { Chart } from "../../parts/chart";
import { ActionDialog } from "../../parts/dialog";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { PeakList, ScheduleNames, splitName } from "../../parts/peaks";
import { Table } from "../../parts/table";
import { useMay, useTenantScope } from "../../state/session";
import { countText, counted, durationText, shortText, toMs } from "../../time/format";
import { useZone } from "../../time/zone";

const MINUTE = 60_000;
const HOURS = 168;

export function Herd() {
  const scope = useTenantScope();
  const zone = useZone();
  const [proposal, setProposal] = useState<SpreadProposal | null>(null);
  const data = useData(
    `herd ${JSON.stringify(scope)}`,
    (signal) => call("GET /forecast", { query: { ...scope, hours: HOURS, by: "minute" }, signal }),
    { when: isSchedule, every: 5 * MINUTE },
  );
  const tenant = scope.tenant ?? null;
  return (
    <Loaded data={data}>
      {(forecast) => (
        <>
          <Section title="Runs that start, by the minute" aside={`${counted(forecast.total, "run")} of ${counted(forecast.schedules, "schedule")} in 7 days`}>
            <Load forecast={forecast} zone={zone} />
            {forecast.notes.map((note) => (
              <p key={note} class="muted">
                {note}
              </p>
            ))}
          </Section>
          <div class="grid">
            <Section title="Peaks">
              {forecast.peaks.length === 0 ? <p class="muted">No minute has more than one run.</p> : <PeakList peaks={forecast.peaks.slice(0, 10)} zone={zone} tenant={tenant} />}
            </Section>
            <Section title="Quiet windows" aside="few runs start; runs that started before may still be running">
              <Table
                caption="Quiet windows"
                rows={forecast.quiet}
                keyOf={({ start }) => start}
                empty={<p class="muted">No range of 15 minutes is quieter than the others.</p>}
                columns={[
                  { title: "from", kind: "main", cell: ({ start }) => shortText(start, zone) },
                  { title: "to", cell: ({ end }) => shortText(end, zone) },
                  { title: "length", kind: "number", cell: ({ start, end }) => durationText((toMs(end) - toMs(start)) / 1_000) },
                  { title: "runs", kind: "number", cell: ({ runs }) => countText(runs) },
                ]}
              />
            </Section>
          </div>
          <Section title="Spreads that lower a peak" aside="a spread delays each schedule by an amount that depends on its name alone">
            <Proposals forecast={forecast} zone={zone} tenant={tenant} onChoose={setProposal} />
          </Section>
          {proposal && <SpreadDialog proposal={proposal} zone={zone} tenant={tenant} onClose={() => setProposal(null)} onDone={data.reload} />}
        </>
      )}
    </Loaded>
  );
}

function Load({ forecast, zone }: { forecast: Forecast; zone: string }) {
  const start = toMs(forecast.start);
  const times = useMemo(() => forecast.counts.map((_, index) => start + index * MINUTE), [forecast]);
  const series = useMemo(() => [{ label: "runs", colour: "planned", values: forecast.counts, kind: "bars" as const }], [forecast]);
  return <Chart caption="Runs that start in each minute of the next 7 days" times={times} series={series} zone={zone} write={(value) => String(Math.round(value * 10) / 10)} height={220} />;
}

interface ProposalsProps {
  forecast: Forecast;
  zone: string;
  tenant: string | null;
  onChoose: (proposal: SpreadProposal) => void;
}

function Proposals({ forecast, zone, tenant, onChoose }: ProposalsProps) {
  const mayEdit = useMay("admin");
  return (
    <Table
      caption="Spreads that lower a peak"
      rows={forecast.proposals}
      keyOf={({ at, spread }) => `${at} ${spread}`}
      empty={<p class="muted">No spread would lower a peak by much.</p>}
      columns={[
        { title: "peak", kind: "main", cell: ({ at }) => shortText(at, zone) },
        { title: "schedules", kind: "wide", cell: ({ schedules, more }) => <ScheduleNames names={schedules} more={more} tenant={tenant} /> },
        { title: "spread", kind: "number", cell: ({ spread }) => durationText(spread) },
        { title: "before", kind: "number", cell: ({ peak_before }) => counted(peak_before, "run") },
        { title: "after", kind: "number", cell: ({ peak_after }) => counted(peak_after, "run") },
        ...(mayEdit
          ? [
              {
                title: "",
                cell: (proposal: SpreadProposal) => (
                  <Button small onClick={() => onChoose(proposal)}>
                    Spread …
                  </Button>
                ),
              },
            ]
          : []),
      ]}
    />
  );
}

interface SpreadDialogProps {
  proposal: SpreadProposal;
  zone: string;
  tenant: string | null;
  onClose: () => void;
  onDone: () => void;
}

/** Gives the schedules of a peak their spread; shows the minutes around the peak before and after. */
function SpreadDialog({ proposal, zone, tenant, onClose, onDone }: SpreadDialogProps) {
  const [done, setDone] = useState(0);
  const names = proposal.schedules;
  const apply = useAction(async () => {
    for (const [index, text] of names.entries()) {
      const [owner, name] = splitName(text, tenant);
      await call("PATCH /schedules/{name}", { path: { name }, query: { tenant: owner }, body: { spread: proposal.spread } });
      setDone(index + 1);
    }
    notify(`${counted(names.length, "schedule")} got a spread of ${durationText(proposal.spread)}.`);
    onDone();
    onClose();
  });
  const most = Math.max(...proposal.before);
  const shown = { start: toMs(proposal.start), step: MINUTE, zone, height: 70, most };
  return (
    <ActionDialog
      wide
      title={`Spread ${counted(names.length, "schedule")} over ${durationText(proposal.spread)}`}
      verb="Spread"
      isBusy={apply.isBusy}
      error={apply.error}
      onClose={onClose}
      onSubmit={() => void apply.run()}
    >
      <p>
        At {shortText(proposal.at, zone)}, {counted(proposal.peak_before, "run")} start in one minute. With the spread, at most{" "}
        {counted(proposal.peak_after, "run")} would. No tick fires from this edit, and none is lost: at each of its ticks, a schedule fires up to{" "}
        {durationText(proposal.spread)} later, always by the same delay.
      </p>
      <p>
        Schedules: <ScheduleNames names={names} more={0} tenant={tenant} />
        {proposal.more > 0 && `. ${counted(proposal.more, "further schedule")} can be spread afterwards.`}
      </p>
      <h3>Before</h3>
      <Bars {...shown} caption="Runs by the minute, before" counts={proposal.before} />
      <h3>After</h3>
      <Bars {...shown} caption="Runs by the minute, after" counts={proposal.after} />
      {apply.isBusy && (
        <p role="status">
          <progress max={names.length} value={done} /> {`${done} of ${counted(names.length, "schedule")}`}
        </p>
      )}
    </ActionDialog>
  );
}

// One run: its state and why, its attempts, log, payload, result and error, and what can be done with it.

import { useState } from "preact/hooks";
import { call, callText } from "../../api/client";
import type { FlowPlace, FlowRun, Run } from "../../api/schema";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { Loaded } from "../../parts/load";
import { type Fact, Facts, Page, Section } from "../../parts/page";
import { Duration, Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay } from "../../state/session";
import { counted, durationText } from "../../time/format";
import { useZoneChoice } from "../../time/zone";
import { FlowActions, FlowSection, useFlowRun } from "../flows/of_run";
import { RunState, ScheduleLink } from "../runs/parts";
import { CancelDialog, EditDialog, RetryDialog } from "./actions";
import { AttemptTimeline } from "./attempt_timeline";
import { failureWords, latenessOf, retriesByHand } from "./attempts";
import { History } from "./history";
import { memberTexts, prettyJson } from "../../api/json_text";
import { LogTail } from "./log_tail";
import { Missing } from "./missing";
import { RunProgress } from "./progress";
import { WhyBox } from "./why";

export interface RunView {
  run: Run;
  /** The payload and the result as the server wrote them: every digit is there. */
  payload: string;
  result: string;
}

/** While a run is running, its lease and its progress change without an event. */
const RUNNING_EVERY = 2_000;

function viewOf(text: string): RunView {
  const run = JSON.parse(text) as Run;
  const members = memberTexts(text);
  return {
    run,
    payload: prettyJson(run.payload_text ?? members["payload"] ?? "null"),
    result: prettyJson(run.result_text ?? members["result"] ?? "null"),
  };
}

export function RunPage({ tenant, id }: { tenant: string; id: string }) {
  const request = { path: { id }, query: { tenant } };
  const [isRunning, setRunning] = useState(false);
  const data = useData(
    `run ${tenant} ${id}`,
    async (signal) => {
      const view = viewOf(await callText("GET /runs/{id}", { ...request, signal }));
      setRunning(view.run.state === "running");
      return view;
    },
    { when: (change) => change.subject === "run" && change.id === id, every: isRunning ? RUNNING_EVERY : undefined },
  );
  const schedule = data.value?.run.schedule;
  const zone = useScheduleZone(tenant, schedule ?? null);
  if (data.error?.status === 404) return <Missing tenants={[tenant]} id={id} />;
  return <Loaded data={data}>{(view) => <Shown view={view} zone={zone} reload={data.reload} />}</Loaded>;
}

/** Return the zone of the run's schedule, where the user has chosen to see it. */
function useScheduleZone(tenant: string, schedule: string | null): string | null {
  const wanted = useZoneChoice() === "schedule" ? schedule : null;
  const data = useData(`zone ${tenant} ${wanted ?? ""}`, async (signal) => {
    if (wanted === null) return null;
    return (await call("GET /schedules/{name}", { path: { name: wanted }, query: { tenant }, signal })).timezone;
  });
  return data.value ?? null;
}

interface ShownProps {
  view: RunView;
  zone: string | null;
  reload: () => void;
}

function Shown({ view, zone, reload }: ShownProps) {
  const { run } = view;
  const isFlow = run.kind === "flow";
  const flow = useFlowRun(run);
  const reloadAll = (): void => {
    reload();
    flow.reload();
  };
  // The error of a flow is that of a step, which its graph shows.
  const hasBegun = isFlow && flow.value?.steps.length !== 0;
  return (
    <Page title={`Run of ${run.task}`} actions={<ActionsOf view={view} flow={flow.value} reload={reloadAll} />}>
      <RunHead run={run} zone={zone} />
      <WhyBox run={run} zone={zone} />
      {isFlow && <FlowSection data={flow} zone={zone} onChange={reloadAll} />}
      <RunProgress run={run} />
      {run.error && !hasBegun && <ErrorSection title={run.state === "failed" ? "Error" : "Error of the last attempt that failed"} error={run.error} />}
      {!isFlow && (
        <>
          <Section title="Attempts" aside={<AttemptWords run={run} />}>
            <AttemptTimeline run={run} zone={zone} />
          </Section>
          <LogTail run={run} zone={zone} />
        </>
      )}
      <div class="grid">
        <ValueSection title="Payload" text={view.payload} none="no payload" />
        <ValueSection title="Result" text={view.result} none={run.state !== "succeeded" ? "no result" : isFlow ? "The flow has no result." : "The task returned nothing."} />
      </div>
      <Section title="Facts">
        <RunFacts run={run} zone={zone} />
      </Section>
      <History tenant={run.tenant} id={run.id} zone={zone} />
    </Page>
  );
}

function AttemptWords({ run }: { run: Run }) {
  const byHand = retriesByHand(run);
  return (
    <>
      {byHand > 0 && (
        <>
          <a href={href(["audit"], { tenant: run.tenant, subject: run.id, action: "retry" })}>retried by hand {times(byHand)}</a>,{" "}
        </>
      )}
      {failureWords(run, byHand)}
    </>
  );
}

function times(count: number): string {
  return count === 1 ? "once" : counted(count, "time");
}

/** What happens by itself when the run fails. */
function retryWords(run: Run): string {
  if (run.retries === 0) return "none by itself: a run that failed is tried again only by hand";
  return `${counted(run.retries, "time")}: after ${durationText(run.backoff)}, doubled each time up to ${durationText(run.max_backoff)}`;
}

const CAUSES: Record<Run["cause"], string> = {
  tick: "a tick of its schedule",
  run_now: "run by hand, beside the ticks",
  backfill: "a backfill",
  enqueue: "enqueued, without a schedule",
};

function RunHead({ run, zone }: { run: Run; zone: string | null }) {
  return (
    <section class="card run-head" aria-label="Run">
      <p class="run-line">
        <RunState run={run} /> <code class="whole-id">{run.id}</code> <CopyButton text={run.id} label="Copy the id" />
      </p>
      <Facts
        items={[
          [run.kind === "flow" ? "Flow" : "Task", <a href={run.kind === "flow" ? href(["flows", run.task]) : href(["runs"], { task: run.task })}>{run.task}</a>],
          ["Schedule", <ScheduleLink tenant={run.tenant} name={run.schedule} />],
          ["Tick", <Time at={run.tick ?? run.flow?.tick} zone={zone} form="short" />],
          ["Cause", <CauseOf run={run} />],
          ["Queue", <a href={href(["runs"], { queue: run.queue })}>{run.queue}</a>],
          ["Priority", run.priority_name === null ? String(run.priority) : `${run.priority_name} (${run.priority})`],
          ["Tenant", run.tenant],
        ]}
      />
    </section>
  );
}

function StepOf({ tenant, place }: { tenant: string; place: FlowPlace }) {
  const element = place.index === null ? "" : `, element ${place.index}`;
  return (
    <>
      the step {place.step} of <a href={href(["runs", tenant, place.id], { step: place.step })}>its flow</a>
      {element}
    </>
  );
}

function CauseOf({ run }: { run: Run }) {
  if (run.flow !== null) return <StepOf tenant={run.tenant} place={run.flow} />;
  const more = run.coalesced > 0 ? `; stands for ${counted(run.coalesced, "more tick")}` : "";
  if (run.predecessor === null) return <>{`${CAUSES[run.cause]}${more}`}</>;
  return (
    <>
      the success of{" "}
      {run.predecessor_schedule !== null && (
        <>
          <ScheduleLink tenant={run.tenant} name={run.predecessor_schedule} />, run{" "}
        </>
      )}
      <a href={href(["runs", run.tenant, run.predecessor])}>{run.predecessor}</a>
      {more}
    </>
  );
}

/** What concerns attempts: a flow has none, its steps do. */
const OF_ATTEMPTS = ["Worker", "Retries", "If its worker dies"];

function RunFacts({ run, zone }: { run: Run; zone: string | null }) {
  const isFirst = run.lateness !== null || latenessOf(run) === null;
  const exact = (at: string | null) => <Time at={at} zone={zone} form="exact" />;
  const items: Fact[] = [
    ["Created", exact(run.created_at)],
    ["Due", exact(run.scheduled_at)],
    ["May start from", exact(run.run_at)],
    ["Started", exact(run.started_at)],
    ["Finished", exact(run.finished_at)],
    [isFirst ? "Late by" : "Late by, first attempt", <Duration seconds={latenessOf(run)} />],
    ["Took", <Duration seconds={run.duration} />],
    ["Fired by", run.fired_by ?? "–"],
    ["Worker", run.worker ?? "–"],
    ["Timeout", run.timeout === null ? "none" : durationText(run.timeout)],
    ["Expires", run.expires_at === null ? "never" : exact(run.expires_at)],
    ["Unique", run.unique_key ?? "no"],
    ["Retries", retryWords(run)],
    ["If its worker dies", run.on_crash === "rerun" ? `run again, at most ${counted(run.max_crashes, "time")}` : "the run fails"],
  ];
  return <Facts items={run.kind === "flow" ? items.filter(([name]) => !OF_ATTEMPTS.includes(name)) : items} />;
}

function ErrorSection({ title, error }: { title: string; error: string }) {
  return (
    <Section title={title} aside={<CopyButton text={error} label="Copy the error" />}>
      <pre class="traceback" tabIndex={0} aria-label="Error">
        {error}
      </pre>
    </Section>
  );
}

function ValueSection({ title, text, none }: { title: string; text: string; none: string }) {
  if (text === "null" || text === "{}") {
    return (
      <Section title={title}>
        <p class="muted">{none}</p>
      </Section>
    );
  }
  return (
    <Section title={title} aside={<CopyButton text={text} label={`Copy the ${title.toLowerCase()}`} />}>
      <pre tabIndex={0} aria-label={title}>
        {text}
      </pre>
    </Section>
  );
}

/** The buttons of a run. A flow that failed before it began is retried like any run. */
function ActionsOf({ view, flow, reload }: { view: RunView; flow: FlowRun | null | undefined; reload: () => void }) {
  if (flow === undefined) return null;
  return flow === null || flow.steps.length === 0 ? <Actions view={view} reload={reload} /> : <FlowActions run={flow} onChange={reload} />;
}

function Actions({ view, reload }: { view: RunView; reload: () => void }) {
  const mayAct = useMay("operator");
  const [open, setOpen] = useState<"retry" | "edit" | "cancel" | null>(null);
  const { run } = view;
  const close = (): void => {
    setOpen(null);
    reload();
  };
  // A step of a flow is retried there: its flow has to know, and the results of other steps are not in its payload.
  const isStep = run.flow !== null;
  const canRetry = !isStep && (run.state === "failed" || run.state === "cancelled");
  const isActive = run.state === "queued" || run.state === "running";
  if (!mayAct) return null;
  return (
    <>
      {canRetry && (
        <Button kind="primary" onClick={() => setOpen("retry")}>
          Retry
        </Button>
      )}
      {run.kind === "task" && !isStep && <Button onClick={() => setOpen("edit")}>{canRetry ? "Retry" : "Run"} with an edited payload …</Button>}
      {isActive && !(run.state === "running" && run.cancel_requested) && (
        <Button kind="danger" onClick={() => setOpen("cancel")}>
          Cancel …
        </Button>
      )}
      {open === "retry" && <RetryDialog run={run} onClose={close} />}
      {open === "edit" && <EditDialog run={run} payload={view.payload} onClose={close} />}
      {open === "cancel" && <CancelDialog run={run} onClose={close} />}
    </>
  );
}

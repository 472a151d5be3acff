// The attention list: each item is a sentence, its evidence, and a button that leads to the remedy.

import type { Attention, AttentionItem } from "../../api/schema";
import { call } from "../../api/client";
import { useAction } from "../../live/action";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { Command } from "../../parts/copy";
import { Loaded } from "../../parts/load";
import { notify } from "../../parts/notice";
import { Section } from "../../parts/page";
import { ProblemBox } from "../../parts/problem";
import { State } from "../../parts/state";
import { Time } from "../../parts/time";
import { href } from "../../state/route";
import { useMay, useTenantScope } from "../../state/session";
import { counted } from "../../time/format";

const TITLES: Record<AttentionItem["kind"], string> = {
  late: "late",
  waiting: "waiting",
  failing: "failing",
  stuck: "stuck",
  orphaned: "orphaned",
  no_node: "no node",
  no_ticker: "no ticker",
  quarantined: "quarantined",
  undelivered: "not delivered",
  store_unsafe: "store unsafe",
};

/** Kinds whose remedy is a button beside them. */
const HAS_BUTTONS: AttentionItem["kind"][] = ["failing", "stuck", "no_ticker", "undelivered", "store_unsafe"];

export function AttentionList() {
  const scope = useTenantScope();
  const data = useData(`attention ${JSON.stringify(scope)}`, (signal) => call("GET /attention", { query: scope, signal }), {
    // What a success ends is seen with the next reading.
    when: (change) => change.subject !== "run" || change.kind === "failed",
    every: 10_000,
  });
  return (
    <Section title="Needs attention" aside={data.value && <Summary value={data.value} />}>
      <Loaded data={data}>
        {(value) =>
          value.items.length === 0 ? (
            <p class="calm">
              <State state="ok" label="nothing" tone="good" /> No schedule is late or failing, no run is stuck, and nodes have every task.
            </p>
          ) : (
            <ul class="attention">
              {value.items.map((item) => (
                <Item key={`${item.kind} ${item.tenant} ${item.schedule ?? ""} ${item.run ?? ""} ${item.task ?? ""} ${item.sentence}`} item={item} onDone={data.reload} />
              ))}
              {value.more > 0 && (
                <li class="muted">
                  and {value.is_exact ? "" : "at least "}
                  {counted(value.more, "more thing")}
                </li>
              )}
              {value.more === 0 && !value.is_exact && <li class="muted">There may be more: not everything was read.</li>}
            </ul>
          )
        }
      </Loaded>
    </Section>
  );
}

function Summary({ value }: { value: Attention }) {
  return (
    <>
      checked <Time at={value.checked_at} />
    </>
  );
}

function Item({ item, onDone }: { item: AttentionItem; onDone: () => void }) {
  return (
    <li class={item.level}>
      <State state={item.level} label={TITLES[item.kind]} tone={item.level === "fail" ? "bad" : "warn"} />
      <div class="attention-text">
        <p>{item.sentence}</p>
        {item.evidence.length > 0 && (
          <ul class="evidence">
            {item.evidence.map((fact) => (
              <li key={fact.text}>
                {fact.text}
                {fact.at !== null && (
                  <>
                    {" "}
                    · <Time at={fact.at} />
                  </>
                )}
              </li>
            ))}
          </ul>
        )}
        {item.remedy !== null && !HAS_BUTTONS.includes(item.kind) && <p class="remedy">To do: {item.remedy}</p>}
      </div>
      <div class="attention-act">
        <Remedy item={item} onDone={onDone} />
      </div>
    </li>
  );
}

function Remedy({ item, onDone }: { item: AttentionItem; onDone: () => void }) {
  const mayOperate = useMay("operator");
  if (item.kind === "no_ticker" || (item.kind === "no_node" && item.task === null)) return <Command text="evenbeat run app.py" />;
  if (item.kind === "store_unsafe") return <Command text="evenbeat doctor" />;
  if (item.kind === "undelivered") {
    return (
      <a class="button small" href={href(["alerts"], { tab: "log" })}>
        Open the delivery log
      </a>
    );
  }
  if (item.kind === "no_node" && item.task !== null) {
    return (
      <a class="button small" href={href(["runs"], { state: "queued", task: item.task, tenant: item.tenant })}>
        Show the runs
      </a>
    );
  }
  if (item.run !== null) {
    const whose = item.schedule ?? item.task ?? item.run;
    return (
      <>
        {mayOperate && item.kind === "failing" && <RunButton item={item} verb="retry" label="Retry" onDone={onDone} />}
        {mayOperate && item.kind === "stuck" && <RunButton item={item} verb="cancel" label="Cancel" onDone={onDone} />}
        <a class="button small" aria-label={`Open the run of ${whose}`} href={href(["runs", item.tenant ?? "default", item.run])}>
          Open the run
        </a>
      </>
    );
  }
  if (item.schedule !== null) {
    return (
      <a class="button small" aria-label={`Open the schedule ${item.schedule}`} href={href(["schedules", item.tenant ?? "default", item.schedule])}>
        Open the schedule
      </a>
    );
  }
  return (
    <a class="button small" href={item.kind === "late" ? href(["schedules"], { late: "true" }) : href(["nodes"])}>
      {item.kind === "late" ? "Show them" : "Show the nodes"}
    </a>
  );
}

interface RunButtonProps {
  item: AttentionItem;
  verb: "retry" | "cancel";
  label: string;
  onDone: () => void;
}

function RunButton({ item, verb, label, onDone }: RunButtonProps) {
  const id = item.run ?? "";
  const act = useAction(async () => {
    const request = { path: { id }, query: item.tenant === null ? {} : { tenant: item.tenant } };
    const run = await (verb === "retry" ? call("POST /runs/{id}/retry", request) : call("POST /runs/{id}/cancel", request));
    const said = verb === "cancel" ? "The run was asked to stop." : run.id === id ? "The run is queued again." : "A new run was added, because its schedule bounds its active runs.";
    notify(said, { to: href(["runs", run.tenant, run.id]), label: "Open it" });
    onDone();
  });
  return (
    <>
      <Button small aria-label={`${label} the run of ${item.schedule ?? item.task ?? id}`} isBusy={act.isBusy} onClick={() => void act.run()}>
        {label}
      </Button>
      {act.error && <ProblemBox problem={act.error} />}
    </>
  );
}

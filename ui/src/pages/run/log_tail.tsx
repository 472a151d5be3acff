// The log of a run. While it is running, new lines appear each second, and the view follows the end unless the
// reader has scrolled up.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { LogLine, Run } from "../../api/schema";
import { useData } from "../../live/data";
import { Button } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { Loaded } from "../../parts/load";
import { Section } from "../../parts/page";
import { clockText, counted, exactText, zoneName } from "../../time/format";
import { useZone } from "../../time/zone";
import { useReload } from "./reload";
import { isAtEnd, logItems, logText } from "./log";

const TAIL_EVERY = 1_000;

export function LogTail({ run, zone }: { run: Run; zone: string | null }) {
  const isRunning = run.state === "running";
  const data = useData(
    `log ${run.tenant} ${run.id}`,
    async (signal) => (await call("GET /runs/{id}/logs", { path: { id: run.id }, query: { tenant: run.tenant }, signal })).items,
    { every: isRunning ? TAIL_EVERY : undefined },
  );
  // The last lines come with the end of the run.
  useReload(data, `${run.state} ${run.attempt}`);
  const lines = data.value ?? [];
  const shown = useZone(zone);
  return (
    <Section
      title="Log"
      aside={
        <span class="row">
          <span>{isRunning ? "follows the run" : counted(lines.length, "line")}, times in {zoneName(shown)}</span>
          {lines.length > 0 && <CopyButton text={logText(lines)} label="Copy the log" />}
        </span>
      }
    >
      <Loaded data={data}>{(read) => <Lines lines={read} zone={shown} isOver={run.finished_at !== null} />}</Loaded>
    </Section>
  );
}

function Lines({ lines, zone, isOver }: { lines: LogLine[]; zone: string; isOver: boolean }) {
  const frame = useRef<HTMLDivElement>(null);
  const [follows, setFollows] = useState(true);
  const [seen, setSeen] = useState(lines.length);
  const { items, leftOut } = logItems(lines);
  const toEnd = (): void => {
    if (frame.current !== null) frame.current.scrollTop = frame.current.scrollHeight;
  };
  useLayoutEffect(() => {
    if (!follows) return;
    toEnd();
    setSeen(lines.length);
  }, [lines.length, follows]);
  if (lines.length === 0) return <p class="muted">{isOver ? "The run wrote no lines." : "No line yet."}</p>;
  return (
    <div class="log-frame">
      {leftOut > 0 && <p class="muted">{counted(leftOut, "earlier line")} not shown; “Copy the log” has all of them.</p>}
      <div
        ref={frame}
        class="log mono"
        role="log"
        aria-label="Lines of the log"
        aria-live="off"
        tabIndex={0}
        onScroll={(event) => setFollows(isAtEnd(event.currentTarget))}
      >
        {items.map((item, index) =>
          item.kind === "attempt" ? (
            <p key={`attempt ${item.attempt} ${index}`} class="log-attempt">
              attempt {item.attempt}
            </p>
          ) : (
            <p key={index} class="log-line">
              <time dateTime={item.at} title={exactText(item.at, zone)}>
                {clockText(item.at, zone, true)}
              </time>
              <span>{item.text}</span>
            </p>
          ),
        )}
      </div>
      {!follows && (
        <div class="log-follow">
          <Button small kind="primary" onClick={() => setFollows(true)}>
            Follow the end{lines.length > seen ? `: ${counted(lines.length - seen, "new line")}` : ""}
          </Button>
        </div>
      )}
    </div>
  );
}

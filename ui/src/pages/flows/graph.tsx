// The graph of a flow: a box for each step, with its state where it has one, and the edges between them.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { FlowStepInfo, FlowStepRun } from "../../api/schema";
import { State } from "../../parts/state";
import { useNow } from "../../time/clock";
import { type Edge, type Layout, stepTowards } from "./layout";
import { elementsBrief, stateLabel, stepTone, tookText } from "./texts";

export interface StepGraphProps {
  label: string;
  layout: Layout;
  steps: FlowStepInfo[];
  /** The states of the steps; without a run, they have none. */
  runs: Map<string, FlowStepRun> | null;
  chosen: string | null;
  onChoose: (name: string) => void;
}

/** Sizes in pixels: of a box, and of the room between two of them along the flow and across it. */
const SIZES = {
  rightwards: { width: 192, height: 64, along: 44, across: 18 },
  downwards: { width: 198, height: 64, along: 36, across: 12 },
};
const EDGE_OF_FRAME = 6;
const NARROW = "(max-width: 760px)";

/** Whether the flow is drawn from the top to the bottom: on a phone, layers beside each other do not fit. */
function useDownwards(): boolean {
  const [isNarrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const query = matchMedia(NARROW);
    const note = (): void => setNarrow(query.matches);
    query.addEventListener("change", note);
    return () => query.removeEventListener("change", note);
  }, []);
  return isNarrow;
}

/** Where a layer and a middle are on the page. */
class Canvas {
  readonly width: number;
  readonly height: number;
  private readonly size: (typeof SIZES)["rightwards"];

  constructor(
    layout: Layout,
    readonly isDownwards: boolean,
  ) {
    this.size = isDownwards ? SIZES.downwards : SIZES.rightwards;
    const along = layout.layers * this.alongBox + (layout.layers - 1) * this.size.along + 2 * EDGE_OF_FRAME;
    const across = layout.breadth * this.pitch + 2 * EDGE_OF_FRAME;
    [this.width, this.height] = isDownwards ? [across, along] : [along, across];
  }

  get boxWidth(): number {
    return this.size.width;
  }

  get boxHeight(): number {
    return this.size.height;
  }

  private get alongBox(): number {
    return this.isDownwards ? this.size.height : this.size.width;
  }

  private get pitch(): number {
    return (this.isDownwards ? this.size.width : this.size.height) + this.size.across;
  }

  private start(layer: number): number {
    return EDGE_OF_FRAME + layer * (this.alongBox + this.size.along);
  }

  box(layer: number, middle: number): { left: number; top: number } {
    const along = this.start(layer);
    const across = EDGE_OF_FRAME + middle * this.pitch;
    return this.isDownwards ? { left: across - this.size.width / 2, top: along } : { left: along, top: across - this.size.height / 2 };
  }

  /** The path of an edge: from the end of its first box, past those in between, to the start of its last one. */
  path({ points }: Edge): string {
    const at = (along: number, middle: number): string => {
      const across = EDGE_OF_FRAME + middle * this.pitch;
      return this.isDownwards ? `${round(across)} ${round(along)}` : `${round(along)} ${round(across)}`;
    };
    const parts: string[] = [];
    points.forEach(([layer, middle], index) => {
      const begin = this.start(layer);
      const end = begin + this.alongBox;
      const before = points[index - 1];
      if (before === undefined) {
        parts.push(`M${at(end, middle)}`);
        return;
      }
      const left = this.start(before[0]) + this.alongBox;
      const isLast = index === points.length - 1;
      // Room for the arrow.
      const target = isLast ? begin - 7 : begin;
      const half = (left + target) / 2;
      parts.push(`C${at(half, before[1])} ${at(half, middle)} ${at(target, middle)}`);
      parts.push(`L${at(isLast ? begin - 1 : end, middle)}`);
    });
    return parts.join("");
  }
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

export function StepGraph({ label, layout, steps, runs, chosen, onChoose }: StepGraphProps) {
  const isDownwards = useDownwards();
  const canvas = useMemo(() => new Canvas(layout, isDownwards), [layout, isDownwards]);
  const infos = useMemo(() => new Map(steps.map((step) => [step.name, step])), [steps]);
  const frame = useRef<HTMLDivElement>(null);
  const reachable = chosen ?? layout.boxes[0]?.name;
  // A large graph is wider or higher than its frame. The page itself does not scroll.
  useLayoutEffect(() => {
    const box = layout.boxes.find(({ name }) => name === chosen);
    if (frame.current === null || box === undefined) return;
    const { left, top } = canvas.box(box.layer, box.middle);
    reveal(frame.current, left, top, canvas.boxWidth, canvas.boxHeight);
  }, [chosen, canvas]);
  const onKey = (event: KeyboardEvent, name: string): void => {
    const to = stepTowards(layout, name, event.key, isDownwards);
    if (event.key === "Enter" || event.key === " ") onChoose(name);
    else if (to !== null) {
      onChoose(to);
      frame.current?.querySelector<HTMLElement>(`[data-step="${CSS.escape(to)}"]`)?.focus();
    } else return;
    event.preventDefault();
  };
  return (
    <div ref={frame} class="flow-frame">
      <div class="flow-canvas" style={{ width: `${canvas.width}px`, height: `${canvas.height}px` }}>
        <svg class="flow-edges" viewBox={`0 0 ${canvas.width} ${canvas.height}`} width={canvas.width} height={canvas.height} aria-hidden="true">
          <defs>
            <marker id="flow-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 0.5L7.5 4L0 7.5z" />
            </marker>
          </defs>
          {layout.edges.map((edge) => (
            <path
              key={`${edge.from} ${edge.to}`}
              class={edgeClass(edge, infos, chosen)}
              d={canvas.path(edge)}
              marker-end="url(#flow-arrow)"
            />
          ))}
        </svg>
        <ul class="flow-boxes" role="listbox" aria-label={label} aria-orientation={isDownwards ? "vertical" : "horizontal"}>
          {layout.boxes.map(({ name, layer, middle }) => {
            const { left, top } = canvas.box(layer, middle);
            return (
              <li
                key={name}
                role="option"
                aria-selected={name === chosen}
                tabIndex={name === reachable ? 0 : -1}
                data-step={name}
                class={`flow-box ${boxClass(runs?.get(name))}`}
                style={{ left: `${left}px`, top: `${top}px`, width: `${canvas.boxWidth}px`, height: `${canvas.boxHeight}px` }}
                title={name}
                onClick={() => onChoose(name)}
                onKeyDown={(event) => onKey(event, name)}
              >
                <BoxContent info={infos.get(name)} run={runs?.get(name)} />
              </li>
            );
          })}
        </ul>
      </div>
    </div>
  );
}

/** Scroll a frame so that a part of its content is inside. */
function reveal(frame: HTMLElement, left: number, top: number, width: number, height: number): void {
  const isInside = (start: number, size: number, scrolled: number, room: number): boolean => start >= scrolled && start + size <= scrolled + room;
  if (!isInside(left, width, frame.scrollLeft, frame.clientWidth)) frame.scrollLeft = left + width / 2 - frame.clientWidth / 2;
  if (!isInside(top, height, frame.scrollTop, frame.clientHeight)) frame.scrollTop = top + height / 2 - frame.clientHeight / 2;
}

/** An edge without data is dashed; those of the chosen step stand out. */
function edgeClass({ from, to }: Edge, infos: Map<string, FlowStepInfo>, chosen: string | null): string {
  const hasData = infos.get(to)?.inputs.includes(from) ?? false;
  const isChosen = chosen === from || chosen === to;
  return `flow-edge${hasData ? "" : " order-only"}${isChosen ? " chosen" : ""}`;
}

function boxClass(run: FlowStepRun | undefined): string {
  return run === undefined ? "plain" : `${stepTone(run.state)} ${run.state}`;
}

function BoxContent({ info, run }: { info: FlowStepInfo | undefined; run: FlowStepRun | undefined }) {
  const kind = info?.is_map ? "map" : info?.kind === "flow" ? "flow" : null;
  const before = info === undefined || info.after.length === 0 ? null : `, after ${info.after.join(", ")}`;
  return (
    <>
      <span class="flow-name">
        <span class="flow-name-text">{info?.name}</span>
        {kind !== null && <span class="flow-kind">{kind}</span>}
      </span>
      {run === undefined ? <span class="flow-line muted">{info?.task}</span> : <StepLine run={run} />}
      {before !== null && <span class="off-screen">{before}</span>}
    </>
  );
}

function StepLine({ run }: { run: FlowStepRun }) {
  const elements = elementsBrief(run);
  return (
    <span class="flow-line">
      <State state={run.state} label={stateLabel(run.state)} tone={stepTone(run.state)} />
      <span class="flow-took muted number">{elements ?? <Took run={run} />}</span>
    </span>
  );
}

/** How long a step took, or has been running for. */
export function Took({ run }: { run: FlowStepRun }) {
  if (run.state === "running" && run.duration === null) return <Running run={run} />;
  return <>{tookText(run, 0)}</>;
}

function Running({ run }: { run: FlowStepRun }) {
  return <>{tookText(run, useNow())}</>;
}

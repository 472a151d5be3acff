"""Checks of flows under way: steps whose task no live node has, flows that stand still because of limits, and
flows that have taken very long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.doctor.findings import Finding, some_lines
from evenbeat.node.flow_rows import FlowGraphs
from evenbeat.node.presence import LiveNode
from evenbeat.observe.limit_usage import LimitUsage
from evenbeat.observe.phrases import count, span
from evenbeat.rules import flows as rules
from evenbeat.rules.flow_parts import UNENDED, flow_part, is_begun
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.stores.pages import every_run

_PAGE = 500
# The most flows that are looked at.
_FLOWS = 1_000
# Results of steps are kept for this long while their flow runs: see ``node.pruner``.
_LONGEST = 30 * 86_400_000


def flow_findings(
    store: Store, alive: list[LiveNode], now: Instant, usage: LimitUsage | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with flows under way; nothing if there are none, or all is well."""
    query = RunQuery(states=("running",), without=LARGE_FIELDS, limit=_PAGE)
    flows = list(islice((run for run in every_run(store, query) if is_begun(run)), _FLOWS))
    if not flows:
        return
    missing = _missing(store, flows, alive)
    if missing:
        yield Finding(
            check="flows",
            level="fail",
            facts={"steps": [{"task": task, "step": step, "run": run} for task, step, run in missing]},
            message=f"{count(len({run for _, _, run in missing}), 'flow has', 'flows have')} a step whose "
            "task no live node has",
            hint="start a node that has these tasks, or cancel the flows: evenbeat flows cancel RUN",
            details=some_lines(f"{task}, step {step} of {run}" for task, step, run in missing),
        )
    stuck = _standing_still(store, flows, usage) if usage is not None else {}
    if stuck:
        yield Finding(
            check="flows",
            level="fail",
            facts={"standstill": [{"run": run, "limit": limit} for run, limit in stuck.items()]},
            message=f"{count(len(stuck), 'flow waits', 'flows wait')} for ever, for slots of limits "
            "that only such flows hold",
            hint="raise the limit: evenbeat limits set; or cancel some of them: evenbeat flows cancel RUN",
            details=some_lines(f"{run}, for {limit}" for run, limit in stuck.items()),
        )
    old = [run for run in flows if run.created_at < now - _LONGEST]
    if old:
        yield Finding(
            check="flows",
            level="warn",
            facts={"old": [run.id for run in old]},
            message=f"{count(len(old), 'flow has', 'flows have')} not ended for over 30 days: the results "
            "of their steps are not kept any longer",
            hint="cancel them: evenbeat flows cancel RUN; or give the flow a timeout: @app.flow(timeout=…)",
            details=some_lines(f"{run.id}, for {span(now - run.created_at, units=1)}" for run in old),
        )


def _missing(store: Store, flows: list[RunRecord], alive: list[LiveNode]) -> list[tuple[str, str, str]]:
    """Return (task, step, run) of steps that have not ended and whose task no live worker has."""
    workers = [node.taker for node in alive if node.worker]
    if not workers:
        return []  # another finding says so
    graphs = FlowGraphs(store)
    found: list[tuple[str, str, str]] = []
    for run in flows:
        state = flow_part(run).state
        graph = graphs.of(run)
        if state is None or graph is None:
            continue
        for step, letter in zip(graph.steps, state.steps, strict=True):
            if letter in UNENDED and not any(worker.has(step.task) for worker in workers):
                found.append((step.task, step.name, run.id))
    return found


def _standing_still(store: Store, flows: list[RunRecord], usage: LimitUsage) -> dict[str, str]:
    """Return the flows whose steps can no longer start or end, each with the limit that a step waits for.

    All runs of their open steps wait for slots that only such flows hold, or are such flows themselves.
    """
    graphs = FlowGraphs(store)
    open_runs: dict[str, list[RunRecord]] = {}
    for flow in flows:
        graph = graphs.of(flow)
        ids = [] if graph is None else [one for _, some in rules.open_runs(flow, graph) for one in some]
        if 0 < len(ids) <= _PAGE:
            query = RunQuery(ids=tuple(ids), without=("result", "error"), limit=_PAGE)
            open_runs[flow.id] = list(store.find_runs(query).items)
    by_id = {flow.id: flow for flow in flows}
    while True:
        held = Counter(name for flow in open_runs for name in usage.counted(by_id[flow]))
        moving = [
            flow
            for flow, runs in open_runs.items()
            if any(_moves(run, open_runs, held, usage) for run in runs)
        ]
        if not moving:
            break
        for each in moving:
            del open_runs[each]
    holds = {
        flow: next((hold for run in runs if (hold := usage.hold(run)) is not None), None)
        for flow, runs in open_runs.items()
    }
    return {flow: "a flow inside it" if hold is None else hold.limit.name for flow, hold in holds.items()}


def _moves(run: RunRecord, still: Collection[str], held: Mapping[str, int], usage: LimitUsage) -> bool:
    """Return whether a run of an open step may start or end, given the flows that may stand still and how
    many slots of each partition these hold."""
    if run.state == "running" and is_begun(run):
        return run.id not in still
    hold = usage.hold(run) if run.state == "queued" else None
    return hold is None or hold.opens is not None or hold.running > held.get(hold.partition, 0)

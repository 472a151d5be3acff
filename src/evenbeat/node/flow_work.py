"""The flows of a worker: begins those that it claims, ends steps, and reports flows that have ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.node.counting import Counting
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flows import Begin, End, FlowEnd, FlowSettling
from evenbeat.node.signals import Signals
from evenbeat.observe.events import EventKind, Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.rules.flows import graph_records
from evenbeat.stores.base import Store
from evenbeat.tasks.flow import Flow, all_graphs
from evenbeat.tasks.task import Tasks

# How often a change is decided again because another process has changed the flow.
_TRIES = 100

_log = logging.getLogger("evenbeat.node.flows")


class FlowReports:
    """Logs, counts and announces flows that have ended."""

    def __init__(
        self,
        events: Events,
        counting: Counting,
        signals: Signals,
        wake_backfills: Callable[[], None] = lambda: None,
        tasks: Tasks | None = None,
    ) -> None:
        self._events = events
        self._counting = counting
        self._signals = signals
        self._wake_backfills = wake_backfills
        self._tasks = tasks

    def report(self, ended: Iterable[FlowEnd], now: Instant) -> None:
        for run, transition in ended:
            assert isinstance(transition.state, str)
            kind: EventKind = transition.state  # type: ignore[assignment]  # a final state is a kind of event
            took = None if run.started_at is None else max(now - run.started_at, 0)
            error = transition.error if isinstance(transition.error, str) else None
            self._counting.count_flow_end(run, kind, took, now)
            fields: dict[str, Any] = {**run_fields(run), "component": "worker"}
            if took is not None:
                fields["duration"] = took / 1000
            if error is not None:
                fields["error"] = error
            level = logging.ERROR if kind == "failed" else logging.INFO
            _log.log(level, "a flow %s" if kind != "cancelled" else "a flow was %s", kind, extra=fields)
            if run.cause == "backfill":
                self._wake_backfills()
            if self._events:
                text = transition.result
                result = self._tasks.read_result(run.task, text) if self._tasks and text else None
                self._events.publish(
                    kind,
                    now,
                    run=run,
                    error=error,
                    result=result if kind == "succeeded" else None,
                    duration=None if took is None else timedelta(milliseconds=took),
                )
        self._signals.note_written()


class FlowWork:
    """Begins the flows that a worker claims, and reports those that end. Called by its thread alone."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        reports: FlowReports,
        *,
        signals: Signals,
        new_token: Callable[[], str],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._reports = reports
        self.settling = FlowSettling(store, "worker", signals=signals, new_token=new_token)
        self.arguments = FlowArguments(self.settling.rows)
        self._beginning: list[Begin] = []
        self._resumed: list[RunRecord] = []
        """Claimed flows that continue after their end."""
        self._resuming = FlowResuming(self.settling.rows, new_token)
        self._new_token = new_token
        self._stored: set[str] = set()
        """The keys of graphs that this process has stored."""

    def __bool__(self) -> bool:
        return bool(self._beginning or self._resumed)

    def misfit(self, flow: Flow[..., Any], run: RunRecord) -> str | None:
        """Return why this node can't begin a flow: its graph is wrong here, or its payload does not fit; None
        if it can. A flow that continues has the graph that it began with."""
        if flow_part(run).state is not None:
            return None
        try:
            all_graphs(flow)
            flow.fits(run.payload)
        except (InvalidValue, ValueError) as error:
            # Not JSON, or nested too deeply: edited by hand, or written by another program.
            return f"{type(error).__name__}: {error}"
        return None

    def begin(self, flow: Flow[..., Any], run: RunRecord) -> None:
        """Begin a claimed flow, or continue one that has ended, with the next ``step``."""
        if flow_part(run).state is not None:
            self._resumed.append(run)
            return
        graphs = {graph.key: graph for graph in all_graphs(flow)}
        graph = flow.graph
        member = flow_part(run).member
        if member is not None:
            # The graph that the outer flow was registered with, also if this node has another one by now.
            outer = self.settling.rows.graphs.get(member.graph)
            is_known = outer is not None and 0 <= member.step < len(outer.steps)
            wanted = outer.steps[member.step].graph if outer is not None and is_known else None
            if wanted is not None and wanted != graph.key:
                graph = self.settling.rows.graphs.get(wanted) or graph
        new = [each for key, each in graphs.items() if key not in self._stored]
        self._beginning.append(Begin(run, graph, graph_records(new)))

    def step(self, now: Instant) -> Sequence[RunRecord]:
        """Begin the flows that wait for it, and continue others; return the runs of steps that start."""
        started: list[RunRecord] = []
        while self._resumed:
            run = self._resumed[-1]
            try:
                started += self._go_on(run, now)
            except StoreUnavailable:
                raise
            except Exception as error:
                # It must not block the others: its lease expires, and the reaper hands it to a worker again.
                _log.error("a flow can't be continued: %s", error, exc_info=error, extra=run_fields(run))
            self._resumed.pop()
        if not self._beginning:
            return started
        settled = self.settling.settle((), now, self._beginning)
        for begin, accepted in zip(self._beginning, settled.answers, strict=True):
            if accepted:
                self._stored |= {record.key for record in begin.records}
            else:
                _log.warning("a flow was lost to another worker", extra=run_fields(begin.run))
        self._beginning = []
        self._reports.report(settled.ended, now)
        return [*started, *settled.started]

    def _go_on(self, run: RunRecord, now: Instant) -> Sequence[RunRecord]:
        """Run again what a user has asked for; return the runs of steps that start. Can be repeated."""
        for _ in range(_TRIES):
            transition = self._resuming.go_on(run, now)
            if transition is None:
                if (ended := self.settling.give_up(run, now)) is not None:
                    self._reports.report(ended, now)
                    return ()
            elif self._store.settle_runs([replace(transition, token=f"{run.claim}.begun")])[0]:
                self.settling.rows.forget(run.id)
                return transition.adds or (run,)  # or flows within it wait in the queue
            (row, *_) = self.settling.rows.read((run.id,)) or (None,)
            if row is None or row.state != "running" or row.claim != run.claim or is_begun(row):
                return ()  # this was repeated, or another worker has it
            if row.cancel_requested:
                end = End(row, attempts.cancelled(row, now, self._new_token()))
                self._reports.report(self.settling.settle([end], now).ended, now)
                return ()
            run = row
        raise StoreUnavailable(f"flow {run.id} was changed by others {_TRIES} times in a row")

    def report(self, ended: Iterable[FlowEnd], now: Instant) -> None:
        """Report flows that have ended with one of their steps. Call it after the step itself is reported."""
        self._reports.report(ended, now)

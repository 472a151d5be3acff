"""Flows that go on after their end: what failed runs again, and what came after it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, Record, RunRecord, Transition
from evenbeat.node.flow_rows import FlowRows
from evenbeat.rules import attempts, flows
from evenbeat.rules.flow_parts import WHAT_FAILED, flow_part, is_begun


class FlowResuming:
    """Decides what a resume or a retry writes."""

    def __init__(self, rows: FlowRows, new_token: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._rows = rows
        self._new_token = new_token

    def queue(
        self, flow: RunRecord, step: int | None, now: Instant, *, extra: tuple[Record, ...] = ()
    ) -> Transition | None:
        """Return the transition that queues a flow that has ended, to run again what failed in it, or
        ``step``; None if there is nothing to run again. A flow that is running continues at once.

        ``extra`` are records to add, for the audit.
        """
        again = self.resume(flow, step, now)
        if again is not None and flow.state in FINAL_STATES:
            again = flows.queued_again(flow, step, again.token)
        return None if again is None else replace(again, records=(*again.records, *extra))

    def go_on(self, flow: RunRecord, now: Instant) -> Transition | None:
        """Return the transition of a flow that a worker has claimed after ``queue``; None if nothing can run
        again."""
        state = flow_part(flow).state
        assert state is not None
        step = None if state.resume in (None, WHAT_FAILED) else state.resume
        again = self.resume(flow, step, now)
        if again is None and step is None:
            # None of its steps failed: it was cancelled, or timed out, when its last step ended.
            again = self._restarted(flow, now)
        return again

    def resume(self, flow: RunRecord, step: int | None, now: Instant) -> Transition | None:
        """Return the transition that runs again what failed in a flow, or ``step``, and what came after it.

        None if there is nothing to run again.
        """
        graph = self._rows.graphs.of(flow)
        if graph is None:
            return None
        if step is not None:
            reset = self._decided(flow, lambda known: flows.retry(flow, graph, step, known, now))
            return self._continuing(flow, reset, (), now)
        hopeless: dict[int, int] = {}

        def decide(known: flows.Results) -> flows.Reset:
            return flows.resume(flow, graph, known, now, hopeless)

        while (reset := self._decided(flow, decide)) is not None:
            ends, found = self._again(flow, graph, reset, now)
            if found.items() <= hopeless.items():
                return self._continuing(flow, reset, ends, now)
            hopeless |= found
        return None

    def _decided(
        self, flow: RunRecord, decide: Callable[[flows.Results], flows.Reset | None]
    ) -> flows.Reset | None:
        """Decide with all results that it takes."""
        results: dict[str, str | None] = {}
        while (reset := decide(results)) is not None and reset.change.missing:
            results |= self._rows.results(flow, reset.change.missing)
        return reset

    def _continuing(
        self, flow: RunRecord, reset: flows.Reset | None, ends: tuple[Transition, ...], now: Instant
    ) -> Transition | None:
        if reset is None or (not reset.again and not reset.change.starts):
            return None
        return flows.continuing(flow, reset.change, self._new_token(), ends, now)

    def _again(
        self, flow: RunRecord, graph: FlowGraph, reset: flows.Reset, now: Instant
    ) -> tuple[tuple[Transition, ...], dict[int, int]]:
        """Return the transitions of runs that are continued, which are elements of maps and flows within the
        flow; and, for each step, how many can't be: no step of such a flow can start, or the run was deleted,
        by retention or by hand."""
        found: list[Transition] = []
        hopeless: dict[int, int] = {}
        state = flow_part(flow).state
        assert state is not None
        for at in reset.again:
            counted = state.maps.get(str(at))
            left = 1 if counted is None else counted.failed + counted.cancelled
            for run in self._rows.steps(flow, flows.step_ids(flow.id, graph, reset.change.state, at)):
                if run.state not in ("failed", "cancelled"):
                    continue
                if not is_begun(run):
                    again = attempts.retried(run, self._new_token())
                elif (again := self.go_on(run, now)) is not None:
                    again = flows.queued_again(run, None, again.token)
                if again is not None:
                    found.append(again)
                    left -= 1
            if left:
                hopeless[at] = left
        return tuple(found), hopeless

    def _restarted(self, flow: RunRecord, now: Instant) -> Transition | None:
        graph = self._rows.graphs.of(flow)
        if graph is None:
            return None
        reset = self._decided(flow, lambda known: flows.restart(flow, graph, known, now))
        return self._continuing(flow, reset, (), now)

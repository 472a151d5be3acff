"""The runs of a child that has ended: each is handed back, or ends, at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Literal, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.app.scheduler import Scheduler
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.node.counting import Counting
from evenbeat.node.flow_work import FlowReports
from evenbeat.node.flows import End, FlowSettling
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.observe.logs import run_fields
from evenbeat.processes.begun import Snapshot
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery, Store
from evenbeat.stores.pages import every_run

BATCH = 500

_log = logging.getLogger("evenbeat.supervision.dead_child_runs")


class DeadChildRuns(NamedTuple):
    """The runs of a child that has ended, to be handed back."""

    name: str
    """The child's."""
    how: Literal["crashed", "released"]
    """Whether the end of the child counts as a crash of the runs that it had begun."""
    why: str
    begun: Snapshot = Snapshot()
    overdue: frozenset[tuple[str, int, str | None]] = frozenset()
    """The attempts that have timed out: the supervisor killed the child because of them."""

    def blames(self, run: RunRecord) -> bool:
        """Return whether the end of the child counts as a crash of this run.

        A run whose function was executing is to blame. A run whose function had ended is not, as long as
        another function was executing, unless the run must not run twice. With no function executing,
        recording the end of this run may be what killed the child.
        """
        state = self.begun.state(run) if self.how == "crashed" else "claimed"
        if state == "ended":
            return run.execution.on_crash == "fail" or not self.begun.is_executing
        return state == "executing"

    def transition(self, run: RunRecord, now: Instant) -> Transition:
        """Return the transition that ends the child's attempt of a run."""
        token = uuid4().hex
        if run.attempt_identity in self.overdue:
            timeout = write_duration(run.execution.timeout or 0)
            return attempts.failed(run, f"timed out after {timeout}, and its process was killed", now, token)
        if run.cancel_requested:
            return attempts.cancelled(run, now, token)
        if not self.blames(run):
            return attempts.released(run, now, token)
        # The process is known to be gone: the run need not wait until its lease expires.
        error = f"worker {self.name} was lost during attempt {run.attempt}: {self.why}"
        return replace(attempts.crashed(run, now, token, error), lease_ended=False)


class HandBack:
    """Hands back the runs of children that have ended, in order; retries while the store is unavailable."""

    def __init__(self, app: Scheduler, counting: Counting | None = None) -> None:
        self._app = app
        self._counting = counting or Counting()
        self._waiting: list[DeadChildRuns] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[DeadChildRuns]:
        return iter(self._waiting)

    def add(self, dead: DeadChildRuns) -> None:
        """Hand back the runs of one more child, now if the store is available."""
        self._waiting.append(dead)
        try:
            self.step()
        except StoreUnavailable as error:
            _log.error("runs can't be handed back yet, retrying: %s", error, extra={"node": dead.name})

    def step(self) -> None:
        """Hand back all runs that wait for it. Raises ``StoreUnavailable``; then the next call continues."""
        while self._waiting:
            self._settle(self._waiting[0])
            del self._waiting[0]

    def _settle(self, dead: DeadChildRuns) -> None:
        store = self._app.store
        runs = running_runs(store, dead.name)
        now = store.now()
        # Read for each child that has ended: these are few, and the supervisor evaluates no rules.
        signals = Signals(stored_rules(store) if runs else ())
        for at in range(0, len(runs), BATCH):
            batch = runs[at : at + BATCH]
            ends = [(run, dead.transition(run, now)) for run in batch]
            transitions = [signals.with_end(run, end, now) for run, end in ends]
            flows = FlowSettling(store, "supervisor", signals=signals)
            settled = flows.settle([End(*end) for end in zip(batch, transitions, strict=True)], now)
            for run, transition, accepted in zip(batch, transitions, settled.answers, strict=True):
                if accepted:
                    crashed = dead.blames(run) and run.attempt_identity not in dead.overdue
                    self._counting.count_taken_over([(run, transition)], now, crashed=crashed)
                    self._report(run, dead, now)
            FlowReports(self._app.events, self._counting, signals).report(settled.ended, now)
        if runs:
            store.hint()

    def _report(self, run: RunRecord, dead: DeadChildRuns, now: Instant) -> None:
        fields = {**run_fields(run), "worker": dead.name}
        if run.attempt_identity in dead.overdue:
            _log.error("a run has timed out, its process was killed", extra=fields)
        elif not dead.blames(run):
            _log.warning("a run was handed back", extra={**fields, "why": dead.why})
        else:
            _log.error("the worker of a run died", extra={**fields, "why": dead.why})
            self._app.events.publish(
                "crashed", now, run=run, error=f"worker {dead.name} was lost: {dead.why}"
            )


def running_runs(store: Store, worker: str) -> list[RunRecord]:
    """Return the runs that a worker holds."""
    return list(every_run(store, RunQuery(worker=worker, states=("running",), limit=BATCH)))

"""The lease keeper: what runs need while they are executed, in a thread that no job can hold up.

Renews leases, sees cancel requests, ends what takes too long, stores what was logged so far, and hands
back what was claimed ahead and has to wait.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant
from evenbeat.executors.base import Attempt
from evenbeat.node.settling import settle_in_parts
from evenbeat.node.worker import LONGEST_WAIT, Worker
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery, Store

# How often to look while runs are held, in ms: this is how late a timeout may come. With short leases it is a
# twelfth of the lease, so that renewals come in time.
LOOK = 250
# Seconds that a function has to end, or to return, after it was asked to because of its timeout; then the
# worker decides without it. Longer than a process has before it is killed (``executors.processes``), shorter
# than the supervisor leaves to the worker (``supervisor.GRACE``).
GRACE = 4.0
# How often to ask for cancel requests, and to store what long runs log.
ASK = 1.0

_log = logging.getLogger("evenbeat.node.leases")


class LeaseKeeper:
    """Looks after the runs that a worker holds."""

    def __init__(
        self,
        store: Store,
        worker: Worker,
        lease: int,
        *,
        clock: Callable[[], float] = steady_clock,
        new_token: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self._clock = clock
        self._new_token = new_token
        self._store = store
        self._worker = worker
        self._lease = lease
        self._look = min(LOOK, lease // 12)
        self._asked = float("-inf")

    def step(self, now: Instant) -> Instant | None:
        held = list(self._worker.held.values())
        if not held:
            return None
        clock = self._clock()
        self._end_overdue(held, clock)
        self._worker.withdraw(
            attempt for attempt in held if attempt.began is None and clock - attempt.claimed > LONGEST_WAIT
        )
        self._renew(held, clock)
        # Most runs are over before anybody could want to cancel them.
        old = [attempt for attempt in held if clock - attempt.claimed >= ASK]
        if old and clock - self._asked >= ASK:
            self._see_cancels(old)
            self._keep_logs(old)
            # At the end: what failed is tried again, and is not taken for working before it has.
            self._asked = clock
        return now + self._look

    def _keep_logs(self, held: list[Attempt]) -> None:
        """Store what long runs have logged so far."""
        taken = [(attempt.log, attempt.log.take()) for attempt in held if attempt.log]
        if not taken:
            return
        try:
            self._store.append_log([line for _, lines in taken for line in lines])
        except BaseException:
            for log, lines in taken:
                log.give_back(lines)
            raise

    def _end_overdue(self, held: list[Attempt], clock: float) -> None:
        """Ask functions that take too long to end. One that returns all the same has succeeded."""
        for attempt in held:
            timeout = attempt.run.execution.timeout
            if timeout is None or attempt.began is None or attempt.over is not None or attempt.settled:
                continue
            if attempt.overdue is not None:
                if clock - attempt.overdue >= GRACE:
                    self._worker.give_up(attempt, "timeout")
            # One that was cancelled and takes no notice is ended, too.
            elif clock - attempt.began >= timeout / 1000 and attempt.control.cancel_reason in (
                None,
                "cancelled",
            ):
                attempt.overdue = clock
                self._worker.interrupt(attempt, "timeout")

    def _renew(self, held: list[Attempt], clock: float) -> None:
        """Renew at a third; whoever is near goes along."""
        lease = self._lease / 1000
        if all(attempt.lease_end - clock > lease * 2 / 3 for attempt in held):
            return
        renewed = [attempt for attempt in held if attempt.lease_end - clock < lease * 5 / 6]
        beats = [attempts.heartbeat(attempt.run, self._lease, self._new_token()) for attempt in renewed]
        before = self._clock()
        answers = itertools.chain.from_iterable(settle_in_parts(self._store, beats, "leases"))
        for attempt, accepted in zip(renewed, answers, strict=True):
            if accepted:
                attempt.lease_end = before + lease
            elif not attempt.settled and attempt.over is None:
                _log.warning("the lease of a run was lost", extra=run_fields(attempt.run))
                self._worker.interrupt(attempt, "lost")
                self._worker.give_up(attempt, "lost")

    def _see_cancels(self, held: list[Attempt]) -> None:
        query = RunQuery(worker=self._worker.name, states=("running",), cancel_requested=True, limit=500)
        asked = {(run.id, run.attempt) for run in self._store.find_runs(query).items}
        for attempt in held:
            # Not by the record: a run that was handed back may have been claimed with the request in it.
            if attempt.key in asked and attempt.control.cancel_reason is None:
                attempt.run = replace(attempt.run, cancel_requested=True)
                self._worker.interrupt(attempt, "cancelled")

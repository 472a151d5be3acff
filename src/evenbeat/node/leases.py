"""The lease renewer: serves the runs that a worker holds, in a thread that no job can block.

It renews leases, passes on cancel requests, ends attempts at their timeout, stores the log lines of long
runs, and hands back runs that were claimed ahead and have to wait.
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
from evenbeat.node.lanes import LONGEST_WAIT
from evenbeat.node.progress import store_progress
from evenbeat.node.settling import settle_in_parts
from evenbeat.node.worker import Worker
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store

# Milliseconds between two steps while runs are held: a timeout comes up to this much late. With short leases
# it is a twelfth of the lease, so that renewals come in time.
CHECK_EVERY = 250
# Seconds that a function has to end, or to return, after it was asked to because of its timeout; then the
# worker decides without it. Longer than a process has before it is killed (``executors.processes``), shorter
# than the supervisor leaves to the worker (``supervision.silent_children.GRACE``).
GRACE = 4.0
# Seconds between two queries for cancel requests, and between two writes of the log lines of long runs.
QUERY_EVERY = 1.0

# How many runs' progress is stored at once.
MOST_PROGRESS = 100

_log = logging.getLogger("evenbeat.node.leases")


class LeaseRenewer:
    """Renews the leases of the runs that a worker holds, and does what else they need meanwhile."""

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
        self._check_every = min(CHECK_EVERY, lease // 12)
        self._queried_at = float("-inf")

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
        # Most runs end before a user could want to cancel them.
        old = [attempt for attempt in held if clock - attempt.claimed >= QUERY_EVERY]
        if old and clock - self._queried_at >= QUERY_EVERY:
            self._pass_on_cancels(old)
            self._store_logs(old)
            self._store_progress(old, now)
            # Last: if the store fails above, the next step retries at once.
            self._queried_at = clock
        return now + self._check_every

    def _store_logs(self, held: list[Attempt]) -> None:
        """Store the lines that long runs have logged so far."""
        taken = [(attempt.log, attempt.log.take()) for attempt in held if attempt.log]
        if not taken:
            return
        try:
            self._store.append_log([line for _, lines in taken for line in lines])
        except BaseException:
            for log, lines in taken:
                log.give_back(lines)
            raise

    def _store_progress(self, held: list[Attempt], now: Instant) -> None:
        """Store what long runs have reported since the last time, those first that waited longest.

        At most 100 a second: each is a write of its own, and leases and timeouts must not wait for them.
        """
        news = [each.progress for each in held if not each.is_decided and not each.progress.is_stored]
        for progress in sorted(news, key=lambda each: each.stored_at)[:MOST_PROGRESS]:
            store_progress(self._store, progress, now)

    def _end_overdue(self, held: list[Attempt], clock: float) -> None:
        """Ask functions that exceed their timeout to end. One that returns nevertheless has succeeded."""
        for attempt in held:
            timeout = attempt.run.execution.timeout
            if timeout is None or attempt.began is None or attempt.over is not None or attempt.is_decided:
                continue
            if attempt.overdue is not None:
                if clock - attempt.overdue >= GRACE:
                    self._worker.give_up(attempt, "timeout")
            # The timeout also ends a function that ignores a cancel request.
            elif clock - attempt.began >= timeout / 1000 and attempt.control.cancel_reason in (
                None,
                "cancelled",
            ):
                attempt.overdue = clock
                self._worker.interrupt(attempt, "timeout")

    def _renew(self, held: list[Attempt], clock: float) -> None:
        """Renew all leases that are past a sixth, as soon as one of them is past a third."""
        lease = self._lease / 1000
        if all(attempt.lease_end - clock > lease * 2 / 3 for attempt in held):
            return
        renewed = [attempt for attempt in held if attempt.lease_end - clock < lease * 5 / 6]
        heartbeats = [attempts.heartbeat(attempt.run, self._lease, self._new_token()) for attempt in renewed]
        before = self._clock()
        answers = itertools.chain.from_iterable(settle_in_parts(self._store, heartbeats, "leases"))
        for attempt, accepted in zip(renewed, answers, strict=True):
            if accepted:
                attempt.lease_end = before + lease
            elif not attempt.is_decided and attempt.over is None:
                _log.warning("the lease of a run was lost", extra=run_fields(attempt.run))
                self._worker.interrupt(attempt, "lost")
                self._worker.give_up(attempt, "lost")

    def _pass_on_cancels(self, held: list[Attempt]) -> None:
        """Interrupt the functions of runs that a user has asked to cancel."""
        query = RunQuery(
            worker=self._worker.name,
            states=("running",),
            cancel_requested=True,
            without=LARGE_FIELDS,
            limit=500,
        )
        asked = {(run.id, run.attempt, run.claim) for run in self._store.find_runs(query).items}
        for attempt in held:
            # Not by run.cancel_requested: a run that was handed back may have been claimed with the request.
            if attempt.identity in asked and attempt.control.cancel_reason is None:
                attempt.run = replace(attempt.run, cancel_requested=True)
                self._worker.interrupt(attempt, "cancelled")

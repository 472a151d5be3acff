"""Children that send no messages: the supervisor renews their leases, and enforces timeouts.

A child is silent while C code in one of its jobs holds the interpreter lock, and while the process is frozen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from uuid import uuid4

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.node.settling import settle_in_parts
from evenbeat.processes.begun import Snapshot
from evenbeat.rules import attempts
from evenbeat.stores.base import Store
from evenbeat.supervision.children import Child
from evenbeat.supervision.dead_child_runs import BATCH, running_runs

# Seconds. A run that exceeds its timeout by this much, in a child that has been silent for as long, is ended.
GRACE = 5.0

_log = logging.getLogger("evenbeat.supervision.silent_children")


class SilentChildren:
    """Does for silent children what they can't do themselves."""

    def __init__(self, lease: int) -> None:
        self._lease = lease
        # Short enough that two missed renewals of a child are made up for.
        self.check_every = lease / 1000 / 6
        """Seconds between two checks."""
        self._checked = time.monotonic()

    def forgive_pause(self, children: Iterable[Child]) -> None:
        """Count all children as alive if it was the supervisor that paused.

        If it was frozen, or waited for the store, messages of the children may not have arrived yet.
        """
        now = time.monotonic()
        if now - self._checked > GRACE / 2 + 2 * self.check_every:
            for child in children:
                child.last_message = now
        self._checked = now

    def check(self, store: Store, child: Child, now: Instant) -> list[RunRecord]:
        """Renew the leases of a child if it is silent; return the runs because of which to kill it."""
        silent = time.monotonic() - child.last_message
        if silent < self.check_every:
            # The child is alive and renews its leases; if it does not renew one, it has given up that run.
            child.is_renewed = False
            return []
        runs = running_runs(store, child.name)
        if silent >= GRACE and (overdue := overdue_runs(runs, child.begun.snapshot(), now)):
            names = sorted({run.task for run in overdue})
            _log.error(
                "a run exceeds its timeout in a process that does not answer, the process is killed",
                extra={"node": child.name, "silent": round(silent, 1), "tasks": names},
            )
            return overdue
        self._renew(store, child, runs, now, silent)
        return []

    def _renew(self, store: Store, child: Child, runs: list[RunRecord], now: Instant, silent: float) -> None:
        """Renew the leases of which less than half is left."""
        low = [run for run in runs if run.lease_until is not None and run.lease_until - now < self._lease / 2]
        if low and not child.is_renewed:
            child.is_renewed = True
            names = sorted({run.task for run in runs})
            _log.warning(
                "a process does not answer, the supervisor renews its leases",
                extra={"node": child.name, "silent": round(silent, 1), "tasks": names},
            )
        for at in range(0, len(low), BATCH):
            beats = [attempts.heartbeat(run, self._lease, uuid4().hex) for run in low[at : at + BATCH]]
            for _ in settle_in_parts(store, beats, "supervisor"):
                pass


def overdue_runs(runs: list[RunRecord], begun: Snapshot, now: Instant) -> list[RunRecord]:
    """Return the runs whose functions execute and are overdue."""
    return [run for run in runs if is_overdue(run, now) and begun.state(run) == "executing"]


def is_overdue(run: RunRecord, now: Instant) -> bool:
    """Return whether a run exceeds its timeout by so much that its own worker should have ended it."""
    timeout = run.execution.timeout
    return (
        timeout is not None and run.started_at is not None and now - run.started_at > timeout + GRACE * 1000
    )

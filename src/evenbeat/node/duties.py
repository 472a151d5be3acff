"""The periodic duties of a node: each steps when it is due, whether or not others fail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from evenbeat.core.instants import Instant

# A duty that is due later than this is stepped at once: the clock was set back.
LONGEST_PERIOD = 120_000
_RETRY_AFTER = 1_000

_log = logging.getLogger("evenbeat.node.duties")


class Duty(Protocol):
    def step(self, now: Instant) -> Instant:
        """Do what is due; return when to call again."""


class PeriodicDuties:
    """Several duties in one loop, each at its time.

    A duty that raises any error is retried a second later, and the others keep their times: a
    reaper that steps late would mistake the delay for an outage of the store.
    """

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = duties
        self._due: list[Instant] = [0] * len(duties)
        self._failures = [0] * len(duties)
        """How often each duty has failed in a row."""
        self._woken: set[int] = set()
        """The duties to step at once. Other threads add to it."""

    def wake(self, duty: Duty) -> None:
        """Have the next step call this duty, whenever it is due. Any thread may call it."""
        self._woken.add(self._duties.index(duty))

    def step(self, now: Instant) -> Instant | None:
        for index, due in enumerate(self._due):
            if due <= now or due > now + LONGEST_PERIOD or index in self._woken:
                # Before the step: what wakes it meanwhile may have come too late for this one.
                self._woken.discard(index)
                self._due[index] = self._step(index, now)
        return now if self._woken else min(self._due, default=None)

    def _step(self, index: int, now: Instant) -> Instant:
        try:
            again = self._duties[index].step(now)
        except Exception as error:
            self._failures[index] += 1
            failures = self._failures[index]
            fields = {"component": "duties", "failures": failures}
            # Less and less often, so that a long outage does not fill the disk with one line.
            level = logging.ERROR if failures & (failures - 1) == 0 else logging.DEBUG
            name = type(self._duties[index]).__name__.lower()
            _log.log(level, "the %s failed, retrying: %s", name, error, extra=fields)
            return now + _RETRY_AFTER
        self._failures[index] = 0
        return again

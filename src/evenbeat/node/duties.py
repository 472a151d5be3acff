"""The periodic duties of a node: each one steps when it is due, and no failure stops another."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from evenbeat.core.instants import Instant

# A duty that asks for more than this is due because the clock was set back.
LONGEST_PERIOD = 120_000
_RETRY_AFTER = 1_000

_log = logging.getLogger("evenbeat.node.duties")


class Duty(Protocol):
    def step(self, now: Instant) -> Instant:
        """Do it; answers when to come again."""


class PeriodicDuties:
    """Several duties in one loop, each at its time.

    A duty that fails, for whatever reason, is tried again a second later. It keeps no other duty waiting: a
    reaper that came late would take the delay for an outage.
    """

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = duties
        self._due: list[Instant] = [0] * len(duties)
        self._failures = [0] * len(duties)
        """How often each has failed in a row."""

    def step(self, now: Instant) -> Instant | None:
        for index, due in enumerate(self._due):
            # More than it asked for ahead: the clock was set back.
            if due <= now or due > now + LONGEST_PERIOD:
                self._due[index] = self._step(index, now)
        return min(self._due, default=None)

    def _step(self, index: int, now: Instant) -> Instant:
        try:
            again = self._duties[index].step(now)
        except Exception as error:
            self._failures[index] += 1
            failures = self._failures[index]
            fields = {"component": "duties", "failures": failures}
            # Ever more seldom: a long outage fills no disk with the same line.
            level = logging.ERROR if failures & (failures - 1) == 0 else logging.DEBUG
            name = type(self._duties[index]).__name__.lower()
            _log.log(level, "the %s failed, trying again: %s", name, error, extra=fields)
            return now + _RETRY_AFTER
        self._failures[index] = 0
        return again

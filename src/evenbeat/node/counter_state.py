"""The state of the record in which a process keeps its counters: what of it the store has, for certain."""

from __future__ import annotations

import secrets

from evenbeat.core.instants import Instant
from evenbeat.rules.counters import Sums


class CounterState:
    """What a process knows about its record. Only the thread that writes the record uses it."""

    def __init__(self) -> None:
        self.id = _new_id()
        self.start = Sums.empty()
        """The counts that earlier records of this process hold."""
        self.written = self.start
        """The counts up to the last write that the store has acknowledged."""
        self.version: int | None = None
        """The version of that write; None if there was none for this record."""
        self.written_at: Instant = 0
        """When it was."""
        self.unsure: dict[int, Sums] = {}
        """The counts of writes whose replies are missing, by version."""
        self._writes = 0

    def begin_write(self, sums: Sums) -> int:
        """Note that a write begins; return its version, which no other write has."""
        self._writes += 1
        self.unsure[self._writes] = sums
        return self._writes

    def acknowledge(self, version: int) -> None:
        """Note that the stored record is the one of this write."""
        self.written = self.unsure.get(version, self.written)
        self.version = version
        self.unsure = {}

    def refuse(self, version: int) -> None:
        """Note that the store has refused this write."""
        del self.unsure[version]

    def begin_again(self, version: int | None) -> None:
        """Begin another record, after this one, with this version, was sealed. None: the last write counts
        as sealed."""
        last = max(self.unsure, default=None) if version is None else version
        self.start = self.written = self.unsure.get(last, self.written) if last is not None else self.written
        self.id = _new_id()
        self.version = None
        self.unsure = {}


def _new_id() -> str:
    return secrets.token_hex(8)

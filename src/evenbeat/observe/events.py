"""Events: what happened, told to whoever asked. A listener that raises harms nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from evenbeat.instants import Instant
from evenbeat.model import Reason, Run

EventKind: TypeAlias = Literal[
    "fired", "skipped", "quarantined",  # a schedule
    "started", "succeeded", "failed", "retrying", "cancelled", "lost", "released", "crashed",  # a run
    "node_started", "node_stopping", "node_stopped", "idle",  # this node
    "store_unavailable", "store_back",  # the database
]  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened on this node."""

    kind: EventKind
    at: Instant
    """Milliseconds UTC by the store's clock."""
    tenant: str | None = None
    schedule: str | None = None
    run: Run | None = None
    """The run as it was claimed or fired; what became of it is in ``kind``, ``error`` and ``result``."""
    error: str | None = None
    result: str | None = None
    """JSON text."""
    duration: float | None = None
    """Seconds that the attempt took."""
    delay: int | None = None
    """Of ``retrying``: milliseconds until the next attempt."""
    next_run: Instant | None = None
    """Of ``fired`` and ``skipped``: the schedule's next tick."""
    reason: Reason | None = None
    """Of ``skipped``: why."""
    count: int = 1
    """Of ``skipped``: how many ticks."""


Listener: TypeAlias = Callable[[Event], object]

_log = logging.getLogger("evenbeat.events")


class Events:
    """The listeners of a scheduler. Without any, telling costs a truth test."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener raised", extra={"event": event.kind})

"""Events: what happened on a node, for the listeners of a scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from evenbeat.core.attention import AttentionItem
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import Reason, RunRecord, ScheduleRecord
from evenbeat.core.results import Run
from evenbeat.observe.views import run_view
from evenbeat.rules.ticks import next_start

EventKind: TypeAlias = Literal[
    "fired",
    "skipped",
    "quarantined",  # a schedule
    "started",
    "succeeded",
    "failed",
    "retrying",
    "cancelled",
    "lost",
    "released",
    "crashed",  # a run
    "node_started",
    "node_stopping",
    "node_stopped",
    "idle",  # this node
    "store_unavailable",
    "store_back",  # the database
    "fallback_started",
    "fallback_ended",  # the schedules of the code are fired from memory
    "attention",  # a finding of the self-check
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened on this node."""

    kind: EventKind
    at: datetime
    """By the store's clock."""
    tenant: str | None = None
    schedule: str | None = None
    run: Run | None = None
    """The run as it was fired or claimed; what became of it is in ``kind``, ``error`` and ``result``."""
    error: str | None = None
    exception: BaseException | None = None
    """What was raised, with its traceback, if that happened in this process. None for tasks in processes of
    their own, whose errors come as text, and where nothing was raised: a timeout, a worker that died."""
    result: Any = None
    """Of ``succeeded``: what the task returned, as ``app.runs.get(id).result`` has it."""
    duration: timedelta | None = None
    """How long the attempt took."""
    delay: timedelta | None = None
    """Of ``retrying``, and of ``released`` with an ``error``: the wait before the next attempt."""
    next_run: datetime | None = None
    """Of ``fired`` and ``skipped``: when the schedule fires next."""
    reason: Reason | None = None
    """Of ``skipped``: why."""
    count: int = 1
    """Of ``skipped``: how many ticks."""
    finding: AttentionItem | None = None
    """Of ``attention``: what a node found wrong in the store, as ``app.attention()`` has it."""
    is_over: bool = False
    """Of ``attention``: the finding is gone; else it is new."""


Listener: TypeAlias = Callable[[Event], object]

_log = logging.getLogger("evenbeat.events")


class Events:
    """The listeners of a scheduler. Without any, ``publish`` costs a truth test.

    A listener that raises is logged, and the others are called.
    """

    def __init__(self, call: Callable[[Listener, Event], object] | None = None) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._call = _call if call is None else call
        """Calls a listener, and awaits it if it is an ``async def``."""

    def listen(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def publish(
        self,
        kind: EventKind,
        at: Instant,
        *,
        run: RunRecord | None = None,
        schedule: ScheduleRecord | None = None,
        key: tuple[str, str] | None = None,
        delay: int | None = None,
        **facts: Unpack[_Facts],
    ) -> None:
        """Call the listeners. ``key`` is the (tenant, name) of an event about a schedule."""
        if not self._listeners:
            return
        if key is None and run is not None:
            key = (run.tenant, run.schedule or "")
        elif key is None and schedule is not None:
            key = schedule.key
        upcoming = None if schedule is None else next_start(schedule)
        event = Event(
            kind=kind,
            at=from_ms(at),
            tenant=None if key is None else key[0],
            schedule=None if key is None else key[1] or None,
            run=None if run is None else run_view(run),
            delay=None if delay is None else timedelta(milliseconds=delay),
            next_run=None if upcoming is None else from_ms(upcoming),
            **facts,
        )
        for listener in self._listeners:
            try:
                self._call(listener, event)
            except BaseException:  # also SystemExit, which would end the working thread
                _log.exception("a listener raised", extra={"event": event.kind})


def _call(listener: Listener, event: Event) -> object:
    return listener(event)


class _Facts(TypedDict, total=False):
    error: str | None
    exception: BaseException | None
    result: Any
    duration: timedelta | None
    reason: Reason
    count: int
    finding: AttentionItem
    is_over: bool

"""A duty in a thread: step, sleep until it is due or woken, back off when the store is away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.events import Events
from evenbeat.observe.status_files import LoopStatus

Step: TypeAlias = Callable[[Instant], Instant | None]
"""Does what is due by the given instant, and answers when to be called again: None if only when woken."""

# No longer: a store that is back should find its nodes at work, and asking once in 2 s costs nobody.
_FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 2.0

# What a status says of an error.
_SHOWN = 200

_log = logging.getLogger("evenbeat.node.loop")


class Loop:
    """Calls a step whenever it is due. Nothing that a step raises ends it."""

    def __init__(
        self,
        name: str,
        step: Step,
        clock: Callable[[], Instant],
        poll: int,
        events: Events,
        *,
        max_backoff: float = LONGEST_BACKOFF,
    ) -> None:
        self.name = name
        self._step = step
        self._clock = clock
        self._poll = poll / 1000
        self._events = events
        self._longest_backoff = max_backoff
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"evenbeat-{name}", daemon=True)
        self._failures = 0
        self._due = time.monotonic()
        self._failing: tuple[float, str] | None = None
        """Since when, and the last error."""

    @property
    def status(self) -> LoopStatus | None:
        """When it steps next, and whether its steps fail; None once it was told to stop."""
        if self._stopping.is_set():
            return None
        since, error = self._failing or (None, None)
        return LoopStatus(self.name, self._due, since, error)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Step as soon as possible; many calls are one."""
        # is_set takes no lock: waking what is awake is free, and workers do it for each run.
        if not self._awake.is_set():
            self._awake.set()

    def stop(self) -> None:
        """End after the present step; ``join`` waits for that."""
        self._stopping.set()
        self._awake.set()

    def join(self, timeout: float) -> bool:
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stopping.is_set():
            # Cleared before the step: what wakes during it asks for another one.
            self._awake.clear()
            self._due = time.monotonic()
            try:
                now = self._clock()
                due = self._step(now)
                wait = self._poll if due is None else min(self._poll, (due - self._clock()) / 1000)
            except BaseException as error:  # also SystemExit, from whatever code of others was called
                self._stopping.wait(self._fail(error))
                continue
            if self._failures:
                self._recover()
            if wait > 0:
                self._due = time.monotonic() + wait
                self._awake.wait(wait)

    def _fail(self, error: BaseException) -> float:
        """Log it, and answer how long to wait: a store that is away is not asked in a circle."""
        self._failures += 1
        wait = min(_FIRST_BACKOFF * float(1 << min(self._failures - 1, 10)), self._longest_backoff)
        fields = {"component": self.name, "failures": self._failures, "retry_in": wait}
        now = time.monotonic()
        self._due = now + wait
        self._failing = (self._failing[0] if self._failing else now, str(error)[:_SHOWN])
        # Ever more seldom: what goes on for long fills no disk with the same lines.
        level = logging.ERROR if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        if isinstance(error, StoreUnavailable):
            _log.log(level, "the store is unavailable, trying again: %s", error, extra=fields)
            # By this machine's clock: the store's can't be asked.
            self._events.tell("store_unavailable", wall_clock(), error=str(error), exception=error)
        else:
            _log.log(level, "a step failed, trying again", exc_info=error, extra=fields)
        return wait

    def _recover(self) -> None:
        _log.info("working again", extra={"component": self.name, "failures": self._failures})
        self._failures = 0
        self._failing = None
        self._events.tell("store_back", wall_clock())

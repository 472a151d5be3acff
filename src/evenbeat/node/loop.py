"""A loop: a thread that steps, sleeps until the next step or a wake-up, and backs off after an error."""

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
"""Does the work that is due at the given instant. Returns when to call it again; None: after a wake-up."""

# Not longer: nodes should resume soon after the store is available again, and one call in 2 s costs little.
_FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 2.0

# How many characters of an error a status contains.
_SHOWN = 200

_log = logging.getLogger("evenbeat.node.loop")


class Loop:
    """Calls a step whenever it is due. An error that a step raises does not stop the loop."""

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
        self._max_backoff = max_backoff
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"evenbeat-{name}", daemon=True)
        self._failures = 0
        self._due = time.monotonic()
        self._failing: tuple[float, str] | None = None
        """The time since which steps fail, and the last error; None while steps succeed."""

    @property
    def status(self) -> LoopStatus | None:
        """When the loop steps next, and whether its steps fail; None after ``stop``."""
        if self._stopping.is_set():
            return None
        since, error = self._failing or (None, None)
        return LoopStatus(self.name, self._due, since, error)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Step as soon as possible; several calls before the step count as one."""
        # is_set takes no lock, so waking a loop that is awake is cheap. Workers call this for each run.
        if not self._awake.is_set():
            self._awake.set()

    def stop(self) -> None:
        """Stop after the current step; ``join`` waits for that."""
        self._stopping.set()
        self._awake.set()

    def join(self, timeout: float) -> bool:
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stopping.is_set():
            # Cleared before the step: a wake-up during the step leads to another step.
            self._awake.clear()
            self._due = time.monotonic()
            try:
                now = self._clock()
                due = self._step(now)
                wait = self._poll if due is None else min(self._poll, (due - self._clock()) / 1000)
            except BaseException as error:  # also SystemExit, which a listener may raise
                self._stopping.wait(self._fail(error))
                continue
            if self._failures:
                self._recover()
            if wait > 0:
                self._due = time.monotonic() + wait
                self._awake.wait(wait)

    def _fail(self, error: BaseException) -> float:
        """Log the error, and return how many seconds to wait before the next step."""
        self._failures += 1
        wait = min(_FIRST_BACKOFF * float(1 << min(self._failures - 1, 10)), self._max_backoff)
        fields = {"component": self.name, "failures": self._failures, "retry_in": wait}
        now = time.monotonic()
        self._due = now + wait
        self._failing = (self._failing[0] if self._failing else now, str(error)[:_SHOWN])
        # Log an error less and less often, so that a long outage does not fill the disk with the same line.
        level = logging.ERROR if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        if isinstance(error, StoreUnavailable):
            _log.log(level, "the store is unavailable, retrying: %s", error, extra=fields)
            # Uses this machine's clock: the store's clock is not available.
            self._events.publish("store_unavailable", wall_clock(), error=str(error), exception=error)
        else:
            _log.log(level, "a step failed, retrying", exc_info=error, extra=fields)
        return wait

    def _recover(self) -> None:
        _log.info("a loop works again", extra={"component": self.name, "failures": self._failures})
        self._failures = 0
        self._failing = None
        self._events.publish("store_back", wall_clock())

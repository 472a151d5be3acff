"""``async def`` tasks: one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence

from evenbeat.executors.base import Attempt, Ended, Outcome, raised, returned
from evenbeat.observe.run_logs import current_log


class CoroutineExecutor:
    """Coroutines on one loop. Everything but ``submit``, ``interrupt`` and ``stop`` happens on it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._waiting: deque[Attempt] = deque()
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        if self._loop is None:
            ready = threading.Event()
            self._thread = threading.Thread(
                target=self._serve, args=(ready,), name="evenbeat-async", daemon=True
            )
            self._thread.start()
            ready.wait()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._take, attempts)

    def interrupt(self, attempt: Attempt) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, attempt)

    def stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            # A coroutine that blocks the loop keeps its thread, which is a daemon.
            self._thread.join(1)

    def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(ready.set)
        try:
            self._loop.run_forever()
            for task in self._running.values():
                task.cancel()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _take(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        self._begin()

    def _begin(self) -> None:
        assert self._loop is not None
        while self._waiting and len(self._running) < self._slots:
            attempt = self._waiting.popleft()
            if attempt.begin():
                self._running[attempt] = self._loop.create_task(self._execute(attempt))

    def _cancel(self, attempt: Attempt) -> None:
        if (task := self._running.get(attempt)) is not None:
            task.cancel()

    async def _execute(self, attempt: Attempt) -> None:
        # A task has a context of its own: nothing to reset.
        current_log.set(attempt.log)
        try:
            value = await attempt.task.function(**attempt.task.arguments(attempt.current))
            outcome = returned(attempt, value)
        except asyncio.CancelledError as error:
            asked = attempt.current.asked
            outcome = raised(attempt, error) if asked is None else Outcome("stopped", error=asked)
        except BaseException as error:  # also SystemExit: it would end the loop
            outcome = raised(attempt, error)
        del self._running[attempt]
        self._ended(attempt, outcome)
        self._begin()

"""``async def`` tasks: one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from evenbeat.executors.base import Attempt, Ended, Outcome, describe, raised, returned
from evenbeat.observe.run_logs import current_log
from evenbeat.processes import forks
from evenbeat.processes.descriptors import DescriptorProbe

# Before a loop that broke is replaced: there may be no file left to open for the next.
_PAUSE = 0.2

_log = logging.getLogger("evenbeat.executors")
# Loops that must not be closed, also not by the garbage collector.
_left_behind: list[asyncio.AbstractEventLoop] = []


class CoroutineExecutor:
    """Coroutines on one loop. Everything but ``submit``, ``interrupt`` and ``stop`` happens on it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._waiting: deque[Attempt] = deque()
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probe: DescriptorProbe | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        if self._thread is not None:
            self._call(self._begin)
            return
        thread = threading.Thread(target=self._serve, name="evenbeat-async", daemon=True)
        try:
            self._thread = thread
            thread.start()
        except RuntimeError as error:
            # The next submit tries again. The worker hands back what waits in vain.
            self._thread = None
            _log.error("the thread of the event loop can't be started, trying again: %s", error)

    def interrupt(self, attempt: Attempt) -> None:
        self._call(self._cancel, attempt)

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._call(self._stop)
            # A coroutine that blocks the loop keeps its thread, which is a daemon.
            self._thread.join(1)

    def _call(self, function: Callable[..., None], *arguments: Attempt) -> None:
        """Have it called on the loop. Where there is none, or no more, nothing is left to call it for: a
        new loop sees by itself what waits, and whether to stop."""
        loop, probe = self._loop, self._probe
        # Waking up a loop writes to its own socket, or to what has that number by now.
        if loop is not None and probe is not None and probe.is_intact():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

    def _stop(self) -> None:
        asyncio.get_running_loop().stop()

    def _serve(self) -> None:
        """Loops, one after the other, should one break: a task can close what a loop needs."""
        while not self._stopped:
            try:
                with _made_loop() as (loop, probe):
                    self._loop, self._probe = loop, probe
                    asyncio.set_event_loop(loop)
                    loop.call_soon(self._begin)
                    self._run(loop)
            except Exception as error:
                self._loop = self._probe = None
                _log.exception("the event loop broke, and is replaced")
                self._abandon(error)
                time.sleep(_PAUSE)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised by something that a job has started on the loop. Whoever awaits it gets it too; the
                # loop only lets it pass, and can go on.
                _log.error("a task of a job wanted to end the process: %r", error)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
        except (SystemExit, KeyboardInterrupt) as error:
            _log.error("a task of a job wanted to end the process: %r", error)

    def _abandon(self, error: Exception) -> None:
        """What was on a loop that broke goes no further."""
        outcome = Outcome("raised", error=f"the event loop broke: {describe(error)}")
        running, self._running = self._running, {}
        for attempt in running:
            attempt.end()
            self._ended(attempt, outcome)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._running) < self._slots:
            attempt = self._waiting.popleft()
            if attempt.begin():
                self._running[attempt] = loop.create_task(self._execute(attempt))
                if attempt.control.cancel_reason is not None:  # while it waited
                    self._cancel(attempt)

    def _cancel(self, attempt: Attempt) -> None:
        if (task := self._running.get(attempt)) is not None:
            # Not at once: one that is cancelled before its first step never takes it, nor tells its end.
            asyncio.get_running_loop().call_soon(task.cancel)

    async def _execute(self, attempt: Attempt) -> None:
        # A task has a context of its own: nothing to reset.
        current_log.set(attempt.log)
        born = forks.generation
        try:
            value = await attempt.task.function(
                **attempt.task.arguments(attempt.run.payload, attempt.context)
            )
            forks.leave_if_since(born)
            outcome = returned(attempt, value)
        except asyncio.CancelledError as error:
            forks.leave_if_since(born, error)
            asked = attempt.control.cancel_reason
            outcome = raised(attempt, error) if asked is None else Outcome("stopped", error=asked)
        except BaseException as error:  # also SystemExit: it would end the loop
            forks.leave_if_since(born, error)
            outcome = raised(attempt, error)
        if self._running.pop(attempt, None) is None:
            return  # of a loop that broke: its end was told
        attempt.end()
        self._ended(attempt, outcome)
        self._begin()


@contextlib.contextmanager
def _made_loop() -> Iterator[tuple[asyncio.AbstractEventLoop, DescriptorProbe]]:
    """A loop that is closed at the end, unless its descriptors are those of others by then."""
    with contextlib.closing(DescriptorProbe()) as probe:
        loop = asyncio.new_event_loop()
        try:
            yield loop, probe
        finally:
            if probe.is_intact():
                loop.close()
            else:
                _left_behind.append(loop)

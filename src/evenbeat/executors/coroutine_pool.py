"""Coroutines on one event loop, in a thread that starts with the first job. Knows nothing of runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

from evenbeat.processes.descriptors import DescriptorProbe

Job = TypeVar("Job")
Result = TypeVar("Result")

# Seconds before a broken loop is replaced: there may be no free file descriptor for the next one.
_PAUSE = 0.2
# Seconds after which ``run`` checks whether its event loop still exists.
_POLL = 0.5

_log = logging.getLogger("evenbeat.executors")
# Event loops that must not be closed, not even by the garbage collector.
_left_behind: list[asyncio.AbstractEventLoop] = []


class CoroutinePool(ABC, Generic[Job, Result]):
    """At most ``slots`` jobs at once (None: any number); further jobs wait. A job is hashable.

    A subclass defines how a job is executed. The pool calls ``_begin``, ``_execute``, ``_is_cancelled`` and
    ``_finish`` on the event loop. ``submit``, ``interrupt`` and ``stop`` may be called from any thread.
    """

    def __init__(self, name: str, slots: int | None = None) -> None:
        self._name = name
        self._slots = slots
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._probe: DescriptorProbe | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._has_loop = threading.Event()
        self._guard = threading.Lock()
        """Held to add jobs to those that wait, to start the thread, and to set ``_stopped``."""

    # Defined by a subclass

    def _begin(self, job: Job) -> bool:
        """Return whether to execute the job, right before that; False drops it without a result."""
        return True

    def _is_cancelled(self, job: Job) -> bool:
        """Return whether the job was to be interrupted while it waited."""
        return False

    @abstractmethod
    async def _execute(self, job: Job) -> Result:
        """Execute the job. Everything that its function raises is a result, also cancellation."""

    @abstractmethod
    def _broken(self, error: Exception) -> Result:
        """Return the result of a job whose event loop broke."""

    @abstractmethod
    def _finish(self, job: Job, result: Result) -> None:
        """Report the result of a job that ``_begin`` accepted: once, from the pool's thread."""

    def _drop(self, job: Job) -> None:
        """Report a job that the pool did not begin because it was stopped, from any thread."""

    # For its users

    @property
    def is_stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the pool's: it would wait for itself if it waited for a job."""
        return threading.current_thread() is self._thread

    def submit(self, jobs: Sequence[Job]) -> None:
        """Execute these, in this order. Without jobs: try again to start the thread, if it could not be."""
        with self._guard:
            is_stopped = self._stopped
            if not is_stopped:
                self._waiting.extend(jobs)
                if self._thread is None and self._waiting:
                    self._start()  # a new loop begins the waiting jobs by itself
                    return
        if is_stopped:
            for job in jobs:
                self._drop(job)
        elif jobs:
            self._call(self._begin_waiting)

    def run(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Await a function's answer on the event loop, in the caller's context, and return it.

        ``RuntimeError`` if the loop stops or breaks meanwhile, or if this is the loop's own thread.
        """
        if self.is_here:
            raise RuntimeError("the event loop can't wait for a coroutine that runs on it")
        with self._guard:
            if self._stopped:
                raise RuntimeError("the event loop has stopped")
            if self._thread is None:
                self._start()
        while not self._has_loop.wait(_POLL):
            if self._thread is None or self._stopped:
                raise RuntimeError("the event loop could not be started")
        loop = self._loop
        if loop is None:
            raise RuntimeError("the event loop broke")
        awaited = _awaited(function, copy_context())
        try:
            answer = asyncio.run_coroutine_threadsafe(awaited, loop)
        except RuntimeError:
            awaited.close()  # the loop is closed
            raise RuntimeError("the event loop has stopped") from None
        try:
            while not answer.done():
                with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
                    answer.exception(_POLL)
                if not answer.done() and self._loop is not loop:
                    if inspect.getcoroutinestate(awaited) == inspect.CORO_CREATED:
                        awaited.close()
                    raise RuntimeError("the event loop stopped or broke")
        except BaseException:  # also KeyboardInterrupt: nobody waits for the answer any more
            answer.cancel()
            raise
        return answer.result()

    def interrupt(self, job: Job) -> None:
        """Cancel the coroutine of a job that has begun. For one that waits, ``_is_cancelled`` decides."""
        self._call(self._cancel, job)

    def stop(self, patience: float = 1.0) -> None:
        """Begin no more jobs, cancel the coroutines that run and let them end; wait so long for that.

        A coroutine that blocks the loop, or suppresses its cancellation, keeps the thread, which is a daemon.
        """
        with self._guard:
            self._stopped = True
        if self._thread is None:
            self._drop_waiting()
        else:
            self._call(self._stop_loop)
            self._thread.join(patience)

    # The thread

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        try:
            self._thread = thread
            thread.start()
        except RuntimeError as error:
            # The next ``submit`` tries again.
            self._thread = None
            _log.error("the thread of the event loop can't be started, trying again: %s", error)

    def _call(self, function: Callable[..., None], *arguments: Job) -> None:
        """Call a function on the loop. Do nothing if there is no loop: a new one begins the waiting jobs by
        itself, and checks whether to stop."""
        loop, probe = self._loop, self._probe
        # Waking a loop writes to its own socket, or to the file that has the socket's number by now.
        if loop is not None and probe is not None and probe.is_intact():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function, *arguments)

    def _stop_loop(self) -> None:
        asyncio.get_running_loop().stop()

    def _serve(self) -> None:
        """Run an event loop until the pool is stopped. A loop that breaks is replaced: a job can close files
        that its loop needs."""
        while not self._stopped:
            try:
                with _new_loop() as (loop, probe):
                    self._loop, self._probe = loop, probe
                    self._has_loop.set()
                    asyncio.set_event_loop(loop)
                    loop.call_soon(self._begin_waiting)
                    self._run(loop)
            except Exception as error:
                self._has_loop.clear()
                if self._loop is not None:
                    self._loop.set_exception_handler(_ignore_lost_task)
                self._loop = self._probe = None
                _log.exception("the event loop broke, and is replaced")
                self._abandon(error)
                time.sleep(_PAUSE)
        self._has_loop.clear()
        self._loop = self._probe = None  # a ``run`` that came too late gives up
        self._drop_waiting()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopped:
            _run_on(loop.run_forever)
        is_over = False
        while not is_over:
            is_over = _run_on(lambda: loop.run_until_complete(_wind_up()))

    def _abandon(self, error: Exception) -> None:
        """Report the jobs that were on a loop that broke: they go no further."""
        running, self._running = self._running, {}
        for job in running:
            self._finish(job, self._broken(error))

    def _drop_waiting(self) -> None:
        while self._waiting:
            self._drop(self._waiting.popleft())

    # On the loop

    def _begin_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and (self._slots is None or len(self._running) < self._slots):
            job = self._waiting.popleft()
            if self._begin(job):
                # In an empty context: the loop's present one may be that of another job.
                self._running[job] = loop.create_task(self._run_job(job), context=Context())
                if self._is_cancelled(job):
                    self._cancel(job)

    def _cancel(self, job: Job) -> None:
        if (task := self._running.get(job)) is not None:
            # Not at once: a task that is cancelled before its first step never takes it, nor reports its end.
            asyncio.get_running_loop().call_soon(task.cancel)

    async def _run_job(self, job: Job) -> None:
        result = await self._execute(job)
        if self._running.pop(job, None) is None:
            return  # its loop broke, and its end was reported
        self._finish(job, result)
        if not self._stopped:
            self._begin_waiting()


class EventLoop(CoroutinePool[None, None]):
    """An event loop for ``run`` alone."""

    async def _execute(self, job: None) -> None:
        """Do nothing: there are no jobs."""

    def _broken(self, error: Exception) -> None:
        """Do nothing: there are no jobs."""

    def _finish(self, job: None, result: None) -> None:
        """Do nothing: there are no jobs."""


def _run_on(run: Callable[[], Any]) -> bool:
    """Run a loop. Returns False if something that a job has started on it raised SystemExit or
    KeyboardInterrupt: the loop only lets it pass, and can go on."""
    try:
        run()
    except (SystemExit, KeyboardInterrupt) as error:
        _log.error("a task of a job wanted to end the process: %r", error)
        return False
    return True


def _ignore_lost_task(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Do nothing. asyncio reports each task of a loop that broke as "destroyed but pending"; the pool has
    logged that the loop broke, and reported the jobs."""


async def _awaited(function: Callable[[], Awaitable[Any]], context: Context) -> Any:
    """Await a function's answer in the context of the caller."""

    async def inside() -> Any:
        return await function()

    return await asyncio.get_running_loop().create_task(inside(), context=context)


async def _wind_up() -> None:
    """Cancel the tasks that are left, and wait for their ends."""
    await asyncio.sleep(0)  # their first steps, see ``_cancel``
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


@contextlib.contextmanager
def _new_loop() -> Iterator[tuple[asyncio.AbstractEventLoop, DescriptorProbe]]:
    """Make a loop, and close it at the end unless its descriptors belong to others by then."""
    with contextlib.closing(DescriptorProbe()) as probe:
        loop = asyncio.new_event_loop()
        try:
            yield loop, probe
        finally:
            if probe.is_intact():
                loop.close()
            else:
                _left_behind.append(loop)

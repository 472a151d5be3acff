"""Calls the functions of a user, ``def`` in threads, ``async def`` on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from evenbeat.executors.pool import Pool
from evenbeat.processes import forks

Ended: TypeAlias = Callable[[BaseException | None], None]
"""Told how a call ended: by what it raised, or None. Quick, and raises nothing."""
Interrupt: TypeAlias = Callable[[], None]

_log = logging.getLogger("evenbeat.documents")


_here = threading.local()
"""Whose user's function this thread executes: ``_here.hands``, the innermost last."""


class HandlerPool:
    """As many ``def`` calls at once as there are slots, and one more, so that errors are told while all of
    them are taken; ``async def`` ones all on one loop."""

    def __init__(self, slots: int) -> None:
        self._pool = Pool[Callable[[], None]]("evenbeat-document", slots + 1, self._work)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """A loop knows its tasks only weakly."""
        self._is_stopped = False
        self._guard = threading.Lock()

    @property
    def is_here(self) -> bool:
        """Whether this thread executes one of these calls: it would wait for itself if it waited for all."""
        return self in getattr(_here, "hands", ())

    def begin(self, ended: Ended, function: Callable[..., Any], *arguments: object) -> Interrupt:
        """Call a function elsewhere, and ``ended`` at its end, from where it was executed. The answer
        interrupts it, if it can be: a coroutine is cancelled, a thread goes on. After ``stop``, nothing is
        begun, nor ended."""
        if self._is_stopped:
            return _nothing
        if _is_async(function):
            # Called there, not here: also making the coroutine may raise.
            return self._schedule(ended, lambda: function(*arguments))
        self._pool.put([functools.partial(self._execute, ended, function, arguments)])
        return _nothing

    def call(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a function here and wait for it. What it raises is raised. Not from the event loop."""
        outer = getattr(_here, "hands", ())
        _here.handlers = (*outer, self)
        try:
            answer = function(*arguments)
        finally:
            _here.handlers = outer
        if not inspect.isawaitable(answer):
            return
        over = threading.Event()
        failures: list[BaseException | None] = []

        def ended(failure: BaseException | None) -> None:
            failures.append(failure)
            over.set()

        self._schedule(ended, lambda: answer)
        over.wait()
        if failures[0] is not None:
            raise failures[0]

    def nudge(self) -> None:
        """Try again to start threads for what waits, where the system had none left."""
        self._pool.put([])

    def stop(self, patience: float = 0) -> None:
        """Let the threads end when they have nothing to do any more, and the loop at once; wait so long for
        each."""
        with self._guard:
            self._is_stopped = True
            loop, self._loop = self._loop, None
            if loop is not None:
                _post(loop, loop.stop)
        self._pool.stop(patience)
        if self._server is not None:
            self._server.join(patience)

    def _work(self) -> None:
        for job in self._pool.take():
            job()

    def _execute(self, ended: Ended, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        born = forks.generation
        failure: BaseException | None = None
        try:
            self.call(function, *arguments)
        except BaseException as error:  # also SystemExit: a handler that exits harms nobody
            failure = error
        forks.leave_if_since(born, failure)
        ended(failure)

    def _schedule(self, ended: Ended, function: Callable[[], Awaitable[Any]]) -> Interrupt:
        tasks: list[asyncio.Task[None]] = []

        def begin(loop: asyncio.AbstractEventLoop) -> None:
            task = loop.create_task(_told(ended, function))
            tasks.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        # Under the guard: what is posted before the loop is told to stop still comes to its end.
        with self._guard:
            loop = None if self._is_stopped else self._served()
            if loop is not None:
                _post(loop, functools.partial(begin, loop))
        if loop is None:
            ended(asyncio.CancelledError("the processor has stopped"))
            return _nothing

        def interrupt() -> None:
            # Not at once: one that is cancelled before its first step never takes it, nor tells its end.
            _post(loop, lambda: loop.call_soon(tasks[0].cancel))

        return interrupt

    def _served(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            serve = functools.partial(self._serve, loop)
            server = threading.Thread(target=serve, name="evenbeat-documents-async", daemon=True)
            try:
                server.start()
            except BaseException:
                loop.close()
                raise
            self._loop, self._server = loop, server
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        _here.handlers = (self,)
        asyncio.set_event_loop(loop)
        with contextlib.closing(loop):
            _persist(loop.run_forever)
            _persist(lambda: loop.run_until_complete(_wind_up()))


def _post(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have it called on the loop; a loop that was closed has nothing left to do."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


def _persist(run: Callable[[], None]) -> None:
    while True:
        try:
            return run()
        except (SystemExit, KeyboardInterrupt) as error:
            # Raised by what a handler has started on the loop, which lets it pass and can go on.
            _log.error("a handler wanted to end the process: %r", error)


async def _wind_up() -> None:
    """Cancel what is left, and have it come to its end."""
    await asyncio.sleep(0)  # its first step, see interrupt
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _told(ended: Ended, function: Callable[[], Awaitable[Any]]) -> None:
    born = forks.generation
    failure: BaseException | None = None
    try:
        await function()
    except BaseException as error:  # also SystemExit, which would end the loop, and being cancelled
        failure = error
    forks.leave_if_since(born, failure)
    ended(failure)


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    # An object may have an async def __call__.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _nothing() -> None:
    pass

"""The hands of a processor: call a user's functions, ``def`` in threads, ``async def`` on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from evenbeat.executors import forks
from evenbeat.executors.pool import Pool

Ended: TypeAlias = Callable[[BaseException | None], None]
"""Told how a call ended: by what it raised, or None. Quick, and raises nothing."""
Interrupt: TypeAlias = Callable[[], None]

_log = logging.getLogger("evenbeat.documents")


class Hands:
    """As many ``def`` calls at once as there are slots; ``async def`` ones all on one loop."""

    def __init__(self, slots: int) -> None:
        self._pool = Pool[Callable[[], None]]("evenbeat-document", slots, self._work)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard = threading.Lock()

    def begin(self, ended: Ended, function: Callable[..., Any], *arguments: object) -> Interrupt:
        """Call a function elsewhere, and ``ended`` at its end, from where it was executed. The answer
        interrupts it, if it can be: a coroutine is cancelled, a thread goes on."""
        if _is_async(function):
            return self._schedule(_told(ended, function(*arguments)))
        self._pool.put([functools.partial(self._execute, ended, function, arguments)])
        return _nothing

    def call(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a function here and wait for it. What it raises is raised. Not from the event loop."""
        answer = function(*arguments)
        if not inspect.isawaitable(answer):
            return
        over = threading.Event()
        failures: list[BaseException | None] = []

        def ended(failure: BaseException | None) -> None:
            failures.append(failure)
            over.set()

        self._schedule(_told(ended, answer))
        over.wait()
        if failures[0] is not None:
            raise failures[0]

    def stop(self) -> None:
        """Let the threads end when they have nothing to do any more, and the loop at once."""
        self._pool.stop()
        with self._guard:
            loop, self._loop = self._loop, None
        if loop is not None:
            _post(loop, loop.stop)

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

    def _schedule(self, coroutine: Coroutine[Any, Any, None]) -> Interrupt:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                serve = functools.partial(_serve, self._loop)
                threading.Thread(target=serve, name="evenbeat-documents-async", daemon=True).start()
            loop = self._loop
        tasks: list[asyncio.Task[None]] = []
        _post(loop, lambda: tasks.append(loop.create_task(coroutine)))

        def interrupt() -> None:
            # Not at once: one that is cancelled before its first step never takes it, nor tells its end.
            _post(loop, lambda: loop.call_soon(tasks[0].cancel))

        return interrupt


def _post(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have it called on the loop; a loop that was closed has nothing left to do."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    with contextlib.closing(loop):
        while True:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised by what a handler has started on the loop, which lets it pass and can go on.
                _log.error("a handler wanted to end the process: %r", error)
            else:
                break
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, loop.shutdown_asyncgens(), return_exceptions=True))


async def _told(ended: Ended, awaitable: Any) -> None:
    born = forks.generation
    failure: BaseException | None = None
    try:
        await awaitable
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

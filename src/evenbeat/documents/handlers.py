"""Calls a user's functions: ``def`` in threads, ``async def`` on an event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeAlias

from evenbeat.executors.coroutine_pool import CoroutinePool
from evenbeat.executors.pool import Pool
from evenbeat.processes import forks

Failure: TypeAlias = BaseException | None
"""The error that a call raised; None if it returned."""
Ended: TypeAlias = Callable[[Failure], None]
"""Called with the failure of a call. Returns soon, and raises nothing."""
Interrupt: TypeAlias = Callable[[], None]

# Seconds after which a call that waits for the event loop tries again to have its thread started.
_RETRY = 1.0

_current: ContextVar[frozenset[HandlerPool]] = ContextVar("evenbeat_handler_pools", default=frozenset())
"""The pools whose calls are being executed here. A handler hands it on to its tasks and to
``asyncio.to_thread``, so also to ``await processor.astop()``."""


class HandlerPool:
    """Executes as many ``def`` calls at once as there are slots, and one more, so that errors are reported
    while handlers occupy all slots; and any number of ``async def`` calls on one event loop."""

    def __init__(self, slots: int) -> None:
        self._threads = Pool[Callable[[], None]]("evenbeat-document", slots + 1, self._work)
        self._coroutines = _Coroutines("evenbeat-documents-async")
        self._is_stopped = False

    @property
    def is_here(self) -> bool:
        """Whether this code is part of one of these calls: it would wait for itself if it waited for all."""
        return self._coroutines.is_here or self in _current.get()

    def begin(self, ended: Ended, function: Callable[..., Any], *arguments: object) -> Interrupt:
        """Call a function in another thread, and then ``ended`` in the same thread. Return a function that
        cancels the call if it is a coroutine; a ``def`` goes on. After ``stop``, call neither."""
        if self._is_stopped:
            return _nothing
        if _is_async(function):
            # The function is called on the loop: also making the coroutine may raise.
            return self._submit(ended, lambda: function(*arguments))
        self._threads.put([functools.partial(self._execute, ended, function, arguments)])
        return _nothing

    def call(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a function in this thread and wait for its end. Raises what it raises. Not for calls from the
        pool's own event loop."""
        token = _current.set(_current.get() | {self})
        try:
            answer = function(*arguments)
        finally:
            _current.reset(token)
        if not inspect.isawaitable(answer):
            return
        over = threading.Event()
        failures: list[Failure] = []

        def ended(failure: Failure) -> None:
            failures.append(failure)
            over.set()

        self._submit(ended, lambda: answer)
        while not over.wait(_RETRY):
            self.start_threads()
        if inspect.iscoroutine(answer):
            answer.close()  # if the pool was stopped, it was never awaited
        if failures[0] is not None:
            raise failures[0]

    def start_threads(self) -> None:
        """Try again to start threads for calls that wait because the system refused to start one."""
        self._threads.put([])
        self._coroutines.submit([])

    def stop(self, patience: float = 0) -> None:
        """Let the threads end after the calls that they have, cancel the coroutines, and wait so long for
        each thread."""
        self._is_stopped = True
        # First: a thread may wait for a coroutine.
        self._coroutines.stop(patience)
        self._threads.stop(patience)

    def _work(self) -> None:
        for job in self._threads.take():
            job()

    def _execute(self, ended: Ended, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        born = forks.generation
        failure: Failure = None
        try:
            self.call(function, *arguments)
        except BaseException as error:  # also SystemExit: a handler that exits must not end its thread
            failure = error
        forks.leave_if_since(born, failure)
        ended(failure)

    def _submit(self, ended: Ended, function: Callable[[], Awaitable[Any]]) -> Interrupt:
        call = _AsyncCall(ended, function, _current.get() | {self})
        self._coroutines.submit([call])

        def interrupt() -> None:
            call.is_cancelled = True
            self._coroutines.interrupt(call)

        return interrupt


class _AsyncCall:
    """A call whose answer is awaited."""

    def __init__(
        self, ended: Ended, function: Callable[[], Awaitable[Any]], pools: frozenset[HandlerPool]
    ) -> None:
        self.ended = ended
        self.function = function
        self.pools = pools
        self.is_cancelled = False


class _Coroutines(CoroutinePool[_AsyncCall, Failure]):
    def _is_cancelled(self, call: _AsyncCall) -> bool:
        return call.is_cancelled

    async def _execute(self, call: _AsyncCall) -> Failure:
        _current.set(call.pools)  # a task has a context of its own
        born = forks.generation
        failure: Failure = None
        try:
            await call.function()
        except BaseException as error:  # also SystemExit, which would end the loop, and cancellation
            failure = error
        forks.leave_if_since(born, failure)
        return failure

    def _broken(self, error: Exception) -> Failure:
        return RuntimeError(f"the event loop broke: {error!r}")

    def _finish(self, call: _AsyncCall, failure: Failure) -> None:
        call.ended(failure)

    def _drop(self, call: _AsyncCall) -> None:
        call.ended(asyncio.CancelledError("the processor has stopped"))


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    # An object may have an async def __call__.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _nothing() -> None:
    pass

"""Async twins of methods: the same call, awaited in a thread. One line each, with one implementation."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, CancelledError
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
R = TypeVar("R")

# Calls to a store are short. A twin that waits for long, as ``ajoin``, polls and holds no thread meanwhile.
_THREADS = 32

_callers_loop: ContextVar[AbstractEventLoop | None] = ContextVar("evenbeat_callers_loop", default=None)
_executor: ThreadPoolExecutor | None = None


def twin(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return an ``async def`` with the signature of ``method``: ``aadd = twin(add)``.

    Stores are synchronous and their calls short; a thread hop per call keeps the event loop free. The threads
    are our own: asyncio's default executor has as few as five, and ``getaddrinfo`` needs them.
    """

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # programs without an event loop do not pay for it

        loop = asyncio.get_running_loop()
        before = _callers_loop.set(loop)
        try:
            context = copy_context()
            return await loop.run_in_executor(
                _threads(), functools.partial(context.run, method, *args, **kwargs)
            )
        finally:
            _callers_loop.reset(before)

    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{method.__name__}".lstrip(".")
    call.__doc__ = f"``{method.__name__}``, awaited."
    return call


async def whole(function: Callable[[], R]) -> tuple[R, CancelledError | None]:
    """Call a function in a thread, and wait for its end even if the caller is cancelled meanwhile.

    Return its answer and that cancellation, which the caller raises again, or None. A twin that is cancelled
    does not know whether its call took effect.
    """
    import asyncio

    # A future and not a task: the end of asyncio.run() cancels all tasks.
    answer = asyncio.get_running_loop().run_in_executor(_threads(), copy_context().run, function)
    cancelled: CancelledError | None = None
    while not answer.done():
        try:
            await asyncio.wait([answer])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and (failure := answer.exception()) is not None:
        raise cancelled from failure
    return answer.result(), cancelled


def on_the_callers_loop() -> Callable[[Callable[[], Any]], Any] | None:
    """Return, inside of a twin, a function that calls another one on the event loop that awaits the twin, and
    awaits its result if that is a coroutine. Return None elsewhere."""
    loop = _callers_loop.get()
    if loop is None:
        return None

    def call(function: Callable[[], Any]) -> Any:
        import asyncio
        import inspect

        async def there() -> Any:
            answer = function()
            return await answer if inspect.isawaitable(answer) else answer

        return asyncio.run_coroutine_threadsafe(there(), loop).result()

    return call


def _threads() -> ThreadPoolExecutor:
    # Two event loops in two threads may both create one: the unused one has no threads, and is dropped.
    global _executor
    if _executor is None:
        from concurrent.futures import ThreadPoolExecutor

        _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="evenbeat-twin")
    return _executor


def _after_fork_in_child() -> None:
    global _executor
    _executor = None  # its threads stayed with the parent


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

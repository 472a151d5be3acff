"""Async twins: the same call, in a thread, awaited. One line each, so that there is one implementation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

P = ParamSpec("P")
R = TypeVar("R")

_loop: ContextVar[AbstractEventLoop | None] = ContextVar("evenbeat_callers_loop", default=None)


def twin(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """An ``async def`` with the signature of ``method``: ``aadd = twin(add)``.

    Stores are synchronous and their calls short; a thread hop per call keeps the event loop free.
    """

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # who has no event loop does not pay for it

        before = _loop.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(method, *args, **kwargs)
        finally:
            _loop.reset(before)

    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{method.__name__}".lstrip(".")
    call.__doc__ = f"``{method.__name__}``, awaited."
    return call


def on_the_callers_loop() -> Callable[[Callable[[], Any]], Any] | None:
    """Inside of a twin: a function that calls another one on the event loop from which the twin is awaited,
    and awaits what it answers if that is a coroutine. None elsewhere."""
    loop = _loop.get()
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

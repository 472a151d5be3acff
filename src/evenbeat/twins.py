"""Async twins: the same call, in a thread, awaited. One line each, so that there is one implementation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def twin(method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """An ``async def`` with the signature of ``method``: ``aadd = twin(add)``.

    Stores are synchronous and their calls short; a thread hop per call keeps the event loop free.
    """

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio  # who has no event loop does not pay for it

        return await asyncio.to_thread(method, *args, **kwargs)

    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{method.__name__}".lstrip(".")
    call.__doc__ = f"``{method.__name__}``, awaited."
    return call

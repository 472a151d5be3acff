"""Functions that are called before and after each attempt, where its task is executed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from evenbeat.errors import InvalidValue, shown


class AttemptHooks:
    """The ``before`` and ``after`` functions of a scheduler, in the order of their registration.

    An ``async def`` one is called around ``async def`` tasks only: a thread has no event loop to await it on.
    """

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before: tuple[Callable[..., Any], ...] = ()
        self._after: tuple[Callable[..., Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    def add_before(self, function: Callable[..., Any]) -> None:
        """Call ``function(run)`` before each attempt."""
        self._before = (*self._before, _checked("before", function))

    def add_after(self, function: Callable[..., Any]) -> None:
        """Call ``function(run, error)`` after each attempt."""
        self._after = (*self._after, _checked("after", function))

    def before(self, *, is_async: bool) -> tuple[Callable[..., Any], ...]:
        """Return the functions to call first, in this order."""
        return _fitting(self._before, is_async)

    def after(self, *, is_async: bool) -> tuple[Callable[..., Any], ...]:
        """Return the functions to call last, in this order: that of the last ``before`` comes first."""
        return _fitting(self._after, is_async)[::-1]


def _checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidValue(
            f"{name} {shown(function)} is not a function",
            field=name,
            value=function,
            hint=f"write @app.{name} above a function",
        )
    return function


def _fitting(functions: tuple[Callable[..., Any], ...], is_async: bool) -> tuple[Callable[..., Any], ...]:
    if is_async:
        return functions
    return tuple(each for each in functions if not inspect.iscoroutinefunction(each))

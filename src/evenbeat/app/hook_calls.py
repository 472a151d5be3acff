"""The calls of a scheduler that register hooks: around attempts, and for the life and events of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from evenbeat.app.scheduler_parts import SchedulerParts
from evenbeat.observe.events import Event

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class HookCalls(SchedulerParts):
    """Registers hooks."""

    def before(self, function: F) -> F:
        """Register a function to call with the ``RunContext`` before each attempt, where its task runs.

        That is the thread, coroutine or process of the attempt: context variables that it sets are visible to
        the task. If it raises, the attempt fails with that error, and the task is not called. An ``async
        def`` is called around ``async def`` tasks only.
        """
        self._tasks.hooks.add_before(function)
        return function

    def after(self, function: F) -> F:
        """Register a function to call after each attempt, where its task ran: ``function(run, error)``.

        ``error`` is the exception that ended the attempt: None if the task returned, ``Retry`` if it asked to
        run again. It is called whatever happened, also if a ``before`` raised. The functions are called in
        reverse order. If one raises, that is logged, and changes nothing.
        """
        self._tasks.hooks.add_after(function)
        return function

    def on_start(self, function: F) -> F:
        """Register a function to call when a node of this scheduler has started.

        Hooks may be ``async def``: they are awaited, on the event loop of async tasks if there are any.
        """
        self._lifecycle.on_start.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Register a function to call when a node of this scheduler stops and its jobs have ended."""
        self._lifecycle.on_stop.append(function)
        return function

    def on_idle(self, function: F) -> F:
        """Register a function to call each time that the node becomes idle."""
        self.events.listen(lambda event: function() if event.kind == "idle" else None)
        return function

    def on_error(self, function: F) -> F:
        """Register a function to call with the event of every failed attempt, lost run and failing store."""
        wanted = {"failed", "retrying", "lost", "crashed", "quarantined", "store_unavailable"}
        self.events.listen(lambda event: function(event) if event.kind in wanted else None)
        return function

    def on_event(self, function: Callable[[Event], R]) -> Callable[[Event], R]:
        """Register a function to call with every event. The thread that works calls it: be quick."""
        self.events.listen(function)
        return function

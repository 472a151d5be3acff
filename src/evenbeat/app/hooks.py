"""Call the hooks of a scheduler, and wait for them: ``def`` in place, ``async def`` on an event loop."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenbeat.executors.coroutine_pool import CoroutinePool


class Hooks:
    """Calls hooks. An ``async def`` runs on the event loop of the node's async tasks, so that both can share
    what a hook opened; where the node has no such loop, on one of its own."""

    def __init__(self, tasks_loop: Callable[[], CoroutinePool[Any, Any] | None]) -> None:
        self._tasks_loop = tasks_loop
        self._own_loop: CoroutinePool[Any, Any] | None = None
        self._guard = threading.Lock()

    def call(self, function: Callable[..., Any], *arguments: object) -> None:
        """Call a hook, and wait for its end."""
        answer = function(*arguments)
        if inspect.isawaitable(answer):
            try:
                self._run(answer)
            finally:
                # One that has begun belongs to its event loop.
                if inspect.iscoroutine(answer) and inspect.getcoroutinestate(answer) == inspect.CORO_CREATED:
                    answer.close()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is that of an event loop on which hooks run."""
        return any(loop is not None and loop.is_here for loop in (self._tasks_loop(), self._own_loop))

    def after_fork_in_child(self) -> None:
        """Forget the own event loop: its thread stayed with the parent."""
        self._guard = threading.Lock()
        self._own_loop = None

    def stop(self) -> None:
        """Stop the own event loop, if there is one; the next hook starts another."""
        with self._guard:
            own, self._own_loop = self._own_loop, None
        if own is not None:
            own.stop()

    def _run(self, answer: Awaitable[Any]) -> None:
        loop = self._tasks_loop()
        if loop is None or loop.is_stopped:  # the last event of a node comes after its jobs' loop has ended
            from evenbeat.executors.coroutine_pool import EventLoop

            with self._guard:
                if self._own_loop is None:
                    self._own_loop = EventLoop("evenbeat-hooks")
                loop = self._own_loop
        loop.run(lambda: answer)

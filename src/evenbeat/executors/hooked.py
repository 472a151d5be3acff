"""Calls a task between its ``before`` and ``after`` hooks, in the thread or the coroutine of the attempt."""

from __future__ import annotations

import inspect
import logging
from contextvars import copy_context
from typing import Any

from evenbeat.executors.base import Attempt
from evenbeat.observe.logs import run_fields
from evenbeat.processes import forks

_log = logging.getLogger("evenbeat.executors")


def call(attempt: Attempt, born: int) -> Any:
    """Call the function of an attempt, and the hooks around it; return what the function returns.

    ``born`` is the generation of forks from before the call: a forked child ends here, before any ``after``.
    """
    task = attempt.task
    arguments = task.arguments(attempt.run.payload, attempt.context)
    if not task.hooks:
        return task.function(**arguments)
    # In a copy, so that context variables that a hook sets do not reach the next attempt of this thread.
    return copy_context().run(_call, attempt, arguments, born)


async def acall(attempt: Attempt, born: int) -> Any:
    """``call`` for ``async def`` tasks, in the context of the coroutine. Hooks may be ``async def``, too."""
    task, run = attempt.task, attempt.context
    arguments = task.arguments(attempt.run.payload, run)
    if not task.hooks:
        return await task.function(**arguments)
    error: BaseException | None = None
    try:
        for hook in task.hooks.before(is_async=True):
            answer = hook(run)
            if inspect.isawaitable(answer):
                await answer
        return await task.function(**arguments)
    except BaseException as raised:
        error = raised
        raise
    finally:
        forks.leave_if_since(born, error)
        for hook in task.hooks.after(is_async=True):
            try:
                answer = hook(run, error)
                if inspect.isawaitable(answer):
                    await answer
            except BaseException as problem:  # also a cancellation: the outcome is decided
                _log_failed(attempt, problem)


def _call(attempt: Attempt, arguments: dict[str, Any], born: int) -> Any:
    hooks, run = attempt.task.hooks, attempt.context
    error: BaseException | None = None
    try:
        for hook in hooks.before(is_async=False):
            hook(run)
        return attempt.task.function(**arguments)
    except BaseException as raised:
        error = raised
        raise
    finally:
        forks.leave_if_since(born, error)
        for hook in hooks.after(is_async=False):
            try:
                hook(run, error)
            except BaseException as problem:  # also SystemExit: the outcome is decided
                _log_failed(attempt, problem)


def _log_failed(attempt: Attempt, error: BaseException) -> None:
    """Log an ``after`` that raised, for the node and with the run."""
    attempt.log.add(f"WARNING evenbeat: an after hook raised {type(error).__name__}: {error}")
    _log.warning("an after hook raised", exc_info=error, extra=run_fields(attempt.run))

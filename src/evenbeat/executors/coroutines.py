"""``async def`` tasks: coroutines on one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio

from evenbeat.executors.base import Attempt, Ended, Outcome, describe, end_span, raised, returned
from evenbeat.executors.coroutine_pool import CoroutinePool
from evenbeat.executors.hooked import acall
from evenbeat.observe.run_logs import current_log
from evenbeat.observe.tracing import start_span
from evenbeat.processes import forks


class CoroutineExecutor(CoroutinePool[Attempt, Outcome]):
    """As many coroutines at once as there are slots."""

    def __init__(self, slots: int) -> None:
        super().__init__("evenbeat-async", slots)

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def _begin(self, attempt: Attempt) -> bool:
        return attempt.begin()

    def _is_cancelled(self, attempt: Attempt) -> bool:
        return attempt.control.cancel_reason is not None

    async def _execute(self, attempt: Attempt) -> Outcome:
        # A task has a context of its own: there is nothing to reset.
        current_log.set(attempt.log)
        born = forks.generation
        span = start_span(attempt.run)
        try:
            value = await acall(attempt, born)
            forks.leave_if_since(born)
            outcome = returned(attempt, value)
        except asyncio.CancelledError as error:
            forks.leave_if_since(born, error)
            reason = attempt.control.cancel_reason
            outcome = raised(attempt, error) if reason is None else Outcome("stopped", error=reason)
        except BaseException as error:  # also SystemExit: it would end the loop
            forks.leave_if_since(born, error)
            outcome = raised(attempt, error)
        if span is not None:
            end_span(span, attempt, outcome)
        return outcome

    def _broken(self, error: Exception) -> Outcome:
        return Outcome("raised", error=f"the event loop broke: {describe(error)}")

    def _finish(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.end()
        self._ended(attempt, outcome)

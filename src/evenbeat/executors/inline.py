"""Everything here and now, one after the other: for tests with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from evenbeat.executors.base import Attempt, Ended, Outcome, end_span, raised, returned
from evenbeat.executors.hooked import acall, call
from evenbeat.observe.run_logs import current_log
from evenbeat.observe.tracing import start_span
from evenbeat.processes import forks


class InlineExecutor:
    """Executes an attempt inside ``submit``, whatever its kind."""

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if attempt.begin():
                outcome = _execute(attempt)
                attempt.end()
                self._ended(attempt, outcome)

    def interrupt(self, attempt: Attempt) -> None:
        """Nobody is there to call it."""

    def stop(self) -> None:
        """Nothing is left."""


def _execute(attempt: Attempt) -> Outcome:
    token = current_log.set(attempt.log)
    span, born = start_span(attempt.run), forks.generation
    try:
        is_async = attempt.task.executor == "async"
        outcome = returned(attempt, asyncio.run(acall(attempt, born)) if is_async else call(attempt, born))
    except KeyboardInterrupt:
        # By who runs the tests: elsewhere no job gets it.
        if span is not None:
            span.end("cancelled")
        raise
    except BaseException as error:  # as in threads
        outcome = raised(attempt, error)
    finally:
        current_log.reset(token)
    if span is not None:
        end_span(span, attempt, outcome)
    return outcome

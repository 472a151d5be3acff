"""``def`` tasks: a pool of threads."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.executors.base import Attempt, Ended, Outcome, end_span, raised, returned
from evenbeat.executors.hooked import call
from evenbeat.executors.pool import Pool
from evenbeat.observe.run_logs import current_log
from evenbeat.observe.tracing import AttemptSpan, start_span
from evenbeat.processes import forks


class ThreadExecutor:
    """As many threads as there are slots."""

    def __init__(self, slots: int) -> None:
        self._pool = Pool[Attempt]("evenbeat-job", slots, self._work)

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self._pool.put(attempts)

    def interrupt(self, attempt: Attempt) -> None:
        """Nothing can be done to a thread from outside that does not endanger the whole process."""

    def stop(self) -> None:
        self._pool.stop()

    def _work(self) -> None:
        for attempt in self._pool.take():
            if attempt.begin():
                outcome = execute(attempt)
                attempt.end()
                self._ended(attempt, outcome)


def execute(attempt: Attempt) -> Outcome:
    """Call the function of an attempt, here. Whatever it raises is an outcome."""
    token = current_log.set(attempt.log)
    born = forks.generation
    span: AttemptSpan | None = None
    try:
        span = start_span(attempt.run)
        value = call(attempt, born)
        forks.leave_if_since(born)
        outcome = returned(attempt, value)
    except BaseException as error:  # also SystemExit: a task that exits harms nobody
        forks.leave_if_since(born, error)
        outcome = raised(attempt, error)
    finally:
        current_log.reset(token)
    if span is not None:
        end_span(span, attempt, outcome)
    return outcome

"""Everything here and now, one after the other: for tests with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from evenbeat.executors.base import Attempt, Ended, Outcome, raised, returned
from evenbeat.executors.threads import execute
from evenbeat.observe.run_logs import current_log


class InlineExecutor:
    """Executes an attempt inside ``submit``, whatever its kind."""

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if attempt.begin():
                self._ended(attempt, _awaited(attempt) if attempt.task.is_async else execute(attempt))

    def interrupt(self, attempt: Attempt) -> None:
        """Nobody is there to call it."""

    def stop(self) -> None:
        """Nothing is left."""


def _awaited(attempt: Attempt) -> Outcome:
    async def call() -> object:
        current_log.set(attempt.log)
        return await attempt.task.function(**attempt.task.arguments(attempt.current))

    try:
        return returned(attempt, asyncio.run(call()))
    except BaseException as error:  # as in threads
        return raised(attempt, error)

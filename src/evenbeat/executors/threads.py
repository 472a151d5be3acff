"""``def`` tasks: a pool of threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

from evenbeat.executors.base import Attempt, Ended, Outcome, raised, returned
from evenbeat.observe.run_logs import current_log


class ThreadExecutor:
    """Threads that are made when there is work for them, and stay. Daemons: a job that never ends does
    not keep the process from ending."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._guard = threading.Lock()

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._queue.put(attempt)
        with self._guard:
            missing = min(len(attempts) - self._idle, self._slots - len(self._threads))
        for _ in range(missing):
            number = len(self._threads) + 1
            thread = threading.Thread(target=self._work, name=f"evenbeat-job-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def interrupt(self, attempt: Attempt) -> None:
        """Nothing can be done to a thread from outside that does not endanger the whole process."""

    def stop(self) -> None:
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while True:
            with self._guard:
                self._idle += 1
            attempt = self._queue.get()
            with self._guard:
                self._idle -= 1
            if attempt is None:
                return
            if attempt.begin():
                self._ended(attempt, execute(attempt))


def execute(attempt: Attempt) -> Outcome:
    """Call the function of an attempt, here. Whatever it raises is an outcome."""
    token = current_log.set(attempt.log)
    try:
        return returned(attempt, attempt.task.function(**attempt.task.arguments(attempt.current)))
    except BaseException as error:  # also SystemExit: a task that exits harms nobody
        return raised(attempt, error)
    finally:
        current_log.reset(token)

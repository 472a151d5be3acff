"""Threads that are made when there is work for them, and stay."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

Job = TypeVar("Job")

_log = logging.getLogger("evenbeat.executors")


class Pool(Generic[Job]):
    """At most so many threads, and the jobs that wait for them. Daemons: a job that never ends does not
    keep the process from ending."""

    def __init__(self, name: str, slots: int, work: Callable[[], None]) -> None:
        self._name = name
        self._slots = slots
        self._work = work
        """What a thread does: takes jobs until there is none."""
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._surplus = 0
        """Jobs that were given, less those that a thread has asked for; starting is asking."""
        self._guard = threading.Lock()

    def put(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._queue.put(job)
        with self._guard:
            self._surplus += len(jobs)
            while self._surplus > 0 and len(self._threads) < self._slots and self._start():
                self._surplus -= 1

    def _start(self) -> bool:
        name = f"{self._name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # As many as the system allows. The next ``put`` tries again, threads that are there go on taking
            # what waits, and the worker hands back what waits for too long.
            _log.error(
                "a thread can't be started, trying again: %s",
                error,
                extra={"threads": len(self._threads), "wanted": self._slots},
            )
            return False
        self._threads.append(thread)
        return True

    def take(self) -> Iterator[Job]:
        """What a thread should execute, one after the other, until the pool is stopped."""
        while (job := self._queue.get()) is not None:
            yield job
            with self._guard:
                self._surplus -= 1

    def stop(self, patience: float | None = None) -> None:
        """Let the threads end after what they do; with ``patience``, wait so long for each."""
        for _ in self._threads:
            self._queue.put(None)
        if patience is not None:
            for thread in self._threads:
                thread.join(patience)

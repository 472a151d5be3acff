"""The log of a run: a bounded number of lines, stored with the run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar

from evenbeat.core.ids import is_given_once
from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.core.records import LogChunk, RunRecord

# Per attempt: a job that logs in an endless loop must not fill the database.
MOST_LINES = 1_000
MOST_CHARACTERS = 100_000
LONGEST_LINE = 5_000

REFUSED = 1_000_000
"""The ``seq`` of the line that says that the late result of an attempt was refused. Lines of jobs have lower
ones. The log is deleted with the run, and its lines change nothing about the run."""
_REFUSED_TEXT = "WARNING evenbeat: this attempt lost its lease, and its late result was refused"

# One lock for all logs: most attempts write no line, and writing one is short.
_writing = threading.Lock()


class RunLog:
    """The lines of one attempt that are not stored yet. The job's threads may write at the same time."""

    __slots__ = ("_characters", "_dropped", "_lines", "_waiting", "run")

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self._waiting: list[LogChunk] = []
        self._lines = 0
        self._characters = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        """Return whether there are lines to store."""
        return bool(self._waiting)

    def add(self, text: str, at: Instant | None = None) -> None:
        # No database accepts NUL or lone surrogates in a text.
        clean = text[:LONGEST_LINE].replace("\0", "�").encode(errors="replace").decode()
        with _writing:
            if self._lines >= MOST_LINES or self._characters >= MOST_CHARACTERS:
                self._dropped += 1
                return
            self._lines += 1
            self._characters += len(clean)
            self._waiting.append(self._chunk(clean, at))

    def take(self, last: bool = False) -> list[LogChunk]:
        """Return the lines since the last call; with ``last``, also a note of how many were dropped."""
        with _writing:
            if last and self._dropped:
                self._lines += 1
                self._waiting.append(self._chunk(f"… {self._dropped:,} more lines were dropped", None))
                self._dropped = 0
            taken, self._waiting = self._waiting, []
            return taken

    def give_back(self, lines: list[LogChunk]) -> None:
        """Put back lines that could not be stored: the next ``take`` returns them again."""
        with _writing:
            self._waiting[:0] = lines

    def _chunk(self, text: str, at: Instant | None) -> LogChunk:
        moment = int(time.time() * 1000) if at is None else max(FIRST, min(at, LAST))
        return chunk_of(self.run, self._lines, text, moment)


def chunk_of(run: RunRecord, seq: int, text: str, at: Instant) -> LogChunk:
    """Return a line of the present attempt of a run."""
    made = None if is_given_once(run.id, run.created_at) else run.created_at
    return LogChunk(run=run.id, attempt=run.attempt, seq=seq, text=text, at=at, run_created_at=made)


def refusal(run: RunRecord, at: Instant) -> LogChunk:
    """Return the line of an attempt whose late result was refused."""
    return chunk_of(run, REFUSED, _REFUSED_TEXT, at)


def refusals(chunks: Iterable[LogChunk]) -> dict[int, Instant]:
    """Return when the late results of a run's attempts were refused, by the number of the attempt."""
    return {chunk.attempt: chunk.at for chunk in chunks if chunk.seq == REFUSED}


current_log: ContextVar[RunLog | None] = ContextVar("evenbeat_run_log", default=None)
"""The log of the attempt whose function runs here, or called the code that runs here."""


def _renew_lock() -> None:
    """In the child of a fork: replace the lock, which a thread of the parent may have held."""
    global _writing
    _writing = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_renew_lock)

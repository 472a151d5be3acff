"""What a run says while it works: log records and lines, kept with the run, bounded."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextvars import ContextVar

from evenbeat.instants import FIRST, LAST, Instant
from evenbeat.model import LogChunk
from evenbeat.observe.logs import TextFormatter

# Of one attempt. A job that logs in a circle must not fill the database.
MOST_LINES = 1_000
MOST_CHARACTERS = 100_000
LONGEST_LINE = 5_000

# One for all logs: most attempts write no line, and writing one is short.
_writing = threading.Lock()


class RunLog:
    """The lines of one attempt that are not stored yet. Threads of the job may write at once."""

    __slots__ = ("_attempt", "_characters", "_dropped", "_lines", "_run", "_waiting")

    def __init__(self, run: str, attempt: int) -> None:
        self._run = run
        self._attempt = attempt
        self._waiting: list[LogChunk] = []
        self._lines = 0
        self._characters = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        """Whether there is something to store."""
        return bool(self._waiting)

    def add(self, text: str, at: Instant | None = None) -> None:
        # No database takes NUL or lone surrogates in a text.
        clean = text[:LONGEST_LINE].replace("\0", "�").encode(errors="replace").decode()
        with _writing:
            if self._lines >= MOST_LINES or self._characters >= MOST_CHARACTERS:
                self._dropped += 1
                return
            self._lines += 1
            self._characters += len(clean)
            self._waiting.append(self._chunk(clean, at))

    def take(self, last: bool = False) -> list[LogChunk]:
        """The lines since the last call; with ``last``, a note of how many were dropped."""
        with _writing:
            if last and self._dropped:
                self._lines += 1
                self._waiting.append(self._chunk(f"… {self._dropped:,} more lines were not kept", None))
                self._dropped = 0
            taken, self._waiting = self._waiting, []
            return taken

    def give_back(self, lines: list[LogChunk]) -> None:
        """They could not be stored: they are taken with the next call."""
        with _writing:
            self._waiting[:0] = lines

    def _chunk(self, text: str, at: Instant | None) -> LogChunk:
        moment = int(time.time() * 1000) if at is None else max(FIRST, min(at, LAST))
        return LogChunk(run=self._run, attempt=self._attempt, seq=self._lines, text=text, at=moment)


current_log: ContextVar[RunLog | None] = ContextVar("evenbeat_run_log", default=None)


class Capture(logging.Handler):
    """Keeps what is logged inside a run with the run; records of anything else pass by."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and logging.getLogger().handlers == [self]:
            _last_resort(record)
        log = current_log.get()
        if log is None or record.name.startswith("evenbeat."):
            return
        try:
            log.add(self.format(record), int(record.created * 1000))
        except Exception:
            self.handleError(record)


def _last_resort(record: logging.LogRecord) -> None:
    """Nobody has set up logging: Python would show warnings on stderr, were it not for our handler.

    So this does, with the fields that say what failed.
    """
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger.parent is not None:
        if logger.handlers:
            return  # it has shown it
        logger = logger.parent if logger.propagate else None
    if logger is not None and sys.stderr is not None:
        sys.stderr.write(TextFormatter().format(record) + "\n")


_capture = Capture()
_users = 0
_guard = threading.Lock()


def start_capture() -> None:
    """Listen on the root logger; counted, so that two nodes in a process need one handler."""
    global _users
    with _guard:
        _users += 1
        if _users == 1:
            logging.getLogger().addHandler(_capture)


def stop_capture() -> None:
    global _users
    with _guard:
        _users -= 1
        if _users == 0:
            logging.getLogger().removeHandler(_capture)

"""Log records of a job's code, kept with its run as well."""

from __future__ import annotations

import logging
import sys
import threading

from evenbeat.observe.logs import TextFormatter
from evenbeat.observe.run_logs import current_log


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

"""Keep the log records of a job's code with its run.

A log record factory sees every record, whatever the program does to handlers afterwards. A handler on the
root logger would turn a later ``logging.basicConfig()`` into a no-op, and a later ``dictConfig`` would remove
it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from evenbeat.observe.logs import TextFormatter
from evenbeat.observe.run_logs import RunLog, current_log

_PROBE = "evenbeat.probe"

_formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")
_guard = threading.Lock()
_users = 0
_probed = False


class LastResort(logging.Handler):
    """Shows warnings of Evenbeat on stderr, with their fields, while the program has not set up logging.

    Python's own last resort shows the message alone, which does not name the run that failed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers and sys.stderr is not None:
            sys.stderr.write(TextFormatter().format(record) + "\n")


_last_resort = LastResort(logging.WARNING)


def start_capture() -> None:
    """Keep records with runs from now on. Counted: two nodes in a process share one factory."""
    global _users
    with _guard:
        _users += 1
        if _users == 1:
            logging.getLogger("evenbeat").addHandler(_last_resort)
        if not _is_installed():
            logging.setLogRecordFactory(_capturing(logging.getLogRecordFactory()))


def stop_capture() -> None:
    """Keep no more records once every ``start_capture`` has its ``stop_capture``."""
    global _users
    with _guard:
        _users -= 1
        if _users == 0:
            logging.getLogger("evenbeat").removeHandler(_last_resort)
            factory = logging.getLogRecordFactory()
            # A factory that wraps ours keeps it in its chain, where it does nothing without users.
            if (inner := getattr(factory, "evenbeat_inner", None)) is not None:
                logging.setLogRecordFactory(inner)


def _is_installed() -> bool:
    """Return whether our factory, or one that calls it, makes the records."""
    global _probed
    _probed = False
    logging.getLogRecordFactory()(_PROBE, logging.DEBUG, "", 0, "", (), None)
    return _probed


def _capturing(inner: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = inner(*args, **kwargs)
        if _users:
            _capture(record)
        return record

    make_record.evenbeat_inner = inner  # type: ignore[attr-defined]  # found again by stop_capture
    return make_record


def _capture(record: logging.LogRecord) -> None:
    """Keep the record with the run whose code made it. 0.2 us where there is no run."""
    log = current_log.get()
    if record.name == _PROBE:
        global _probed
        _probed = True
    # ``logging.makeLogRecord`` makes records without a name first.
    if log is not None and record.name:
        keep(record, log)


def keep(record: logging.LogRecord, log: RunLog) -> None:
    """Add a record of the job's code to the log of its run; Evenbeat's own are left out."""
    if record.name.startswith("evenbeat."):
        return
    try:
        text = _formatter.format(record)
    except Exception:  # arguments that do not fit the message: the program's own handlers report that
        text = f"{record.levelname} {record.name}: {record.msg}"
    finally:
        record.exc_text = None  # formatters reuse it, and others may format exceptions in their own way
    log.add(text, int(record.created * 1000))

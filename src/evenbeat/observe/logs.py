"""Structured logs with standard logging: a constant message and fields, one JSON object per line."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Literal, TextIO

from evenbeat.core.records import PRIORITY_NAMES, RunRecord
from evenbeat.observe.run_logs import current_log

# Every record has these; all other attributes were given with ``extra``. ``color_message`` is uvicorn's: the
# message again, with escape sequences.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


_log = logging.getLogger("evenbeat.observe.logs")


def run_fields(run: RunRecord) -> dict[str, object]:
    """Return the fields that describe a run in a log record."""
    return {
        "schedule_id": run.schedule,
        "job_name": run.task,
        "job_id": run.id,
        "priority": run.priority,
        "priority_name": PRIORITY_NAMES.get(run.priority),
        "tenant": run.tenant,
        "attempt": run.attempt,
    }


class RunFields(logging.Filter):
    """Adds the run to log records of a job's code: ``job_id``, ``job_name``, ``schedule_id`` and the rest.

    For handlers of your own, with any formatter: ``handler.addFilter(RunFields())``. The formatters of this
    module do the same. Never drops a record, and overrides no field of it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        _add_run(record)
        return True


def _add_run(record: logging.LogRecord) -> None:
    log = current_log.get()
    if log is not None and "job_id" not in record.__dict__:
        for name, value in run_fields(log.run).items():
            record.__dict__.setdefault(name, value)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, msg, component, and the record's own fields.

    For an exception, ``error`` is its line and ``traceback`` the rest.
    """

    def format(self, record: logging.LogRecord) -> str:
        _add_run(record)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "msg": record.getMessage(),
            "component": _component(record.name),
        }
        line |= _fields(record)
        if record.exc_info:
            line.setdefault("error", _error_line(record.exc_info[1]))
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record for people: the time, the level, the message, then ``field=value``."""

    def format(self, record: logging.LogRecord) -> str:
        _add_run(record)
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items() if value is not None)
        text = f"{moment} {record.levelname:<7} {record.getMessage()} {fields}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _component(name: str) -> str:
    """Return the part that logs: ``worker`` for ``evenbeat.node.worker``; the names of others unchanged."""
    return name.rpartition(".")[2] if name.startswith("evenbeat.") else name


def _error_line(error: BaseException | None) -> str:
    lines = traceback.format_exception_only(error)
    return next((line.rstrip("\n") for line in lines if not line.startswith(" ")), "")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def configure(
    form: Literal["text", "json"] = "text", level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send all logs to ``stream``, by default stderr, and also the exceptions that end threads or that
    Python ignores.

    For programs; a library leaves logging alone.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    threading.excepthook = _log_thread
    sys.unraisablehook = _log_ignored


def start_new_line() -> None:
    """End the line that another process may have left unfinished on our stream when it died.

    Otherwise the next record would follow on that line, where a reader of JSON lines misses it. If the line
    was finished, this writes an empty one.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(
            handler.formatter, JsonFormatter | TextFormatter
        ):
            with handler.lock or contextlib.nullcontext(), contextlib.suppress(OSError, ValueError):
                handler.stream.write("\n")
                handler.flush()


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    """Log the exception that ended a thread, which Python would print in pieces between the log's lines."""
    if failed.exc_value is None or isinstance(failed.exc_value, SystemExit):
        return
    _log.error(
        "a thread ended with an exception",
        exc_info=(failed.exc_type, failed.exc_value, failed.exc_traceback),
        extra={"thread_name": None if failed.thread is None else failed.thread.name},
    )


def _log_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Log an exception that Python can't raise, such as one of a destructor, and would print in pieces."""
    if sys.is_finalizing():  # modules that logging needs may be gone
        sys.__unraisablehook__(ignored)
        return
    if ignored.object is None:  # Python 3.14 names the destructor in the message alone
        where = ignored.err_msg or ""
    else:
        where = getattr(ignored.object, "__qualname__", type(ignored.object).__qualname__)
    _log.error(
        "an exception was ignored",
        exc_info=(ignored.exc_type, ignored.exc_value, ignored.exc_traceback),  # type: ignore[arg-type]  # maybe None
        extra={"where": where},
    )

"""Structured logs by standard logging: a constant message and fields, as a JSON object a line (R24)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

from evenbeat.model import Run

# What every record has; all else was given with ``extra``.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def run_fields(run: Run) -> dict[str, object]:
    """A run in a log record."""
    return {
        "schedule_id": run.schedule,
        "job_name": run.task,
        "job_id": run.id,
        "priority": run.priority,
        "tenant": run.tenant,
        "attempt": run.attempt,
    }


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, msg, component, and the fields it was given."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "msg": record.getMessage(),
            "component": record.name.removeprefix("evenbeat."),
        }
        line |= _fields(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """The same for people: the time, the level, the message, then ``field=value``."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        said = " ".join(f"{name}={value}" for name, value in _fields(record).items() if value is not None)
        text = f"{moment} {record.levelname:<7} {record.getMessage()} {said}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def configure(
    form: Literal["text", "json"] = "text", level: str = "INFO", stream: TextIO | None = None
) -> None:
    """Send logs to ``stream`` (stderr), in this form. For programs; a library leaves logging alone."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)

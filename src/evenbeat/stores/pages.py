"""Cursors: where a page ended, as opaque text. One that cannot be read is refused."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue


def schedule_cursor(schedule: ScheduleRecord) -> str:
    return _write((schedule.tenant, schedule.name))


def read_schedule_cursor(cursor: str | None) -> tuple[str, str] | None:
    return None if cursor is None else _read(cursor, tuple[str, str])


def run_cursor(run: RunRecord) -> str:
    return _write((run.created_at, run.id))


def read_run_cursor(cursor: str | None) -> tuple[Instant, str] | None:
    return None if cursor is None else _read(cursor, tuple[int, str])


def _write(position: tuple[object, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def _read(cursor: str, kind: Any) -> Any:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded.encode()), type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidValue(
            "cursor is not one that a page gave", field="cursor", value=cursor, hint="start without one"
        ) from None

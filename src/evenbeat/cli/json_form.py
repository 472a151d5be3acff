"""Schedules and runs as JSON documents: RFC 3339 in UTC, durations in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from evenbeat.instants import to_ms, write_instant


def json_form(record: object) -> Any:
    """A record of ``evenbeat.views`` as builtins."""
    if isinstance(record, msgspec.Struct):
        return {name: json_form(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, datetime):
        return write_instant(to_ms(record))
    if isinstance(record, Mapping):
        return {key: json_form(value) for key, value in record.items()}
    return [json_form(item) for item in record] if isinstance(record, (list, tuple)) else record

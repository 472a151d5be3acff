"""Results as JSON documents: times as RFC 3339 in UTC, durations in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from evenbeat.core.instants import to_ms, write_instant

_PLAIN = frozenset((str, int, float, bool, type(None), msgspec.Raw))


def json_form(record: object) -> Any:
    """Return a result as dicts, lists, texts and numbers."""
    # Most values are plain: without these tests, converting a schedule takes three times as long. The one
    # inside the comprehension saves a call for each field.
    kind = type(record)
    if kind in _PLAIN:
        return record
    if kind is dict:
        return {key: json_form(value) for key, value in record.items()}  # type: ignore[attr-defined]  # a dict
    if isinstance(record, msgspec.Struct):
        return {
            name: value if type(value := getattr(record, name)) in _PLAIN else json_form(value)
            for name in record.__struct_fields__
        }
    if isinstance(record, datetime):
        return write_instant(to_ms(record))
    if isinstance(record, timedelta):
        seconds = record.total_seconds()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(record, Mapping):
        return {key: json_form(value) for key, value in record.items()}
    return [json_form(item) for item in record] if isinstance(record, (list, tuple)) else record

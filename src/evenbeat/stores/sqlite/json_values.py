"""Values for SQLite's JSON functions."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from evenbeat.errors import RowRefused


def json_list(values: Collection[object]) -> str:
    """Encode values for ``json_each``."""
    return json_text(list(values))


def json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError) as error:
        raise RowRefused(str(error), "SQLite cannot store a value") from error


def is_kept(*texts: str) -> bool:
    """Whether SQLite's JSON functions return all of these texts whole: they cut a text at a NUL."""
    return not any("\0" in text for text in texts)

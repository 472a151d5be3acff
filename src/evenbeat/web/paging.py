"""Pages whose size is bounded in bytes: 500 payloads of a megabyte each would fill the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from evenbeat.core.json_form import json_form

LARGEST_PAGE = 8_000_000
"""A page ends after the item with which it exceeds so many bytes."""
# How many items are read before anything is known about their size.
_FIRST = 20


class Part(NamedTuple):
    """Some items of a page, and the cursor behind them; None at the end."""

    bodies: Iterable[Any]
    cursor: str | None


def bounded(read: Callable[[int, str | None], Part], limit: int, cursor: str | None) -> dict[str, Any]:
    """Read up to ``limit`` items, part by part, until the page is large enough.

    ``read`` returns the next items, at most so many, after a cursor.
    """
    items: list[msgspec.Raw] = []
    size, wanted = 0, _FIRST
    while True:
        part = read(min(wanted, limit - len(items)), cursor)
        # Encoded here to know their size; the page takes them as they are.
        new = [msgspec.Raw(msgspec.json.encode(json_form(body))) for body in part.bodies]
        items += new
        size += sum(len(bytes(item)) for item in new)
        cursor = part.cursor
        if cursor is None or len(items) >= limit or size >= LARGEST_PAGE:
            return {"items": items, "cursor": cursor}
        # As many as fit, if they are like those before.
        wanted = max(1, (LARGEST_PAGE - size) * len(items) // max(1, size)) if items else _FIRST

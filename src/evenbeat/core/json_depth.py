"""JSON texts of bounded depth, so that the same texts can be read on every Python and in every thread.

How deeply nested a text a decoder can read depends on the version of Python and on the depth of the caller's
stack. Without a bound, one node could enqueue a payload that another node can't read.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_DEPTH = 100
"""Levels of lists and objects inside each other. MongoDB sets the same limit for its documents."""
TOO_DEEP = f"nested on more than {MAX_DEPTH} levels"


class TooDeep(msgspec.DecodeError):
    """A JSON text is nested on more than ``MAX_DEPTH`` levels."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


def decode(text: str | bytes) -> Any:
    """Return the value of a JSON text. ``msgspec.DecodeError`` if it is not JSON, or ``TooDeep``."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeep from None
    check_depth(text, value)
    return value


def check_depth(text: str | bytes, value: Any) -> None:
    """Raise ``TooDeep`` if the value of a JSON text is nested too deeply; 0.2 us for a short text."""
    # A text with fewer brackets can't be: no need to walk through its value.
    if isinstance(text, str):
        brackets = text.count("[") + text.count("{")
    else:
        brackets = text.count(b"[") + text.count(b"{")
    if brackets > MAX_DEPTH and is_nested_deeper(value, MAX_DEPTH):
        raise TooDeep


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether a JSON value has lists and objects inside each other on more than ``levels`` levels."""
    layer = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(levels):
        if not layer:
            return False
        items = (item for part in layer for item in (part.values() if isinstance(part, dict) else part))
        layer = [item for item in items if isinstance(item, (dict, list, tuple))]
    return bool(layer)

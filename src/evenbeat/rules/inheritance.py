"""What a schedule inherits from its template, as its row keeps it. Pure.

The row has a copy of every value that it inherits, so that firing reads no other row. Beside the copies it
keeps the name of the template, the options that are the schedule's own, and the values that the schedule
would have without the template.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from evenbeat.core.json_text import encode

INHERITABLE = (
    "trigger",
    "retries",
    "backoff",
    "max_backoff",
    "timeout",
    "on_crash",
    "max_crashes",
    "expires",
    "queue",
    "priority",
    "description",
    "tags",
    "catch_up",
    "grace",
    "catch_up_limit",
    "catch_up_max_age",
    "catch_up_rate",
    "overlap",
    "max_concurrent",
    "spread",
    "after",
)
"""The options that a template may have."""


class Inheritance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The template of a schedule, as its row keeps it."""

    name: str
    own: tuple[str, ...] = ()
    """The options that the schedule has of its own, sorted: the template does not change them."""
    base: dict[str, Any] = {}
    """Of each option that the template has: its value without the template. None for a trigger: there is
    none."""

    @property
    def inherited(self) -> tuple[str, ...]:
        """The options whose values come from the template, in the order of the options."""
        return tuple(name for name in INHERITABLE if name in self.base and name not in self.own)


# Made at import, not when the first row is read: see the end of core/records.py.
_decoder = msgspec.json.Decoder(Inheritance)


@lru_cache(maxsize=4096)
def inheritance_of(text: str) -> Inheritance | None:
    """Return what the text of a row's ``template`` says; None if it is empty or can't be read."""
    if not text:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def template_of(text: str) -> str:
    """Return the name of the template of a row; empty without one."""
    inheritance = inheritance_of(text)
    return "" if inheritance is None else inheritance.name


def inherited_by(text: str) -> tuple[str, ...]:
    """Return the options that a row inherits."""
    inheritance = inheritance_of(text)
    return () if inheritance is None else inheritance.inherited


def write_inheritance(inheritance: Inheritance) -> str:
    """Return the text that a row keeps: equal for equal values."""
    base = {name: inheritance.base[name] for name in INHERITABLE if name in inheritance.base}
    return encode(msgspec.structs.replace(inheritance, own=tuple(sorted(inheritance.own)), base=base))


def declared_inheritance(text: str) -> str:
    """Return the part that a declaration says: the template and the schedule's own options."""
    inheritance = inheritance_of(text)
    return "" if inheritance is None else write_inheritance(msgspec.structs.replace(inheritance, base={}))

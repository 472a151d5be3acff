"""The results of checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["ok", "warn", "fail"]
SOME = 10
"""So many lines or names of a finding are shown."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. ``warn`` may be intended; ``fail`` is a problem."""

    check: str
    level: Level
    message: str
    hint: str | None = None
    details: tuple[str, ...] = ()
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Details for programs."""


def some_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the first lines, and how many more there are."""
    every = list(lines)
    more = [f"and {len(every) - SOME:,} more"] if len(every) > SOME else []
    return (*every[:SOME], *more)

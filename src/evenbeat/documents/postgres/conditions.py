"""The user's condition: SQL with ``%s`` for each parameter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from evenbeat.documents import columns

# In a condition: a text, a name or a comment, which stay as they are; a placeholder; or a percent sign.
_PIECES = re.compile(
    r"""\b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(\w*)\$.*?\$\1\$ | --[^\n]*
    | /\*.*?\*/ | %s | %%? """,
    re.DOTALL | re.VERBOSE,
)
HOW_TO_PLACE = "write %s for each parameter, and, where there are some, %% for a percent sign"


def with_named_places(condition: str | None, parameters: Sequence[Any]) -> str:
    """Return the condition with named placeholders, for statements that have further named values."""
    if condition is None:
        return "true"
    if not parameters:
        # Without parameters, a percent sign means itself.
        return condition.replace("%", "%%")
    numbers = itertools.count()

    def piece(found: re.Match[str]) -> str:
        text = found[0]
        return f"%(p{next(numbers)})s" if text == "%s" else text.replace("%%", "%").replace("%", "%%")

    named = _PIECES.sub(piece, condition)
    if (places := next(numbers)) != len(parameters):
        raise columns.miscounted(condition, places, parameters, HOW_TO_PLACE)
    return named


def count_places(condition: str) -> int:
    return sum(found[0] == "%s" for found in _PIECES.finditer(condition))

"""Many rows in one statement: starting it anew for each of them is half of what a row costs.

Columns that are the same in all rows are bound once; the others travel as a JSON array of rows.
"""

from __future__ import annotations

from itertools import compress, count
from typing import NamedTuple

from evenbeat.stores.rows import Row
from evenbeat.stores.sqlite.json_values import json_text

# Fewer rows are as fast one by one.
_FEWEST = 10
# Characters of JSON. What has so much to write is not slow because of its statements.
_LONGEST = 1 << 24


class Bulk(NamedTuple):
    """Rows as expressions over ``json_each(?) AS wanted``, one for each column."""

    expressions: tuple[str, ...]
    values: Row
    """What all rows have in common, then the JSON."""


def bulk(rows: list[Row]) -> Bulk | None:
    """Rows whose first column is their identity; None if they are better written one by one.

    They have to be where a string has a NUL: SQLite cuts those of JSON there.
    """
    if len(rows) < _FEWEST:
        return None
    columns = list(zip(*rows, strict=True))
    differs = [at == 0 or column.count(column[0]) < len(rows) for at, column in enumerate(columns)]
    text = json_text(list(zip(*compress(columns, differs), strict=True)))
    if "\\u0000" in text or len(text) > _LONGEST:
        return None
    place = count()
    return Bulk(
        tuple(f"wanted.value ->> {next(place)}" if differ else "?" for differ in differs),
        (*(column[0] for column, differ in zip(columns, differs, strict=True) if not differ), text),
    )

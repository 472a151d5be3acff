"""Writing many rows with one statement: starting a statement for each row is half of the cost of a row.

Columns with the same value in all rows are bound once; the others are sent as a JSON array of rows.
"""

from __future__ import annotations

from itertools import compress, count
from typing import NamedTuple

from evenbeat.stores.rows import Row
from evenbeat.stores.sqlite.json_values import json_text

# With fewer rows, one statement each is as fast.
_FEWEST = 10
# Characters of JSON. With more text to write, the number of statements does not matter.
_LONGEST = 1 << 24


class Bulk(NamedTuple):
    """Rows as expressions over ``json_each(?) AS wanted``, one for each column."""

    expressions: tuple[str, ...]
    values: Row
    """The values that all rows share, then the JSON."""


def bulk(rows: list[Row]) -> Bulk | None:
    """Combine rows whose first column is their identity; None if they should be written one by one.

    Rows with a NUL in a string must be: SQLite's JSON functions cut the string there.
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

"""Values as PostgreSQL accepts them: batches of rows as one JSON text, and texts without NUL.

PostgreSQL cannot store a NUL in a text. In free text (errors, logs, notes, tokens) it is stored as ``␀``,
and a ``␀`` of the text itself is marked with ``␛``, so that reading returns the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from evenbeat.core.records import RunRecord
from evenbeat.errors import RowRefused
from evenbeat.stores.rows import Row

_NUL, _MARK = "\u2400", "\u241b"
_MARKED = re.compile(f"{_MARK}(.)|{_NUL}", re.DOTALL)
# Free text of a run. Its other texts are names and JSON, which have no NUL.
_FREE_TEXT = ("worker", "claim", "result", "error", "fired_by", "settled")
# A JSON text contains one of these if one of its strings has to be marked.
_SUSPECTS = (b"\\u0000", _NUL.encode(), _MARK.encode())

_encoder = msgspec.json.Encoder()


def marked(text: str | None) -> str | None:
    """Return free text as it is stored."""
    if text is None or not ("\0" in text or _NUL in text or _MARK in text):
        return text
    text = text.replace(_MARK, _MARK + _MARK).replace(_NUL, _MARK + _NUL)
    return text.replace("\0", _NUL)


def is_kept(*names: str | None) -> bool:
    """Whether all of these names can be stored: a name with a NUL cannot."""
    return not any(name is not None and "\0" in name for name in names)


def unmarked(text: str | None) -> str | None:
    """Return stored free text as it was written."""
    if text is None or not (_NUL in text or _MARK in text):
        return text
    return _MARKED.sub(lambda found: found[1] or "\0", text)


def unmarked_at(rows: list[Row], positions: tuple[int, ...]) -> list[Row]:
    """Return the rows with the free text in these positions as it was written."""
    # Almost no row is marked: 0.2 us a run, as most of the values are None.
    for at, row in enumerate(rows):
        for position in positions:
            text = row[position]
            if text is not None and (_NUL in text or _MARK in text):
                rows[at] = tuple(
                    unmarked(value) if here in positions else value for here, value in enumerate(row)
                )
                break
    return rows


def json_text(value: object) -> str:
    """Encode rows for ``json_to_recordset``, or values for ``json_array_elements_text``."""
    return _encoded(value).decode()


def json_list(values: Iterable[object]) -> str:
    return json_text(list(values))


def json_runs(runs: list[RunRecord]) -> str:
    """Encode runs for ``json_to_recordset``: their fields are the columns. 0.8 us a run."""
    text = _encoded(runs)
    if any(suspect in text for suspect in _SUSPECTS):
        text = _encoded([_free_text_marked(run) for run in runs])
    return text.decode()


def _free_text_marked(run: RunRecord) -> RunRecord:
    return msgspec.structs.replace(run, **{field: marked(getattr(run, field)) for field in _FREE_TEXT})


def _encoded(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise RowRefused(str(error), "PostgreSQL cannot store a value") from error

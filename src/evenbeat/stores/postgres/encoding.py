"""Values as PostgreSQL takes them: batches of rows as one JSON text, and texts without NUL.

PostgreSQL keeps no NUL in a text. Where people and programs write freely (errors, logs, notes, tokens) it
is kept as ``␀``, and what looks like that already is marked with ``␛``, so that it comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue
from evenbeat.stores.rows import Row

_NUL, _MARK = "\u2400", "\u241b"
_MARKED = re.compile(f"{_MARK}(.)|{_NUL}", re.DOTALL)
# Free text of a run. Its other texts are names and JSON, which have no NUL.
_FREE = ("worker", "claim", "result", "error", "fired_by", "settled")
# What a JSON text contains if one of its strings has to be marked.
_SUSPECTS = (b"\\u0000", _NUL.encode(), _MARK.encode())

_encoder = msgspec.json.Encoder()


def marked(text: str | None) -> str | None:
    """Free text as it is kept."""
    if text is None or not ("\0" in text or _NUL in text or _MARK in text):
        return text
    text = text.replace(_MARK, _MARK + _MARK).replace(_NUL, _MARK + _NUL)
    return text.replace("\0", _NUL)


def is_kept(*names: str | None) -> bool:
    """Whether names can be there to be found: none that is kept has a NUL in it."""
    return not any(name is not None and "\0" in name for name in names)


def unmarked(text: str | None) -> str | None:
    """Free text as it was written."""
    if text is None or not (_NUL in text or _MARK in text):
        return text
    return _MARKED.sub(lambda found: found[1] or "\0", text)


def unmarked_at(rows: list[Row], positions: tuple[int, ...]) -> list[Row]:
    """Rows with the free text in these positions as it was written."""
    # All but always nothing is marked: 0.2 us a run, most of it None.
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
    """Rows for ``json_to_recordset``, values for ``json_array_elements_text``."""
    return _encoded(value).decode()


def json_list(values: Iterable[object]) -> str:
    return json_text(list(values))


def json_runs(runs: list[RunRecord]) -> str:
    """Runs for ``json_to_recordset``: their fields are the columns. 0.8 us a run."""
    text = _encoded(runs)
    if any(suspect in text for suspect in _SUSPECTS):
        text = _encoded([_free_text_marked(run) for run in runs])
    return text.decode()


def _free_text_marked(run: RunRecord) -> RunRecord:
    return msgspec.structs.replace(run, **{field: marked(getattr(run, field)) for field in _FREE})


def _encoded(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidValue(f"PostgreSQL can't hold a value: {error}", field="row", value=None) from error

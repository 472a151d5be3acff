"""Tables as documents: what their columns are called, and which of them are there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from evenbeat.documents.base import Fields
from evenbeat.errors import InvalidValue, shown

# A name, or one in double quotes, which may have anything in it.
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_MOST_SHOWN = 20


class Names(msgspec.Struct, frozen=True):
    """The columns that matter. Those that may be missing are None where they are."""

    key: str
    sleep_until: str
    interval: str | None
    repeat_until: str | None
    auto_remove: str | None

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({self.key, self.sleep_until})


class Table:
    """The columns of a table that was looked at. ``fold`` makes one of two names that mean the same."""

    def __init__(self, name: str, columns: Iterable[str], fold: Callable[[str], str] = str) -> None:
        self.name = name
        self._columns = {fold(column): column for column in columns}
        self._fold = fold

    def names(self, said: Names) -> Names:
        """The columns as they are really called. One that may be missing, under its usual name, is None."""
        usual = msgspec.structs.asdict(Fields())
        found: dict[str, Any] = {}
        for field, column in msgspec.structs.asdict(said).items():
            is_optional = field not in ("key", "sleep_until") and column == usual[field]
            is_there = self._fold(column) in self._columns
            found[field] = None if is_optional and not is_there else self.column(column, field)
        return Names(**found)

    def column(self, name: str, field: str | None = None) -> str:
        """A column as it is really called. ``field`` is what the user calls it."""
        found = self._columns.get(self._fold(name))
        if found is not None:
            return found
        there = list(self._columns.values())
        near = get_close_matches(name, there, n=1)
        listed = ", ".join(there[:_MOST_SHOWN]) + (", …" if len(there) > _MOST_SHOWN else "")
        raise InvalidValue(
            f"{self.name} has no column {shown(name)}" + (f" ({field})" if field else ""),
            field=field or name,
            value=name,
            hint=(f"did you mean {near[0]}? " if near else "") + f"it has {listed or 'none'}",
        )

    def fields(self, fields: Mapping[str, Any], names: Names) -> dict[str, Any]:
        """The fields of a change by the real names of their columns."""
        found = {self.column(name): value for name, value in fields.items()}
        for name in names.reserved & found.keys():
            raise InvalidValue(
                f"column {shown(name)} is when the row is due, or what it is known by",
                field=name,
                value=found[name],
                hint="use document.reschedule(…) to say when it is due next",
            )
        return found


def split(table: object) -> tuple[str, ...]:
    """The parts of a name: ``reminders``, ``shop.reminders``, ``"a.b"``."""
    parts: list[str] = []
    at, text = 0, table if isinstance(table, str) else ""
    while (found := _PART.match(text, at)) is not None:
        parts.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        at = found.end()
        if at == len(text) and len(parts) <= 2 and "\0" not in text:
            return tuple(parts)
        if text[at : at + 1] != ".":
            break
        at += 1
    raise InvalidValue(
        f"table {shown(table)} is not the name of a table",
        field="table",
        value=table,
        hint='write reminders, shop.reminders, or "a name" in double quotes',
    )


def quoted(*parts: str) -> str:
    """A name for use in a statement."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def check_names(
    key: object, sleep_until: object, interval: object, repeat_until: object, auto_remove: object
) -> Names:
    """Refuse what can't be the names of columns, and columns that are to be two things at once."""
    said = {
        "key": key,
        "sleep_until": sleep_until,
        "interval": interval,
        "repeat_until": repeat_until,
        "auto_remove": auto_remove,
    }
    seen: dict[str, str] = {}
    for field, name in said.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise InvalidValue(
                f"{field} {shown(name)} is not the name of a column",
                field=field,
                value=name,
                hint="write it as the table has it, without quotes",
            )
        if name in seen:
            raise InvalidValue(
                f"column {shown(name)} is {seen[name]} already, and can't be {field}, too",
                field=field,
                value=name,
            )
        seen[name] = field
    return Names(**{field: column for column, field in seen.items()})


def check_condition(condition: object, parameters: object) -> tuple[str | None, Sequence[Any]]:
    """Refuse what can't be a condition and its parameters."""
    if condition is not None and (not isinstance(condition, str) or not condition.strip()):
        raise InvalidValue(
            f"condition {shown(condition)} is not SQL",
            field="condition",
            value=condition,
            hint="write what stands after WHERE, or leave it out",
        )
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise InvalidValue(
            f"parameters {shown(parameters)} are not a sequence",
            field="parameters",
            value=parameters,
            hint="write parameters=[…], one for each place in the condition",
        )
    if parameters and condition is None:
        raise InvalidValue(
            "there are parameters, but no condition",
            field="parameters",
            value=parameters,
            hint="say condition=…, too",
        )
    return condition, tuple(parameters)


def miscounted(condition: str | None, places: int, parameters: Sequence[Any], hint: str) -> InvalidValue:
    """A condition has more places than there are parameters, or fewer."""
    return InvalidValue(
        f"condition {shown(condition)} has {_counted(places, 'place')} for "
        f"{_counted(len(parameters), 'parameter')}",
        field="parameters",
        value=parameters,
        hint=hint,
    )


def not_null(table: str, column: str, hint: str) -> InvalidValue:
    """The column of ``sleep_until`` has no room for what a document that is done has there."""
    return InvalidValue(
        f"column {shown(column)} of {table} (sleep_until) is NOT NULL, and a document that is done has null "
        "there",
        field="sleep_until",
        value=column,
        hint=hint,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

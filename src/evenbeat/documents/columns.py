"""Tables as documents: the names of their columns, and which of them exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from evenbeat.documents.base import Fields
from evenbeat.errors import InvalidValue, shown

# A name, or a name in double quotes, which may contain any character.
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_MOST_SHOWN = 20


class Names(msgspec.Struct, frozen=True):
    """The names of the columns that are used. A column that may be missing, and is, has None."""

    key: str
    sleep_until: str
    interval: str | None
    repeat_until: str | None
    auto_remove: str | None

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({self.key, self.sleep_until})


class Table:
    """The columns of a table. ``fold`` maps names that mean the same column to the same text."""

    def __init__(self, name: str, columns: Iterable[str], fold: Callable[[str], str] = str) -> None:
        self.name = name
        self._columns = {fold(column): column for column in columns}
        self._fold = fold

    def names(self, given: Names) -> Names:
        """Return the real names of the columns. An optional column that is missing under its default name
        is None."""
        defaults = msgspec.structs.asdict(Fields())
        found: dict[str, Any] = {}
        for field, column in msgspec.structs.asdict(given).items():
            is_optional = field not in ("key", "sleep_until") and column == defaults[field]
            is_there = self._fold(column) in self._columns
            found[field] = None if is_optional and not is_there else self.column(column, field)
        return Names(**found)

    def column(self, name: str, field: str | None = None) -> str:
        """Return the real name of a column. ``field`` is the option that the user has named it by."""
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
        """Return the fields of a change by the real names of their columns."""
        found = {self.column(name): value for name, value in fields.items()}
        for name in names.reserved & found.keys():
            raise InvalidValue(
                f"column {shown(name)} is the key of the row, or when it is due",
                field=name,
                value=found[name],
                hint="use document.reschedule(…) to set when it is due next",
            )
        return found


def split(table: object) -> tuple[str, ...]:
    """Return the parts of a table's name: ``reminders``, ``shop.reminders``, ``"a.b"``."""
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
    """Return a name for use in a statement."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def check_names(
    key: object, sleep_until: object, interval: object, repeat_until: object, auto_remove: object
) -> Names:
    """Refuse values that are not names of columns, and a column that is given for two options."""
    given = {
        "key": key,
        "sleep_until": sleep_until,
        "interval": interval,
        "repeat_until": repeat_until,
        "auto_remove": auto_remove,
    }
    seen: dict[str, str] = {}
    for field, name in given.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise InvalidValue(
                f"{field} {shown(name)} is not the name of a column",
                field=field,
                value=name,
                hint="write the name as the table has it, without quotes",
            )
        if name in seen:
            raise InvalidValue(
                f"column {shown(name)} is given for both {seen[name]} and {field}", field=field, value=name
            )
        seen[name] = field
    return Names(**{field: column for column, field in seen.items()})


def check_condition(condition: object, parameters: object) -> tuple[str | None, Sequence[Any]]:
    """Refuse values that are not a condition and its parameters."""
    if condition is not None and (not isinstance(condition, str) or not condition.strip()):
        raise InvalidValue(
            f"condition {shown(condition)} is not SQL",
            field="condition",
            value=condition,
            hint="write the SQL after WHERE, or leave it out",
        )
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise InvalidValue(
            f"parameters {shown(parameters)} are not a sequence",
            field="parameters",
            value=parameters,
            hint="write parameters=[…], one for each placeholder in the condition",
        )
    if parameters and condition is None:
        raise InvalidValue(
            "there are parameters, but no condition",
            field="parameters",
            value=parameters,
            hint="set condition=…, too",
        )
    return condition, tuple(parameters)


def miscounted(condition: str | None, places: int, parameters: Sequence[Any], hint: str) -> InvalidValue:
    """Return the error of a condition that has more placeholders than parameters, or fewer."""
    return InvalidValue(
        f"condition {shown(condition)} has {_counted(places, 'placeholder')} for "
        f"{_counted(len(parameters), 'parameter')}",
        field="parameters",
        value=parameters,
        hint=hint,
    )


def not_null(table: str, column: str, hint: str) -> InvalidValue:
    """Return the error of a column that can't hold the null of a document that is done."""
    return InvalidValue(
        f"column {shown(column)} of {table} (sleep_until) is NOT NULL, and can't hold the null of a document "
        "that is done",
        field="sleep_until",
        value=column,
        hint=hint,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

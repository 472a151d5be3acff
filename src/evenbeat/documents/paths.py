"""Fields inside of fields: ``schedule.cron`` of ``{"schedule": {"cron": …}}``."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from itertools import permutations
from typing import Any

from evenbeat.errors import InvalidValue, shown


def get(document: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field; None if it is missing, or if its parent is not a document."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def put(document: MutableMapping[str, Any], path: str, value: Any) -> None:
    """Set a field, and create the documents around it."""
    *parents, last = path.split(".")
    for part in parents:
        inner = document.get(part)
        if not isinstance(inner, MutableMapping):
            inner = document[part] = {}
        document = inner
    document[last] = value


def check_apart(fields: dict[str, str]) -> None:
    """Refuse two options with the same field, or with a field inside of another one's."""
    for (name, path), (other, outer) in permutations(reversed(fields.items()), 2):
        if f"{path}.".startswith(f"{outer}."):
            where = "the same field as" if path == outer else f"inside of {shown(outer)}, which is"
            raise InvalidValue(
                f"{name} {shown(path)} is {where} {other}", field=name, value=path, hint="name another field"
            )


def check(path: object, field: str) -> str:
    """Refuse a value that is not the path of a field."""
    if isinstance(path, str) and path and all(part and not part.startswith("$") for part in path.split(".")):
        return path
    raise InvalidValue(
        f"{field} {shown(path)} is not the path of a field",
        field=field,
        value=path,
        hint="write it like sleep_until or schedule.sleepUntil",
    )

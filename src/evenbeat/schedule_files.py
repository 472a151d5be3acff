"""Schedules that a TOML file declares, in the tables schedules.NAME: of evenbeat.toml, pyproject.toml, or a
file of their own.

A file of their own may also have the key ``source``, the label under which its schedules are managed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from evenbeat.core.checks import check_label, check_name
from evenbeat.core.options import NEW_SCHEDULE
from evenbeat.errors import InvalidValue, shown
from evenbeat.toml_lines import heading_line, key_line
from evenbeat.triggers.text import CRON_OPTIONS

_MAIN = ("trigger", "task")
_OTHERS = ("payload", "tenant", "start_at")
_TABLES, _SOURCE = "schedules", "source"
LARGEST_FILE = 10_000_000
"""Bytes."""


class DeclaredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that a file or a request declares. Its keys are known; its values are not checked yet."""

    name: str
    fields: dict[str, Any]
    find: Callable[..., str]
    """Returns the place of a table and a key in it."""

    def place(self, *keys: str) -> str:
        """Return where it, or a key of it, is declared: ``schedules.nightly in …/schedules.toml:7``."""
        return self.find(self.name, *keys)

    @property
    def key(self) -> tuple[str, str]:
        """Its tenant, empty for that of the app, and its name."""
        return str(self.fields.get("tenant", "")), self.name


class ScheduleFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file declares."""

    schedules: tuple[DeclaredSchedule, ...]
    source: str | None
    """The label under which the schedules are managed; None if the file names none."""


def known_keys() -> tuple[str, ...]:
    """Return the keys of a table: those of ``schedules.add`` in Python."""
    return (*_MAIN, *_OTHERS, *NEW_SCHEDULE)


def read_schedule_file(path: str | os.PathLike[str]) -> ScheduleFile:
    """Read a file with tables schedules.NAME; ``InvalidValue`` names the file, the table and the key."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST_FILE:
            raise InvalidValue(
                f"file {file} is longer than {LARGEST_FILE:,} bytes",
                field="file",
                value=str(file),
                hint="name a TOML file with tables like [schedules.nightly]",
            )
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidValue(f"file {file} can't be read: {error}", field="file", value=str(file)) from None

    def place(*keys: str) -> str:
        table = ".".join((_TABLES, *keys[:-1]))
        line = key_line(text, table, keys[-1]) if keys else None
        whole = ".".join((_TABLES, *keys))
        line = line or heading_line(text, whole) or heading_line(text, table)
        return f"{whole} in {file}" + ("" if line is None else f":{line}")

    for key in document:
        if key not in (_TABLES, _SOURCE):
            raise _unknown(f"{key} in {file}", key, (_TABLES, _SOURCE), "a key of a file with schedules")
    source = document.get(_SOURCE)
    if source is not None:
        try:
            check_label(source, _SOURCE)
        except InvalidValue as error:
            raise _at(f"{_SOURCE} in {file}", error) from None
    return ScheduleFile(schedules=tuple(declared_schedules(document.get(_TABLES, {}), place)), source=source)


def declared_schedules(tables: object, place: Callable[..., str]) -> Iterator[DeclaredSchedule]:
    """Yield the schedules of a table of tables. ``place`` returns where keys are, for errors."""
    if not isinstance(tables, Mapping):
        raise InvalidValue(
            f"{place()} {shown(tables)} is not a table",
            field=_TABLES,
            value=tables,
            hint="write a table for each schedule: [schedules.nightly]",
        )
    for name, fields in tables.items():
        yield _declared(str(name), fields, place)


def _declared(name: str, fields: object, place: Callable[..., str]) -> DeclaredSchedule:
    where = place(name)
    if not isinstance(fields, Mapping):
        raise InvalidValue(f"{where} {shown(fields)} is not a table", field=name, value=fields)
    try:
        check_name(name, "name")
    except InvalidValue as error:
        raise _at(where, error) from None
    known = known_keys()
    for key in fields:
        if key not in known:
            at = f"{place(name, key)} = {shown(fields[key])}"
            refusal = _unknown(at, key, known, "an option of a schedule")
            if key in CRON_OPTIONS and key != "start":  # start_at is likelier
                trigger = f"{fields.get('trigger', '0 9 * * *')} {key}={fields[key]}"
                hint = f'write {key}= in the trigger: "{trigger}"'
                refusal = InvalidValue(refusal.problem, field=key, value=key, hint=hint)
            raise refusal
    if "task" not in fields:
        raise InvalidValue(f"{where} has no task", field="task", value=None, hint="add the key task")
    if "trigger" not in fields and "template" not in fields:
        hint = "add the key trigger, or the key template"
        raise InvalidValue(f"{where} has no trigger", field="trigger", value=None, hint=hint)
    return DeclaredSchedule(name=name, fields=dict(fields), find=place)


def _unknown(where: str, key: str, known: tuple[str, ...], what: str) -> InvalidValue:
    near = get_close_matches(key.replace("-", "_"), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return InvalidValue(f"{where} is not {what}", field=key, value=key, hint=hint)


def _at(where: str, error: InvalidValue) -> InvalidValue:
    return InvalidValue(f"{where}: {error.problem}", field=error.field, value=error.value, hint=error.hint)

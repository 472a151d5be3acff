"""Damaged rows, the same for every store: checks beyond the types of the columns, and what can be read of a
schedule that fails them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.core.checks import check_schedule, is_name
from evenbeat.core.dependencies import parse_after
from evenbeat.core.instants import FIRST, LAST
from evenbeat.core.records import LONGEST_SPREAD, MOST_CONCURRENT, ScheduleRecord, Version
from evenbeat.errors import EvenbeatError, InvalidValue

Key: TypeAlias = tuple[str, str]
"""(tenant, name) of a schedule."""

MOST_COUNTED = (1 << 53) - 1
"""The largest count: Lua scripts in Redis cannot represent larger integers exactly."""
# People read the bodies of records: an error that quotes a megabyte of payload does not help them.
_LONGEST_NOTE = 2000


class Unreadable(EvenbeatError):
    """A row that this version should be able to read and cannot. Never leaves the store."""


def check_counts(first: int, second: int, third: int) -> None:
    """Refuse counts that cannot be incremented: writing such a row would fail, and the whole batch with
    it."""
    if not (0 <= first < MOST_COUNTED and 0 <= second < MOST_COUNTED and 0 <= third < MOST_COUNTED):
        raise Unreadable(f"one of the counts {first}, {second} and {third} is out of range")


def check_fired_fields(schedule: ScheduleRecord) -> ScheduleRecord:
    """Refuse a schedule whose numbers make planning or writing fail: its whole batch would fail with it.

    Takes 0.7 us a row.
    """
    s = schedule
    for instant in (
        s.next_tick,
        s.moved,
        s.wake_at,
        s.last_fire,
        s.paused_until,
        s.paused_at,
        s.anchor,
        s.created_at,
        s.updated_at,
    ):
        if instant is not None and not FIRST <= instant <= LAST:
            raise Unreadable(f"the instant {instant} is outside the calendar")
    if not 0 <= s.priority <= 9 or not 0 <= s.spread <= LONGEST_SPREAD:
        raise Unreadable(f"priority {s.priority} or spread {s.spread} is out of range")
    if s.max_concurrent is not None and not 1 <= s.max_concurrent <= MOST_CONCURRENT:
        raise Unreadable(f"max_concurrent {s.max_concurrent} is out of range")
    if s.after:
        try:
            parse_after(s.after)
        except InvalidValue as error:
            raise Unreadable(error.problem) from error
    return schedule


def quarantine_note(error: Exception) -> str:
    """Return the body of a record of kind ``quarantine``. The error's text may quote the row."""
    text = str(error) if isinstance(error, EvenbeatError) or str(error) else repr(error)
    return text[:_LONGEST_NOTE].encode(errors="replace").decode()


def salvaged_version(generation: object, revision: object, fire_seq: object) -> Version:
    """Return the version; a count that cannot be read is 0. Reading a row and comparing versions both use
    this function, so they agree."""
    counts = (
        # isinstance, not type(): MongoDB's driver has its own type for 64-bit integers.
        int(value) if isinstance(value, int) and 0 <= value < MOST_COUNTED else 0
        for value in (generation, revision, fire_seq)
    )
    return Version(*counts)


def _readable_names(value: object) -> str:
    """Return the names that can be read in a damaged list of followers: those stay linked."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return " ".join(filter(is_name, text.split())) if isinstance(text, str) else ""


def salvaged(key: Key, values: Mapping[str, Any], error: Exception) -> ScheduleRecord:
    """Return a damaged schedule with the fields that can be read, and defaults for the others.

    ``values`` are the stored values by the names of the record's fields; policies may be JSON text.
    """
    version = salvaged_version(*(values.get(name) for name in ("generation", "revision", "fire_seq")))
    blank = ScheduleRecord(
        tenant=key[0], name=key[1], task="unknown", trigger="unknown", damage=quarantine_note(error)
    )
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(ScheduleRecord):
        if field.name in ("tenant", "name", "damage", *Version.__struct_fields__) or field.name not in values:
            continue
        value = values[field.name]
        try:
            if isinstance(value, str) and field.name in ("catch_up", "execution"):
                value = msgspec.json.decode(value)
            kept[field.name] = msgspec.convert(value, field.type)
            check_fired_fields(check_schedule(replace(blank, **{field.name: kept[field.name]})))
            if b"\xef\xbf\xbd" in str(kept[field.name]).encode():
                raise Unreadable(f"{field.name} holds text that is not UTF-8")
        except (msgspec.MsgspecError, EvenbeatError, UnicodeError, OverflowError):
            kept.pop(field.name, None)
    if "followers" not in kept:
        kept["followers"] = _readable_names(values.get("followers"))
    if "state" not in kept and kept.get("paused_at") is not None:
        kept["state"] = "paused"  # no user has resumed it
    # A default task, trigger or payload must not run: a user has to set these again.
    counts = {name: getattr(version, name) for name in Version.__struct_fields__}
    return replace(blank, **{"task": "", "trigger": "", "payload": "", **kept, **counts})

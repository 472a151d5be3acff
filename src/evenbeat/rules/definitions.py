"""Definitions of schedules: what users declare and edit, as against the state that firing writes. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from evenbeat.core.durations import write_duration
from evenbeat.core.json_text import encode, from_json, read_definition
from evenbeat.core.rates import write_rate
from evenbeat.core.records import ScheduleRecord

# The fields that users give.
DEFINITION = (
    "task",
    "trigger",
    "kind",
    "payload",
    "queue",
    "priority",
    "description",
    "tags",
    "catch_up",
    "overlap",
    "max_concurrent",
    "spread",
    "execution",
    "after",
    "template",
    "managed_by",
)
# Left out of a declaration if they are empty, so that a declaration of an earlier version still equals it.
_OPTIONAL = ("after", "template")


def definition(schedule: ScheduleRecord) -> str:
    """Return the definition of a schedule as JSON text, without ``managed_by``."""
    fields = {name: getattr(schedule, name) for name in DEFINITION if name != "managed_by"}
    for name in _OPTIONAL:
        if not fields[name]:
            del fields[name]
    return encode(fields | {"payload": from_json(schedule.payload)})


def declared_trigger(schedule: ScheduleRecord) -> str | None:
    """Return the trigger of the last declaration; None if it was never declared."""
    return str(read_definition(schedule.declared)["trigger"]) if schedule.declared else None


class Edit(NamedTuple):
    """An option of a schedule that was edited by hand since it was declared."""

    present: Any
    declared: Any


def edits(schedule: ScheduleRecord) -> dict[str, Edit]:
    """Return the options that were edited by hand since the schedule was declared, by their names."""
    if not schedule.declared:
        return {}
    declared = _options(read_definition(schedule.declared))
    present = options_of(schedule)
    return {
        name: Edit(present.get(name), value) for name, value in declared.items() if value != present.get(name)
    }


def options_of(schedule: ScheduleRecord) -> dict[str, Any]:
    """Return the definition of a schedule as users give it: flat, JSON as values, durations as text."""
    return _options({name: getattr(schedule, name) for name in DEFINITION})


_DURATIONS = ("spread", "grace", "catch_up_max_age", "backoff", "max_backoff", "timeout", "expires")


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a definition as users give them: flat, JSON as values, durations as text."""
    execution, catch_up = fields["execution"], fields["catch_up"]
    flat = {**fields, **{name: getattr(execution, name) for name in execution.__struct_fields__}}
    flat |= {"catch_up": catch_up.kind, "grace": catch_up.grace, "catch_up_limit": catch_up.limit}
    flat["catch_up_max_age"] = catch_up.max_age
    flat["catch_up_rate"] = None if catch_up.rate is None else write_rate(catch_up.rate)
    flat["payload"] = from_json(fields["payload"])
    flat["tags"] = fields.get("tags", "").split()
    del flat["execution"]
    for name in _DURATIONS:
        if flat[name] is not None:
            flat[name] = write_duration(flat[name])
    return flat

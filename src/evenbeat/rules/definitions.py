"""Definitions of schedules: what users declare and edit, as against the state that firing writes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.durations import write_duration
from evenbeat.core.json_text import encode, from_json, read_definition
from evenbeat.core.options import EXECUTION, SCHEDULE
from evenbeat.core.rates import write_rate
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.inheritance import Inheritance, declared_inheritance, inheritance_of, template_of

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
    """Return the definition of a schedule as JSON text, without ``managed_by``.

    Options that it inherits have their values without the template: another template is not another
    declaration.
    """
    inheritance = inheritance_of(schedule.template)
    if inheritance is not None:
        schedule = _without_template(schedule, inheritance)
    fields = {name: getattr(schedule, name) for name in DEFINITION if name != "managed_by"}
    for name in _OPTIONAL:
        if not fields[name]:
            del fields[name]
    return encode(fields | {"payload": from_json(schedule.payload)})


def _without_template(schedule: ScheduleRecord, inheritance: Inheritance) -> ScheduleRecord:
    base = {name: inheritance.base[name] for name in inheritance.inherited}
    if "trigger" in base:
        base["trigger"] = base["trigger"] or ""
    bare = with_options(schedule, base)
    return replace(bare, template=declared_inheritance(schedule.template))


class Edit(NamedTuple):
    """An option of a schedule that was edited by hand since it was declared."""

    present: Any
    declared: Any


def edits(schedule: ScheduleRecord) -> dict[str, Edit]:
    """Return the options that were edited by hand since the schedule was declared, by their names."""
    if not schedule.declared:
        return {}
    fields = read_definition(schedule.declared)
    declared = _options(fields)
    present = options_of(schedule)
    template = inheritance_of(fields["template"])
    if template is not None:
        return _edits_of_heir(schedule, template, declared, present)
    return {
        name: Edit(present.get(name), value) for name, value in declared.items() if value != present.get(name)
    }


def _edits_of_heir(
    schedule: ScheduleRecord, template: Inheritance, declared: dict[str, Any], present: dict[str, Any]
) -> dict[str, Edit]:
    """Return the edits of a schedule that is declared with a template.

    What the template changes is not an edit by hand. Only the template knows the declared value of an option
    that is inherited by the declaration.
    """
    now = inheritance_of(schedule.template)
    found: dict[str, Edit] = {}
    for name, value in declared.items():
        if now is None or now.name != template.name:
            is_edit = name == "template" or (name in template.own and value != present[name])
        elif name in now.base and name not in template.own:
            is_edit = name in now.own
            value = f"inherited from {template.name}"
        else:
            is_edit = value != present[name]
        if is_edit:
            found[name] = Edit(present[name], value)
    return found


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
    flat["template"] = template_of(fields["template"]) or None
    del flat["execution"]
    for name in _DURATIONS:
        if flat[name] is not None:
            flat[name] = write_duration(flat[name])
    return flat


_CATCH_UP = {
    "catch_up": "kind",
    "grace": "grace",
    "catch_up_limit": "limit",
    "catch_up_max_age": "max_age",
    "catch_up_rate": "rate",
}


def with_options(schedule: ScheduleRecord, options: Mapping[str, Any]) -> ScheduleRecord:
    """Return the schedule with these options, which are as ``options_of`` returns them."""
    given = {name: SCHEDULE[name].read(value) for name, value in options.items() if name in SCHEDULE}
    execution = {name: given.pop(name) for name in EXECUTION if name in given}
    catch_up = {field: given.pop(name) for name, field in _CATCH_UP.items() if name in given}
    if execution:
        given["execution"] = replace(schedule.execution, **execution)
    if catch_up:
        given["catch_up"] = replace(schedule.catch_up, **catch_up)
    if "trigger" in options:
        given["trigger"] = options["trigger"]
    return replace(schedule, **given) if given else schedule

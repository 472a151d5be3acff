"""Templates: named sets of options that schedules inherit; which values a schedule has by one. Pure.

The options of a schedule come from four places, the later of which override the earlier ones: the defaults,
the options of its task, its template, and the schedule itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from evenbeat.core.checks import is_name
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.definitions import options_of, with_options
from evenbeat.rules.inheritance import INHERITABLE, Inheritance, inheritance_of, write_inheritance
from evenbeat.triggers import parse_trigger
from evenbeat.triggers.expression import MACROS

TEMPLATE = "template"
"""The kind of the record of a template: its tenant, and its name as the key."""
MOST_TEMPLATES = 1_000
"""How many templates a tenant may have."""


class StoredTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a template's record."""

    options: dict[str, Any]
    """As users write them: durations as text, tags as a list."""
    revision: int = 1
    created_at: Instant = 0
    updated_at: Instant = 0


_decoder = msgspec.json.Decoder(StoredTemplate)

BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    name: {"trigger": str(parse_trigger(trigger))}
    for name, trigger in {
        "hourly": "0 * * * *",
        "daily-midnight": "0 0 * * *",
        "daily-9am": "0 9 * * *",
        "weekly-monday-8am": "0 8 * * mon",
        "workdays": "0 9 * * mon-fri",
    }.items()
}
"""The templates that every tenant has. Nobody can change them."""

_DEFAULTS = options_of(ScheduleRecord(name="defaults", task="defaults", trigger=""))


def template_word(trigger: object) -> str | None:
    """Return the name of the template that ``@name`` in the place of a trigger stands for, if there is one;
    None for any other trigger. ``@daily`` and the other macros are triggers, and so is ``@every``."""
    if not isinstance(trigger, str) or trigger[:1] != "@" or trigger.lower() in (*MACROS, "@every"):
        return None
    return trigger[1:] if is_name(trigger[1:]) else None


def template_record(tenant: str, name: str, body: StoredTemplate, version: int) -> Record:
    """Return a template as it is stored."""
    return Record(kind=TEMPLATE, tenant=tenant, key=name, body=encode(body), version=version)


def read_template(record: Record) -> StoredTemplate | None:
    """Return the template of a record; None if it can't be read."""
    try:
        body = _decoder.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return body if set(body.options) <= set(INHERITABLE) else None


def trigger_of_template(name: str, options: Mapping[str, Any]) -> str:
    """Return the trigger of a template; ``InvalidValue`` if it has none."""
    if "trigger" in options:
        trigger: str = options["trigger"]
        return trigger
    raise InvalidValue(
        f"template {shown(name)} has no trigger",
        field="trigger",
        value=None,
        hint="give the schedule a trigger of its own, or the template one",
    )


def inherit(
    row: ScheduleRecord, name: str, options: Mapping[str, Any], own: Collection[str] | None = None
) -> ScheduleRecord:
    """Return the schedule with the options of the template of this name.

    ``own`` are the options that the schedule has of its own; None: the same as before. An option that it had
    from a template and that this one does not have gets the value that it would have without a template.
    """
    before = inheritance_of(row.template) or Inheritance(name=name)
    kept = set(before.own if own is None else own)
    present = options_of(row)
    bare = {each: present[each] for each in INHERITABLE}
    for each in INHERITABLE:
        if each not in kept and each in before.base:
            bare[each] = before.base[each]
        elif each not in kept and each in before.own:
            bare[each] = None if each == "trigger" else _DEFAULTS[each]
    values = bare | {each: value for each, value in options.items() if each not in kept}
    if values["trigger"] is None:
        # The template had a trigger and has none now: the schedule keeps its last one, until the template has
        # one again.
        values["trigger"] = present["trigger"]
    base = {
        each: before.base[each] if each in kept else bare[each]
        for each in options
        if each not in kept or each in before.base
    }
    changed = {each: value for each, value in values.items() if value != present[each]}
    text = write_inheritance(Inheritance(name=name, own=tuple(kept), base=base))
    return replace(with_options(row, changed), template=text)


def inheriting(row: ScheduleRecord, own: Collection[str]) -> ScheduleRecord:
    """Return the schedule with these options as its own, besides those that it has."""
    inheritance = inheritance_of(row.template)
    if inheritance is None or set(own) <= set(inheritance.own):
        return row
    return replace(row, template=write_inheritance(replace(inheritance, own=tuple({*inheritance.own, *own}))))


def own_options(row: ScheduleRecord) -> tuple[str, ...]:
    """Return the options that count as the schedule's own when it gets a template.

    Without a template so far, nobody knows which options were given: those that differ from their defaults
    are its own, and so is its trigger.
    """
    inheritance = inheritance_of(row.template)
    if inheritance is not None:
        return inheritance.own
    present = options_of(row)
    return tuple(name for name in INHERITABLE if present[name] != _DEFAULTS[name])


def check_inheritable(names: Collection[str], field: str = "inherit") -> None:
    """Refuse names of options that no template has."""
    for name in names:
        if name not in INHERITABLE:
            raise InvalidValue(
                f"{field} {shown(name)} is not an option that schedules inherit",
                field=field,
                value=name,
                hint=f"there are {', '.join(INHERITABLE)}",
            )

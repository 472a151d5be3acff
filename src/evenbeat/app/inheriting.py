"""Reads the template of a schedule, and gives the schedule the options that it inherits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace

from evenbeat.app.rows import ScheduleRows
from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_label
from evenbeat.core.records import ScheduleRecord
from evenbeat.core.results import Schedule
from evenbeat.errors import InvalidTrigger, InvalidValue, shown
from evenbeat.record_errors import TemplateNotFound
from evenbeat.rules.definitions import DEFINITION
from evenbeat.rules.inheritance import INHERITABLE, Inheritance, inheritance_of, write_inheritance
from evenbeat.rules.templates import (
    BUILT_IN,
    TEMPLATE,
    check_inheritable,
    inherit,
    inheriting,
    own_options,
    read_template,
    template_word,
    trigger_of_template,
)
from evenbeat.triggers import Trigger, parse_trigger
from evenbeat.triggers.expression import MACROS


def find_options(session: AppSession, tenant: str, name: str) -> Mapping[str, Any] | None:
    """Return the options of a template; None if there is none of that name, or it can't be read."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    record = session.store().get_record(TEMPLATE, tenant, name)
    body = None if record is None else read_template(record)
    return None if body is None else body.options


def options_of_template(session: AppSession, tenant: str, name: str) -> Mapping[str, Any]:
    """Return the options of a template; ``TemplateNotFound`` if there is none."""
    check_label(name, "template")
    found = find_options(session, tenant, name)
    if found is None:
        raise template_not_found(session, tenant, name)
    return found


def _known(session: AppSession, tenant: str) -> list[str]:
    return [*BUILT_IN, *(record.key for record in session.store().find_records(TEMPLATE, tenant))]


def template_not_found(session: AppSession, tenant: str, name: str) -> TemplateNotFound:
    known = _known(session, tenant)
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)[:20])}"
    return TemplateNotFound(tenant, name, hint)


def named_template(session: AppSession, tenant: str, trigger: object) -> str | None:
    """Return the template that ``@name`` in the place of a trigger stands for; None for any other trigger.

    ``InvalidTrigger`` if there is none of that name.
    """
    word = template_word(trigger)
    if word is None or find_options(session, tenant, word) is not None:
        return word
    text = f"@{word}"
    near = get_close_matches(text, [*MACROS, *(f"@{name}" for name in _known(session, tenant))], n=1)
    try:
        parse_trigger(text)
    except InvalidTrigger as error:
        raise InvalidTrigger(
            text,
            " is not a known macro, nor a template",
            field=error.field,
            value=text,
            hint=f"did you mean {near[0]}?" if near else error.hint,
        ) from None
    return None


def timed_text(session: AppSession, tenant: str, trigger: str) -> str:
    """Return the text of a trigger; for ``@name``, that of the template's trigger."""
    name = named_template(session, tenant, trigger)
    return trigger if name is None else trigger_of_template(name, options_of_template(session, tenant, name))


def read_names(
    session: AppSession, tenant: str, trigger: Trigger | str | None, template: str | None
) -> tuple[Trigger | str | None, str | None]:
    """Return the trigger and the template of a new schedule. ``@name`` in the place of a trigger stands for
    the template of that name."""
    word = named_template(session, tenant, trigger)
    if word is not None:
        if template not in (None, word):
            raise _two_templates(word, template)
        return None, word
    if trigger is None and template is None:
        raise InvalidValue(
            "a schedule has a trigger, or a template that has one",
            field="trigger",
            value=None,
            hint='write every("5m"), cron("0 9 * * *"), or template="workdays"',
        )
    return trigger, template


def _two_templates(word: str, template: str | None) -> InvalidValue:
    return InvalidValue(
        f"trigger {shown(f'@{word}')} and template {shown(template)} contradict each other",
        field="template",
        value=template,
        hint="give one of them",
    )


def new_heir(session: AppSession, bare: ScheduleRecord, name: str, own: Sequence[str]) -> ScheduleRecord:
    """Return a new schedule with the options of its template; its trigger is its own unless it is empty.

    ``own`` names the options that are given afterwards.
    """
    options = options_of_template(session, bare.tenant, name)
    if bare.trigger:
        bare = replace(bare, trigger=str(parse_trigger(bare.trigger)))
        return inheriting(inherit(bare, name, options, ("trigger",)), own)
    trigger = trigger_of_template(name, options)
    without = Inheritance(name=name, base={"trigger": None})
    bare = replace(bare, template=write_inheritance(without), trigger=trigger)
    return inheriting(inherit(bare, name, options, ()), own)


def read_changes(session: AppSession, tenant: str, changed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the changes of a schedule. ``@name`` in the place of a trigger stands for the template of that
    name, and its trigger is inherited."""
    word = named_template(session, tenant, changed.get("trigger"))
    if word is None:
        return changed
    if changed.get("template", word) != word:
        raise _two_templates(word, changed["template"])
    others = {name: value for name, value in changed.items() if name != "trigger"}
    inherit = ["trigger", *_read_names(changed.get("inherit", ()), others)]
    return {**others, "template": word, "inherit": inherit}


def names_template(changed: Mapping[str, Any]) -> bool:
    """Return whether the changes of a schedule are about its template."""
    return "template" in changed or "inherit" in changed or template_word(changed.get("trigger")) is not None


def changed_heir(session: AppSession, row: ScheduleRecord, changed: Mapping[str, Any]) -> ScheduleRecord:
    """Return the schedule after the changes of its template: ``template`` gives it another one or, with None,
    none; ``inherit`` names options that are not its own any more."""
    names = _read_names(changed.get("inherit", ()), changed)
    own = own_options(row)
    inheritance = inheritance_of(row.template)
    name = changed.get("template", None if inheritance is None else inheritance.name)
    if name is None:
        if names:
            raise InvalidValue(
                f"schedule {row.name} has no template to inherit {names[0]} from",
                field="inherit",
                value=names,
                hint="give it a template, too",
            )
        return row if inheritance is None else replace(row, template="")
    if names or "template" in changed:
        options = options_of_template(session, row.tenant, name)
        if "trigger" in names and "trigger" not in options:
            raise InvalidValue(
                f"template {shown(name)} has no trigger to inherit",
                field="inherit",
                value=names,
                hint="leave trigger out, or give the template one",
            )
        row = inherit(row, name, options, [each for each in own if each not in names])
    return inheriting(row, [each for each in INHERITABLE if each in changed])


def _read_names(names: object, changed: Mapping[str, Any]) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidValue(
            f"inherit {shown(names)} is not a list of options",
            field="inherit",
            value=names,
            hint='write ["retries", "queue"]',
        )
    found = list(names)
    check_inheritable(found)
    for name in found:
        if name in changed:
            raise InvalidValue(
                f"{name} can't be inherited and changed at once",
                field="inherit",
                value=name,
                hint="leave one of them out",
            )
    return found


def present_heir(session: AppSession, row: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule as its template is now. Without the template, its options become its own."""
    inheritance = inheritance_of(row.template)
    if inheritance is None:
        return row
    options = find_options(session, row.tenant, inheritance.name)
    return replace(row, template="") if options is None else inherit(row, inheritance.name, options)


def definition_fields(row: ScheduleRecord) -> dict[str, Any]:
    """Return the fields of a definition, for ``changes.change``."""
    return {name: getattr(row, name) for name in DEFINITION}


def follow_template(rows: ScheduleRows, tenant: str, name: str) -> Schedule | None:
    """Give a schedule that was just written with a template the options that the template has now; return
    the schedule, or None if nothing differs.

    The template may have been changed after it was read and before the schedule was written: whoever changed
    it did not see the schedule.
    """
    for attempt in rows.tries(tenant, name, "update"):
        row = attempt.row
        if row is None or row.state == "deleted":
            return None
        fields = definition_fields(present_heir(rows.session, row))
        if fields == definition_fields(row):
            return None
        if attempt.write(rows.changed(row, fields, attempt.now)):
            break
    return attempt.view

"""``app.templates``: named sets of options that schedules inherit.

A change writes the template first, and then each schedule that inherits from it, by the same rules as a
change by hand: all or nothing for each schedule, and no tick fires from it. If the process dies in between,
some schedules lag behind: ``doctor`` names them, and setting the template again changes the rest.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, Unpack

from msgspec.structs import replace

from evenbeat.app.audit import write_audited
from evenbeat.app.bulk import Progress
from evenbeat.app.dependencies import check_link
from evenbeat.app.inheriting import definition_fields, named_template, template_not_found
from evenbeat.app.rows import ScheduleRows
from evenbeat.app.schedule_bulk import BulkChange
from evenbeat.app.schedule_search import BulkFilter, ScheduleSearch
from evenbeat.app.session import AppSession
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import CatchUp, Execution, Record, ScheduleRecord
from evenbeat.core.results import RefusedItem
from evenbeat.core.templates import Template, TemplateChange, TemplateEffect
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.observe.trigger_explanations import trigger_words
from evenbeat.record_errors import TemplateInUse
from evenbeat.rules import changes
from evenbeat.rules.auditing import Change
from evenbeat.rules.definitions import options_of, with_options
from evenbeat.rules.firing import Planned
from evenbeat.rules.inheritance import INHERITABLE, inherited_by, template_of
from evenbeat.rules.templates import (
    BUILT_IN,
    MOST_TEMPLATES,
    TEMPLATE,
    StoredTemplate,
    inherit,
    read_template,
    template_record,
)
from evenbeat.tasks.options import ScheduleOptions, read_schedule_fields, refuse_unknown
from evenbeat.triggers import Trigger, check_trigger, parse_trigger
from evenbeat.triggers.expression import MACROS

# Inside the class, ``list`` is a method.
TemplateList: TypeAlias = list[Template]

# How often a change is tried while others change the same template.
_TRIES = 20
_SAMPLE = 20
# Of the schedule by which a template without a trigger is checked.
_ANY_TRIGGER = "@hourly"


class TemplateOptions(ScheduleOptions, total=False):
    """What a template may have."""

    trigger: Trigger | str


class Templates:
    """The templates of a scheduler; the ``a…`` twins are awaited. ``tenant`` defaults to the scheduler's own.

    Every tenant also has the built-in templates ``hourly``, ``daily-midnight``, ``daily-9am``,
    ``weekly-monday-8am`` and ``workdays``, which nobody can change.
    """

    def __init__(self, session: AppSession, rows: ScheduleRows) -> None:
        self._session = session
        self._rows = rows

    def set(
        self,
        name: str,
        *,
        tenant: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        **options: Unpack[TemplateOptions],
    ) -> TemplateChange:
        """Create the template, or replace all of its options, and change the schedules that inherit from it.

        Options that are a schedule's own stay. A trigger that schedules inherit can't be left out. Setting
        the same options again changes the schedules that a process left behind that died in between.
        ``dry_run`` only shows what would change, and names the schedules that could not. Options that no
        schedule could have are refused. ``progress`` is called with the result so far, again and again.
        """
        owner = self._session.tenant_of(tenant)
        check_label(name, "name")
        _refuse_built_in(name, "choose another name")
        _refuse_macro(name)
        if named_template(self._session, owner, options.get("trigger")) is not None:
            raise InvalidValue(
                f"trigger {shown(options['trigger'])} is a template: templates inherit from no other one",
                field="trigger",
                value=options["trigger"],
                hint="write the trigger itself: 0 3 * * *",
            )
        wanted = read_options(options)
        if "trigger" not in wanted:
            self._refuse_untimed(owner, name)
        self._refuse_useless(owner, wanted)
        if dry_run:
            present = self._record(owner, name)
            shown_body = _next_body(present, wanted, self._session.store().now())
            effects = self._effects(owner, name, wanted)
            found = effects.change().run(sys.maxsize, dry_run=True)
            changed = found.matched - len(found.refused)
            return effects.result(_view(owner, name, shown_body), changed, found.refused)
        record = self._write(owner, name, wanted)
        while True:
            body = read_template(record)
            assert body is not None
            effects = self._effects(owner, name, body.options)
            done = effects.change().run(sys.maxsize, dry_run=False, progress=progress)
            # Another process may have changed the template, and have seen schedules before they were written
            # here: the last one to look gives all of them the options that are stored.
            present = self._record(owner, name)
            if present is None or present.version == record.version or read_template(present) is None:
                return effects.result(_view(owner, name, body), done.done, done.refused)
            record = present

    def get(self, name: str, *, tenant: str | None = None) -> Template:
        """Return the template of that name; ``TemplateNotFound`` if there is none."""
        owner = self._session.tenant_of(tenant)
        check_label(name, "name")
        if name in BUILT_IN:
            return _built_in(owner, name)
        record = self._record(owner, name)
        body = None if record is None else read_template(record)
        if body is None:
            raise template_not_found(self._session, owner, name)
        return _view(owner, name, body)

    def list(self, *, tenant: str | None = None) -> TemplateList:
        """Return the templates of the tenant by name, and then the built-in ones."""
        owner = self._session.tenant_of(tenant)
        records = self._session.store().find_records(TEMPLATE, owner)
        bodies = ((record.key, read_template(record)) for record in records)
        own = [_view(owner, name, body) for name, body in sorted(bodies) if body is not None]
        return own + [_built_in(owner, name) for name in BUILT_IN]

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a template. ``TemplateInUse`` if schedules inherit from it; it names them."""
        owner = self._session.tenant_of(tenant)
        check_label(name, "name")
        _refuse_built_in(name, "every tenant has it, and nobody can change it")
        store = self._session.store()
        for _ in range(_TRIES):
            record = self._record(owner, name)
            if record is None:
                raise template_not_found(self._session, owner, name)
            self._refuse_used(owner, name)
            body = read_template(record)
            before = {} if body is None else body.options
            write = partial(store.delete_record, TEMPLATE, owner, name, record.version)
            if write_audited(store, Change(TEMPLATE, name, owner, "delete", before, {}), write):
                break
        else:
            raise _kept_changing(name)
        try:
            self._refuse_used(owner, name)
        except TemplateInUse:
            # A schedule was written in between, by a process that had read the template before.
            store.put_record(record, None)
            raise

    def _refuse_untimed(self, tenant: str, name: str) -> None:
        """Refuse to take away the trigger that schedules inherit: code could not declare them any more."""
        users = [
            row.name
            for page in self._users(tenant, name).pages()
            for row in page
            if "trigger" in inherited_by(row.template)
        ]
        if users:
            raise InvalidValue(
                f"template {shown(name)} has no trigger, and {', '.join(users[:5])} "
                f"{'inherits' if len(users) == 1 else 'inherit'} it",
                field="trigger",
                value=None,
                hint="give the template a trigger, or each of these schedules one of its own",
            )

    def _refuse_useless(self, tenant: str, options: Mapping[str, Any]) -> None:
        """Refuse options that every schedule would refuse: an unknown calendar, a dependency on a schedule
        that does not exist, ``after`` beside a trigger without ticks."""
        # A name that no schedule has: a dependency on that schedule would count as a cycle.
        name = f"template-{secrets.token_hex(8)}"
        timed = ScheduleRecord(tenant=tenant, name=name, task="template", trigger=_ANY_TRIGGER)
        wanted = self._rows.with_calendars(with_options(timed, options))
        planned = changes.create(wanted, self._session.store().now(), None)
        check_link(self._session.store(), planned.schedule, None)

    def _refuse_used(self, tenant: str, name: str) -> None:
        users = [row.name for page in self._users(tenant, name).pages() for row in page]
        if users:
            raise TemplateInUse(tenant, name, users)

    def _users(self, tenant: str, name: str) -> ScheduleSearch:
        return ScheduleSearch(self._session, BulkFilter(tenant=tenant, template=name))

    def _effects(self, tenant: str, name: str, options: Mapping[str, Any]) -> _Effects:
        return _Effects(self._users(tenant, name), self._rows, name, options)

    def _record(self, tenant: str, name: str) -> Record | None:
        return self._session.store().get_record(TEMPLATE, tenant, name)

    def _write(self, tenant: str, name: str, wanted: dict[str, Any]) -> Record:
        """Write the template, unless it has these options; return its record."""
        store = self._session.store()
        for _ in range(_TRIES):
            present = self._record(tenant, name)
            known = None if present is None else read_template(present)
            if present is not None and known is not None and known.options == wanted:
                return present
            if present is None and len(store.find_records(TEMPLATE, tenant)) >= MOST_TEMPLATES:
                raise InvalidValue(
                    f"template {shown(name)} would be template {MOST_TEMPLATES + 1:,} of its tenant",
                    field="name",
                    value=name,
                    hint=f"at most {MOST_TEMPLATES:,}: delete those that no schedule uses",
                )
            body = _next_body(present, wanted, store.now())
            # Never the version of a template that was deleted: a late write must not match.
            record = template_record(tenant, name, body, secrets.randbits(53))
            write = partial(store.put_record, record, None if present is None else present.version)
            change = _change(tenant, name, None if known is None else known.options, wanted)
            if write_audited(store, change, write):
                return record
        raise _kept_changing(name)

    aset = twin(set)
    aget = twin(get)
    alist = twin(list)
    adelete = twin(delete)


class _Effects:
    """The schedules that inherit from a template and differ from what its options make of them."""

    def __init__(
        self, users: ScheduleSearch, rows: ScheduleRows, name: str, options: Mapping[str, Any]
    ) -> None:
        self._users = users
        self._rows = rows
        self._name = name
        self._options = options
        self._found = 0
        self._sample: list[TemplateEffect] = []

    def pages(self) -> Iterator[list[ScheduleRecord]]:
        for page in self._users.pages():
            self._found += len(page)
            differs = [row for row in page if not row.damage and self._heir(row) != row]
            for row in differs[: _SAMPLE - len(self._sample)]:
                self._sample.append(_effect(row, self._heir(row)))
            yield differs

    def matches(self, row: ScheduleRecord) -> bool:
        return self._users.matches(row)

    def plan(self, row: ScheduleRecord, now: Instant) -> Planned | None:
        return self._rows.changed(row, definition_fields(self._heir(row)), now)

    def change(self) -> BulkChange:
        """Return the change of the schedules that differ."""
        return BulkChange(self._rows, self, "update", self.plan)

    def result(self, template: Template, changed: int, refused: tuple[RefusedItem, ...]) -> TemplateChange:
        return TemplateChange(
            template=template,
            schedules=self._found,
            changed=changed,
            refused=refused,
            sample=tuple(self._sample),
        )

    def _heir(self, row: ScheduleRecord) -> ScheduleRecord:
        return inherit(row, self._name, self._options)


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a template as they are kept; ``InvalidValue`` for one that no schedule has."""
    refuse_unknown(options, INHERITABLE, "a template")
    if not options:
        raise InvalidValue(
            "a template has at least one option",
            field="options",
            value={},
            hint='give trigger="0 3 * * *", retries=3 or others',
        )
    trigger = ""
    if "trigger" in options:
        trigger = str(parse_trigger(str(check_trigger(options["trigger"], "trigger"))))
    fields = read_schedule_fields(options, Execution(), CatchUp())
    record = ScheduleRecord(name="template", task="template", trigger=trigger, **fields)
    present = options_of(record)
    return {name: present[name] for name in INHERITABLE if name in options}


def lagging(rows: list[ScheduleRecord], records: list[Record]) -> Iterator[tuple[ScheduleRecord, str]]:
    """Yield the schedules that are not as their templates are now, each with what is wrong.

    ``records`` are those of all templates.
    """
    known = {(record.tenant, record.key): read_template(record) for record in records}
    for row in rows:
        name = template_of(row.template)
        if not name or row.damage or name in BUILT_IN:
            continue
        body = known.get((row.tenant, name))
        if body is None:
            yield row, f"template {name} is missing"
        elif (heir := inherit(row, name, body.options)) != row:
            differs = sorted(_effect(row, heir).after) or ["options that it inherits"]
            yield row, f"{', '.join(differs)}: not as template {name} is now"


def _effect(before: ScheduleRecord, after: ScheduleRecord) -> TemplateEffect:
    old, new = options_of(before), options_of(after)
    differs = [name for name in INHERITABLE if old[name] != new[name]]
    return TemplateEffect(
        schedule=before.name,
        before={name: old[name] for name in differs},
        after={name: new[name] for name in differs},
    )


def _next_body(present: Record | None, options: dict[str, Any], now: Instant) -> StoredTemplate:
    known = None if present is None else read_template(present)
    if known is None:
        return StoredTemplate(options=options, created_at=now, updated_at=now)
    if known.options == options:
        return known
    return replace(known, options=options, revision=known.revision + 1, updated_at=now)


def _view(tenant: str, name: str, body: StoredTemplate) -> Template:
    return Template(
        name=name,
        tenant=tenant,
        options=body.options,
        words=_words(body.options),
        built_in=False,
        revision=body.revision,
        created_at=from_ms(body.created_at),
        updated_at=from_ms(body.updated_at),
    )


def _built_in(tenant: str, name: str) -> Template:
    options = dict(BUILT_IN[name])
    return Template(
        name=name,
        tenant=tenant,
        options=options,
        words=_words(options),
        built_in=True,
        revision=0,
        created_at=None,
        updated_at=None,
    )


def _words(options: Mapping[str, Any]) -> str:
    return trigger_words(options["trigger"], "template") if "trigger" in options else ""


def _change(tenant: str, name: str, before: dict[str, Any] | None, after: dict[str, Any]) -> Change:
    if before is None:
        return Change(TEMPLATE, name, tenant, "set", {}, after)
    differs = [each for each in INHERITABLE if before.get(each) != after.get(each)]
    old = {each: before.get(each) for each in differs}
    return Change(TEMPLATE, name, tenant, "set", old, {each: after.get(each) for each in differs})


def _refuse_built_in(name: str, hint: str) -> None:
    if name in BUILT_IN:
        raise InvalidValue(
            f"name {shown(name)} is that of a built-in template", field="name", value=name, hint=hint
        )


def _refuse_macro(name: str) -> None:
    word = f"@{name.lower()}"
    if word in MACROS or word == "@every":
        means = f"the trigger {MACROS[word]}" if word in MACROS else "the start of an interval: @every 10m"
        raise InvalidValue(
            f"name {shown(name)} can't be that of a template: {word} is {means}",
            field="name",
            value=name,
            hint="choose another name",
        )


def _kept_changing(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"template {shown(name)} kept changing while it was written; try again")

"""Which schedules and templates use a calendar, and what another content would change about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from evenbeat.core.calendars import CalendarEffect, RemovedTicks, ScheduleCalendars
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import ScheduleRecord
from evenbeat.core.results import ChangeWarning
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.node.calendar_copies import active_runs, calendar_times
from evenbeat.observe.phrases import command_line, some
from evenbeat.rules import changes
from evenbeat.rules.calendar_records import named_calendars, new_copies, uses
from evenbeat.rules.calendars import coming_removed, stopped_by
from evenbeat.rules.templates import TEMPLATE, read_template
from evenbeat.rules.ticks import own_trigger, readable_trigger, trigger_of, upcoming_tick
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.stores.pages import every_schedule
from evenbeat.triggers import Calendared
from evenbeat.triggers.time_sets import TimeSet

FIRST_NAMES = 5
_MOST_RANGES = 5
_PAGE = 500
# The list of calendars reads at most so many schedules: some seconds.
_MOST_READ = 20_000
_MOST_EFFECTS = 20
_TICKS_SHOWN = 3
# A backlog is planned in so many parts at most.
_PARTS = 100


def rows_with_calendars(store: Store, tenant: str) -> Iterator[ScheduleRecord]:
    """Yield the schedules of a tenant that name calendars, in the order of their names."""
    query = ScheduleQuery(tenant=tenant, states=("active", "paused", "finished"), limit=_PAGE)
    return (row for row in every_schedule(store, query) if row.calendars)


def schedules_using(store: Store, tenant: str, name: str) -> tuple[str, ...]:
    """Return the names of the schedules that use a calendar."""
    return tuple(row.name for row in rows_with_calendars(store, tenant) if uses(row, name))


def stopped_users(store: Store, tenant: str, name: str) -> tuple[str, ...]:
    """Return those of the schedules that use a calendar which have no tick to come because of calendars."""
    rows = (row for row in rows_with_calendars(store, tenant) if uses(row, name))
    return tuple(row.name for row in rows if stopped_by(row, store.now()))


def stop_warnings(
    tenant: str, name: str, stopped: tuple[str, ...], *, dry_run: bool
) -> tuple[ChangeWarning, ...]:
    """Return the warning that schedules have no tick any more with a calendar; none if all have some."""
    if not stopped:
        return ()
    have = "would have" if dry_run else "has" if len(stopped) == 1 else "have"
    change = command_line(f"schedules update {stopped[0]} --trigger …", tenant)
    return (
        ChangeWarning(
            problem=f"{some(stopped, FIRST_NAMES)} {have} no tick any more: the calendar {name} leaves none",
            hint=f"change what {name} contains, or the trigger: {change}",
        ),
    )


def templates_using(store: Store, tenant: str) -> dict[str, tuple[str, ...]]:
    """Return the templates whose trigger names a calendar, by the calendar's name."""
    found: dict[str, list[str]] = {}
    for record in sorted(store.find_records(TEMPLATE, tenant), key=lambda each: each.key):
        template = read_template(record)
        trigger = None if template is None else template.options.get("trigger")
        for name in named_calendars(trigger) if isinstance(trigger, str) else ():
            found.setdefault(name, []).append(record.key)
    return {name: tuple(names) for name, names in found.items()}


def users_of_each(store: Store, tenant: str) -> dict[str, tuple[str, ...]] | None:
    """Return the schedules that use each calendar, by its name; None if there are too many to read."""
    query = ScheduleQuery(tenant=tenant, states=("active", "paused", "finished"), limit=_PAGE)
    found: dict[str, list[str]] = {}
    number = 0
    for row in islice(every_schedule(store, query), _MOST_READ + 1):
        number += 1
        for name in named_calendars(row.trigger) if row.calendars else ():
            found.setdefault(name, []).append(row.name)
    return None if number > _MOST_READ else {name: tuple(names) for name, names in found.items()}


def calendars_of(store: Store, row: ScheduleRecord) -> ScheduleCalendars:
    """Return the calendars of a schedule, and what they remove next."""
    trigger = None if readable_trigger(row) is None else own_trigger(row)
    if not isinstance(trigger, Calendared):
        return ScheduleCalendars(
            schedule=row.name, tenant=row.tenant, skip=(), only=(), move="skip", removed=()
        )
    found = coming_removed(trigger, max(store.now(), row.anchor), _MOST_RANGES)
    return ScheduleCalendars(
        schedule=row.name,
        tenant=row.tenant,
        skip=trigger.skip,
        only=trigger.only,
        move=trigger.move,
        removed=tuple(
            RemovedTicks(
                first=from_ms(gone.first, trigger.tzinfo),
                last=from_ms(gone.last, trigger.tzinfo),
                count=gone.count,
                calendars=names,
                moved_to=None if gone.moved_to is None else from_ms(gone.moved_to, trigger.tzinfo),
            )
            for gone, names in found
        ),
    )


class Effects(NamedTuple):
    """What another content of a calendar would change."""

    schedules: tuple[str, ...]
    """All that use it."""
    stopped: tuple[str, ...]
    """Those that would have no tick to come."""
    replanned: int
    sample: tuple[CalendarEffect, ...]


def effects_of(store: Store, tenant: str, name: str, times: TimeSet) -> Effects:
    """Return what the calendar would change with these times. Nothing is written."""
    contents: Mapping[str, TimeSet] = {**calendar_times(store, tenant), name: times}
    users: list[str] = []
    stopped: list[str] = []
    sample: list[CalendarEffect] = []
    replanned = 0
    for row in rows_with_calendars(store, tenant):
        if not uses(row, name):
            continue
        users.append(row.name)
        copies = new_copies(row, contents)
        if copies is None:
            stopped += [row.name] if stopped_by(row, store.now()) else []
            continue
        try:
            after = _replanned(store, row, copies)
        except StoreUnavailable:
            raise
        except EvenbeatError:
            continue  # damaged, or of a newer version: it keeps its copy
        replanned += 1
        stopped += [row.name] if stopped_by(after, store.now()) else []
        if len(sample) < _MOST_EFFECTS:
            sample.append(CalendarEffect(schedule=row.name, before=_coming(row), after=_coming(after)))
    return Effects(tuple(users), tuple(stopped), replanned, tuple(sample))


def _replanned(store: Store, row: ScheduleRecord, copies: str) -> ScheduleRecord:
    now, active = store.now(), active_runs(store, row)
    for _ in range(_PARTS):
        planned = changes.copy_calendars(row, copies, now, active)
        if planned is None:
            return row
        row = planned.schedule
        if not planned.unfinished:
            return row
    return row


def _coming(row: ScheduleRecord) -> tuple[datetime, ...]:
    """Return the next ticks of a schedule, in its zone."""
    trigger, zone = trigger_of(row), own_trigger(row).tzinfo
    found: list[Instant] = []
    tick = upcoming_tick(row)
    while tick is not None and len(found) < _TICKS_SHOWN:
        found.append(tick)
        tick = trigger.next_ms(tick)
    return tuple(from_ms(tick, zone) for tick in found)

"""Keeps the copies that schedules have of their calendars up to date.

A calendar is written first, and then each schedule that uses it. A process that dies between the two leaves
schedules behind that still have the old copy: nodes look for them when they start and once an hour. Nothing
is read but the records of calendars if there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import EvenbeatError, InvalidTrigger, StoreUnavailable, shown
from evenbeat.rules import changes
from evenbeat.rules.calendar_records import KIND, new_copies, times_of, uses
from evenbeat.rules.firing import Active, needs_active
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.pages import every_run, every_schedule
from evenbeat.triggers import Calendared, parse_trigger
from evenbeat.triggers.time_sets import BUILT_IN, TimeSet

CHECK_EVERY = 3_600_000
_AGAIN = 60_000
_PAGE = 500
_TRIES = 50


class CalendarCheck:
    """Looks once an hour for schedules whose copies of calendars are old, and plans them anew."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checked: Instant | None = None

    def step(self, now: Instant) -> Instant:
        if self._checked is None or not 0 <= now - self._checked < CHECK_EVERY:
            tenants = {record.tenant for record in self._store.find_records(KIND)}
            for tenant in sorted(tenants):
                replan_users(self._store, tenant)
            self._checked = now
        return now + _AGAIN


def calendar_times(store: Store, tenant: str) -> dict[str, TimeSet]:
    """Return what the calendars of a tenant contain, by name."""
    return times_of(store.find_records(KIND, tenant))


def copies_for(store: Store, tenant: str, trigger: str) -> str:
    """Return copies of the calendars that a trigger names, empty if it names none; refuse unknown ones."""
    found = parse_trigger(trigger)
    if not isinstance(found, Calendared):
        return ""
    return resolved(store, tenant, found).copies_text


def resolved(store: Store, tenant: str, trigger: Calendared) -> Calendared:
    """Return a trigger with what its calendars contain now; refuse one that does not exist."""
    if trigger.copies is not None:
        return trigger
    times = calendar_times(store, tenant)
    for name in trigger.names:
        if name not in times and name not in BUILT_IN:
            near = get_close_matches(name, [*times, *BUILT_IN], n=1)
            hint = f"did you mean {near[0]}?" if near else f"create it: evenbeat calendars set {name} --day …"
            raise InvalidTrigger(
                str(trigger),
                f": there is no calendar {shown(name)}",
                field="skip" if name in trigger.skip else "only",
                value=name,
                hint=hint,
            )
    return trigger.with_calendars(times)


def replan_users(store: Store, tenant: str, name: str | None = None) -> int:
    """Plan anew each schedule whose copy of a calendar is old; only users of ``name`` if it is given.

    Return how many got a new copy. A schedule that can't be planned now is left to the next check.
    """
    times = calendar_times(store, tenant)
    query = ScheduleQuery(tenant=tenant, states=("active", "paused", "finished"), limit=_PAGE)
    number = 0
    for row in every_schedule(store, query):
        if not row.calendars or (name is not None and not uses(row, name)):
            continue
        if new_copies(row, times) is None:
            continue
        try:
            number += replan(store, row, lambda: calendar_times(store, tenant))
        except StoreUnavailable:
            raise
        except EvenbeatError:
            continue  # damaged, or of a newer version: a change by a user decides
    if number:
        store.hint()
    return number


def replan(store: Store, row: ScheduleRecord, read: Callable[[], dict[str, TimeSet]]) -> bool:
    """Give a schedule the present copies of its calendars; return whether it got new ones."""
    current: ScheduleRecord | None = row
    changed = False
    for _ in range(_TRIES):
        if current is None or current.state == "deleted":
            return changed
        copies = new_copies(current, read())
        if copies is None:
            return changed
        planned = changes.copy_calendars(current, copies, store.now(), active_runs(store, current))
        if planned is None:
            return changed
        (written,) = store.put_schedules([Write(planned, current.version)])
        changed = changed or (written.accepted and not planned.unfinished)
        current = written.current
    return changed


def active_runs(store: Store, row: ScheduleRecord) -> tuple[Active, ...]:
    """Return the active runs of a schedule, if its policies depend on them."""
    if not needs_active(row):
        return ()
    query = RunQuery(
        tenant=row.tenant, schedule=row.name, states=("queued", "running"), without=LARGE_FIELDS, limit=_PAGE
    )
    return tuple(Active(run.id, run.state, run.cancel_requested) for run in every_run(store, query))

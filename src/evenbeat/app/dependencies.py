"""Dependencies of schedules: checked and linked before a schedule is written, and shown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from typing import get_args

from evenbeat.app.session import AppSession
from evenbeat.core.dependencies import Dependencies, Predecessor, parse_after
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.errors import InvalidValue, ScheduleConflict, shown
from evenbeat.rules import changes
from evenbeat.rules.dependencies import (
    PENDING,
    cycle_through,
    facts_of,
    is_on_success,
    pending_keys,
    predecessors,
    unmet,
    waits_until,
)
from evenbeat.rules.firing import Planned
from evenbeat.rules.unfollowing import PENDING_A_CHANGE, stops_following, without_pending
from evenbeat.stores.base import ScheduleQuery, Store, Write
from evenbeat.stores.pages import every_schedule

_TRIES = 50
_PAGE = 500
_MOST_NAMES = 10_000
_STATES: tuple[ScheduleState, ...] = get_args(ScheduleState)


def link(session: AppSession, wanted: ScheduleRecord, previous: ScheduleRecord | None) -> None:
    """Add a schedule to the followers of its predecessors, before it is written.

    ``InvalidValue`` if one of them does not exist, or depends on the schedule. Does nothing for a schedule
    without dependencies, or with those that it had. If the process dies between these writes and that of the
    schedule, a follower is left that does not follow: settling a success reads its row, and changes nothing.
    """
    names = predecessors(wanted.trigger, wanted.after)
    if not names or wanted.state == "deleted":
        return
    if previous is not None and previous.state != "deleted" and not previous.damage:
        if set(names) <= set(predecessors(previous.trigger, previous.after)):
            return
    store = session.store()
    _refuse_cycle(store, wanted, names)
    for name in names:
        _add_follower(session, wanted, name)


def _refuse_cycle(store: Store, wanted: ScheduleRecord, names: Iterable[str]) -> None:
    """Refuse a dependency by which the schedule would depend on itself."""

    def leads_to(some: list[str]) -> dict[str, tuple[str, ...]]:
        keys = tuple((wanted.tenant, name) for name in some)
        found = every_schedule(store, ScheduleQuery(keys=keys, limit=_PAGE))
        return {row.name: predecessors(row.trigger, row.after) for row in found if not row.damage}

    cycle = cycle_through(wanted.name, tuple(names), leads_to)
    if cycle is not None:
        field = "trigger" if is_on_success(wanted) else "after"
        raise InvalidValue(
            f"{field} {shown(str(getattr(wanted, field)))} would make {wanted.name} wait for itself: "
            f"{' -> '.join(cycle)}",
            field=field,
            value=getattr(wanted, field),
            hint="remove one of these dependencies",
        )


def _add_follower(session: AppSession, wanted: ScheduleRecord, name: str) -> None:
    store = session.store()
    for _ in range(_TRIES):
        row = session.row(wanted.tenant, name)
        if row is None or row.state == "deleted":
            raise _unknown(store, wanted, name)
        planned = changes.add_follower(row, wanted.name, store.now())
        if planned is None or store.put_schedules([Write(planned, row.version)])[0].accepted:
            return
    raise ScheduleConflict(wanted.tenant, name)


def _unknown(store: Store, wanted: ScheduleRecord, name: str) -> InvalidValue:
    rows = islice(every_schedule(store, ScheduleQuery(tenant=wanted.tenant, limit=_PAGE)), _MOST_NAMES)
    near = get_close_matches(name, [row.name for row in rows if row.name != wanted.name], n=1, cutoff=0.6)
    field = "trigger" if is_on_success(wanted) else "after"
    return InvalidValue(
        f"{field} names the schedule {shown(name)}, which does not exist in tenant {wanted.tenant}",
        field=field,
        value=name,
        hint=f"did you mean {near[0]}?" if near else f"add {name} before {wanted.name}",
    )


def dependencies_of(store: Store, row: ScheduleRecord) -> Dependencies:
    """Return what a schedule waits for, and what waits for it, as they are now."""
    now = store.now()
    names = () if row.damage else predecessors(row.trigger, row.after)
    keys = [(row.tenant, name) for name in names]
    last = {known.schedule: known.last_success for known in store.statistics(keys)} if keys else {}
    states = _states(store, row.tenant, names)
    late = unmet(parse_after(row.after), last, now) if row.after and names else ()
    pending = 0
    if is_on_success(row):
        start, end = pending_keys(row.name)
        pending = len(store.find_records(PENDING, tenant=row.tenant, start=start, end=end, limit=1_000))
    until = None if row.damage else waits_until(row, now)
    return Dependencies(
        schedule=row.name,
        tenant=row.tenant,
        after=row.after or None,
        on_success_of=names[0] if is_on_success(row) and names else None,
        predecessors=tuple(
            Predecessor(
                name=name,
                state=states.get(name),
                last_success=_moment(last.get(name)),
                is_met=name not in late if row.after else None,
            )
            for name in names
        ),
        followers=_followers(store, row),
        waits_until=_moment(until),
        pending=pending,
    )


def without_successes(store: Store, row: ScheduleRecord | None, planned: Planned, now: Instant) -> Planned:
    """Return the plan of a change with the successes in the ledger that it keeps from firing. Reads nothing
    unless the schedule followed another one, and does so no more."""
    if row is None or not stops_following(row, planned.schedule):
        return planned
    start, end = pending_keys(row.name)
    # The rest of a damaged row is not to be written again as it is, so that there are no parts.
    limit = None if row.damage else PENDING_A_CHANGE + 1
    found = store.find_records(PENDING, tenant=row.tenant, start=start, end=end, limit=limit)
    facts = facts_of({}, found, len(found) if row.damage else PENDING_A_CHANGE)
    return without_pending(row, planned, facts, now)


def _states(store: Store, tenant: str, names: Iterable[str]) -> dict[str, ScheduleState]:
    keys = tuple((tenant, name) for name in names)
    found = every_schedule(store, ScheduleQuery(keys=keys, states=_STATES, limit=_PAGE)) if keys else ()
    return {row.name: row.state for row in found}


def _followers(store: Store, row: ScheduleRecord) -> tuple[str, ...]:
    """Return the schedules that follow this one now: the row may name some that do no more."""
    keys = tuple((row.tenant, name) for name in row.followers.split())
    found = every_schedule(store, ScheduleQuery(keys=keys, limit=_PAGE)) if keys else ()
    return tuple(
        each.name for each in found if not each.damage and row.name in predecessors(each.trigger, each.after)
    )


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else from_ms(instant)

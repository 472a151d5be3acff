"""Dependencies of schedules: checked and linked before a schedule is written, and shown."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, get_args

from evenbeat.app.schedule_search import similar_schedules
from evenbeat.app.session import AppSession
from evenbeat.core.dependencies import Dependencies, Predecessor, parse_after
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.core.results import ChangeWarning
from evenbeat.errors import EvenbeatError, InvalidValue, ScheduleConflict, StoreUnavailable, shown
from evenbeat.observe.phrases import some
from evenbeat.rules import changes
from evenbeat.rules.dependencies import (
    LAST_WRITE,
    PENDING,
    cycle_through,
    facts_of,
    is_on_success,
    last_write,
    pending_keys,
    predecessor_run,
    predecessors,
    unmet,
    waits_until,
)
from evenbeat.rules.firing import Planned
from evenbeat.rules.unfollowing import PENDING_A_CHANGE, asleep, stops_following, without_pending
from evenbeat.stores.base import LARGE_FIELDS, RecordWrite, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.pages import every_schedule

Key: TypeAlias = tuple[str, str]
"""(tenant, name) of a schedule."""

NO_ROWS: Mapping[Key, ScheduleRecord] = MappingProxyType({})
_TRIES = 50
_PAGE = 500
_MOST_SHOWN = 10
_STATES: tuple[ScheduleState, ...] = get_args(ScheduleState)


class Linked(NamedTuple):
    """What ``link_together`` has done about schedules that begin to wait for others, by their keys."""

    records: dict[Key, RecordWrite]
    """The record that the write of each of them must change in the same step."""
    refused: dict[Key, EvenbeatError]
    """Why others can't be written."""


def link(session: AppSession, wanted: ScheduleRecord, previous: ScheduleRecord | None) -> RecordWrite | None:
    """Add a schedule to the followers of its predecessors, before it is written. Return the record that its
    write must change in the same step; None if it waits for no schedule for which it did not wait before.

    ``InvalidValue`` if one of them does not exist, or depends on the schedule.
    """
    linked = link_together(session, [(wanted, previous)])
    for error in linked.refused.values():
        raise error
    return linked.records.get(wanted.key)


def link_together(
    session: AppSession, writes: Sequence[tuple[ScheduleRecord, ScheduleRecord | None]]
) -> Linked:
    """Add schedules to the followers of their predecessors, before they are written in this order.

    Each write of a dependency changes one record of its tenant: so no other one is written between the check
    and the write. Without that, three schedules that begin to wait for each other at the same moment would
    pass three checks. Does nothing for schedules without dependencies, or with those that they had. If the
    process dies between these writes and those of the schedules, followers are left that do not follow:
    settling a success reads their rows, and changes nothing.
    """
    linked = Linked({}, {})
    dependent = [(wanted, names) for wanted, row in writes if (names := new_predecessors(wanted, row))]
    if not dependent:
        return linked
    store = session.store()
    # Read before the check: a dependency that is written later changes the record.
    versions: dict[str, int | None] = {}
    for tenant in {wanted.tenant for wanted, _ in dependent}:
        last = store.get_record(LAST_WRITE, tenant, LAST_WRITE)
        versions[tenant] = None if last is None else last.version
    linked.refused.update(refused_dependencies(store, writes))
    for wanted, names in dependent:
        if wanted.key in linked.refused:
            continue
        try:
            for name in names:
                _add_follower(session, wanted, name)
        except StoreUnavailable:
            raise
        except EvenbeatError as error:
            linked.refused[wanted.key] = error
            continue
        # Random: the record is deleted with its tenant, and no version may be used twice.
        record = last_write(wanted, secrets.randbits(48))
        linked.records[wanted.key] = RecordWrite(record, versions[wanted.tenant])
        versions[wanted.tenant] = record.version
    return linked


def check_link(store: Store, wanted: ScheduleRecord, previous: ScheduleRecord | None) -> None:
    """Refuse a schedule that would wait for itself, or for one that does not exist."""
    refused = refused_dependencies(store, [(wanted, previous)])
    if refused:
        raise refused[wanted.key]


def new_predecessors(wanted: ScheduleRecord, previous: ScheduleRecord | None) -> tuple[str, ...]:
    """Return what a schedule waits for after a change; nothing if it has waited for all of them before."""
    names = predecessors(wanted.trigger, wanted.after)
    if not names or wanted.state == "deleted":
        return ()
    if previous is not None and previous.state != "deleted" and not previous.damage:
        if set(names) <= set(predecessors(previous.trigger, previous.after)):
            return ()
    return names


def refused_dependencies(
    store: Store,
    writes: Iterable[tuple[ScheduleRecord, ScheduleRecord | None]],
    removed: Collection[Key] = (),
) -> dict[Key, InvalidValue]:
    """Return why schedules can't be written, by their keys: one would wait for itself, or for a schedule that
    does not exist.

    ``writes`` are the schedules that are written together, each with its present row; ``removed`` are those
    that are deleted with them. Reads nothing if none of them waits for a schedule for which it did not wait
    before.
    """
    written = {wanted.key: (wanted, previous) for wanted, previous in writes}
    checked = {key: names for key, pair in written.items() if (names := new_predecessors(*pair))}
    outcome = _Outcome(store, {key: wanted for key, (wanted, _) in written.items()}, removed)
    refused: dict[Key, InvalidValue] = {}
    while True:
        # A schedule that is refused does not exist for those that wait for it, unless it is stored.
        more = {
            key: error
            for key, names in checked.items()
            if key not in refused and (error := outcome.problem(key, names)) is not None
        }
        if not more:
            return refused
        refused |= more
        outcome.refuse(more)


class _Outcome:
    """The dependencies of schedules, as they will be after several writes."""

    def __init__(self, store: Store, written: dict[Key, ScheduleRecord], removed: Collection[Key]) -> None:
        self._store = store
        self._written = written
        self._refused: dict[Key, ScheduleRecord] = {}
        self._stored: dict[Key, tuple[str, ...] | None] = dict.fromkeys(removed)

    def refuse(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._refused[key] = self._written.pop(key)

    def problem(self, key: Key, names: tuple[str, ...]) -> InvalidValue | None:
        """Return why a schedule can't be written that waits for ``names``; None if it can."""
        tenant, name = key
        wanted = self._written[key]

        def leads_to(some: list[str]) -> dict[str, tuple[str, ...]]:
            return {each: following or () for each, following in self._known(tenant, some).items()}

        cycle = cycle_through(name, names, leads_to)
        if cycle is not None:
            return _waits_for_itself(wanted, cycle)
        known = self._known(tenant, names)
        missing = next((each for each in names if known[each] is None), None)
        if missing is None:
            return None
        return _unknown(self._store, wanted, missing, is_refused=(tenant, missing) in self._refused)

    def _known(self, tenant: str, names: Sequence[str]) -> dict[str, tuple[str, ...] | None]:
        """Return what schedules wait for; None for those that do not exist."""
        keys = [(tenant, name) for name in names]
        unread = tuple(key for key in keys if key not in self._written and key not in self._stored)
        self._stored.update(dict.fromkeys(unread))
        for row in every_schedule(self._store, ScheduleQuery(keys=unread, limit=_PAGE)) if unread else ():
            self._stored[row.key] = () if row.damage else predecessors(row.trigger, row.after)
        written = {key: self._written[key] for key in keys if key in self._written}
        present = {key: predecessors(row.trigger, row.after) for key, row in written.items()}
        return {key[1]: present[key] if key in present else self._stored[key] for key in keys}


def _waits_for_itself(wanted: ScheduleRecord, cycle: Iterable[str]) -> InvalidValue:
    field = "trigger" if is_on_success(wanted) else "after"
    return InvalidValue(
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
        now = store.now()
        planned = changes.add_follower(row, wanted.name, now)
        if planned is None:
            return
        planned = by_waiting_successes(store, row, planned, now)
        if store.put_schedules([Write(planned, row.version)])[0].accepted:
            return
    raise ScheduleConflict(wanted.tenant, name)


def _unknown(store: Store, wanted: ScheduleRecord, name: str, *, is_refused: bool = False) -> InvalidValue:
    near = [each for each in similar_schedules(store, wanted.tenant, name) if each != wanted.name]
    first = f"add {name} before {wanted.name} (with durable=True, if it is in the code only)"
    hint = f"did you mean {near[0]}?" if near else first
    field = "trigger" if is_on_success(wanted) else "after"
    return InvalidValue(
        f"{field} names the schedule {shown(name)}, which does not exist in tenant {wanted.tenant}",
        field=field,
        value=name,
        hint=f"{name} is refused, too" if is_refused else hint,
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
        followers=followers_of(store, [row]).get(row.key, ()),
        waits_until=_moment(until),
        pending=pending,
    )


def run_before(store: Store, run: RunRecord) -> RunRecord | None:
    """Return the run whose success started a run; None if none did, or it was purged."""
    before = predecessor_run(run)
    if before is None:
        return None
    query = RunQuery(ids=(before,), tenant=run.tenant, without=LARGE_FIELDS, limit=1)
    return next(iter(store.find_runs(query).items), None)


def by_waiting_successes(store: Store, row: ScheduleRecord | None, planned: Planned, now: Instant) -> Planned:
    """Return the plan of a change, decided by the successes that have not fired yet. Those that the change
    keeps from firing are recorded as skipped; without any, the schedule goes on sleeping.

    Reads nothing unless the schedule fires on success, or did.
    """
    stops = stops_following(row, planned.schedule)
    if row is None or not (stops or is_on_success(planned.schedule)):
        return planned
    start, end = pending_keys(row.name)
    # The rest of a damaged row is not to be written again as it is, so that there are no parts.
    limit = 1 if not stops else None if row.damage else PENDING_A_CHANGE + 1
    found = store.find_records(PENDING, tenant=row.tenant, start=start, end=end, limit=limit)
    if found and not stops:
        return planned
    if found:
        facts = facts_of({}, found, len(found) if row.damage else PENDING_A_CHANGE)
        planned = without_pending(row, planned, facts, now)
    return planned if planned.unfinished else planned._replace(schedule=asleep(planned.schedule))


def _states(store: Store, tenant: str, names: Iterable[str]) -> dict[str, ScheduleState]:
    keys = tuple((tenant, name) for name in names)
    found = every_schedule(store, ScheduleQuery(keys=keys, states=_STATES, limit=_PAGE)) if keys else ()
    return {row.name: row.state for row in found}


def followers_of(
    store: Store, rows: Iterable[ScheduleRecord], written: Mapping[Key, ScheduleRecord] = NO_ROWS
) -> dict[Key, tuple[str, ...]]:
    """Return the names of the schedules that wait for each of these, where there are any: a row may name some
    that do no more. ``written`` are rows as they will be."""
    named = {row.key: row.followers.split() for row in rows}
    keys = tuple({(tenant, name): None for (tenant, _), names in named.items() for name in names})
    present: dict[Key, ScheduleRecord] = {}
    for start in range(0, len(keys), _PAGE):
        query = ScheduleQuery(keys=keys[start : start + _PAGE], limit=_PAGE)
        present |= {row.key: row for row in store.find_schedules(query).items}
    present |= {key: written[key] for key in keys if key in written}

    def waits(key: Key, name: str) -> bool:
        row = present.get(key)
        return row is not None and not row.damage and name in predecessors(row.trigger, row.after)

    found = {
        key: tuple(sorted(each for each in names if waits((key[0], each), key[1])))
        for key, names in named.items()
    }
    return {key: names for key, names in found.items() if names}


def delete_warnings(
    store: Store, deleted: Sequence[ScheduleRecord], written: Mapping[Key, ScheduleRecord] = NO_ROWS
) -> tuple[ChangeWarning, ...]:
    """Return which schedules wait for those that are deleted, and stay. Reads nothing if none has followers.

    ``written`` are the rows of schedules that are changed together with them, as they will be.
    """
    gone = {row.key for row in deleted}
    found = followers_of(store, (row for row in deleted if row.followers), written)
    warnings = []
    for (tenant, name), names in sorted(found.items()):
        left = [each for each in names if (tenant, each) not in gone]
        if left:
            wait = "waits" if len(left) == 1 else "wait"
            problem = f"{some(left, _MOST_SHOWN)} {wait} for {name}, which does not succeed any more"
            hint = f"change what {'it waits' if len(left) == 1 else 'they wait'} for, or add {name} again"
            warnings.append(ChangeWarning(problem=problem, hint=hint))
    return tuple(warnings)


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else from_ms(instant)

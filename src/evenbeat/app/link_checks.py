"""Checks of the schedules that a schedule waits for, where nothing is written: dry runs and templates."""

from __future__ import annotations

from evenbeat.app.session import AppSession
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.dependencies import cycle_through, is_on_success, predecessors
from evenbeat.stores.base import ScheduleQuery


def check_links(session: AppSession, wanted: ScheduleRecord, previous: ScheduleRecord | None = None) -> None:
    """Refuse a schedule that waits for one that does not exist, or for itself, as its write would.

    ``previous`` is the row as it is: what it waits for already is not checked again.
    """
    known = () if previous is None or previous.damage else predecessors(previous.trigger, previous.after)
    names = predecessors(wanted.trigger, wanted.after)
    if wanted.state == "deleted" or set(names) <= set(known):
        return
    missing = [name for name in names if name not in _waits_for(session, wanted.tenant, list(names))]
    field = "trigger" if is_on_success(wanted) else "after"
    if missing:
        raise InvalidValue(
            f"{field} names the schedule {shown(missing[0])}, which does not exist in tenant {wanted.tenant}",
            field=field,
            value=missing[0],
            hint=f"add {missing[0]} first",
        )
    cycle = cycle_through(wanted.name, names, lambda some: _waits_for(session, wanted.tenant, some))
    if cycle is not None:
        raise InvalidValue(
            f"{field} {shown(getattr(wanted, field))} would make {wanted.name} wait for itself: "
            f"{' -> '.join(cycle)}",
            field=field,
            value=getattr(wanted, field),
            hint="remove one of these dependencies",
        )


def _waits_for(session: AppSession, tenant: str, names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return which of these schedules exist, and the schedules for which each of them waits."""
    query = ScheduleQuery(keys=tuple((tenant, name) for name in names), limit=max(1, len(names)))
    rows = session.store().find_schedules(query).items if names else ()
    return {row.name: () if row.damage else predecessors(row.trigger, row.after) for row in rows}

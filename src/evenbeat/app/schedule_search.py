"""Searches for schedules: the filter that ``list`` and the bulk changes have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, get_args

from msgspec.structs import replace

from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_one_of, check_text
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.schedule_filters import (
    LATE_AFTER,
    ScheduleCriteria,
    entry_of,
    is_failing,
    is_late,
    matching,
)
from evenbeat.stores.base import ScheduleQuery
from evenbeat.tasks.options import refuse_unknown
from evenbeat.tasks.task import Task

_PAGE = 500


class ScheduleFilter(TypedDict, total=False):
    """Selects schedules."""

    text: str | None
    """In the name, the task, a tag or the description, in upper or lower case."""
    task: Task[..., Any] | str | None
    queue: str | None
    tag: str | None
    managed_by: str | None
    """``code`` for schedules of decorated tasks, else ``api``."""
    failing: bool | None
    """Whether the last run failed."""
    late: bool | None
    """Whether it should have fired more than 30 s ago."""
    tenant: str | None
    all_tenants: bool


FILTER = tuple(ScheduleFilter.__annotations__)
# The store does not compare these, so a page of few rows might have none that match.
_COMPARED_HERE = ("text", "queue", "tag", "managed_by", "failing", "late")


class ScheduleSearch:
    """A search for schedules, in the order of tenant and name."""

    def __init__(
        self, session: AppSession, chosen: ScheduleFilter, states: tuple[ScheduleState, ...] | None = None
    ) -> None:
        refuse_unknown(chosen, FILTER, "a filter of schedules")
        for name in ("text", "queue", "tag", "managed_by"):
            if chosen.get(name) is not None:
                check_text(name, chosen.get(name))
        for name in ("failing", "late"):
            _check_flag(name, chosen.get(name))
        task = chosen.get("task")
        self._store = session.store()
        self._now = self._store.now()
        self._criteria = ScheduleCriteria(
            tenant=None if chosen.get("all_tenants") else session.tenant_of(chosen.get("tenant")),
            task=task.name if isinstance(task, Task) else task,
            text=chosen.get("text"),
            queue=chosen.get("queue"),
            tag=chosen.get("tag"),
            managed_by=chosen.get("managed_by"),
            failing=chosen.get("failing"),
            late=chosen.get("late"),
        )
        self._query = ScheduleQuery(
            tenant=self._criteria.tenant,
            task=self._criteria.task,
            wakes_before=self._now - LATE_AFTER if self._criteria.late else None,
            limit=_PAGE,
        )
        if states is not None:
            self._query = replace(self._query, states=states)

    def matches(self, row: ScheduleRecord) -> bool:
        """Return whether the row still matches. The state of a damaged row is unknown."""
        return bool(self._matching([row])) and (bool(row.damage) or row.state in self._query.states)

    def pages(self, limit: int | None = None) -> Iterator[list[ScheduleRecord]]:
        """Yield the schedules that match, page by page. A caller that needs ``limit`` of them reads no more,
        unless the store can't compare what the filter asks for."""
        query = self._query
        if limit is not None and not any(
            getattr(self._criteria, name) is not None for name in _COMPARED_HERE
        ):
            query = replace(query, limit=min(limit, _PAGE))
        while True:
            page = self._store.find_schedules(query)
            yield self._matching(page.items)
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    def _matching(self, rows: Sequence[ScheduleRecord]) -> list[ScheduleRecord]:
        entries = {row.key: entry_of(row) for row in rows}
        if self._criteria.failing is not None:
            for figures in self._store.statistics(list(entries)):
                key = (figures.tenant, figures.schedule)
                entries[key] = replace(entries[key], failing=is_failing(figures))
        late = {row.key for row in rows if is_late(row, self._now)}
        found = {entry.key for entry in matching(list(entries.values()), self._criteria, late)}
        return [row for row in rows if row.key in found]


def _check_flag(name: str, value: object) -> None:
    if value is not None and not isinstance(value, bool):
        raise InvalidValue(
            f"{name} {shown(value)} is not True or False",
            field=name,
            value=value,
            hint="give True or False, or leave it out for both",
        )


def read_states(
    state: ScheduleState | None, known: tuple[ScheduleState, ...] = get_args(ScheduleState)
) -> tuple[ScheduleState, ...] | None:
    """Return the one state that is asked for; None if none is."""
    if state is None:
        return None
    check_one_of("state", state, known)
    return (state,)

"""Searches for schedules: the filter that ``list`` and the bulk changes have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict, get_args

from msgspec.structs import replace

from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_one_of, check_text
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.stores.base import ScheduleQuery
from evenbeat.tasks.options import refuse_unknown
from evenbeat.tasks.task import Task

_PAGE = 500


class ScheduleFilter(TypedDict, total=False):
    """Selects schedules."""

    text: str | None
    """In the name or the description, in upper or lower case."""
    task: Task[..., Any] | str | None
    queue: str | None
    tag: str | None
    managed_by: str | None
    """``code`` for schedules of decorated tasks, else ``api``."""
    tenant: str | None
    all_tenants: bool


FILTER = tuple(ScheduleFilter.__annotations__)


class ScheduleSearch:
    """A search for schedules, in the order of tenant and name."""

    def __init__(
        self, session: AppSession, chosen: ScheduleFilter, states: tuple[ScheduleState, ...] | None = None
    ) -> None:
        refuse_unknown(chosen, FILTER, "a filter of schedules")
        for name in ("text", "queue", "tag", "managed_by"):
            if chosen.get(name) is not None:
                check_text(name, chosen.get(name))
        task = chosen.get("task")
        self._session = session
        self._query = ScheduleQuery(
            tenant=None if chosen.get("all_tenants") else session.tenant_of(chosen.get("tenant")),
            task=task.name if isinstance(task, Task) else task,
            limit=_PAGE,
        )
        if states is not None:
            self._query = replace(self._query, states=states)
        self._text = (chosen.get("text") or "").lower()
        self._queue = chosen.get("queue")
        self._tag = chosen.get("tag")
        self._managed_by = chosen.get("managed_by")

    def matches(self, row: ScheduleRecord) -> bool:
        """Return whether the row still matches. The state of a damaged row can't be told."""
        return self._fits(row) and (bool(row.damage) or row.state in self._query.states)

    def pages(self, limit: int | None = None) -> Iterator[list[ScheduleRecord]]:
        """Yield the schedules that match, page by page. A caller that needs ``limit`` of them reads no more,
        unless the store can't compare what the filter asks for."""
        query = self._query
        if limit is not None and not (self._text or self._queue or self._tag or self._managed_by):
            query = replace(query, limit=min(limit, _PAGE))
        while True:
            page = self._session.store().find_schedules(query)
            yield [row for row in page.items if self._fits(row)]
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    def _fits(self, row: ScheduleRecord) -> bool:
        return (
            (self._query.task is None or row.task == self._query.task)
            and (self._queue is None or row.queue == self._queue)
            and (self._tag is None or self._tag in row.tags.split())
            and (self._managed_by is None or row.managed_by == self._managed_by)
            and (self._text in row.name.lower() or self._text in row.description.lower())
        )


def read_states(
    state: ScheduleState | None, known: tuple[ScheduleState, ...] = get_args(ScheduleState)
) -> tuple[ScheduleState, ...] | None:
    """Return the one state that is asked for; None if none is."""
    if state is None:
        return None
    check_one_of("state", state, known)
    return (state,)

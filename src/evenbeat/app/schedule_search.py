"""Searches for schedules: the filter that ``list`` and the bulk changes have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypedDict, get_args

from msgspec.structs import replace

from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_name, check_one_of, check_text
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.schedule_filters import (
    LATE_AFTER,
    NAME_GLOB,
    ScheduleCriteria,
    entry_of,
    fixed_prefix,
    is_failing,
    is_late,
    matching,
)
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.stores.pages import every_schedule, write_position
from evenbeat.tasks.options import refuse_unknown
from evenbeat.tasks.task import Task

MOST_NAMES = 1000
"""How many schedules a filter may name."""
_PAGE = 500
# How many names are compared with one that does not exist.
_COMPARED = 2_000


class ScheduleFilter(TypedDict, total=False):
    """Selects schedules."""

    name: str | None
    """A pattern of names: ``report-*``. ``*`` stands for any characters, ``?`` for one, ``[ab]`` for one of
    these; upper and lower case differ."""
    text: str | None
    """In the name, the task, a tag or the description, in upper or lower case."""
    task: Task[..., Any] | str | None
    queue: str | None
    tag: str | None
    template: str | None
    """The template from which it inherits."""
    managed_by: str | None
    """``code`` for schedules of decorated tasks, else ``api``."""
    failing: bool | None
    """Whether the last run failed."""
    late: bool | None
    """Whether it should have fired more than 30 s ago."""
    tenant: str | None
    all_tenants: bool


class BulkFilter(ScheduleFilter, total=False):
    """Selects schedules for a bulk change."""

    names: Sequence[str] | None
    """Only these schedules of the tenant, at most 1,000."""


FILTER = tuple(BulkFilter.__annotations__)
# The store does not compare these, so a page of few rows might have none that match.
_COMPARED_HERE = ("name", "text", "queue", "tag", "managed_by", "template", "failing", "late")


class ScheduleSearch:
    """A search for schedules, in the order of tenant and name."""

    def __init__(
        self, session: AppSession, chosen: BulkFilter, states: tuple[ScheduleState, ...] | None = None
    ) -> None:
        refuse_unknown(chosen, FILTER, "a filter of schedules")
        for name in ("text", "queue", "tag", "managed_by", "template"):
            if chosen.get(name) is not None:
                check_text(name, chosen.get(name))
        for name in ("failing", "late"):
            _check_flag(name, chosen.get(name))
        pattern = _read_pattern(chosen.get("name"))
        names = _read_names(chosen)
        task = chosen.get("task")
        self._store = session.store()
        self._now = self._store.now()
        self._criteria = ScheduleCriteria(
            tenant=None if chosen.get("all_tenants") else session.tenant_of(chosen.get("tenant")),
            task=task.name if isinstance(task, Task) else task,
            name=pattern,
            text=chosen.get("text"),
            template=chosen.get("template"),
            queue=chosen.get("queue"),
            tag=chosen.get("tag"),
            managed_by=chosen.get("managed_by"),
            failing=chosen.get("failing"),
            late=chosen.get("late"),
        )
        self._query = ScheduleQuery(
            tenant=self._criteria.tenant,
            keys=None if names is None else _keys(session.tenant_of(chosen.get("tenant")), names),
            task=self._criteria.task,
            wakes_before=self._now - LATE_AFTER if self._criteria.late else None,
            limit=_PAGE,
        )
        if states is not None:
            self._query = replace(self._query, states=states)
        # All names that match begin with this: other rows of the tenant need not be read.
        self._prefix = "" if pattern is None or self._criteria.tenant is None else fixed_prefix(pattern)
        if self._prefix and pattern == self._prefix:
            self._query = replace(self._query, name=pattern)
        elif self._prefix and self._query.keys is None:
            # A position right before the prefix: no name has a ~, which sorts behind all that names have.
            before = (self._criteria.tenant, self._prefix[:-1] + chr(ord(self._prefix[-1]) - 1) + "~")
            self._query = replace(self._query, cursor=write_position(before))

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
            if page.cursor is None or self._is_past(page.items[-1].name):
                return
            query = replace(query, cursor=page.cursor)

    def _is_past(self, name: str) -> bool:
        return bool(self._prefix) and name > self._prefix and not name.startswith(self._prefix)

    def _matching(self, rows: Sequence[ScheduleRecord]) -> list[ScheduleRecord]:
        entries = {row.key: entry_of(row) for row in rows}
        if self._criteria.failing is not None:
            for figures in self._store.statistics(list(entries)):
                key = (figures.tenant, figures.schedule)
                entries[key] = replace(entries[key], failing=is_failing(figures))
        late = {row.key for row in rows if is_late(row, self._now)}
        found = {entry.key for entry in matching(list(entries.values()), self._criteria, late)}
        return [row for row in rows if row.key in found]


def _read_names(chosen: BulkFilter) -> tuple[str, ...] | None:
    """Return the names that a filter asks for; None if it asks for none."""
    names = chosen.get("names")
    if names is None:
        return None
    hint = "give a list of names of schedules"
    if isinstance(names, str):
        raise InvalidValue(f"names {shown(names)} is a text", field="names", value=names, hint=hint)
    if chosen.get("all_tenants"):
        # Somebody who chose schedules of one tenant must not change those of the same names elsewhere.
        raise InvalidValue(
            "names are names of one tenant's schedules",
            field="names",
            value=names,
            hint="name the tenant instead of all_tenants, and send a request for each tenant",
        )
    for name in names:
        check_name(name, "names")
    if len(names) > MOST_NAMES:
        raise InvalidValue(
            f"names has {len(names):,} names, and at most {MOST_NAMES:,} are allowed",
            field="names",
            value=names,
            hint="change them in several calls, or choose them by a tag or a text",
        )
    return tuple(names)


_LONGEST_PATTERN = 200


def _read_pattern(pattern: object) -> str | None:
    if pattern is None:
        return None
    is_short = isinstance(pattern, str) and len(pattern) <= _LONGEST_PATTERN
    if not (isinstance(pattern, str) and is_short and re.fullmatch(NAME_GLOB, pattern)):
        raise InvalidValue(
            f"name {shown(pattern)} is not a pattern of names",
            field="name",
            value=pattern,
            hint='write it like "report-*": letters, digits, _ - . : and * ? [ ]',
        )
    return pattern


def _keys(tenant: str, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((tenant, name) for name in names)


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


def similar_schedules(store: Store, tenant: str, name: str) -> list[str]:
    """Return names of the tenant's schedules that are like this one, the nearest first, at most 3."""
    rows = islice(every_schedule(store, ScheduleQuery(tenant=tenant, limit=_PAGE)), _COMPARED)
    return get_close_matches(name, [row.name for row in rows], n=3, cutoff=0.6)

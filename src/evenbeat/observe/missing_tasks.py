"""Schedules whose task no live node has: it was removed, renamed, or is not deployed yet."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.waiting import Taker


class MissingTask(NamedTuple):
    """A task that schedules name and no live node has."""

    task: str
    schedules: tuple[ScheduleRecord, ...]
    near: str | None
    """The task of a live node whose name is the nearest."""


def missing_tasks(rows: Iterable[ScheduleRecord], workers: list[Taker]) -> list[MissingTask]:
    """Return the tasks of active and paused schedules that none of the live workers has, by name.

    Nothing if there is no worker, or one that executes any task: then all runs wait, or none does.
    """
    if not workers or any(worker.tasks is None for worker in workers):
        return []
    known = frozenset[str]().union(*(worker.tasks or () for worker in workers))
    found: dict[str, list[ScheduleRecord]] = {}
    for row in rows:
        if row.state in ("active", "paused") and not row.damage and row.task not in known:
            found.setdefault(row.task, []).append(row)
    return [
        MissingTask(
            task, tuple(some), next(iter(get_close_matches(task, sorted(known), n=1, cutoff=0.6)), None)
        )
        for task, some in sorted(found.items())
    ]

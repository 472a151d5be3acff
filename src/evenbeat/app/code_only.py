"""Schedules that are in the code only: their records for nodes, and what becomes of a row from before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from evenbeat.app.dependencies import delete_warnings
from evenbeat.app.rows import ScheduleRows
from evenbeat.core.checks import check_schedule
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.settings import ScheduleMode
from evenbeat.rules import changes
from evenbeat.rules.code_only import (
    check_code_grace,
    check_code_only,
    check_code_trigger,
    coming_tick,
    may_delete_row,
)
from evenbeat.rules.inheritance import template_of
from evenbeat.stores.base import RunQuery, Store
from evenbeat.tasks.task import Task
from evenbeat.triggers import Every, parse_trigger

_log = logging.getLogger("evenbeat.app.code_only")
# So many of the newest runs are looked at: some may have been started by hand.
_RECENT = 20


def is_code_only(task: Task[..., Any], mode: ScheduleMode) -> bool:
    """Return whether the schedule of a task has no row; ``mode`` is that of the node."""
    if not task.is_scheduled:
        return False
    return mode == "code" if task.durable is None else not task.durable


def checked_code_schedule(wanted: ScheduleRecord, task: Task[..., Any]) -> ScheduleRecord:
    """Return the schedule of a task, which nodes plan in memory, if that is possible."""
    options: Mapping[str, Any] = task.policies
    if wanted.template:
        options = {**options, "template": template_of(wanted.template)}
    check_code_only(task.name, options)
    check_schedule(wanted)
    check_code_trigger(task.name, parse_trigger(wanted.trigger))
    check_code_grace(task.name, wanted)
    return wanted


def coming_in_memory(
    store: Store, wanted: ScheduleRecord, previous: ScheduleRecord | None, now: Instant
) -> Instant | None:
    """Return the coming tick of an interval that nodes have planned in memory until now, so that its row
    keeps the phase; None if they have not. Reads nothing for other schedules."""
    trigger = parse_trigger(wanted.trigger)
    if not isinstance(trigger, Every) or trigger.start is not None:
        return None
    found = store.find_runs(RunQuery(tenant=wanted.tenant, schedule=wanted.name, limit=_RECENT)).items
    return coming_tick(trigger, found, 1 if previous is None else previous.generation + 1, now)


def delete_row(rows: ScheduleRows, wanted: ScheduleRecord) -> bool:
    """Delete the row that an earlier version of the code declared; return whether there is none any more.

    A row that was made, paused or edited by hand, or that another app or a file declares, stays, and nodes
    fire it as it says.
    """
    row = rows.session.row(*wanted.key)
    if row is None or row.state == "deleted":
        return True
    if not may_delete_row(row, wanted.managed_by):
        _log.warning(
            "a schedule is in the code only, and the store has a row of it that was made, paused or edited "
            "by hand, or is declared elsewhere; the row is fired, until you delete it: "
            f"evenbeat schedules delete {wanted.name}",
            extra={"schedule_id": wanted.name, "tenant": wanted.tenant, "state": row.state},
        )
        return False
    for attempt in rows.tries(wanted.tenant, wanted.name, "delete"):
        if attempt.row is None or attempt.row.state == "deleted":
            return True  # another node was faster
        if not may_delete_row(attempt.row, wanted.managed_by):
            return False
        if attempt.write(changes.delete(attempt.row, attempt.now)):
            break
    for warning in delete_warnings(rows.session.store(), [row]):
        _log.warning(
            "the row of a schedule for which others wait is deleted, since the schedule is in the code only: "
            f"{warning.problem}; durable=True gives it a row",
            extra={"schedule_id": wanted.name, "tenant": wanted.tenant},
        )
    _log.info(
        "the row of a schedule is deleted, since the schedule is in the code only",
        extra={"schedule_id": wanted.name, "tenant": wanted.tenant},
    )
    return True

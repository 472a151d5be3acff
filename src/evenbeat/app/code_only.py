"""Schedules that are in the code only: their records for nodes, and what becomes of a row from before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from evenbeat.app.definitions import new_schedule
from evenbeat.app.rows import ScheduleRows
from evenbeat.core.checks import check_schedule
from evenbeat.core.durations import write_duration
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import InvalidValue
from evenbeat.node.settings import NodeSettings
from evenbeat.rules import changes
from evenbeat.rules.code_only import check_code_only, grace_of, may_delete_row
from evenbeat.tasks.task import Task
from evenbeat.triggers import parse_trigger

_log = logging.getLogger("evenbeat.app.code_only")


def is_code_only(task: Task[..., Any], settings: NodeSettings) -> bool:
    """Return whether the schedule of a task has no row."""
    if task.trigger is None:
        return False
    return settings.schedule_mode == "code" if task.durable is None else not task.durable


def code_schedule(rows: ScheduleRows, task: Task[..., Any], settings: NodeSettings) -> ScheduleRecord:
    """Return the schedule of a task as nodes plan it in memory, checked."""
    assert task.trigger is not None
    options: Mapping[str, Any] = task.policies
    check_code_only(task.name, options)
    wanted = new_schedule(rows.session, task.name, task.trigger, task, None, None, task.policies)
    wanted = replace(check_schedule(wanted), trigger=str(parse_trigger(wanted.trigger)), managed_by="code")
    grace = grace_of(wanted)
    if settings.retention < 2 * grace:
        raise InvalidValue(
            f"retention {write_duration(settings.retention)} is less than twice the grace of schedule "
            f"{task.name}, {write_duration(grace)}: a late node could run a tick again",
            field="retention",
            value=write_duration(settings.retention),
            hint="keep runs for longer, or give a shorter grace",
        )
    return wanted


def delete_row(rows: ScheduleRows, wanted: ScheduleRecord) -> bool:
    """Delete the row that an earlier version of the code declared; return whether there is none any more.

    A row that was paused or edited by hand, or made by hand, stays, and nodes fire it as it says.
    """
    row = rows.session.row(*wanted.key)
    if row is None or row.state == "deleted":
        return True
    if not may_delete_row(row):
        _log.warning(
            "a schedule is in the code only, and the store has a row of it that was made, paused or edited "
            f"by hand; the row is fired, until you delete it: evenbeat schedules delete {wanted.name}",
            extra={"schedule_id": wanted.name, "tenant": wanted.tenant, "state": row.state},
        )
        return False
    for attempt in rows.tries(wanted.tenant, wanted.name, "delete"):
        if attempt.row is None or attempt.row.state == "deleted":
            return True  # another node was faster
        if not may_delete_row(attempt.row):
            return False
        if attempt.write(changes.delete(attempt.row, attempt.now)):
            break
    _log.info(
        "the row of a schedule is deleted, since the schedule is in the code only",
        extra={"schedule_id": wanted.name, "tenant": wanted.tenant},
    )
    return True

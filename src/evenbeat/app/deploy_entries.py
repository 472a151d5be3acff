"""Entries of a plan, for people: what differs, the ticks before and after, and the command that helps."""

from __future__ import annotations

from datetime import datetime

from evenbeat.app.declared_schedules import Wanted
from evenbeat.core.deploys import FieldChange, PlanEntry
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.errors import InvalidTrigger
from evenbeat.observe.phrases import command_line
from evenbeat.observe.trigger_explanations import coming_ticks
from evenbeat.rules import deploying
from evenbeat.rules.deploying import Decision
from evenbeat.rules.ownership import kind_of, source_of
from evenbeat.rules.ticks import trigger_of, upcoming_tick

_TICKS = 5


def entry_of(
    wanted: Wanted | None, row: ScheduleRecord | None, decision: Decision, token: str, now: Instant
) -> PlanEntry:
    """Return what a plan says about a schedule."""
    subject = row if wanted is None else wanted.record
    assert subject is not None
    then = None if wanted is None else deploying.after(decision, wanted.record, now)
    return PlanEntry(
        tenant=subject.tenant,
        name=subject.name,
        action=decision.action,
        managed_by=kind_of(subject.managed_by),
        source=source_of(subject.managed_by),
        changes=_changes(wanted, row, decision, then),
        ticks_before=_ticks(row, now),
        ticks_after=_ticks(then, now) if then is not None else _ticks_left(row, decision, now),
        why=decision.why,
        command=_command(subject, decision, is_declared=wanted is not None),
        token=token,
    )


def _changes(
    wanted: Wanted | None, row: ScheduleRecord | None, decision: Decision, then: ScheduleRecord | None
) -> tuple[FieldChange, ...]:
    action = decision.action
    if action == "drift":
        return deploying.edit_changes(decision.edited)
    if action in ("refused", "conflict") and wanted is not None:
        return deploying.differences(row, wanted.record)
    if action in ("unchanged", "orphan", "conflict"):
        return ()
    return deploying.differences(row, then)


def _ticks(row: ScheduleRecord | None, now: Instant) -> tuple[datetime, ...]:
    """Return the next ticks; none if the schedule is deleted or this machine can't read its trigger."""
    if row is None or row.damage or row.state in ("deleted", "finished"):
        return ()
    try:
        trigger, first = trigger_of(row), upcoming_tick(row)
        if first is not None and first <= now:
            first = trigger.next_ms(now)  # an overdue tick fires at any moment
        return tuple(from_ms(tick, trigger.tzinfo) for tick in coming_ticks(trigger, first, _TICKS))
    except (InvalidTrigger, OSError):
        return ()


def _ticks_left(row: ScheduleRecord | None, decision: Decision, now: Instant) -> tuple[datetime, ...]:
    """Return the ticks of a schedule that is not written: none if it is removed, else those it has."""
    return () if decision.action == "remove" else _ticks(row, now)


def _command(subject: ScheduleRecord, decision: Decision, *, is_declared: bool) -> str:
    if decision.action == "drift":
        return command_line(f"schedules reset {subject.name}", subject.tenant)
    if decision.action == "conflict" and not is_declared and subject.format <= FORMAT:
        # A row of a schedule that is in the code only.
        return command_line(f"schedules delete {subject.name}", subject.tenant)
    if decision.action == "conflict":
        return "evenbeat apply --adopt"
    if decision.action == "orphan" and not source_of(subject.managed_by):
        # Without a label, apply refuses to prune.
        return command_line(f"schedules delete {subject.name}", subject.tenant)
    if decision.action == "orphan":
        return "evenbeat apply --prune"
    return ""

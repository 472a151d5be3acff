"""Changes of runs by hand: transitions that carry their entries in the audit."""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from evenbeat.app.audit import audited
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition
from evenbeat.rules import attempts, auditing


def cancelled_by_hand(run: RunRecord, now: Instant) -> Transition | None:
    """Cancel a queued run, or ask a running one to stop; None if it has ended or was asked already."""
    transition = attempts.cancel(run, now, uuid4().hex)
    if transition is None or is_stopping(run):
        return None
    if run.state == "queued":
        change = auditing.run_change("cancel", run, {"state": "queued"}, {"state": "cancelled"})
    else:
        change = auditing.run_change("cancel", run, {"cancel_requested": False}, {"cancel_requested": True})
    return replace(transition, records=(*transition.records, *audited(change, now)))


def retried_by_hand(run: RunRecord, schedule: ScheduleRecord | None, now: Instant) -> Transition | None:
    """Queue a failed or cancelled run again; None if its schedule has to add a new run instead."""
    transition = attempts.retried(run, uuid4().hex, schedule)
    if transition is None:
        return None
    change = auditing.run_change("retry", run, {"state": run.state}, {"state": "queued"})
    return replace(transition, records=(*transition.records, *audited(change, now)))


def is_stopping(run: RunRecord) -> bool:
    """Return whether a running run was asked to stop."""
    return run.state == "running" and run.cancel_requested

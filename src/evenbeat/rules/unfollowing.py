"""What becomes of successes that have not fired when a user ends what they wait for. Pure.

A schedule that fires on each success of another one may get another trigger, or be deleted, while records of
successes wait. The write that does so records them as skipped, and deletes them. A settlement that adds such
a record counts the ``fire_seq`` of the schedule up: a write that has not seen the record is refused, and no
record is left behind.
"""

from __future__ import annotations

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Reason, ScheduleRecord
from evenbeat.rules.dependencies import PENDING, Facts, Pending, is_on_success
from evenbeat.rules.firing import Planned, skipped_successes

PENDING_A_CHANGE = 1_000
"""How many of them one write records; the plan is ``unfinished`` if there are more."""


def stops_following(before: ScheduleRecord | None, after: ScheduleRecord) -> bool:
    """Return whether a write may leave successes behind that no plan would find.

    The trigger of a damaged row may be one that can't be read.
    """
    if before is None or not (before.damage or is_on_success(before)):
        return False
    return before.trigger != after.trigger or "deleted" in (before.state, after.state)


def asleep(schedule: ScheduleRecord) -> ScheduleRecord:
    """Return a schedule for which no success waits. A change wakes each schedule that fires on success, since
    it does not know whether any waits: without one, it would look as if it were due."""
    if not is_on_success(schedule):
        return schedule
    return replace(schedule, wake_at=schedule.paused_until if schedule.state == "paused" else None)


def without_pending(before: ScheduleRecord, planned: Planned, facts: Facts, now: Instant) -> Planned:
    """Return the plan of a schedule that stops following, with the waiting successes in the ledger.

    If there are more of them than ``facts`` has, the plan records these, and leaves the schedule as it is.
    """
    if not facts.pending:
        return planned
    is_deleted = "deleted" in (before.state, planned.schedule.state)
    by_reason: dict[Reason, list[Pending]] = {}
    for each in facts.pending:
        is_of_pause = each.success.paused or before.state == "paused"
        reason: Reason = "deleted" if is_deleted else "paused" if is_of_pause else "changed"
        by_reason.setdefault(reason, []).append(each)
    skipped = tuple(skipped_successes(before, tuple(some), reason, now) for reason, some in by_reason.items())
    spent = tuple((PENDING, before.tenant, each.key) for each in facts.pending)
    if facts.has_more:
        kept = replace(before, fire_seq=before.fire_seq + 1)
        return Planned(kept, skipped=skipped, spent=spent, unfinished=True)
    return planned._replace(skipped=planned.skipped + skipped, spent=planned.spent + spent)

"""Successes that are settled without the rows of schedules, when clocks differ."""

from __future__ import annotations

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import facts_of
from evenbeat.rules.firing import CLOCKS_APART
from evenbeat.rules.owed import hand_over, without_schedule

NOW = 1_772_366_400_000
RUN = RunRecord(id="r", schedule="load", task="load", state="running", attempt=1, run_at=NOW, created_at=NOW)
LOAD = ScheduleRecord(name="load", task="load", trigger="every 1h", followers="report")
REPORT = ScheduleRecord(name="report", task="report", trigger="on success of load", created_at=NOW)


def owed(finished_at: Instant) -> Record:
    """Return the record for the follower of a run that ended then, by its worker's clock."""
    end = without_schedule(attempts.succeeded(RUN, None, finished_at, "t"), NOW)
    (planned,) = hand_over(end.records, {LOAD.key: LOAD}, NOW).plans
    (record,) = planned.records
    return record


def handed_over(finished_at: Instant, follower: ScheduleRecord) -> list[Instant]:
    (planned,) = hand_over([owed(finished_at)], {follower.key: follower}, NOW).plans
    assert planned.spent
    return [each.success.at for each in facts_of({}, planned.records).pending]


def test_a_success_of_a_worker_whose_clock_is_ahead_is_not_in_the_future() -> None:
    assert handed_over(NOW + 300_000, REPORT) == [NOW]


def test_a_success_of_a_worker_whose_clock_is_behind_is_not_lost() -> None:
    assert handed_over(NOW - 300_000, REPORT) == [NOW - 300_000]


def test_a_follower_that_was_created_after_the_success_does_not_get_it() -> None:
    assert handed_over(NOW, replace(REPORT, created_at=NOW + CLOCKS_APART)) == [NOW]
    assert handed_over(NOW, replace(REPORT, created_at=NOW + CLOCKS_APART + 1)) == []


def test_a_deleted_follower_gets_nothing_and_a_damaged_one_keeps_its_record() -> None:
    assert handed_over(NOW, replace(REPORT, state="deleted")) == []
    damaged = replace(REPORT, damage="task: it is empty")
    assert hand_over([owed(NOW)], {damaged.key: damaged}, NOW) == ((), ())


def test_two_runs_of_one_id_owe_two_successes() -> None:
    assert owed(NOW - 1).key != owed(NOW - 2).key

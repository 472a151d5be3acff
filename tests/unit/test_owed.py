"""Successes that are settled without the rows of schedules, when clocks differ."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import facts_of
from evenbeat.rules.firing import CLOCKS_APART
from evenbeat.rules.owed import OWED, hand_over, needs_schedule, row_of, without_schedule

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


def test_an_end_without_a_row_owes_its_success_and_nothing_else_changes() -> None:
    end = attempts.succeeded(RUN, None, NOW - 5, "t")
    changed = without_schedule(end, NOW)
    assert changed == replace(end, wakes=None, records=changed.records)
    (record,) = changed.records
    assert (record.kind, record.tenant, record.key) == (OWED, "default", f"load/r@{NOW - 5}")
    acme = attempts.succeeded(replace(RUN, tenant="acme", id="acme/load/1/5"), None, NOW, "t")
    (record,) = without_schedule(acme, NOW).records
    assert (record.tenant, record.key) == ("acme", "load/acme/load/1/5")


def test_only_successes_are_owed() -> None:
    for end in (
        attempts.failed(RUN, "no", NOW, "t"),
        attempts.cancelled(RUN, NOW, "t"),
        replace(attempts.succeeded(RUN, None, NOW, "t"), counts=None),
    ):
        assert needs_schedule([end])
        assert without_schedule(end, NOW) == replace(end, wakes=None)
    alone = attempts.succeeded(replace(RUN, schedule=None), None, NOW, "t")
    assert without_schedule(alone, NOW) is alone
    assert not needs_schedule([alone])


def test_ends_within_a_transition_owe_theirs() -> None:
    inner = attempts.succeeded(RUN, None, NOW, "t")
    outer = replace(attempts.succeeded(replace(RUN, id="f", schedule=None), None, NOW, "u"), ends=(inner,))
    assert needs_schedule([outer])
    changed = without_schedule(outer, NOW)
    assert changed == replace(outer, ends=(without_schedule(inner, NOW),))
    assert changed.ends[0].records
    of_schedule = replace(outer, wakes=("default", "load"), counts=inner.counts)
    both = without_schedule(of_schedule, NOW)
    assert (len(both.records), len(both.ends[0].records), both.ends[0].wakes) == (1, 1, None)


def test_a_success_without_a_time_is_of_now() -> None:
    for finished in (None, UNSET):
        end = replace(attempts.succeeded(RUN, None, NOW, "t"), finished_at=finished)
        assert without_schedule(end, NOW + 7).records[0].key == f"load/r@{NOW + 7}"


def test_a_record_that_nobody_can_use_is_deleted_and_the_others_are_spent() -> None:
    end = without_schedule(attempts.succeeded(RUN, None, NOW, "t"), NOW)
    (record,) = end.records
    broken = replace(record, key="load/x", body="{")
    assert (row_of(record), row_of(broken)) == (("default", "load"), None)
    assert row_of(owed(NOW)) == ("default", "report")
    assert hand_over([record, broken], {}, NOW) == ((), (record, broken))
    done = hand_over([broken, record], {LOAD.key: replace(LOAD, fire_seq=4)}, NOW)
    assert done.useless == (broken,)
    (planned,) = done.plans
    assert planned.spent == ((OWED, "default", record.key),)
    assert planned.schedule.fire_seq > 4
    assert [each.key for each in planned.records] == [f">report/r@{NOW}"]


def test_a_deleted_schedule_hands_over_and_its_row_stays_as_it_is() -> None:
    end = without_schedule(attempts.succeeded(RUN, None, NOW, "t"), NOW)
    row = replace(LOAD, state="deleted", fire_seq=4, followers="report sum")
    (planned,) = hand_over(end.records, {row.key: row}, NOW).plans
    assert planned.schedule == replace(row, fire_seq=5)
    assert [row_of(each) for each in planned.records] == [("default", "report"), ("default", "sum")]

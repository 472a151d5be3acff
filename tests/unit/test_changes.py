"""Changes of a schedule by a user, also while ticks are overdue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.core.records import CatchUp, Execution, ScheduleRecord
from evenbeat.errors import InvalidValue, ScheduleExists, ScheduleNotFound
from evenbeat.rules import changes, definitions, overdue
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.rules.ticks import trigger_of
from tests.lengths import examples

T = 1_772_366_400_000  # 2026-03-01T12:00:00Z
MINUTE = 60_000
HOUR = 60 * MINUTE
BUSY = (Active("r1", "running"),)


def wanted(trigger: str = "every 1m", **fields: Any) -> ScheduleRecord:
    if "retries" in fields:
        fields["execution"] = Execution(retries=fields.pop("retries"))
    return ScheduleRecord(name="cleanup", task="work", trigger=trigger, **fields)


def made(trigger: str = "every 1m", now: int = T, **fields: Any) -> ScheduleRecord:
    return changes.create(wanted(trigger, **fields), now).schedule


def certain(planned: Planned | None) -> Planned:
    assert planned is not None
    return planned


class TestCreate:
    def test_the_first_tick_is_the_next_one_after_now(self) -> None:
        assert made("every 10m").next_tick == T + 10 * MINUTE
        assert made("0 * * * *").next_tick == T + HOUR
        assert made("every 10m start=2026-03-01T12:03:00Z").next_tick == T + 3 * MINUTE
        assert made("every 10m start=2026-03-01T11:59:00Z").next_tick == T + 9 * MINUTE

    def test_a_single_instant_in_the_past_is_due_at_once(self) -> None:
        assert made("at 2026-01-01T00:00:00Z").next_tick == T - 59 * 24 * HOUR - 12 * HOUR

    def test_a_trigger_without_ticks_ahead_makes_a_finished_schedule(self) -> None:
        schedule = made("every 1m until=2026-01-01T00:00:00Z")
        assert (schedule.state, schedule.next_tick, schedule.wake_at) == ("finished", None, None)

    def test_creating_a_schedule_with_an_existing_name_raises_with_a_hint(self) -> None:
        with pytest.raises(
            ScheduleExists, match=r'"cleanup" of tenant "default" exists already; declare\(\) it'
        ):
            changes.create(wanted(), T, made())

    def test_the_numbers_of_a_deleted_schedule_are_continued(self) -> None:
        gone = changes.delete(made(), T + 1).schedule
        again = changes.create(wanted(), T + 2, gone).schedule
        assert again.generation == 2
        assert again.version > gone.version

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"name": ""}, 'name "" is not 1 to 128 letters, digits, _, -, . or :'),
            ({"name": "a b"}, 'name "a b" is not'),
            ({"name": "x" * 129}, "is not 1 to 128"),
            ({"tenant": "é"}, 'tenant "é" is not'),
            ({"task": ""}, 'task "" is not 1 to 200 visible characters'),
            ({"task": "a\0b"}, r'task "a\\x00b" is not'),
            ({"trigger": "61 * * * *"}, "minute 61 is out of 0-59"),
            ({"trigger": "0 0 * * * tz=Mars/Olympus"}, 'tz "Mars/Olympus" is not an IANA time zone'),
            ({"priority": 10}, "priority 10 is not one of 0-9, low, normal, high"),
            ({"priority": -1}, "priority -1"),
            ({"overlap": "maybe"}, 'overlap "maybe" is not one of allow, skip'),
            ({"max_concurrent": 0}, "max_concurrent 0 is not a whole number of 1 to"),
            ({"max_concurrent": 2**63}, "max_concurrent 9223372036854775808"),
            ({"spread": -1}, "spread -1"),
            ({"kind": "dance"}, 'kind "dance" is not one of task, flow'),
            ({"description": "x" * 1001}, "description is 1,001 characters long"),
            ({"payload": "x" * 1_000_001}, "payload is 1,000,001 bytes of JSON, the limit is 1,000,000"),
        ],
    )
    def test_an_invalid_field_is_refused_with_its_name_and_value(
        self, fields: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(InvalidValue, match=says):
            changes.create(replace(wanted(), **fields), T)


class TestDeclare:
    def test_declaring_creates_a_missing_schedule(self) -> None:
        schedule = certain(changes.declare(wanted(), T, None)).schedule
        assert schedule == replace(made(), declared=definitions.definition(made()))

    def test_declaring_the_same_schedule_again_changes_nothing(self) -> None:
        schedule = certain(changes.declare(wanted(), T, None)).schedule
        assert changes.declare(wanted(), T + 30_000, schedule) is None

    def test_declaring_a_schedule_that_was_added_by_hand_adopts_it(self) -> None:
        adopted = certain(changes.declare(wanted(), T + 30_000, made()))
        assert adopted.schedule.next_tick == made().next_tick
        assert (adopted.runs, adopted.skipped) == ((), ())
        assert changes.declare(wanted(), T + 40_000, adopted.schedule) is None

    def test_another_text_of_the_same_trigger_changes_nothing(self) -> None:
        schedule = certain(changes.declare(wanted("0 9 * * mon-fri"), T, None)).schedule
        assert changes.declare(wanted("0 9 * * 1-5"), T + 1, schedule) is None
        assert changes.declare(wanted("*/5 * * * *"), T + 1, schedule) is not None

    def test_an_edit_by_hand_stays_until_the_declaration_changes(self) -> None:
        first = certain(changes.declare(wanted(retries=1), T, None)).schedule
        edited = certain(changes.change(first, {"trigger": "every 5m", "priority": 9}, T + 1)).schedule
        assert changes.declare(wanted(retries=1), T + 2, edited) is None
        assert definitions.edits(edited) == {"trigger": ("every 5m", "every 1m"), "priority": (9, 5)}
        paused = changes.pause(edited, T + 3).schedule
        assert changes.declare(wanted(retries=1), T + 4, paused) is None
        moved_on = certain(changes.declare(wanted(retries=2), T + 5, edited)).schedule
        assert (moved_on.trigger, moved_on.priority, moved_on.execution.retries) == ("every 1m", 5, 2)
        assert definitions.edits(moved_on) == {}

    def test_reset_undoes_an_edit_by_hand(self) -> None:
        first = certain(changes.declare(wanted(payload='{"a":1}', retries=3), T, None)).schedule
        assert changes.reset(first, T + 1) is None
        changes_to_try = {"payload": '{"a":2}', "execution": Execution(), "catch_up": CatchUp("all")}
        edited = certain(changes.change(first, changes_to_try, T + 1)).schedule
        assert sorted(definitions.edits(edited)) == ["catch_up", "payload", "retries"]
        back = certain(changes.reset(edited, T + 2)).schedule
        assert (back.payload, back.execution.retries, back.catch_up) == ('{"a":1}', 3, CatchUp())
        assert (back.declared, definitions.edits(back)) == (first.declared, {})
        with pytest.raises(InvalidValue, match="cleanup was never declared; update it instead"):
            changes.reset(made(), T + 1)

    def test_the_same_declaration_wakes_a_quarantined_schedule(self) -> None:
        first = certain(changes.declare(wanted(), T, None)).schedule
        woken = certain(changes.declare(wanted(), T + 1, replace(first, wake_at=None))).schedule
        assert woken.wake_at == first.next_tick

    def test_the_same_interval_keeps_the_next_tick_and_another_one_starts_from_now(self) -> None:
        schedule = made("every 10m")
        again = certain(changes.declare(wanted("every 10m", payload="1"), T + 3 * MINUTE, schedule)).schedule
        assert again.next_tick == T + 10 * MINUTE
        other = certain(changes.declare(wanted("every 20m"), T + 3 * MINUTE, schedule)).schedule
        assert other.next_tick == T + 23 * MINUTE
        assert changes.declare(wanted("every 20m"), T + 5 * MINUTE, other) is None

    def test_a_paused_schedule_stays_paused(self) -> None:
        paused = changes.pause(made(), T + 1, "holiday").schedule
        declared = certain(changes.declare(wanted("every 5m"), T + 2, paused)).schedule
        assert (declared.state, declared.pause_note, declared.wake_at) == ("paused", "holiday", None)

    def test_declaring_a_deleted_schedule_creates_it_again(self) -> None:
        gone = changes.delete(made(), T + 1).schedule
        assert certain(changes.declare(wanted(), T + 2, gone)).schedule.generation == 2


class TestChange:
    def test_a_change_increments_the_revision_and_keeps_the_next_tick(self) -> None:
        schedule = made()
        changed = certain(changes.change(schedule, {"payload": "1", "priority": 8}, T + 1)).schedule
        assert (changed.payload, changed.priority) == ("1", 8)
        assert (changed.next_tick, changed.wake_at) == (schedule.next_tick, schedule.wake_at)
        assert (changed.revision, changed.updated_at) == (schedule.revision + 1, T + 1)

    def test_a_change_to_the_same_values_changes_nothing(self) -> None:
        assert changes.change(made(), {"priority": 5}, T + 1) is None

    def test_a_field_outside_the_definition_can_not_be_changed(self) -> None:
        with pytest.raises(InvalidValue, match="next_tick can't be changed"):
            changes.change(made(), {"next_tick": 0}, T)

    def test_an_overdue_tick_fires_by_the_old_policies(self) -> None:
        schedule = made(payload='"old"')
        planned = certain(changes.change(schedule, {"payload": '"new"'}, T + MINUTE))
        assert [(run.tick, run.payload) for run in planned.runs] == [(T + MINUTE, '"old"')]
        assert planned.schedule.next_tick == T + 2 * MINUTE

    def test_a_waiting_tick_stays_unless_the_trigger_changes(self) -> None:
        schedule = made(overlap="queue")
        kept = certain(changes.change(schedule, {"payload": "1"}, T + MINUTE, BUSY))
        assert (kept.runs, kept.skipped, kept.schedule.next_tick) == ((), (), T + MINUTE)
        moved = certain(changes.change(schedule, {"trigger": "every 1h"}, T + MINUTE, BUSY))
        assert [(row.first, row.reason) for row in moved.skipped] == [(T + MINUTE, "changed")]
        assert moved.schedule.next_tick == T + MINUTE + HOUR

    def test_a_new_trigger_makes_a_finished_schedule_active(self) -> None:
        done = plan(made("at 2026-01-01T00:00:00Z"), T).schedule
        assert done.state == "finished"
        back = certain(changes.change(done, {"trigger": "every 1h"}, T)).schedule
        assert (back.state, back.next_tick) == ("active", T + HOUR)


class TestPause:
    @pytest.mark.parametrize("fields", [{}, {"catch_up": CatchUp("all")}, {"overlap": "queue"}])
    def test_a_pause_starts_no_overdue_tick(self, fields: dict[str, Any]) -> None:
        planned = changes.pause(made(**fields), T + 3 * MINUTE, "why")
        assert planned.runs == ()
        assert [(row.first, row.last, row.count, row.reason) for row in planned.skipped] == [
            (T + MINUTE, T + 3 * MINUTE, 3, "paused")
        ]
        assert (planned.schedule.state, planned.schedule.pause_note) == ("paused", "why")
        assert (planned.schedule.next_tick, planned.schedule.wake_at) == (T + 4 * MINUTE, None)

    def test_a_spread_tick_is_overdue_from_its_own_time_on(self) -> None:
        planned = changes.pause(made(spread=59_000), T + MINUTE)
        assert (planned.runs, [row.count for row in planned.skipped]) == ((), [1])
        assert planned.schedule.spread == 59_000

    def test_a_pause_skips_an_overdue_single_instant(self) -> None:
        planned = changes.pause(made("at 2026-03-01T12:05:00Z"), T + 6 * MINUTE)
        assert (planned.schedule.state, planned.runs) == ("finished", ())
        assert [(row.count, row.reason) for row in planned.skipped] == [(1, "paused")]

    def test_resuming_records_the_ticks_of_the_pause_as_skipped(self) -> None:
        paused = changes.pause(made(), T + 1).schedule
        planned = certain(changes.resume(paused, T + 5 * MINUTE + 1))
        assert [(row.count, row.reason) for row in planned.skipped] == [(5, "paused")]
        assert (planned.schedule.state, planned.schedule.next_tick) == ("active", T + 6 * MINUTE)
        assert planned.schedule.wake_at == T + 6 * MINUTE

    def test_a_pause_with_an_end_ends_by_itself(self) -> None:
        paused = changes.pause(made(), T + 1, until=T + 150_000).schedule
        assert paused.wake_at == T + 150_000
        assert plan(paused, T + 149_999).schedule == paused
        planned = plan(paused, T + 150_000)
        assert [(row.count, row.reason) for row in planned.skipped] == [(2, "paused")]
        assert (planned.schedule.state, planned.schedule.next_tick) == ("active", T + 3 * MINUTE)

    def test_a_node_that_ends_a_pause_late_fires_the_ticks_after_its_end(self) -> None:
        paused = changes.pause(made(), T + 1, until=T + 150_000).schedule
        awake = plan(paused, T + 10 * MINUTE).schedule
        assert awake.wake_at == T + 10 * MINUTE
        fired = plan(awake, T + 10 * MINUTE)
        assert [(run.tick, run.coalesced) for run in fired.runs] == [(T + 10 * MINUTE, 7)]

    def test_resuming_a_schedule_that_is_not_paused_changes_nothing(self) -> None:
        assert changes.resume(made(), T + 1) is None

    def test_a_resumed_one_shot_runs_only_if_its_time_is_in_the_future(self) -> None:
        paused = changes.pause(made("at 2026-03-01T12:05:00Z"), T + 1).schedule
        assert certain(changes.resume(paused, T + MINUTE)).schedule.next_tick == T + 5 * MINUTE
        late = certain(changes.resume(paused, T + 10 * MINUTE))
        assert late.schedule.state == "finished"
        assert [(row.count, row.reason) for row in late.skipped] == [(1, "paused")]


class TestReschedule:
    def test_rescheduling_forward_records_the_skipped_ticks(self) -> None:
        planned = changes.reschedule(made(), T + 150_000, T + 1)
        assert [(row.count, row.reason) for row in planned.skipped] == [(2, "rescheduled")]
        assert (planned.schedule.next_tick, planned.schedule.wake_at) == (T + 150_000, T + 150_000)
        assert planned.schedule.generation == 1

    def test_rescheduling_backward_starts_a_new_generation(self) -> None:
        fired = plan(made(), T + MINUTE).schedule
        planned = changes.reschedule(fired, T + MINUTE, T + MINUTE + 1)
        assert planned.schedule.generation == 2
        again = plan(planned.schedule, T + MINUTE + 1)
        assert [run.id for run in again.runs] == [f"default/cleanup/2/{T + MINUTE}"]

    def test_the_ticks_after_a_moved_one_are_the_triggers_own(self) -> None:
        moved = changes.reschedule(made(), T + 90_000, T).schedule
        assert plan(moved, T + 90_000).schedule.next_tick == T + 2 * MINUTE

    def test_a_tick_that_is_moved_earlier_does_not_fire_at_its_own_time(self) -> None:
        moved = changes.reschedule(made("every 10m"), T + MINUTE, T).schedule
        fired = plan(moved, T + MINUTE)
        assert [run.tick for run in fired.runs] == [T + MINUTE]
        assert fired.schedule.next_tick == T + 20 * MINUTE

    def test_ticks_that_are_missed_after_a_move_are_counted_without_the_one_that_was_moved(self) -> None:
        moved = changes.reschedule(made("every 10m"), T + MINUTE, T).schedule
        late = plan(moved, T + 35 * MINUTE)
        assert [(run.tick, run.coalesced) for run in late.runs] == [(T + 30 * MINUTE, 2)]
        assert [(row.first, row.last, row.count) for row in late.skipped] == [
            (T + MINUTE, T + 20 * MINUTE, 2)
        ]

    def test_a_tick_that_is_moved_twice_replaces_the_same_tick(self) -> None:
        once = changes.reschedule(made("every 10m"), T + MINUTE, T).schedule
        for again in (T + 30_000, T + 5 * MINUTE):
            twice = changes.reschedule(once, again, T).schedule
            assert plan(twice, again).schedule.next_tick == T + 20 * MINUTE
        later = changes.reschedule(once, T + 15 * MINUTE, T).schedule
        assert plan(later, T + 15 * MINUTE).schedule.next_tick == T + 20 * MINUTE

    def test_a_new_trigger_forgets_a_moved_tick(self) -> None:
        moved = changes.reschedule(made("every 10m"), T + MINUTE, T).schedule
        changed = certain(changes.change(moved, {"trigger": "every 2m"}, T + 1)).schedule
        assert changed.moved is None

    def test_a_finished_schedule_runs_once_more(self) -> None:
        done = plan(made("at 2026-01-01T00:00:00Z"), T).schedule
        moved = changes.reschedule(done, T + HOUR, T).schedule
        assert (moved.state, moved.next_tick, moved.wake_at) == ("active", T + HOUR, T + HOUR)
        assert plan(moved, T + HOUR).schedule.state == "finished"

    def test_a_paused_schedule_stays_paused(self) -> None:
        paused = changes.pause(made(), T + 1).schedule
        moved = changes.reschedule(paused, T + HOUR, T + 2).schedule
        assert (moved.state, moved.wake_at, moved.next_tick) == ("paused", None, T + HOUR)


class TestRegressions:
    def test_a_change_after_the_end_of_a_pause_loses_no_tick(self) -> None:
        paused = changes.pause(made("every 10m", catch_up=CatchUp("all")), T, until=T + HOUR).schedule
        later = T + 2 * HOUR
        for change in (
            changes.resume(paused, later),
            changes.change(paused, {"trigger": "every 7m"}, later),
            changes.reschedule(paused, later + HOUR, later),
        ):
            planned = certain(change)
            assert [row.count for row in planned.skipped if row.reason == "paused"] == [5]
            assert [run.tick for run in planned.runs] == [T + HOUR + n * 10 * MINUTE for n in range(7)]

    def test_pausing_again_after_the_end_of_a_pause_starts_nothing(self) -> None:
        paused = changes.pause(made("every 10m"), T, until=T + HOUR).schedule
        again = changes.pause(paused, T + 2 * HOUR, "again")
        assert [(row.count, row.reason) for row in again.skipped] == [(5, "paused"), (7, "paused")]
        assert (again.runs, again.schedule.pause_note, again.schedule.wake_at) == ((), "again", None)

    def test_deleting_after_the_end_of_a_pause_records_both_reasons(self) -> None:
        paused = changes.pause(made("every 10m"), T, until=T + HOUR).schedule
        planned = changes.delete(paused, T + 2 * HOUR)
        assert [(row.count, row.reason) for row in planned.skipped] == [(5, "paused"), (7, "deleted")]

    def test_less_spread_wakes_the_schedule_in_time(self) -> None:
        spread = plan(made("every 6h", spread=5 * HOUR), T + 6 * HOUR).schedule
        assert spread.wake_at is not None
        assert spread.wake_at > T + 6 * HOUR
        changed = certain(changes.change(spread, {"spread": 0}, T + 5 * HOUR)).schedule
        assert changed.wake_at == changed.next_tick

    def test_a_deleted_schedule_can_not_be_changed(self) -> None:
        gone = changes.delete(made(), T).schedule
        acts: list[Callable[[], object]] = [
            lambda: changes.pause(gone, T),
            lambda: changes.resume(gone, T),
            lambda: changes.change(gone, {"payload": "1"}, T),
            lambda: changes.reschedule(gone, T + 1, T),
            lambda: changes.run_now(gone, "run", T),
            lambda: changes.delete(gone, T),
        ]
        for act in acts:
            with pytest.raises(ScheduleNotFound, match='there is no schedule "cleanup" of tenant "default"'):
                act()

    def test_a_one_shot_that_is_moved_earlier_runs_once(self) -> None:
        moved = changes.reschedule(made("at 2026-03-01T14:00:00Z"), T + HOUR, T).schedule
        fired = plan(moved, T + HOUR)
        assert [run.tick for run in fired.runs] == [T + HOUR]
        assert fired.schedule.state == "finished"

    def test_declaring_a_quarantined_schedule_wakes_it(self) -> None:
        asleep = replace(made(), wake_at=None)
        woken = certain(changes.declare(wanted(), T + 1, asleep)).schedule
        assert woken.wake_at == woken.next_tick

    @pytest.mark.parametrize("tick", [10**18, -(10**18), 2**63])
    def test_a_tick_outside_the_calendar_is_refused(self, tick: int) -> None:
        with pytest.raises(InvalidValue, match="is outside the calendar"):
            changes.reschedule(made(), tick, T)

    def test_a_lone_surrogate_is_refused_before_it_reaches_a_database(self) -> None:
        with pytest.raises(InvalidValue, match="has a lone surrogate"):
            changes.create(wanted(description="\ud800"), T)


class TestDeleteAndRunNow:
    def test_a_delete_leaves_a_tombstone_and_records_the_due_ticks(self) -> None:
        planned = changes.delete(made(payload="1"), T + 150_000)
        assert [(row.count, row.reason) for row in planned.skipped] == [(2, "deleted")]
        gone = planned.schedule
        assert (gone.state, gone.next_tick, gone.wake_at, gone.payload) == ("deleted", None, None, "null")

    def test_run_now_adds_a_run_and_keeps_the_next_tick(self) -> None:
        schedule = made(payload="1")
        planned = certain(changes.run_now(schedule, "mine", T + 5))
        (run,) = planned.runs
        assert (run.id, run.cause, run.tick, run.payload) == ("mine", "run_now", None, "1")
        assert planned.schedule == replace(
            schedule, last_fire=planned.runs[0].created_at, fire_seq=schedule.fire_seq + 1
        )

    def test_run_now_follows_the_overlap_policy(self) -> None:
        assert changes.run_now(made(overlap="skip"), "mine", T, BUSY) is None
        assert changes.run_now(made(max_concurrent=1), "mine", T, BUSY) is None
        assert changes.run_now(made(max_concurrent=2), "mine", T, BUSY) is not None
        assert changes.run_now(made(), "mine", T, BUSY) is not None


def apply(change: str, schedule: ScheduleRecord, now: int) -> Planned | None:
    if change == "fire":
        return plan(schedule, now)
    if change == "payload":
        return changes.change(schedule, {"payload": str(now)}, now)
    if change == "pause":
        return changes.pause(schedule, now)
    if change == "resume":
        return changes.resume(schedule, now)
    if change == "trigger":
        return changes.run_now(schedule, f"run-{now}", now)
    return changes.reschedule(schedule, now + 5 * MINUTE, now)


@settings(max_examples=examples(300))
@given(data=st.data())
def test_no_sequence_of_changes_loses_a_tick_or_runs_one_twice(data: st.DataObject) -> None:
    now = T
    schedule = made("every 1m")
    covered: list[tuple[int, int]] = []  # (generation, tick), by run or by ledger
    watermark: dict[int, int] = {schedule.generation: schedule.next_tick or now}
    for _ in range(data.draw(st.integers(1, 8))):
        now += data.draw(st.integers(0, 200_000))
        change = data.draw(st.sampled_from(["fire", "payload", "pause", "resume", "trigger", "forward"]))
        planned = apply(change, schedule, now)
        if planned is None:
            continue
        assert planned.schedule.version >= schedule.version
        schedule = planned.schedule
        covered += [(run.generation or 0, run.tick) for run in planned.runs if run.tick is not None]
        for row in planned.skipped:
            # The first may lie off the trigger's own ticks, where a reschedule put it.
            times = {row.first, *trigger_of(schedule).between_ms(row.first, row.last + 1)}
            assert len(times) == row.count
            covered += [(row.generation, tick) for tick in times]
        watermark.setdefault(schedule.generation, schedule.next_tick or now)
    assert len(covered) == len(set(covered))
    for generation, tick in covered:
        assert tick >= watermark[generation]


class TestBacklog:
    """A change that finds a long backlog writes it in parts, and comes with the last."""

    def changes_to_try(self) -> dict[str, Callable[[ScheduleRecord, int], Planned | None]]:
        return {
            "change": lambda row, now: changes.change(row, {"payload": "7"}, now),
            "reschedule": lambda row, now: changes.reschedule(row, now + HOUR, now),
        }

    @pytest.mark.parametrize("change", ["change", "reschedule"])
    @pytest.mark.parametrize(("payload", "most"), [("null", 500), (f'"{"x" * 100_000}"', 80)])
    def test_no_part_of_a_backlog_is_larger_than_one_write_should_be(
        self, change: str, payload: str, most: int
    ) -> None:
        now = T + 1200 * MINUTE
        row = made(catch_up=CatchUp("all", limit=10_000), payload=payload)
        fired: list[int | None] = []
        for _ in range(100):
            planned = certain(self.changes_to_try()[change](row, now))
            fired += [run.tick for run in planned.runs]
            row = planned.schedule
            assert len(planned.runs) <= most
            if not planned.unfinished:
                break
            assert (row.revision, row.payload) == (1, payload)
        assert fired == [T + at * MINUTE for at in range(1, 1201)]
        assert row.revision == 2

    def test_a_short_backlog_is_written_with_the_change(self) -> None:
        row = made(catch_up=CatchUp("all", limit=10_000))
        planned = certain(changes.change(row, {"payload": "7"}, T + 400 * MINUTE))
        assert (len(planned.runs), planned.unfinished, planned.schedule.payload) == (400, False, "7")

    def test_the_resume_of_an_ended_pause_leaves_the_rest_of_a_long_backlog_to_nodes(self) -> None:
        row = certain(
            changes.pause(made(catch_up=CatchUp("all", limit=10_000)), T, until=T + MINUTE)
        ).schedule
        planned = certain(changes.resume(row, T + 1200 * MINUTE))
        # One write, which the audit records: a second part would find a schedule that is not paused.
        assert not planned.unfinished
        assert overdue.is_long(planned)
        assert (len(planned.runs), planned.schedule.state) == (500, "active")
        assert planned.schedule.revision == row.revision + 1
        assert planned.schedule.wake_at == planned.schedule.next_tick == T + 501 * MINUTE

"""Every change by a user, as a whole: the new row, and that no other field of it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import FIRST, LAST
from evenbeat.core.records import FORMAT, CatchUp, Execution, RunRecord, ScheduleRecord
from evenbeat.errors import DamagedSchedule, InvalidValue, ScheduleExists, ScheduleNotFound, ScheduleTooNew
from evenbeat.rules import changes, definitions
from evenbeat.rules.firing import Active, Planned

MINUTE = 60_000
T = 1_772_366_400_000
NOW = T - 30_000
RUNNING = Active("r1", "running")
QUEUED = Active("r2", "queued")


def row(**fields: Any) -> ScheduleRecord:
    """Between two ticks; the next one is T."""
    standard: dict[str, Any] = {
        "tenant": "acme",
        "name": "beat",
        "task": "work",
        "trigger": "* * * * *",
        "payload": '{"a": 1}',
        "description": "the beat",
        "anchor": T - 9 * MINUTE,
        "next_tick": T,
        "wake_at": T,
        "revision": 3,
        "fire_seq": 5,
        "generation": 2,
        "created_at": T - 9 * MINUTE,
        "updated_at": T - 8 * MINUTE,
    }
    return ScheduleRecord(**{**standard, **fields})


def revised(before: ScheduleRecord, **fields: Any) -> ScheduleRecord:
    return replace(before, **{"revision": before.revision + 1, "updated_at": NOW, **fields})


def ledger(planned: Planned) -> list[tuple[float, float, int, str]]:
    return [
        ((skipped.first - T) / MINUTE, (skipped.last - T) / MINUTE, skipped.count, skipped.reason)
        for skipped in planned.skipped
    ]


def ticks(planned: Planned) -> list[float]:
    return [((run.tick or 0) - T) / MINUTE for run in planned.runs]


# -- made ----------------------------------------------------------------------------------------------------


WANTED = ScheduleRecord(
    tenant="acme", name="beat", task="work", trigger="*/1 * * * *", payload='{"a": 1}', priority=9
)


def test_a_new_schedule() -> None:
    expected = replace(
        WANTED,
        trigger="* * * * *",
        anchor=NOW,
        created_at=NOW,
        updated_at=NOW,
        next_tick=T,
        wake_at=T,
        generation=1,
        revision=1,
        fire_seq=1,
        state="active",
    )
    assert changes.create(WANTED, NOW) == Planned(expected)
    declared = replace(expected, declared=definitions.definition(expected))
    assert changes.declare(WANTED, NOW, None) == Planned(declared)
    stale = replace(WANTED, state="finished", next_tick=1, wake_at=1, paused_at=1)
    assert changes.create(stale, NOW) == Planned(expected)
    # A schedule that is created paused waits to be resumed.
    paused = replace(WANTED, state="paused", pause_note="not yet", paused_by="ann")
    assert changes.create(paused, NOW) == Planned(
        replace(expected, state="paused", wake_at=None, pause_note="not yet", paused_by="ann", paused_at=NOW)
    )
    # Its next tick is after now, not at now.
    assert changes.create(WANTED, T).schedule.next_tick == T + MINUTE
    assert changes.create(WANTED, T - 1).schedule.next_tick == T


def test_a_schedule_that_starts_later() -> None:
    for start, tick in ((T + 1, 1), (T + MINUTE, 1), (T + MINUTE + 1, 2), (T, 0), (NOW - 9 * MINUTE, 0)):
        for made in (changes.create(WANTED, NOW, None, start), changes.declare(WANTED, NOW, None, (), start)):
            assert made is not None
            assert made.schedule.next_tick == made.schedule.wake_at == T + tick * MINUTE
            assert made.schedule.anchor == max(NOW, start - 1)


def test_an_interval_that_starts_later_counts_from_its_start() -> None:
    interval = replace(WANTED, trigger="every 10m")
    assert changes.create(interval, NOW).schedule.next_tick == NOW + 10 * MINUTE
    made = changes.create(interval, NOW, None, T + 7).schedule
    assert (made.next_tick, made.anchor) == (T + 7, T + 7 - 10 * MINUTE)
    past = changes.create(interval, NOW, None, NOW - 3 * MINUTE).schedule
    assert past.next_tick == NOW + 7 * MINUTE
    own = replace(WANTED, trigger="every 10m start=2026-03-01T12:01:00Z")
    made = changes.create(own, NOW, None, T + 2 * MINUTE).schedule
    assert (made.next_tick, made.anchor) == (T + 11 * MINUTE, T + 2 * MINUTE - 1)


def test_a_deleted_schedule_is_created_again_with_continued_numbers() -> None:
    gone = row(state="deleted", next_tick=None, wake_at=None)
    made = changes.create(WANTED, NOW, gone).schedule
    assert (made.generation, made.revision, made.fire_seq) == (3, 4, 7)
    assert (made.state, made.created_at, made.next_tick) == ("active", NOW, T)
    for state in ("active", "paused", "finished"):
        with pytest.raises(ScheduleExists):
            changes.create(WANTED, NOW, row(state=state))


def test_a_schedule_without_ticks_is_finished_at_once() -> None:
    over = replace(WANTED, trigger="* * * * * until=2020-01-01T00:00:00Z")
    made = changes.create(over, NOW).schedule
    assert (made.state, made.next_tick, made.wake_at) == ("finished", None, None)


# -- changed -------------------------------------------------------------------------------------------------


def test_a_change_that_changes_nothing() -> None:
    assert changes.change(row(), {"task": "work", "trigger": "*/1 * * * *"}, NOW) is None
    assert changes.declare(row(), NOW, row(declared=definitions.definition(row()))) is None


def test_another_text_of_the_same_trigger_is_the_same_trigger() -> None:
    for ours, theirs in (("*/15", "0,15,30,45"), ("0,15,30,45", "*/15")):
        assert changes.change(row(trigger=f"{ours} * * * *"), {"trigger": f"{theirs} * * * *"}, NOW) is None


def test_a_trigger_without_ticks_finishes_the_schedule() -> None:
    changed = changes.change(row(), {"trigger": "* * * * * until=2020-01-01T00:00:00Z"}, NOW)
    assert changed is not None
    after = changed.schedule
    assert (after.state, after.next_tick, after.wake_at, after.generation) == ("finished", None, None, 2)


def test_a_change_of_the_definition() -> None:
    changes_to_try = {"task": "other", "payload": "2", "queue": "slow", "execution": Execution(retries=2)}
    assert changes.change(row(), changes_to_try, NOW) == Planned(revised(row(), **changes_to_try))


def test_a_field_that_is_not_in_the_definition_is_refused() -> None:
    for name in ("next_tick", "state", "name", "revision"):
        with pytest.raises(InvalidValue, match=f"{name} can't be changed"):
            changes.change(row(), {name: None}, NOW)


def test_a_change_without_a_difference_wakes_a_quarantined_schedule() -> None:
    asleep = row(wake_at=None)
    assert changes.change(asleep, {}, NOW) == Planned(revised(asleep, wake_at=T))
    paused = row(state="paused", wake_at=None)
    assert changes.change(paused, {}, NOW) is None


def test_a_change_makes_a_waiting_schedule_plan_again() -> None:
    waiting = row(wake_at=T + 30_000, overlap="queue")
    changed = changes.change(waiting, {"overlap": "allow"}, NOW)
    assert changed == Planned(revised(waiting, overlap="allow", wake_at=T))


def test_another_trigger_starts_from_now() -> None:
    changed = changes.change(row(moved=T + MINUTE), {"trigger": "*/5 * * * *"}, NOW)
    assert changed == Planned(
        revised(row(), trigger="*/5 * * * *", anchor=NOW, next_tick=T, wake_at=T, fire_seq=6)
    )
    hourly = changes.change(row(), {"trigger": "0 * * * *"}, T - 1)
    assert hourly is not None
    assert (hourly.schedule.next_tick, hourly.schedule.generation) == (T, 2)


def test_another_trigger_with_ticks_before_the_watermark_is_a_new_generation() -> None:
    later = row(next_tick=T + 9 * MINUTE, wake_at=T + 9 * MINUTE)
    changed = changes.change(later, {"trigger": "*/5 * * * *"}, NOW)
    assert changed is not None
    assert (changed.schedule.next_tick, changed.schedule.generation) == (T, 3)
    same = changes.change(row(next_tick=T), {"trigger": "*/5 * * * *"}, NOW)
    assert same is not None
    assert same.schedule.generation == 2


def test_another_trigger_may_be_a_single_instant() -> None:
    changed = changes.change(row(), {"trigger": "at 2026-03-01T13:00:00Z"}, NOW)
    assert changed is not None
    assert changed.schedule.next_tick == T + 60 * MINUTE


def test_another_trigger_makes_a_finished_schedule_active() -> None:
    over = row(state="finished", next_tick=None, wake_at=None)
    changed = changes.change(over, {"trigger": "*/5 * * * *"}, NOW)
    assert changed is not None
    assert changed.schedule == revised(
        over,
        trigger="*/5 * * * *",
        anchor=NOW,
        state="active",
        next_tick=T,
        wake_at=T,
        fire_seq=6,
        generation=3,
    )


def test_another_trigger_in_a_pause_records_the_ticks_of_the_old_one() -> None:
    paused = row(state="paused", next_tick=T, wake_at=None)
    changed = changes.change(paused, {"trigger": "*/5 * * * *"}, T + 2 * MINUTE)
    assert changed is not None
    assert ledger(changed) == [(0, 2, 3, "paused")]
    after = changed.schedule
    assert (after.state, after.next_tick, after.wake_at, after.generation, after.fire_seq) == (
        "paused",
        T + 5 * MINUTE,
        None,
        2,
        6,
    )


def test_another_trigger_in_a_pause_leaves_the_tick_of_the_next_millisecond() -> None:
    paused = row(state="paused", next_tick=T, wake_at=None)
    changed = changes.change(paused, {"trigger": "*/5 * * * *"}, T - 1)
    assert changed is not None
    assert (changed.skipped, changed.schedule.next_tick) == ((), T)


def test_another_trigger_in_a_pause_may_have_ticks_before_the_watermark() -> None:
    hourly = row(trigger="0 * * * *", state="paused", next_tick=T, wake_at=None)
    changed = changes.change(hourly, {"trigger": "* * * * *"}, T + 2 * MINUTE)
    assert changed is not None
    assert (changed.schedule.next_tick, changed.schedule.generation) == (T + 3 * MINUTE, 3)


# -- what is overdue -----------------------------------------------------------------------------------------


def test_overdue_ticks_fire_before_a_change_to_the_millisecond() -> None:
    early = changes.change(row(), {"priority": 9}, T - 1)
    assert early is not None
    assert early.runs == ()
    due = changes.change(row(priority=1), {"priority": 9}, T)
    assert due is not None
    assert ticks(due) == [0]
    assert (due.runs[0].priority, due.schedule.priority) == (1, 9)
    assert (due.schedule.next_tick, due.schedule.fire_seq, due.schedule.revision) == (T + MINUTE, 6, 4)


def test_a_tick_whose_spread_ends_after_the_change_fires_with_it() -> None:
    spread = row(spread=50_000)
    due = changes.change(spread, {"priority": 9}, T)
    assert due is not None
    assert (ticks(due), due.schedule.spread) == ([0], 50_000)


@pytest.mark.parametrize(
    ("change", "reason", "tick"),
    [
        (lambda row: changes.change(row, {"priority": 9}, T, (RUNNING,)), None, 0),
        (lambda row: changes.change(row, {"trigger": "*/5 * * * *"}, T, (RUNNING,)), "changed", 5),
        (lambda row: changes.pause(row, T), "paused", 1),
        (lambda row: changes.reschedule(row, T + 90_000, T, (RUNNING,)), "changed", 1.5),
        (lambda row: changes.delete(row, T), "deleted", None),
    ],
)
def test_a_waiting_tick_stays_or_is_recorded_as_changed(change: Any, reason: str | None, tick: Any) -> None:
    planned = change(row(overlap="queue"))
    rows = [] if reason is None else [(0, 0, 1, reason)]
    if tick == 1.5:
        rows.append((1, 1, 1, "rescheduled"))
    assert ledger(planned) == rows
    expected = None if tick is None else T + int(tick * MINUTE)
    assert planned.schedule.next_tick == expected
    assert planned.runs == ()


def test_runs_that_a_change_adds_count_as_active() -> None:
    schedule = row(overlap="queue_all")
    planned = changes.change(schedule, {"trigger": "*/5 * * * *"}, T + 2 * MINUTE)
    assert planned is not None
    assert (ticks(planned), ledger(planned)) == ([0], [(1, 2, 2, "changed")])


def test_a_backlog_is_written_in_parts() -> None:
    schedule = row(catch_up=CatchUp("all", limit=1_000))
    first = changes.change(schedule, {"priority": 9}, T + 700 * MINUTE)
    assert first is not None
    assert (len(first.runs), first.unfinished, first.schedule.priority) == (500, True, 5)
    assert first.schedule.revision == 3
    second = changes.change(first.schedule, {"priority": 9}, T + 700 * MINUTE)
    assert second is not None
    assert (len(second.runs), second.unfinished, second.schedule.priority) == (201, False, 9)
    for part in (
        changes.change(schedule, {"priority": 9}, T + 700 * MINUTE),
        changes.reschedule(schedule, T + 900 * MINUTE, T + 700 * MINUTE),
    ):
        assert part is not None
        assert part.unfinished
        assert part.schedule.revision == 3
    heavy = changes.change(replace(schedule, payload=f'"{"x" * 399_998}"'), {"priority": 9}, T + 700 * MINUTE)
    assert heavy is not None
    assert (len(heavy.runs), heavy.unfinished) == (10, True)


# -- paused and resumed --------------------------------------------------------------------------------------


def test_a_pause() -> None:
    assert changes.pause(row(), NOW) == Planned(revised(row(), state="paused", wake_at=None, paused_at=NOW))
    noted = changes.pause(row(), NOW, "moving", T + 7, "ann@db1")
    expected = revised(
        row(),
        state="paused",
        pause_note="moving",
        paused_until=T + 7,
        paused_by="ann@db1",
        paused_at=NOW,
        wake_at=T + 7,
    )
    assert noted == Planned(expected)
    # Paused again, for another reason: the ticks of the pause so far are recorded when it ends.
    again = changes.pause(noted.schedule, T + 6)
    assert (ledger(again), again.schedule.next_tick, again.schedule.paused_until) == ([], T, None)
    over = row(state="finished", next_tick=None, wake_at=None)
    assert changes.pause(over, NOW) == Planned(revised(over))
    with pytest.raises(InvalidValue):
        changes.pause(row(), NOW, "\ud800")
    with pytest.raises(InvalidValue):
        changes.pause(row(), NOW, by="\ud800")


def test_a_schedule_that_lost_its_next_tick_is_changed_like_any_other() -> None:
    without = row(next_tick=None, wake_at=None)
    assert changes.pause(without, NOW) == Planned(revised(without, state="paused", paused_at=NOW))
    # The next change computes its first tick, in a new generation: it is unknown which ticks have run.
    found = changes.change(without, {"priority": 9}, NOW)
    assert found is not None
    assert (found.schedule.next_tick, found.schedule.wake_at, found.schedule.generation) == (T, T, 3)


def test_a_resume() -> None:
    paused = row(
        state="paused",
        pause_note="moving",
        paused_until=T + 9 * MINUTE,
        wake_at=T + 9 * MINUTE,
        paused_by="ann",
        paused_at=NOW - 1,
    )
    assert changes.resume(row(), NOW) is None
    expected = revised(
        paused,
        state="active",
        pause_note="",
        paused_until=None,
        paused_by="",
        paused_at=None,
        wake_at=T,
        fire_seq=6,
    )
    assert changes.resume(paused, NOW) == Planned(expected)
    at_once = changes.resume(paused, T)
    assert at_once is not None
    assert (ledger(at_once), at_once.schedule.next_tick) == ([(0, 0, 1, "paused")], T + MINUTE)
    just_before = changes.resume(paused, T - 1)
    assert just_before is not None
    assert (ledger(just_before), just_before.schedule.next_tick) == ([], T)


def test_resuming_a_schedule_without_future_ticks_finishes_it() -> None:
    paused = row(state="paused", next_tick=None, wake_at=None)
    resumed = changes.resume(paused, NOW)
    assert resumed is not None
    assert (resumed.schedule.state, resumed.schedule.wake_at, resumed.skipped) == ("finished", None, ())


def test_every_change_after_the_end_of_a_pause_ends_it() -> None:
    paused = row(state="paused", paused_until=T + MINUTE, wake_at=T + MINUTE, catch_up=CatchUp("all"))
    resumed = changes.resume(paused, T + 2 * MINUTE)
    assert resumed is not None
    assert ledger(resumed) == [(0, 0, 1, "paused")]
    assert ticks(resumed) == [1, 2]
    assert (resumed.schedule.state, resumed.schedule.revision) == ("active", 4)
    gone = changes.delete(paused, T + 2 * MINUTE)
    assert ledger(gone) == [(0, 0, 1, "paused"), (1, 2, 2, "deleted")]
    to_the_millisecond = changes.delete(paused, T + MINUTE)
    assert ledger(to_the_millisecond) == [(0, 0, 1, "paused"), (1, 1, 1, "deleted")]
    still = changes.delete(paused, T + MINUTE - 1)
    assert ledger(still) == [(0, 0, 1, "deleted")]


def test_a_tick_that_waits_after_a_pause_still_waits_after_resume() -> None:
    paused = row(state="paused", paused_until=T + MINUTE, wake_at=T + MINUTE, overlap="queue")
    resumed = changes.resume(paused, T + 2 * MINUTE, (RUNNING,))
    assert resumed is not None
    assert (ledger(resumed), resumed.runs) == ([(0, 0, 1, "paused")], ())
    assert (resumed.schedule.state, resumed.schedule.next_tick) == ("active", T + MINUTE)
    # The run may end before this is written, while the schedule is still paused: it would not wake it.
    assert resumed.schedule.wake_at == T + MINUTE


# -- moved ---------------------------------------------------------------------------------------------------


def test_a_tick_that_is_moved_earlier_and_one_that_is_moved_later() -> None:
    before = row()
    back = changes.reschedule(before, T - 1_000, NOW)
    assert back == Planned(
        revised(before, next_tick=T - 1_000, wake_at=T - 1_000, moved=T, generation=3, fire_seq=6)
    )
    stays = changes.reschedule(before, T, NOW)
    assert stays == Planned(revised(before, fire_seq=6))
    on = changes.reschedule(before, T + 90_000, NOW)
    assert ledger(on) == [(0, 1, 2, "rescheduled")]
    assert on.schedule == revised(before, next_tick=T + 90_000, wake_at=T + 90_000, fire_seq=7)


def test_a_tick_that_is_moved_twice_replaces_the_first() -> None:
    once = changes.reschedule(row(), T - 1_000, NOW).schedule
    twice = changes.reschedule(once, T - 500, NOW).schedule
    assert (twice.next_tick, twice.moved) == (T - 500, T)
    home = changes.reschedule(once, T, NOW).schedule
    assert (home.next_tick, home.moved) == (T, None)


def test_rescheduling_keeps_a_pause_and_makes_a_finished_schedule_active() -> None:
    paused = row(state="paused", paused_until=T + 7, wake_at=T + 7)
    moved = changes.reschedule(paused, T + 1, NOW).schedule
    assert (moved.state, moved.next_tick, moved.wake_at) == ("paused", T + 1, T + 7)
    over = row(state="finished", next_tick=None, wake_at=None)
    moved = changes.reschedule(over, T, NOW).schedule
    assert (moved.state, moved.next_tick, moved.wake_at, moved.generation) == ("active", T, T, 3)
    assert moved.moved is None


def test_moving_a_single_tick_leaves_no_moved_tick() -> None:
    single = row(trigger="at 2026-03-01T12:00:00Z")
    moved = changes.reschedule(single, T - 1_000, NOW).schedule
    assert (moved.next_tick, moved.moved) == (T - 1_000, None)


def test_a_tick_outside_the_calendar_is_refused() -> None:
    for tick in (FIRST - 1, LAST + 1):
        with pytest.raises(InvalidValue, match="outside the calendar"):
            changes.reschedule(row(), tick, NOW)
    for tick in (FIRST, LAST):
        assert changes.reschedule(row(trigger="every 1m"), tick, NOW).schedule.next_tick == tick


# -- deleted -------------------------------------------------------------------------------------------------


def test_a_delete_leaves_a_tombstone() -> None:
    before = row(moved=T + MINUTE, pause_note="x")
    gone = changes.delete(before, NOW)
    assert gone == Planned(
        revised(
            before,
            state="deleted",
            next_tick=None,
            moved=None,
            wake_at=None,
            payload="null",
            description="",
            pause_note="",
        )
    )
    over = row(state="finished", next_tick=None, wake_at=None)
    assert changes.delete(over, NOW).schedule.state == "deleted"


def test_every_change_of_a_deleted_schedule_is_refused() -> None:
    gone = row(state="deleted", next_tick=None, wake_at=None)
    changes_to_try: list[Callable[[], object]] = [
        lambda: changes.change(gone, {}, NOW),
        lambda: changes.pause(gone, NOW),
        lambda: changes.resume(gone, NOW),
        lambda: changes.reschedule(gone, T, NOW),
        lambda: changes.delete(gone, NOW),
        lambda: changes.run_now(gone, "r", NOW),
    ]
    for change in changes_to_try:
        with pytest.raises(ScheduleNotFound):
            change()


# -- triggered -----------------------------------------------------------------------------------------------


def test_a_run_by_hand() -> None:
    before = row(kind="flow", queue="slow", priority=9, execution=Execution(retries=3))
    run = RunRecord(
        id="mine",
        tenant="acme",
        schedule="beat",
        generation=2,
        cause="run_now",
        task="work",
        kind="flow",
        payload='{"a": 1}',
        queue="slow",
        priority=9,
        execution=Execution(retries=3),
        scheduled_at=NOW,
        run_at=NOW,
        created_at=NOW,
    )
    fired = replace(before, last_fire=NOW, fire_seq=6)
    assert changes.run_now(before, "mine", NOW) == Planned(fired, (run,))
    other = changes.run_now(before, "mine", NOW, (), "2")
    assert other == Planned(fired, (replace(run, payload="2"),))


@pytest.mark.parametrize(
    ("fields", "active", "room"),
    [
        ({"overlap": "allow"}, (RUNNING, QUEUED), True),
        ({"overlap": "skip"}, (), True),
        ({"overlap": "skip"}, (QUEUED,), False),
        ({"overlap": "queue"}, (RUNNING,), False),
        ({"max_concurrent": 2}, (RUNNING,), True),
        ({"max_concurrent": 2}, (RUNNING, QUEUED), False),
        ({"max_concurrent": 1}, (RUNNING, QUEUED), False),
        ({"max_concurrent": 5, "overlap": "queue"}, (RUNNING,), False),
    ],
)
def test_a_run_by_hand_needs_room_in_the_policies(
    fields: dict[str, Any], active: tuple[Active, ...], room: bool
) -> None:
    assert (changes.run_now(row(**fields), "mine", NOW, active) is not None) is room


# -- damaged, or of a newer version --------------------------------------------------------------------------


UNREADABLE = (
    row(trigger="every now and then"),
    row(trigger="0 9 * * * tz=Moon/Base"),
    row(execution=Execution(), damage="execution: not JSON"),
)


@pytest.mark.parametrize("before", UNREADABLE)
def test_a_damaged_schedule_can_be_replaced(before: ScheduleRecord) -> None:
    wanted = ScheduleRecord(tenant="acme", name="beat", task="other", trigger="every 5m")
    late = T + 3 * MINUTE
    for planned in (
        changes.declare(wanted, late, before),
        changes.change(before, {"trigger": "every 5m", "task": "other"}, late),
    ):
        assert planned is not None
        after = planned.schedule
        assert (after.task, after.trigger, after.damage) == ("other", "every 5m", "")
        assert (after.next_tick, after.wake_at, after.anchor) == (late + 5 * MINUTE, late + 5 * MINUTE, late)
        assert (after.revision, after.generation, planned.runs) == (4, 2, ())
        # Its ticks can't be counted: the ledger names only the due one.
        assert ledger(planned) == [(0, 0, 1, "changed")]
    early = changes.change(before, {"trigger": "every 5m"}, NOW)
    assert early is not None
    assert ledger(early) == []
    # Its next tick may be damaged, too: ids of ticks must stay unique.
    lost = changes.change(replace(before, next_tick=None), {"trigger": "every 5m"}, NOW)
    assert lost is not None
    assert lost.schedule.generation == 3


@pytest.mark.parametrize("before", UNREADABLE)
def test_a_damaged_schedule_can_be_deleted(before: ScheduleRecord) -> None:
    planned = changes.delete(before, T)
    gone = planned.schedule
    assert (gone.state, gone.damage, gone.wake_at) == ("deleted", "", None)
    assert ledger(planned) == [(0, 0, 1, "deleted")]
    assert ledger(changes.delete(before, T - 1)) == []
    assert ledger(changes.delete(replace(before, state="paused"), T)) == []


@pytest.mark.parametrize("before", UNREADABLE[:2])
def test_a_schedule_whose_trigger_can_not_be_read_can_be_paused(before: ScheduleRecord) -> None:
    planned = changes.pause(before, T, "until somebody mends it")
    assert (planned.schedule.state, planned.schedule.wake_at) == ("paused", None)
    # A machine that can read it records the ticks when the pause ends: each of them once.
    assert (planned.schedule.trigger, planned.schedule.next_tick, ledger(planned)) == (before.trigger, T, [])


def test_a_damaged_schedule_is_replaced_by_the_same_declaration() -> None:
    declared = changes.declare(WANTED, NOW, None)
    assert declared is not None
    for state in ("active", "paused"):
        damaged = replace(declared.schedule, state=state, damage="execution: not JSON")
        again = changes.declare(WANTED, NOW, damaged)
        assert again is not None
        assert (again.schedule.damage, again.schedule.state) == ("", state)
        same = changes.change(damaged, {"priority": 9}, NOW)
        assert same is not None
        assert same.schedule.damage == ""


@pytest.mark.parametrize("fields", [{"description": "x" * 1200}, {"payload": "{"}, {"queue": "a b"}])
def test_a_pause_checks_its_own_arguments_alone(fields: dict[str, Any]) -> None:
    assert changes.pause(row(**fields), NOW).schedule.state == "paused"


def test_a_definition_of_any_size_can_be_compared() -> None:
    large = replace(WANTED, payload=f'"{"x" * 999_990}"')
    assert changes.declare(large, NOW, None) is not None


def test_a_damaged_row_is_not_run_or_moved_by_its_defaults() -> None:
    damaged = UNREADABLE[2]
    changes_to_try: list[Callable[[], object]] = [
        lambda: changes.pause(damaged, NOW),
        lambda: changes.resume(damaged, NOW),
        lambda: changes.reschedule(damaged, T + 1, NOW),
        lambda: changes.run_now(damaged, "mine", NOW),
    ]
    for change in changes_to_try:
        with pytest.raises(DamagedSchedule, match="can't be read: execution: not JSON; declare or update it"):
            change()


def test_a_schedule_of_a_newer_format_is_not_changed() -> None:
    newer = row(format=FORMAT + 1)
    changes_to_try: list[Callable[[], object]] = [
        lambda: changes.pause(newer, NOW),
        lambda: changes.change(newer, {"priority": 9}, NOW),
        lambda: changes.run_now(newer, "mine", NOW),
        lambda: changes.delete(newer, NOW),
        lambda: changes.create(WANTED, NOW, replace(newer, state="deleted")),
    ]
    for change in changes_to_try:
        with pytest.raises(ScheduleTooNew, match="upgrade Evenbeat to change it"):
            change()
    # An old node of a mixed fleet starts nevertheless.
    assert changes.declare(WANTED, NOW, newer) is None

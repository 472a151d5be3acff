"""What a due schedule becomes: tables for each policy, and what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.errors import InvalidTrigger
from evenbeat.rules import changes, firing
from evenbeat.rules.firing import (
    CHANGED_CHECK,
    CHANGED_LATELY,
    DEFERRED,
    TICKS_A_STEP,
    WAIT_CHECK,
    Active,
    Planned,
    is_waiting,
    may_be_stuck,
    plan,
    plan_or_defer,
    wakes_on_run_end,
)
from evenbeat.rules.ticks import trigger_of
from evenbeat.triggers import parse_trigger
from tests.lengths import examples

T = 1_772_366_400_000  # 2026-03-01T12:00:00Z
MINUTE = 60_000
BUSY = (Active("r1", "running"),)


def made(trigger: str = "every 1m", now: int = T, **fields: Any) -> ScheduleRecord:
    return changes.create(
        ScheduleRecord(name="cleanup", task="work", trigger=trigger, **fields), now
    ).schedule


def ticks(planned: Planned) -> list[int]:
    """The planned ticks in minutes after T."""
    return [((run.tick or 0) - T) // MINUTE for run in planned.runs]


def ledger(planned: Planned) -> list[tuple[int, int, int, str]]:
    rows = planned.skipped
    return [((r.first - T) // MINUTE, (r.last - T) // MINUTE, r.count, r.reason) for r in rows]


def next_minute(planned: Planned) -> int | None:
    tick = planned.schedule.next_tick
    return None if tick is None else (tick - T) // MINUTE


def test_a_new_schedule_waits_for_its_first_tick() -> None:
    schedule = made()
    assert schedule.next_tick == schedule.wake_at == T + MINUTE
    assert plan(schedule, T).schedule == schedule


def test_a_tick_on_time_fires_one_run_with_the_fields_of_its_schedule() -> None:
    schedule = made(payload='{"a":1}', queue="q", priority=8, kind="flow")
    planned = plan(schedule, T + MINUTE)
    (run,) = planned.runs
    assert run.id == f"default/cleanup/1/{T + MINUTE}"
    assert (run.tick, run.run_at, run.created_at) == (T + MINUTE, T + MINUTE, T + MINUTE)
    assert (run.payload, run.queue, run.priority, run.kind) == ('{"a":1}', "q", 8, "flow")
    assert (run.cause, run.coalesced, run.state, run.attempt) == ("tick", 0, "queued", 0)
    assert planned.skipped == ()
    assert planned.schedule.next_tick == planned.schedule.wake_at == T + 2 * MINUTE
    assert planned.schedule.fire_seq == schedule.fire_seq + 1
    assert planned.schedule.revision == schedule.revision


LATE = [
    # catch-up, now in minutes after T (ticks at 1, 2, 3, …): fired, ledger, next
    (CatchUp("latest"), 5, [5], [(1, 4, 4, "coalesced")], 6),
    (CatchUp("latest"), 1, [1], [], 2),
    (CatchUp("latest"), 2, [2], [(1, 1, 1, "coalesced")], 3),
    (CatchUp("all"), 5, [1, 2, 3, 4, 5], [], 6),
    (CatchUp("all", limit=2), 5, [4, 5], [(1, 3, 3, "limit")], 6),
    (CatchUp("all", limit=1), 5, [5], [(1, 4, 4, "limit")], 6),
    (CatchUp("skip", grace=0), 5, [5], [(1, 4, 4, "late")], 6),
    (CatchUp("skip", grace=2 * MINUTE), 5, [3, 4, 5], [(1, 2, 2, "late")], 6),
    (CatchUp("skip", grace=60 * MINUTE), 3, [1, 2, 3], [], 4),
]


@pytest.mark.parametrize(("policy", "now", "fired", "recorded", "following"), LATE)
def test_missed_ticks_follow_the_catch_up_policy(
    policy: CatchUp, now: int, fired: list[int], recorded: list[tuple[int, int, int, str]], following: int
) -> None:
    planned = plan(made(catch_up=policy), T + now * MINUTE)
    assert ticks(planned) == fired
    assert ledger(planned) == recorded
    assert next_minute(planned) == following


def test_a_coalesced_run_counts_the_ticks_it_stands_for() -> None:
    planned = plan(made(), T + 5 * MINUTE + 1)
    (run,) = planned.runs
    assert run.coalesced == 4
    assert planned.skipped[0].run == run.id


def test_skip_fires_nothing_when_the_last_tick_is_too_late() -> None:
    planned = plan(made(catch_up=CatchUp("skip", grace=1000)), T + 5 * MINUTE + 30_000)
    assert ticks(planned) == []
    assert ledger(planned) == [(1, 5, 5, "late")]
    assert next_minute(planned) == 6


def test_two_weeks_of_missed_seconds_are_one_row() -> None:
    seconds = 14 * 24 * 3600
    planned = plan(made("* * * * * *"), T + seconds * 1000)
    assert [run.coalesced for run in planned.runs] == [seconds - 1]
    assert [row.count for row in planned.skipped] == [seconds - 1]


def test_a_backlog_is_fired_in_steps_so_that_other_schedules_fire_too() -> None:
    schedule = made(catch_up=CatchUp("all", limit=1000))
    now = T + 250 * MINUTE
    first = plan(schedule, now)
    assert len(first.runs) == TICKS_A_STEP
    assert first.schedule.wake_at == now
    second = plan(first.schedule, now)
    third = plan(second.schedule, now)
    assert len(second.runs) + len(third.runs) == 150
    assert third.schedule.next_tick == now + MINUTE


def test_the_last_tick_finishes_the_schedule() -> None:
    schedule = made("every 1m until=2026-03-01T12:02:00Z")
    first = plan(schedule, T + MINUTE)
    last = plan(first.schedule, T + 2 * MINUTE)
    assert ticks(last) == [2]
    assert (last.schedule.state, last.schedule.next_tick, last.schedule.wake_at) == ("finished", None, None)
    assert plan(last.schedule, T + 3 * MINUTE) == Planned(last.schedule)


def test_a_single_instant_in_the_past_is_due_at_once() -> None:
    schedule = made("at 2026-02-01T00:00:00Z")
    planned = plan(schedule, T)
    assert [run.tick for run in planned.runs] == [schedule.next_tick]
    assert planned.schedule.state == "finished"


def test_spread_delays_a_tick_by_the_same_amount_each_time() -> None:
    schedule = made(spread=30_000)
    asleep = plan(schedule, T + MINUTE)
    assert asleep.schedule.wake_at is not None
    delay = asleep.schedule.wake_at - (T + MINUTE)
    assert 0 < delay < 30_000
    fired = plan(schedule, T + MINUTE + delay)
    assert ticks(fired) == [1]
    assert fired.schedule.wake_at == T + 2 * MINUTE + delay
    others = {plan(replace(schedule, name=f"n{i}"), T + MINUTE).schedule.wake_at for i in range(50)}
    assert len(others) > 25


OVERLAP = [
    # overlap, active runs: fired, ledger, next, wakes in
    ("allow", BUSY, [3], [(1, 2, 2, "coalesced")], 4, None),
    ("skip", BUSY, [], [(1, 3, 3, "overlap")], 4, None),
    ("skip", (), [3], [(1, 2, 2, "coalesced")], 4, None),
    ("queue", BUSY, [], [], 1, WAIT_CHECK),
    ("queue", (), [3], [(1, 2, 2, "coalesced")], 4, None),
    ("queue_all", BUSY, [], [], 1, WAIT_CHECK),
    ("queue_all", (), [1], [], 2, 0),
    ("cancel_running", BUSY, [], [], 1, WAIT_CHECK),
    ("cancel_running", (), [3], [(1, 2, 2, "coalesced")], 4, None),
]


@pytest.mark.parametrize(("overlap", "active", "fired", "recorded", "following", "wait"), OVERLAP)
def test_a_tick_during_an_active_run_follows_the_overlap_policy(
    overlap: Any,
    active: tuple[Active, ...],
    fired: list[int],
    recorded: list[tuple[int, int, int, str]],
    following: int,
    wait: int | None,
) -> None:
    now = T + 3 * MINUTE
    planned = plan(made(overlap=overlap), now, active)
    assert ticks(planned) == fired
    assert ledger(planned) == recorded
    assert next_minute(planned) == following
    if wait is not None:
        assert planned.schedule.wake_at == now + wait


def test_cancel_running_cancels_each_active_run_once() -> None:
    active = (Active("a", "running"), Active("b", "running", True), Active("c", "queued"))
    assert plan(made(overlap="cancel_running"), T + MINUTE, active).cancels == ("a", "c")
    assert plan(made(overlap="queue"), T + MINUTE, active).cancels == ()


def test_max_concurrent_bounds_the_active_runs() -> None:
    schedule = made(max_concurrent=3, catch_up=CatchUp("all"))
    assert ticks(plan(schedule, T + 5 * MINUTE, BUSY)) == [1, 2]
    assert ticks(plan(schedule, T + 5 * MINUTE, BUSY * 3)) == []
    assert plan(schedule, T + 5 * MINUTE, BUSY * 3).schedule.wake_at == T + 5 * MINUTE + WAIT_CHECK


def test_a_rescheduled_tick_is_followed_by_a_tick_of_the_trigger() -> None:
    moved = changes.reschedule(made("0 * * * *"), T + 90_000, T).schedule
    planned = plan(moved, T + 90_000)
    assert [run.tick for run in planned.runs] == [T + 90_000]
    # The moved tick does not fire at its own time any more.
    assert planned.schedule.next_tick == T + 120 * MINUTE
    assert planned.schedule.moved is None


triggers = st.sampled_from(
    [
        "* * * * * *",
        "*/7 * * * * *",
        "* * * * *",
        "*/5 * * * *",
        "every 90s",
        "every 1ms",
        "every 7m",
        "0 12 * * * tz=America/New_York",
        "*/30 1-3 * * * tz=America/New_York",
        "at 2026-03-08T07:00:00Z",
        "every 1m until=2026-03-08T08:00:00Z",
    ]
)


@settings(max_examples=examples(400))
@given(
    trigger=triggers,
    catch_up=st.builds(
        CatchUp,
        st.sampled_from(["latest", "all", "skip"]),
        grace=st.sampled_from([0, 1000, 60_000, 10**9]),
        limit=st.integers(1, 200),
    ),
    overlap=st.sampled_from(["allow", "skip", "queue", "queue_all", "cancel_running"]),
    spread=st.sampled_from([0, 1, 5000]),
    steps=st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 2)), min_size=1, max_size=12),
)
def test_every_tick_is_fired_or_skipped_once_and_every_step_advances(
    trigger: str, catch_up: CatchUp, overlap: Any, spread: int, steps: list[tuple[int, int]]
) -> None:
    now = 1_772_952_600_000  # 2026-03-08T06:50:00Z: New York's clock changes at 07:00
    schedule = made(trigger, now, catch_up=catch_up, overlap=overlap, spread=spread)
    first = schedule.next_tick
    fired: list[int] = []
    passed = 0
    for pause, busy in steps:
        now += pause
        planned = plan(schedule, now, (Active("x", "running"),) * busy)
        after = planned.schedule
        # Either the next tick moved forward, or the wake-up did.
        assert after.next_tick != schedule.next_tick or after.wake_at is None or after.wake_at > now
        for run in planned.runs:
            assert run.tick is not None
            assert run.tick <= now
            fired.append(run.tick)
        passed += sum(row.count for row in planned.skipped)
        schedule = after
    assert fired == sorted(set(fired))
    assert first is not None
    last = schedule.next_tick if schedule.next_tick is not None else now + 1
    assert len(fired) + passed == trigger_of(schedule).count_ms(first, last)


class TestWaits:
    def test_a_schedule_with_a_waiting_tick_wakes_on_the_end_of_a_run(self) -> None:
        schedule = made(overlap="queue")
        assert not wakes_on_run_end(schedule)
        assert wakes_on_run_end(plan(schedule, T + MINUTE, BUSY).schedule)
        assert not wakes_on_run_end(plan(schedule, T + MINUTE).schedule)

    def test_a_tick_that_comes_due_while_a_run_ends_is_woken(self) -> None:
        # The clock of the transaction that records the end may be before the tick.
        schedule = plan(made(overlap="queue_all"), T + MINUTE, BUSY).schedule
        assert schedule.next_tick == T + MINUTE
        assert wakes_on_run_end(schedule)

    @pytest.mark.parametrize(
        "fields",
        [
            {"overlap": "allow"},
            {"state": "paused"},
            {"state": "finished", "next_tick": None},
            {"wake_at": None},
            {"wake_at": T + MINUTE},
        ],
    )
    def test_other_schedules_do_not_wake_on_the_end_of_a_run(self, fields: dict[str, Any]) -> None:
        waiting = plan(made(overlap="queue"), T + MINUTE, BUSY).schedule
        assert not wakes_on_run_end(replace(waiting, **fields))

    def test_a_schedule_with_max_concurrent_wakes_on_the_end_of_a_run(self) -> None:
        assert wakes_on_run_end(plan(made(max_concurrent=1), T + MINUTE, BUSY).schedule)

    def test_a_waiting_schedule_that_was_changed_lately_is_planned_again_soon(self) -> None:
        # A transaction that began before the change may record the end of a run without waking the schedule.
        schedule = made(overlap="queue", now=T)
        now = T + MINUTE
        lately = replace(schedule, updated_at=now - CHANGED_LATELY + 1)
        before = replace(schedule, updated_at=now - CHANGED_LATELY)
        assert plan(lately, now, BUSY).schedule.wake_at == now + CHANGED_CHECK
        assert plan(before, now, BUSY).schedule.wake_at == now + WAIT_CHECK


class TestDefer:
    @pytest.mark.parametrize(
        "error",
        [OSError(24, "Too many open files"), MemoryError(), ImportError("tzdata"), PermissionError(13, "no")],
        ids=lambda error: type(error).__name__,
    )
    def test_an_error_of_this_machine_defers_the_schedule(
        self, error: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise error

        schedule = made()
        monkeypatch.setattr(firing, "trigger_of", fails)
        planned = plan_or_defer(schedule, T + MINUTE)
        assert planned.schedule == replace(schedule, wake_at=T + MINUTE + DEFERRED)
        assert (planned.runs, planned.skipped, planned.cancels) == ((), (), ())
        assert planned.deferred
        assert str(error) in planned.deferred

    def test_an_unknown_time_zone_defers_the_schedule(self) -> None:
        schedule = replace(made("0 * * * *"), trigger="0 * * * * tz=Mars/Olympus")
        planned = plan_or_defer(schedule, T + 60 * MINUTE)
        assert planned.schedule.wake_at == T + 60 * MINUTE + DEFERRED
        assert '"Mars/Olympus" is not an IANA time zone' in planned.deferred

    def test_a_bad_row_raises(self) -> None:
        schedule = replace(made(), trigger="61 * * * *")
        with pytest.raises(InvalidTrigger):
            plan_or_defer(schedule, T + MINUTE)

    def test_a_zone_file_that_can_not_be_opened_now_is_not_an_unknown_zone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from evenbeat.triggers import zones

        def fails(key: str) -> None:
            raise OSError(24, "Too many open files", key)

        monkeypatch.setattr(zones, "ZoneInfo", fails)
        zone = "Antarctica/Troll"
        zones.zone.cache_clear()
        monkeypatch.delitem(zones._ZONES, zone, raising=False)
        parse_trigger.cache_clear()
        schedule = replace(made("0 * * * *"), trigger=f"0 * * * * tz={zone}")
        planned = plan_or_defer(schedule, T + 60 * MINUTE)
        assert "Too many open files" in planned.deferred
        monkeypatch.undo()
        assert len(plan_or_defer(schedule, T + 60 * MINUTE).runs) == 1

    def test_the_reason_of_a_deferral_can_be_stored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object) -> None:
            raise OSError("\udcff" * 5_000)

        monkeypatch.setattr(firing, "trigger_of", fails)
        assert plan_or_defer(made(), T + MINUTE).deferred == "?" * 1_000


def test_ticks_within_the_grace_run_up_to_the_limit() -> None:
    schedule = made(catch_up=CatchUp("skip", grace=60 * MINUTE, limit=3))
    planned = plan(schedule, T + 10 * MINUTE)
    assert ticks(planned) == [8, 9, 10]
    assert ledger(planned) == [(1, 7, 7, "limit")]
    assert next_minute(planned) == 11


def test_ticks_beyond_the_grace_and_beyond_the_limit_have_different_reasons() -> None:
    schedule = made(catch_up=CatchUp("skip", grace=5 * MINUTE, limit=2))
    planned = plan(schedule, T + 10 * MINUTE)
    assert ticks(planned) == [9, 10]
    assert ledger(planned) == [(1, 4, 4, "late"), (5, 8, 4, "limit")]


def test_a_schedule_may_be_stuck_if_it_sleeps_beyond_its_tick_and_its_share_of_the_spread() -> None:
    spread = plan(made(spread=10_000), T + MINUTE).schedule
    assert spread.next_tick is not None
    assert spread.wake_at is not None
    assert spread.wake_at > spread.next_tick
    done, paused = replace(made(), next_tick=None), replace(made(), state="paused", wake_at=None)
    for healthy in (spread, made(), done, paused):
        assert not may_be_stuck(healthy, T)
    for stuck in (
        replace(spread, wake_at=spread.wake_at + 1),
        replace(made(), wake_at=None),
        replace(made(), damage="unreadable"),
    ):
        assert may_be_stuck(stuck, T)


def test_a_schedule_is_waiting_once_its_due_tick_has_met_an_active_run() -> None:
    due = T + MINUTE
    queue = made(overlap="queue", spread=10_000)
    assert not is_waiting(queue)
    # Not before its share of the spread is over.
    assert not is_waiting(plan(queue, due, BUSY).schedule)
    waiting = plan(queue, due + 10_000, BUSY).schedule
    assert is_waiting(waiting)
    assert is_waiting(plan(made(max_concurrent=1), due, BUSY).schedule)
    assert not is_waiting(plan(waiting, due + 20_000).schedule)
    assert not is_waiting(replace(waiting, state="paused"))
    assert not is_waiting(replace(waiting, wake_at=None))
    # Deferred by a node, with policies that let no tick wait.
    for policies in ({}, {"overlap": "skip"}, {"overlap": "skip", "max_concurrent": 1}):
        assert not is_waiting(replace(made(**policies), wake_at=due + DEFERRED))

"""``catch_up_max_age`` and ``catch_up_rate``: which missed ticks run, and how fast."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import InvalidValue, RunContext, Schedule, every
from evenbeat.core.json_text import decode_policy, encode_policy
from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import (
    CLOCKS_APART,
    RATE_STEP,
    TICKS_A_STEP,
    Active,
    Planned,
    catching_up,
    is_waiting,
    may_be_stuck,
    plan,
)
from evenbeat.rules.ticks import spread_delay
from evenbeat.testing import virtual
from tests.lengths import examples

T = 1_772_366_400_000  # 2026-03-01T12:00:00Z
SECOND, MINUTE = 1_000, 60_000
TEN_A_MINUTE = Rate(10, MINUTE)


def made(policy: CatchUp, trigger: str = "every 1m", **fields: Any) -> ScheduleRecord:
    wanted = ScheduleRecord(name="cleanup", task="work", trigger=trigger, catch_up=policy, **fields)
    return changes.create(wanted, T).schedule


def ticks(planned: Planned) -> list[int]:
    """The planned ticks in minutes after T."""
    return [((run.tick or 0) - T) // MINUTE for run in planned.runs]


def ledger(planned: Planned) -> list[tuple[int, int, int, str]]:
    rows = planned.skipped
    return [((r.first - T) // MINUTE, (r.last - T) // MINUTE, r.count, r.reason) for r in rows]


# -- the age ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "age", "fired", "skipped"),
    [
        ("all", 3 * MINUTE, [7, 8, 9, 10], [(1, 6, 6, "late")]),
        ("all", 3 * MINUTE - 1, [8, 9, 10], [(1, 7, 7, "late")]),
        ("all", 9 * MINUTE, list(range(1, 11)), []),
        ("latest", 3 * MINUTE, [10], [(1, 6, 6, "late"), (7, 9, 3, "coalesced")]),
        ("latest", 9 * MINUTE, [10], [(1, 9, 9, "coalesced")]),
    ],
)
def test_ticks_that_are_too_old_are_recorded_as_late(
    kind: Any, age: int, fired: list[int], skipped: list[tuple[int, int, int, str]]
) -> None:
    planned = plan(made(CatchUp(kind, max_age=age)), T + 10 * MINUTE)
    assert (ticks(planned), ledger(planned)) == (fired, skipped)
    assert planned.schedule.next_tick == T + 11 * MINUTE


@pytest.mark.parametrize("kind", ["all", "latest"])
def test_a_single_tick_that_is_too_old_does_not_run(kind: Any) -> None:
    schedule = made(CatchUp(kind, max_age=MINUTE), "every 1h")
    assert ticks(plan(schedule, T + 61 * MINUTE)) == [60]
    late = plan(schedule, T + 61 * MINUTE + 1)
    assert (ticks(late), ledger(late)) == ([], [(60, 60, 1, "late")])
    assert late.schedule.next_tick == late.schedule.wake_at == T + 120 * MINUTE


def test_with_skip_the_grace_is_the_age() -> None:
    planned = plan(made(CatchUp("skip", grace=5 * MINUTE, max_age=MINUTE)), T + 10 * MINUTE)
    assert ticks(planned) == [5, 6, 7, 8, 9, 10]


def test_the_age_is_counted_from_the_spread_start() -> None:
    schedule = made(CatchUp("all", max_age=MINUTE), "every 1h", spread=30 * MINUTE)
    due = plan(schedule, T + 60 * MINUTE).schedule.wake_at
    assert due is not None
    assert due > T + 60 * MINUTE
    assert ticks(plan(schedule, due + MINUTE)) == [60]
    assert ticks(plan(schedule, due + MINUTE + 1)) == []


# -- the rate --------------------------------------------------------------------------------------


def caught_up(schedule: ScheduleRecord, now: int, most: int = 1000) -> list[tuple[int, list[int]]]:
    """Plan the schedule whenever it wakes, until it is no longer catching up: (instant, ticks) of each."""
    steps = []
    for _ in range(most):
        planned = plan(schedule, now)
        if planned.runs:
            steps.append((now, [run.tick or 0 for run in planned.runs]))
        schedule = planned.schedule
        if catching_up(schedule) is None:
            return steps
        assert schedule.wake_at is not None
        assert schedule.wake_at > now
        now = schedule.wake_at
    raise AssertionError("it never ends")


def test_missed_ticks_run_one_by_one_at_the_rate_oldest_first() -> None:
    steps = caught_up(made(CatchUp("all", rate=TEN_A_MINUTE), "every 10m"), T + 65 * MINUTE)
    start = T + 65 * MINUTE
    assert steps == [(start + n * 6 * SECOND, [T + (n + 1) * 10 * MINUTE]) for n in range(6)]


def test_skip_runs_the_ticks_within_its_grace_at_the_rate() -> None:
    policy = CatchUp("skip", grace=25 * MINUTE, rate=TEN_A_MINUTE)
    schedule = made(policy, "every 10m")
    now = T + 65 * MINUTE
    first = plan(schedule, now)
    assert (ticks(first), ledger(first)) == ([40], [(10, 30, 3, "late")])
    assert first.schedule.wake_at == now + 6 * SECOND
    # A tick that gets too late while it waits is recorded, and the next one still waits for its turn.
    later = plan(replace(first.schedule, last_fire=now + 11 * MINUTE), now + 11 * MINUTE + 1)
    assert (ticks(later), ledger(later)) == ([], [(50, 50, 1, "late")])
    assert later.schedule.wake_at == now + 11 * MINUTE + 6 * SECOND
    assert later.schedule.fire_seq == first.schedule.fire_seq + 1


def test_a_tick_on_time_never_waits() -> None:
    schedule = made(CatchUp("all", rate=Rate(1, 24 * 60 * MINUTE)))
    for minute in (1, 2, 3):
        planned = plan(schedule, T + minute * MINUTE)
        assert ticks(planned) == [minute]
        assert planned.schedule.wake_at == T + (minute + 1) * MINUTE
        assert catching_up(planned.schedule) is None
        schedule = planned.schedule


def test_a_wake_up_before_its_turn_fires_nothing_and_sleeps_again() -> None:
    held = plan(made(CatchUp("all", rate=TEN_A_MINUTE)), T + 10 * MINUTE).schedule
    early = plan(replace(held, wake_at=T + 10 * MINUTE + 1), T + 10 * MINUTE + 1)
    assert early == Planned(held)


@pytest.mark.parametrize("overlap", ["queue", "allow"])
def test_a_policy_that_fires_one_tick_has_no_rate(overlap: Any) -> None:
    kind: Any = "all" if overlap == "queue" else "latest"
    planned = plan(made(CatchUp(kind, rate=TEN_A_MINUTE), overlap=overlap), T + 10 * MINUTE)
    assert ticks(planned) == [10]
    assert planned.schedule.wake_at == T + 11 * MINUTE


def test_a_fast_rate_fires_what_it_allows_in_a_second_at_once() -> None:
    for rate, batch, pause in (
        (Rate(5, SECOND), 5, SECOND),
        (Rate(90, MINUTE), 1, 667),
        (Rate(1_000_000, SECOND), TICKS_A_STEP, 1),
        (Rate(1, 31 * 24 * 60 * MINUTE), 1, 31 * 24 * 60 * MINUTE),
    ):
        planned = plan(made(CatchUp("all", limit=1_000, rate=rate)), T + 500 * MINUTE)
        assert len(planned.runs) == batch
        assert planned.schedule.wake_at == T + 500 * MINUTE + pause


def test_a_clock_that_was_set_back_does_not_stop_a_schedule() -> None:
    held = plan(made(CatchUp("all", rate=TEN_A_MINUTE)), T + 10 * MINUTE).schedule
    now = T + 9 * MINUTE
    near = replace(held, last_fire=now + CLOCKS_APART)
    assert not plan(near, now).runs
    assert plan(replace(held, last_fire=now + CLOCKS_APART + 1), now).runs


def test_a_schedule_that_catches_up_neither_waits_for_a_run_nor_is_stuck() -> None:
    held = plan(made(CatchUp("all", rate=TEN_A_MINUTE), max_concurrent=5), T + 10 * MINUTE).schedule
    found = catching_up(held)
    assert found is not None
    assert found == (9, T + 10 * MINUTE + 6 * SECOND)
    assert not is_waiting(held)
    assert not may_be_stuck(held, T)
    # The end of a run wakes it early; a deferral by a node is not the rate's doing.
    assert catching_up(replace(held, wake_at=T + 10 * MINUTE + 60 * SECOND)) is None
    assert may_be_stuck(replace(held, wake_at=T + 10 * MINUTE + 60 * SECOND), T)
    assert catching_up(replace(held, state="paused")) is None


def test_a_full_schedule_waits_for_a_run_first_and_for_the_rate_then() -> None:
    busy = (Active("r1", "running"),)
    schedule = made(CatchUp("all", rate=TEN_A_MINUTE), max_concurrent=1)
    first = plan(schedule, T + 10 * MINUTE).schedule
    waiting = plan(replace(first, wake_at=T + 10 * MINUTE + 6 * SECOND), T + 10 * MINUTE + 6 * SECOND, busy)
    assert is_waiting(waiting.schedule)
    assert not waiting.runs
    assert ticks(plan(waiting.schedule, T + 10 * MINUTE + 7 * SECOND)) == [2]


def test_another_trigger_records_the_ticks_that_the_rate_held_back() -> None:
    held = plan(made(CatchUp("all", rate=TEN_A_MINUTE)), T + 10 * MINUTE).schedule
    changed = changes.change(held, {"trigger": "every 2m"}, T + 10 * MINUTE + SECOND)
    assert changed is not None
    assert (ticks(changed), ledger(changed)) == ([], [(2, 10, 9, "changed")])
    same = changes.change(held, {"payload": '{"a":1}'}, T + 10 * MINUTE + SECOND)
    assert same is not None
    assert not same.runs
    again = plan(same.schedule, T + 10 * MINUTE + SECOND).schedule
    assert catching_up(again) == catching_up(held)


@given(
    count=st.integers(1, 50),
    period=st.sampled_from([SECOND, 10 * SECOND, MINUTE, 60 * MINUTE]),
    interval=st.integers(1, 120),
    missed=st.integers(2, 60),
    kind=st.sampled_from(["all", "skip"]),
    early=st.lists(st.integers(0, 10_000), max_size=3),
)
@settings(max_examples=examples(200))
def test_no_window_has_more_ticks_than_the_rate_and_its_burst(
    count: int, period: int, interval: int, missed: int, kind: Any, early: list[int]
) -> None:
    rate = Rate(count, period)
    policy = CatchUp(kind, grace=10**12, limit=10_000, rate=rate)
    schedule = made(policy, f"every {interval}s")
    now = down = T + missed * interval * SECOND
    fired: list[tuple[int, int]] = []
    for step in range(40):
        planned = plan(schedule, now)
        fired += [(now, run.tick or 0) for run in planned.runs]
        schedule = planned.schedule
        assert schedule.wake_at is not None
        # Something may wake it earlier than it asked for.
        now = min(schedule.wake_at, now + early[step]) if step < len(early) else schedule.wake_at
    assert [tick for _, tick in fired] == sorted(tick for _, tick in fired)
    overdue = [at for at, tick in fired if tick <= down]
    burst = max(1, count * RATE_STEP // period)
    for first, at in enumerate(overdue):
        within = [other for other in overdue[first:] if other < at + period]
        assert len(within) <= count + burst


# -- the row ---------------------------------------------------------------------------------------


def test_rows_without_the_options_read_as_before() -> None:
    assert decode_policy('{"kind":"all","grace":60000,"limit":7}', CatchUp) == CatchUp("all", limit=7)
    policy = CatchUp("all", max_age=5, rate=TEN_A_MINUTE)
    assert decode_policy(encode_policy(policy), CatchUp) == policy


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"catch_up_rate": "10/m"}, "catch_up_rate", 'has no effect with catch_up="latest"'),
        ({"catch_up": "skip", "catch_up_max_age": "1h"}, "catch_up_max_age", "grace is the age"),
        ({"catch_up": "all", "catch_up_rate": "fast"}, "catch_up_rate", '"fast" is not a rate'),
        ({"catch_up": "all", "catch_up_rate": "0/m"}, "catch_up_rate", "not 1 to 1,000,000"),
        ({"catch_up": "all", "catch_up_rate": "-1/m"}, "catch_up_rate", "is not a rate"),
        ({"catch_up": "all", "catch_up_rate": f"{2**63}/m"}, "catch_up_rate", "not 1 to 1,000,000"),
        ({"catch_up": "all", "catch_up_rate": "1/100d"}, "catch_up_rate", "not 1s to 31d"),
        ({"catch_up": "all", "catch_up_rate": 10}, "catch_up_rate", "10 is not a rate"),
        ({"catch_up": "all", "catch_up_max_age": 0}, "catch_up_max_age", "shorter than 1s"),
        ({"catch_up": "all", "catch_up_max_age": "-1s"}, "catch_up_max_age", "is not a duration"),
        ({"catch_up": "all", "catch_up_max_age": 2**63}, "catch_up_max_age", "catch_up_max_age"),
    ],
)
def test_a_bad_value_is_refused_with_its_field(options: Any, field: str, message: str) -> None:
    with virtual() as app, pytest.raises(InvalidValue) as refused:
        app.schedules.add("a", every("1h"), "work", **options)
    assert refused.value.field == field
    assert message in str(refused.value)


def test_records_refuse_a_rate_that_no_text_gives() -> None:
    for rate in (Rate(0, MINUTE), Rate(1, 0), Rate(1, 2**40), Rate(2_000_000, MINUTE)):
        with pytest.raises(InvalidValue, match="catch_up_rate"):
            made(CatchUp("all", rate=rate))


def test_the_options_can_be_taken_away() -> None:
    with virtual() as app:
        options: Any = {"catch_up": "all", "catch_up_rate": "10 / m", "catch_up_max_age": "2d"}
        info = app.schedules.add("a", every("1h"), "work", **options)
        assert (info.catch_up_rate, info.catch_up_max_age) == ("10/m", timedelta(days=2))
        info = app.schedules.update("a", catch_up_rate=None, catch_up_max_age=None)
        assert (info.catch_up_rate, info.catch_up_max_age) == (None, None)


# -- what users see --------------------------------------------------------------------------------


def test_an_outage_is_caught_up_at_the_rate_and_says_so() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as app:
        started: list[datetime] = []

        @app.task
        def work(run: RunContext) -> None:
            started.append(app.now)

        options: Any = {"catch_up": "all", "catch_up_rate": "10/m", "catch_up_max_age": "40m"}
        app.schedules.add("billing", every("10m"), work, **options)
        app.down_for("1h5m")
        app.run_pending()
        info: Schedule = app.schedules.get("billing")
        assert info.catch_up_left == 3
        assert info.catch_up_at is not None
        assert info.catch_up_at.isoformat() == "2026-03-01T13:05:06+00:00"
        assert not info.is_waiting
        why = app.schedules.why("billing")
        assert why.verdict == "catching_up"
        assert "catching up (catch_up_rate 10/m): 3 ticks left, next at" in why.sentence
        account = app.schedules.account("billing", "2026-03-01T12:01:00Z")
        assert (account.ran, account.pending, account.skipped) == (1, 3, {"late": 2})
        old = app.schedules.why("billing", "2026-03-01T12:10:00Z")
        assert old.verdict == "late"
        assert "--catch-up-max-age" in (old.remedy or "")
        app.travel("1m")
        assert [f"{at:%M:%S}" for at in started] == ["05:00", "05:06", "05:12", "05:18"]
        info = app.schedules.get("billing")
        assert (info.catch_up_left, info.catch_up_at) == (0, None)
        assert app.schedules.account("billing", "2026-03-01T12:01:00Z").adds_up


# -- the spread ------------------------------------------------------------------------------------


def spread_by(delay: int, policy: CatchUp, trigger: str = "every 1m") -> ScheduleRecord:
    """A schedule whose ticks fire so much later, because of its name."""
    wide = made(policy, trigger, spread=2 * MINUTE)
    names = (replace(wide, name=f"n{at}") for at in range(10_000))
    return next(schedule for schedule in names if abs(spread_delay(schedule) - delay) < SECOND)


@pytest.mark.parametrize("kind", ["all", "latest", "skip"])
def test_a_tick_before_its_spread_start_is_not_due(kind: Any) -> None:
    schedule = spread_by(45 * SECOND, CatchUp(kind))
    planned = plan(schedule, T + MINUTE + spread_delay(schedule))
    assert ticks(planned) == [1]
    assert planned.schedule.next_tick == T + 2 * MINUTE


def test_a_rate_holds_back_no_tick_whose_spread_start_is_on_time() -> None:
    schedule = spread_by(45 * SECOND, CatchUp("all", rate=Rate(1, 10 * MINUTE)))
    first = plan(schedule, T + MINUTE + spread_delay(schedule)).schedule
    assert catching_up(first) is None
    assert ticks(plan(first, T + 2 * MINUTE + spread_delay(schedule))) == [2]


def test_a_rate_holds_back_a_tick_that_was_due_at_the_instant_of_the_last_fire() -> None:
    schedule = spread_by(45 * SECOND, CatchUp("all", rate=Rate(1, 10 * MINUTE)))
    fired = T + 2 * MINUTE + spread_delay(schedule)
    first = plan(schedule, fired)
    assert ticks(first) == [1]
    again = plan(replace(first.schedule, wake_at=fired + 1), fired + 1)
    assert ticks(again) == []
    assert again.schedule.wake_at == fired + 10 * MINUTE


def test_a_tick_that_comes_when_the_rate_would_allow_one_is_not_held_back() -> None:
    schedule = plan(made(CatchUp("all", rate=Rate(1, MINUTE))), T + MINUTE).schedule
    assert schedule.wake_at == T + 2 * MINUTE
    assert catching_up(schedule) is None

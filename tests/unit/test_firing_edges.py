"""The rules of firing at their edges: one millisecond, one tick, one run, one byte before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenbeat.core.records import CatchUp, Execution, Reason, RunRecord, ScheduleRecord
from evenbeat.errors import UnknownZone
from evenbeat.rules import firing
from evenbeat.rules.firing import Active, Planned, plan, plan_or_defer, wakes_on_run_end
from evenbeat.rules.ticks import MovedTick, next_start, spread_delay, trigger_of, upcoming_tick
from evenbeat.triggers import At, Every, parse_trigger

MINUTE = 60_000
# A tick of every trigger here.
T = 1_772_366_400_000


def schedule(**fields: Any) -> ScheduleRecord:
    wanted: dict[str, Any] = {
        "name": "beat",
        "task": "work",
        "trigger": "* * * * *",
        "next_tick": T,
        "wake_at": T,
        "updated_at": T - 3_600_000,
        **fields,
    }
    return ScheduleRecord(**wanted)


def ticks(planned: Planned) -> list[float]:
    """Of the runs, in minutes."""
    return [((run.tick or 0) - T) / MINUTE for run in planned.runs]


def ledger(planned: Planned) -> list[tuple[float, float, int, str]]:
    return [
        ((row.first - T) / MINUTE, (row.last - T) / MINUTE, row.count, row.reason) for row in planned.skipped
    ]


# -- a tick that was moved -----------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [1, 10])
@pytest.mark.parametrize(("tick", "instead_of"), [(25, 40), (20, 40), (25, 30), (39, 40), (40, 40), (1, 90)])
def test_a_moved_tick_replaces_the_ticks_up_to_its_original(period: int, tick: int, instead_of: int) -> None:
    plain = Every(period, start=0, until=100)
    moved = MovedTick(plain, tick, instead_of)
    kept = [at for at in range(0, 101, period) if at < tick or at > instead_of]
    expected = sorted({*kept, tick})
    for at in range(-5, 110):
        assert moved.next_ms(at) == next((one for one in expected if one > at), None), at
        assert moved.prev_ms(at) == next((one for one in reversed(expected) if one < at), None), at
        for end in range(-5, 110, 3):
            assert moved.count_ms(at, end) == sum(at <= one < end for one in expected), (at, end)


def test_a_trigger_with_a_moved_tick_has_the_text_of_its_own_trigger() -> None:
    plain = parse_trigger("0 9 * * * tz=Europe/Berlin")
    moved = MovedTick(plain, T, T + 1)
    assert (moved.explain(), str(moved), moved.tzinfo) == (plain.explain(), str(plain), plain.tzinfo)
    assert moved.bind("other", T) is moved


def test_the_trigger_of_a_schedule_includes_its_moved_tick() -> None:
    assert trigger_of(schedule()) == parse_trigger("* * * * *")
    assert trigger_of(schedule(moved=T + MINUTE)) == MovedTick(parse_trigger("* * * * *"), T, T + MINUTE)
    assert trigger_of(schedule(moved=T + MINUTE, next_tick=None)) == parse_trigger("* * * * *")
    single = f"at {'2026-03-01T12:00:00Z'}"
    assert trigger_of(schedule(trigger=single, next_tick=None)) == At(T)
    assert trigger_of(schedule(trigger=single)) == At(T)
    assert trigger_of(schedule(trigger=single, next_tick=T + 5)) == At(T + 5)


# -- what comes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, T),
        ({"next_tick": None}, None),
        ({"state": "paused"}, T),
        ({"state": "paused", "next_tick": None, "paused_until": T}, None),
        ({"state": "paused", "paused_until": T - 1}, T),
        ({"state": "paused", "paused_until": T}, T),
        ({"state": "paused", "paused_until": T + 1}, T + MINUTE),
        ({"state": "paused", "paused_until": T + MINUTE}, T + MINUTE),
        ({"state": "paused", "paused_until": T + MINUTE + 1}, T + 2 * MINUTE),
        ({"state": "active", "paused_until": T + MINUTE}, T),
        # Moved to where the trigger has no tick.
        ({"state": "paused", "next_tick": T + 30_000, "paused_until": T}, T + 30_000),
        ({"state": "paused", "next_tick": T + 30_000, "paused_until": T + 30_000}, T + 30_000),
        ({"state": "paused", "next_tick": T + 30_000, "paused_until": T + 30_001}, T + MINUTE),
    ],
)
def test_the_upcoming_tick_of_a_paused_schedule_is_the_first_after_the_pause(
    fields: dict[str, Any], expected: int | None
) -> None:
    assert upcoming_tick(schedule(**fields)) == expected


# -- due or not ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "finished"},
        {"state": "deleted"},
        {"next_tick": None},
        {"state": "finished", "next_tick": None},
    ],
)
def test_a_schedule_without_a_tick_to_fire_has_no_wake_up(fields: dict[str, Any]) -> None:
    planned = plan(schedule(**fields), T + MINUTE)
    assert (planned.schedule.wake_at, planned.runs, planned.skipped) == (None, (), ())


def test_a_tick_is_due_to_the_millisecond() -> None:
    early = plan(schedule(), T - 1)
    assert (early.runs, early.schedule.wake_at) == ((), T)
    assert ticks(plan(schedule(), T)) == [0]


def test_a_spread_tick_is_due_after_its_delay_to_the_millisecond() -> None:
    spread = schedule(spread=30_000)
    delay = spread_delay(spread)
    assert 0 < delay < 30_000
    early = plan(spread, T + delay - 1)
    assert (early.runs, early.schedule.wake_at) == ((), T + delay)
    fired = plan(spread, T + delay)
    assert ticks(fired) == [0]
    assert fired.schedule.wake_at == T + MINUTE + delay
    # Its lateness counts from its own time.
    assert fired.runs[0].run_at == fired.runs[0].scheduled_at == T + delay
    assert next_start(fired.schedule) == T + MINUTE + delay


def test_a_delay_depends_on_tenant_and_name_and_is_below_the_spread() -> None:
    delays = {spread_delay(schedule(name=f"s{number}", spread=3)) for number in range(100)}
    assert delays == {0, 1, 2}
    assert spread_delay(schedule(spread=1_000_000)) != spread_delay(schedule(spread=1_000_000, tenant="acme"))
    assert {spread_delay(schedule(spread=spread)) for spread in (0, 1)} == {0}
    # Nodes of every version compute the same.
    assert spread_delay(schedule(spread=1_000_000)) == 606_480


# -- one run, with all fields -------------------------------------------------------------------------


def test_a_run_has_the_fields_of_its_schedule() -> None:
    execution = Execution(retries=7)
    fields: dict[str, Any] = {
        "tenant": "acme",
        "kind": "flow",
        "payload": '{"a": 1}',
        "queue": "slow",
        "priority": 9,
        "execution": execution,
        "generation": 4,
    }
    (run,) = plan(schedule(**fields), T + 7).runs
    for name, value in fields.items():
        assert getattr(run, name) == value
    assert (run.id, run.schedule, run.task) == (f"acme/beat/4/{T}", "beat", "work")
    assert (run.tick, run.scheduled_at, run.run_at, run.created_at) == (T, T, T, T + 7)
    assert (run.cause, run.coalesced, run.state) == ("tick", 0, "queued")


def test_a_ledger_row_names_its_schedule() -> None:
    planned = plan(schedule(tenant="acme", generation=4), T + 2 * MINUTE + 5)
    (row,), (run,) = planned.skipped, planned.runs
    assert (row.tenant, row.schedule, row.generation) == ("acme", "beat", 4)
    assert (row.recorded_at, row.run) == (T + 2 * MINUTE + 5, run.id)
    assert run.coalesced == row.count == 2


def test_every_step_counts_as_a_fire_and_clears_the_moved_tick() -> None:
    planned = plan(schedule(fire_seq=5, moved=T), T)
    assert (planned.schedule.fire_seq, planned.schedule.moved) == (6, None)
    last = plan(schedule(fire_seq=5, trigger="every 1m until=2026-03-01T12:00:00Z", moved=T), T)
    after = last.schedule
    assert (after.state, after.next_tick, after.moved, after.wake_at, after.fire_seq) == (
        "finished",
        None,
        None,
        None,
        6,
    )


# -- missed ticks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "fired", "rows"),
    [
        (0, [0], []),
        (MINUTE - 1, [0], []),
        (MINUTE, [1], [(0, 0, 1, "coalesced")]),
        (3 * MINUTE - 1, [2], [(0, 1, 2, "coalesced")]),
        (3 * MINUTE, [3], [(0, 2, 3, "coalesced")]),
    ],
)
def test_the_latest_of_the_missed_ticks_fires_for_all(late: int, fired: list[float], rows: list[Any]) -> None:
    planned = plan(schedule(), T + late)
    assert (ticks(planned), ledger(planned)) == (fired, rows)
    assert planned.schedule.next_tick == T + int(fired[-1]) * MINUTE + MINUTE


@pytest.mark.parametrize(
    ("limit", "late", "fired", "rows"),
    [
        (3, 2, [0, 1, 2], []),
        (3, 3, [1, 2, 3], [(0, 0, 1, "limit")]),
        (3, 9, [7, 8, 9], [(0, 6, 7, "limit")]),
        (1, 2, [2], [(0, 1, 2, "limit")]),
        (1, 0, [0], []),
    ],
)
@pytest.mark.parametrize("rest", [0, MINUTE - 1])
def test_the_newest_of_all_missed_ticks_are_fired(
    limit: int, late: int, fired: list[float], rows: list[Any], rest: int
) -> None:
    planned = plan(schedule(catch_up=CatchUp("all", limit=limit)), T + late * MINUTE + rest)
    assert (ticks(planned), ledger(planned)) == (fired, rows)
    assert planned.schedule.next_tick == T + (late + 1) * MINUTE


@pytest.mark.parametrize(
    ("grace", "late", "fired", "rows"),
    [
        (0, 0, [0], []),
        (0, 1, [], [(0, 0, 1, "late")]),
        (0, 5 * MINUTE, [5], [(0, 4, 5, "late")]),
        (MINUTE, MINUTE, [0, 1], []),
        (MINUTE, MINUTE + 1, [1], [(0, 0, 1, "late")]),
        (2 * MINUTE, 5 * MINUTE, [3, 4, 5], [(0, 2, 3, "late")]),
        (2 * MINUTE, 5 * MINUTE + 1, [4, 5], [(0, 3, 4, "late")]),
        (10, 59_999, [], [(0, 0, 1, "late")]),
    ],
)
def test_ticks_beyond_the_grace_are_skipped(
    grace: int, late: int, fired: list[float], rows: list[Any]
) -> None:
    planned = plan(schedule(catch_up=CatchUp("skip", grace=grace)), T + late)
    assert (ticks(planned), ledger(planned)) == (fired, rows)
    assert planned.schedule.next_tick == T + (late // MINUTE + 1) * MINUTE


def test_ticks_within_the_grace_are_bounded_too() -> None:
    beat = schedule(catch_up=CatchUp("skip", grace=5 * MINUTE, limit=2))
    planned = plan(beat, T + 9 * MINUTE)
    assert ticks(planned) == [8, 9]
    assert ledger(planned) == [(0, 3, 4, "late"), (4, 7, 4, "limit")]


@pytest.mark.parametrize(
    ("payload", "count"),
    [(2, 100), (40_000, 100), (40_001, 99), (400_000, 10), (2_000_000, 2), (2_000_001, 1), (9_000_000, 1)],
)
def test_a_step_fires_no_more_than_a_hundred_ticks_nor_four_million_bytes(payload: int, count: int) -> None:
    beat = schedule(catch_up=CatchUp("all", limit=1_000), payload="x" * payload)
    planned = plan(beat, T + 500 * MINUTE)
    assert len(planned.runs) == count
    assert planned.schedule.next_tick == T + count * MINUTE
    # The rest at once.
    assert planned.schedule.wake_at == T + 500 * MINUTE


def test_ticks_of_every_millisecond_are_counted_one_by_one() -> None:
    fast: dict[str, Any] = {"trigger": "every 1ms start=2026-03-01T12:00:00Z"}

    def counted(planned: Planned) -> tuple[list[int], list[tuple[int, int, int, Reason]], int]:
        runs = [(run.tick or 0) - T for run in planned.runs]
        rows = [(row.first - T, row.last - T, row.count, row.reason) for row in planned.skipped]
        return runs, rows, (planned.schedule.next_tick or 0) - T

    assert counted(plan(schedule(**fast), T + 5)) == ([5], [(0, 4, 5, "coalesced")], 6)
    some = schedule(**fast, catch_up=CatchUp("all", limit=2))
    assert counted(plan(some, T + 5)) == ([4, 5], [(0, 3, 4, "limit")], 6)
    punctual = schedule(**fast, catch_up=CatchUp("skip", grace=1))
    assert counted(plan(punctual, T + 5)) == ([4, 5], [(0, 3, 4, "late")], 6)
    skipping = schedule(**fast, overlap="skip")
    assert counted(plan(skipping, T + 5, (RUNNING,))) == ([], [(0, 5, 6, "overlap")], 6)
    paused = schedule(**fast, state="paused", paused_until=T + 3)
    assert counted(plan(paused, T + 5)) == ([], [(0, 2, 3, "paused")], 3)


# -- overlap -------------------------------------------------------------------------------------------------


RUNNING = Active("r1", "running")
QUEUED = Active("r2", "queued")
ASKED = Active("r3", "running", cancel_requested=True)
ASKED_AND_QUEUED = Active("r4", "queued", cancel_requested=True)


@pytest.mark.parametrize(
    ("fields", "active", "fires"),
    [
        ({"overlap": "allow"}, (RUNNING, QUEUED), True),
        ({"overlap": "queue"}, (), True),
        ({"overlap": "queue"}, (QUEUED,), False),
        ({"overlap": "queue_all"}, (RUNNING,), False),
        ({"overlap": "cancel_running"}, (RUNNING,), False),
        ({"max_concurrent": 2}, (RUNNING,), True),
        ({"max_concurrent": 2}, (RUNNING, QUEUED), False),
        ({"max_concurrent": 1}, (RUNNING, QUEUED), False),
        ({"max_concurrent": 9, "overlap": "queue"}, (RUNNING,), False),
    ],
)
def test_a_tick_fires_if_its_policies_leave_room(
    fields: dict[str, Any], active: tuple[Active, ...], fires: bool
) -> None:
    planned = plan(schedule(**fields), T, active)
    assert ticks(planned) == ([0] if fires else [])
    if not fires:
        # It stays the next tick, and the schedule waits for a run to end.
        assert (planned.schedule.next_tick, planned.schedule.wake_at) == (T, T + firing.WAIT_CHECK)
        assert wakes_on_run_end(planned.schedule)


@pytest.mark.parametrize(("ago", "check"), [(0, 1_000), (59_999, 1_000), (60_000, 30_000), (10**9, 30_000)])
def test_a_schedule_that_was_changed_lately_is_planned_more_often_while_it_waits(
    ago: int, check: int
) -> None:
    planned = plan(schedule(overlap="queue", updated_at=T - ago), T, (RUNNING,))
    assert planned.schedule.wake_at == T + check


def test_max_concurrent_bounds_the_runs_of_a_backlog() -> None:
    beat = schedule(max_concurrent=3, catch_up=CatchUp("all", limit=50))
    assert ticks(plan(beat, T + 9 * MINUTE, (RUNNING,))) == [0, 1]
    assert ticks(plan(beat, T + 9 * MINUTE)) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["latest", "all", "skip"])
def test_queue_and_queue_all_override_catch_up(kind: Any) -> None:
    catch_up = CatchUp(kind, grace=0, limit=50)
    one = plan(schedule(overlap="queue", catch_up=catch_up), T + 3 * MINUTE + 1)
    assert (ticks(one), ledger(one)) == ([3], [(0, 2, 3, "coalesced")])
    each = plan(schedule(overlap="queue_all", catch_up=catch_up), T + 3 * MINUTE + 1)
    assert (ticks(each), ledger(each)) == ([0], [])
    assert each.schedule.next_tick == T + MINUTE


@pytest.mark.parametrize("overlap", ["skip", "queue_all", "cancel_running"])
def test_a_backlog_fires_one_run_where_the_policy_allows_one_at_a_time(overlap: Any) -> None:
    planned = plan(schedule(overlap=overlap, catch_up=CatchUp("all", limit=50)), T + 3 * MINUTE)
    assert (ticks(planned), planned.schedule.next_tick) == ([0], T + MINUTE)


def test_overlap_skip_records_due_ticks_to_the_millisecond() -> None:
    beat = schedule(overlap="skip", spread=30_000)
    delay = spread_delay(beat)
    planned = plan(beat, T + MINUTE + delay - 1, (RUNNING,))
    assert ledger(planned) == [(0, 0, 1, "overlap")]
    planned = plan(beat, T + MINUTE + delay, (RUNNING,))
    assert ledger(planned) == [(0, 1, 2, "overlap")]
    assert planned.schedule.next_tick == T + 2 * MINUTE
    assert ticks(plan(beat, T + delay)) == [0]


def test_cancel_running_cancels_each_run_once_unless_it_waits_for_a_retry() -> None:
    beat = schedule(overlap="cancel_running")
    planned = plan(beat, T, (RUNNING, QUEUED, ASKED, ASKED_AND_QUEUED))
    assert planned.cancels == ("r1", "r2", "r4")
    assert plan(schedule(overlap="queue"), T, (RUNNING,)).cancels == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"wake_at": T + 1}, True),
        ({"wake_at": T}, False),
        ({"wake_at": T - 1}, False),
        ({"wake_at": None}, False),
        ({"wake_at": T + 1, "next_tick": None}, False),
        ({"wake_at": T + 1, "state": "paused"}, False),
        ({"wake_at": T + 1, "overlap": "allow"}, False),
        ({"wake_at": T + 1, "overlap": "allow", "max_concurrent": 1}, True),
    ],
)
def test_a_schedule_that_bounds_its_runs_wakes_on_their_end_while_a_tick_waits(
    fields: dict[str, Any], expected: bool
) -> None:
    assert wakes_on_run_end(schedule(**{"overlap": "queue", **fields})) is expected


# -- pauses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("until", "wake_at"), [(None, None), (T + 1, T + 1)])
def test_a_pause_continues_until_its_end(until: int | None, wake_at: int | None) -> None:
    paused = schedule(state="paused", paused_until=until, pause_note="moving")
    planned = plan(paused, T)
    assert planned.schedule == schedule(
        state="paused", paused_until=until, pause_note="moving", wake_at=wake_at
    )


def test_the_end_of_a_pause_skips_its_ticks_to_the_millisecond() -> None:
    paused = schedule(state="paused", paused_until=T + MINUTE, pause_note="moving")
    planned = plan(paused, T + MINUTE)
    awake = planned.schedule
    assert (awake.state, awake.paused_until, awake.pause_note) == ("active", None, "")
    assert (ledger(planned), awake.next_tick) == ([(0, 0, 1, "paused")], T + MINUTE)
    planned = plan(schedule(state="paused", paused_until=T + MINUTE + 1), T + MINUTE + 1)
    assert (ledger(planned), planned.schedule.next_tick) == ([(0, 1, 2, "paused")], T + 2 * MINUTE)
    planned = plan(schedule(state="paused", paused_until=T), T + 9)
    assert (ledger(planned), planned.schedule.next_tick, planned.schedule.wake_at) == ([], T, T + 9)


# -- what is not the row's fault -----------------------------------------------------------------------------


def failing(error: BaseException) -> Callable[..., Planned]:
    def plan(*_: object) -> Planned:
        raise error

    return plan


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (MemoryError(), "MemoryError()"),
        (ImportError("no tzdata"), "no tzdata"),
        (UnknownZone("no such zone", field="tz", value="x", hint=None), "no such zone"),
        (OSError("x" * 2_000), "x" * 1_000),
        (OSError("\ud800"), "?"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_node_that_can_not_plan_a_schedule_defers_it_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str
) -> None:
    monkeypatch.setattr(firing, "plan", failing(error))
    planned = plan_or_defer(schedule(), T)
    assert planned == Planned(schedule(wake_at=T + 60_000), deferred=reason)


def test_a_node_that_runs_out_of_memory_while_it_names_itself_defers_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class TooMany(tuple[RunRecord]):
        def __iter__(self) -> Iterator[RunRecord]:
            raise MemoryError

    def too_many(*_: object) -> Planned:
        return Planned(schedule(), runs=TooMany())

    monkeypatch.setattr(firing, "plan", too_many)
    assert plan_or_defer(schedule(), T, fired_by="n1").deferred == "MemoryError()"


def test_an_error_of_the_row_is_raised() -> None:
    with pytest.raises(Exception, match="now and then"):
        plan_or_defer(schedule(trigger="every now and then"), T)
    assert plan_or_defer(schedule(), T) == plan(schedule(), T)
    assert plan(schedule(), T).deferred == ""

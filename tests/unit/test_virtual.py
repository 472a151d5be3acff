"""The testing kit itself: time that a test moves, and an app that gets its own store back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evenbeat import EvenbeatError, InvalidValue, LockHeld, LockLost, RunContext, Scheduler, every
from evenbeat.testing import TravelTooLong, VirtualScheduler, virtual
from evenbeat.testing.journeys import LIMIT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def nothing() -> None: ...


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("+3d", NOON + timedelta(days=3)),
        ("3d", NOON + timedelta(days=3)),
        (" +1h30m ", NOON + timedelta(minutes=90)),
        (timedelta(minutes=5), NOON + timedelta(minutes=5)),
        (90, NOON + timedelta(seconds=90)),
        (0, NOON),
        ("2026-03-29T03:00:00+02:00", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        (datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)),
    ],
)
def test_time_moves_by_a_duration_or_to_an_instant(
    scheduler: VirtualScheduler, to: Any, expected: datetime
) -> None:
    assert scheduler.now == NOON
    scheduler.travel(to)
    assert scheduler.now == expected
    assert scheduler.store.now() == int(expected.timestamp() * 1000)


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("2026-03-01T11:59:59Z", "is before 2026-03-01T12:00:00Z"),
        (NOON - timedelta(hours=1), "time goes one way"),
        ("2026-03-05", "has no offset"),
        (datetime(2026, 3, 5), "has no time zone"),
        ("+2 weeks", 'write "2w"'),
        ("-3d", "is neither a date and time nor a duration"),
        (timedelta(days=-1), "negative"),
    ],
)
def test_nonsense_is_refused_and_time_stays(scheduler: VirtualScheduler, to: Any, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem) as refused:
        scheduler.travel(to)
    assert refused.value.field == "to"
    assert scheduler.now == NOON


def test_the_app_gets_its_store_back_and_nothing_was_written_there(tmp_path: Path) -> None:
    file = tmp_path / "evenbeat.db"
    app = Scheduler(f"sqlite:///{file}")
    app.task(schedule="every 1m")(nothing)
    with virtual(app) as scheduler:
        assert app.schedules.get("nothing").next_run == NOON + timedelta(minutes=1)
        app.enqueue("nothing")
        assert len(scheduler.travel("+2m")) == 3
        assert app.store is scheduler.store
    assert not file.exists()
    assert app.schedules.list() == []
    assert app.runs.list() == []
    app.close()


def test_an_open_store_stays_open_behind_the_virtual_one(tmp_path: Path) -> None:
    app = Scheduler(f"sqlite:///{tmp_path}/evenbeat.db")
    app.schedules.add("kept", every("1h"), "nothing")
    with virtual(app):
        assert app.schedules.list() == []
    assert [schedule.name for schedule in app.schedules.list()] == ["kept"]
    with pytest.raises(ZeroDivisionError), virtual(app):
        raise ZeroDivisionError
    assert [schedule.name for schedule in app.schedules.list()] == ["kept"]
    app.close()


def test_virtual_times_can_be_nested(scheduler: VirtualScheduler) -> None:
    scheduler.task(schedule="every 1m")(nothing)
    scheduler.travel("+1m")
    with virtual(scheduler.app, now="2030-01-01T00:00:00Z") as inner:
        assert inner.now.year == 2030
        assert len(inner.travel("+1h")) == 60
    assert scheduler.now == NOON + timedelta(minutes=1)
    assert len(scheduler.runs.list()) == 1


def test_an_app_that_runs_is_refused() -> None:
    app = Scheduler("memory://", poll_interval="10ms")
    with app, pytest.raises(InvalidValue, match="running on its own store"), virtual(app):
        pass


def test_starting_the_app_in_virtual_time_calls_its_hooks_and_starts_no_thread() -> None:
    app = Scheduler("memory://")
    called: list[str] = []
    app.on_start(lambda: called.append("start"))
    app.on_stop(lambda: called.append("stop"))
    app.task(schedule="every 1m")(nothing)
    before = set(threading.enumerate())
    with virtual(app) as scheduler:
        with app:
            assert app.is_running
            assert set(threading.enumerate()) <= before
            assert len(scheduler.travel("+3m")) == 3
        app.start()
    assert called == ["start", "stop", "start", "stop"]
    assert not app.is_running


def test_a_changed_or_deleted_decorated_schedule_is_not_declared_again(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="a", schedule="every 1m")(nothing)
    scheduler.task(name="b", schedule="every 1m")(nothing)
    scheduler.schedules.update("a", trigger="every 2m")
    scheduler.schedules.delete("b")
    assert [run.schedule for run in scheduler.travel("+4m")] == ["a", "a"]


def test_runs_come_in_the_order_of_their_instants(scheduler: VirtualScheduler) -> None:
    seen: list[tuple[str, datetime]] = []

    @scheduler.task
    def work(run: RunContext) -> None:
        seen.append((run.schedule or "", scheduler.now))

    for name, period in (("b", "2m"), ("a", "3m")):
        scheduler.schedules.add(name, every(period), work)
    runs = scheduler.travel("+6m")
    assert [(run.schedule, run.started_at) for run in runs] == seen
    assert [(name, (at - NOON).seconds // 60) for name, at in seen] == [
        ("b", 2),
        ("a", 3),
        ("b", 4),
        ("a", 6),
        ("b", 6),
    ]
    assert scheduler.finished == runs
    assert scheduler.fired == runs


def test_what_a_task_asks_for_happens_on_the_way(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def chain(left: int) -> None:
        if left:
            scheduler.enqueue("chain", {"left": left - 1}, delay="10m" if left % 2 else None)
        else:
            scheduler.schedules.add("late", every("5m"), nothing_task)

    nothing_task = scheduler.task(nothing)
    scheduler.enqueue(chain, {"left": 4})
    runs = scheduler.travel("+30m")
    assert [run.payload for run in runs[:5]] == [{"left": left} for left in (4, 3, 2, 1, 0)]
    assert [run.schedule for run in runs[5:]] == ["late", "late"]
    assert scheduler.now == NOON + timedelta(minutes=30)


def test_what_one_run_cancels_does_not_run(scheduler: VirtualScheduler) -> None:
    scheduler.task(nothing)

    @scheduler.task
    def stop() -> None:
        scheduler.runs.cancel("second")

    scheduler.enqueue("nothing", id="second")
    scheduler.enqueue("stop", id="first", priority="high")
    assert [(run.id, run.state) for run in scheduler.run_pending()] == [
        ("second", "cancelled"),
        ("first", "succeeded"),
    ]


def test_runs_of_every_queue_are_executed(scheduler: VirtualScheduler) -> None:
    scheduler.task(nothing)
    for queue in ("default", "mail", "reports"):
        scheduler.enqueue("nothing", queue=queue)
    assert {run.queue for run in scheduler.run_pending()} == {"default", "mail", "reports"}


def test_priority_decides_among_tasks_of_every_kind(scheduler: VirtualScheduler) -> None:
    async def waits() -> None: ...

    scheduler.task(nothing)
    scheduler.task(waits)
    scheduler.task(name="computes", executor="process")(nothing)
    for name, priority in (("nothing", 3), ("waits", 5), ("computes", 7), ("nothing", 6), ("waits", 4)):
        scheduler.enqueue(name, priority=priority)
    assert [run.priority for run in scheduler.run_pending()] == [7, 6, 5, 4, 3]


def test_nobody_is_there_during_an_outage(scheduler: VirtualScheduler) -> None:
    scheduler.task(schedule="every 10m")(nothing)
    scheduler.enqueue("nothing")
    assert scheduler.down_for("1h") == NOON + timedelta(hours=1)
    assert scheduler.finished == []
    caught_up = scheduler.travel("+10m")
    assert [(run.coalesced, run.lateness) for run in caught_up] == [
        (0, timedelta(hours=1)),
        (5, timedelta(0)),
        (0, timedelta(0)),
    ]


def test_an_endless_journey_ends_with_the_name_of_who_made_it_so(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="beat", schedule="every 1s")(nothing)
    scheduler.task(name="daily", schedule="every 1d")(nothing)
    with pytest.raises(TravelTooLong, match=r'schedule "beat".*limit=1_000') as error:
        scheduler.travel("1000d", limit=100)
    assert (error.value.what, error.value.limit) == ('schedule "beat"', 100)
    # All of it is recorded, and the journey can go on.
    assert scheduler.runs.count() == {"succeeded": 101}
    assert len(scheduler.travel("+10s")) == 10
    assert LIMIT >= 10_080  # a week of every minute


def test_a_task_that_enqueues_itself_ends_as_well(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def again() -> None:
        scheduler.enqueue("again")

    scheduler.enqueue("again")
    with pytest.raises(TravelTooLong, match='task "again"'):
        scheduler.run_pending(limit=50)


def test_a_schedule_whose_runs_nobody_executes_ends_as_well(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("beat", every("1s"), "elsewhere", tenant="acme")
    with pytest.raises(TravelTooLong, match='schedule "beat" of tenant "acme"'):
        scheduler.travel("1000d", limit=50)


def test_only_the_test_moves_time(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="mover")(lambda: scheduler.travel("1m") and None)
    scheduler.enqueue("mover")
    (run,) = scheduler.run_pending()
    assert run.error is not None
    assert "called travel or run_pending" in run.error
    assert scheduler.now == NOON


def test_who_waits_for_a_run_lets_time_pass(scheduler: VirtualScheduler) -> None:
    scheduler.task(nothing)
    run = scheduler.enqueue("nothing", delay="3s")
    assert scheduler.app.runs.join(run.id).state == "succeeded"
    assert NOON + timedelta(seconds=3) <= scheduler.now <= NOON + timedelta(seconds=5)
    never = scheduler.enqueue("elsewhere")
    with pytest.raises(EvenbeatError, match="would never end"):
        scheduler.app.runs.join(never.id)


def test_a_wait_with_a_timeout_ends_there(scheduler: VirtualScheduler) -> None:
    run = scheduler.enqueue("elsewhere")
    assert scheduler.app.runs.join(run.id, "10s").state == "queued"
    assert scheduler.now == NOON + timedelta(seconds=10)
    assert asyncio.run(scheduler.app.runs.ajoin(run.id, "10s")).state == "queued"
    assert scheduler.now == NOON + timedelta(seconds=20)


def test_a_lock_that_is_held_is_refused_at_the_virtual_timeout(scheduler: VirtualScheduler) -> None:
    with scheduler.lock("import", description="the import"):
        other = scheduler.lock("import", timeout="2m")
        with pytest.raises(LockHeld, match="the import"):
            other.acquire("1h")
        assert scheduler.now == NOON + timedelta(hours=1)
        with pytest.raises(LockHeld), other:
            pass
        assert scheduler.now == NOON + timedelta(hours=1, minutes=2)
        with pytest.raises(LockHeld):
            asyncio.run(other.aacquire("3m"))
        assert scheduler.now == NOON + timedelta(hours=1, minutes=5)
        # Its holder renews it, and would have to be the one that waits.
        with pytest.raises(EvenbeatError, match="would never end"):
            other.acquire()
    other.acquire()


def test_a_lock_that_nobody_renews_is_acquired_when_it_expires(scheduler: VirtualScheduler) -> None:
    scheduler.lock("import", "30s").acquire()
    scheduler.lock("import").acquire()
    assert NOON + timedelta(seconds=30) <= scheduler.now <= NOON + timedelta(seconds=31)


def test_a_lock_is_renewed_while_virtual_time_passes(scheduler: VirtualScheduler) -> None:
    refused: list[bool] = []

    @scheduler.task(schedule="every 1m")
    def rival() -> None:
        refused.append(not scheduler.lock("import").try_acquire())

    with scheduler.lock("import", "30s") as lock:
        scheduler.travel("1h")
        scheduler.down_for("1d")
        assert lock.extend()
        assert not lock.is_lost
    assert refused == [True] * 60
    assert scheduler.lock("import").try_acquire()
    scheduler.down_for("31s")
    assert scheduler.lock("import").try_acquire(), "nothing renews it without with"


def test_a_lock_that_is_taken_away_in_virtual_time_is_lost(scheduler: VirtualScheduler) -> None:
    lock = scheduler.lock("import")
    lock.__enter__()
    (record,) = scheduler.store.find_records("lock")
    assert scheduler.store.delete_record("lock", record.tenant, record.key, record.version)
    scheduler.travel("1m")
    assert lock.is_lost
    scheduler.travel("1m")
    with pytest.raises(LockLost):
        lock.__exit__(None, None, None)


def test_an_async_test_awaits_its_travel(scheduler: VirtualScheduler) -> None:
    @scheduler.task(schedule="every 1m")
    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    async def test() -> None:
        with pytest.raises(InvalidValue, match=r"await scheduler\.atravel"):
            scheduler.travel("+1m")
        assert [run.result for run in await scheduler.atravel("+2m")] == [1, 1]
        assert await scheduler.arun_pending() == []

    asyncio.run(test())


def test_an_interrupt_is_for_who_runs_the_tests(scheduler: VirtualScheduler) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def leave() -> None:
        raise SystemExit(1)

    scheduler.task(leave)
    scheduler.task(interrupt)
    scheduler.enqueue("leave")
    assert [run.error for run in scheduler.run_pending() if (run.error or "").startswith("SystemExit")]
    scheduler.enqueue("interrupt")
    with pytest.raises(KeyboardInterrupt):
        scheduler.run_pending()


def test_it_offers_what_a_scheduler_does() -> None:
    life = {"start", "stop", "run", "close", "declare_tasks", "on_start", "on_stop", "stand_in"}
    life |= {
        "declare_mode",
        "hurry",
        "node",
        "node_settings",
        "is_running",
        "is_processing",
        "is_idle",
        "url",
    }
    public: Callable[[object], set[str]] = lambda kind: {n for n in dir(kind) if not n.startswith("_")}  # noqa: E731
    wanted = {name for name in public(Scheduler("memory://")) if not name.startswith("a")} - life
    with virtual() as scheduler:
        assert wanted <= public(scheduler)


def test_waits_end_at_their_timeouts_by_the_virtual_clock() -> None:
    with virtual() as scheduler:
        scheduler.task(name="work")(lambda: None)
        scheduler.schedules.add("beat", "every 10m", "work")
        began = scheduler.now
        assert scheduler.lock("import", "1h").try_acquire()
        with pytest.raises(LockHeld):
            scheduler.lock("import").acquire("5s")
        with pytest.raises(LockHeld), scheduler.lock("import", timeout="5s"):
            pass
        assert scheduler.now - began == timedelta(seconds=10)
        later = scheduler.enqueue("work", delay="2h")
        assert scheduler.runs.join(later.id, "1h").state == "queued"
        assert scheduler.now - began == timedelta(hours=1, seconds=10)
        scheduler.lock("import").acquire("5s")  # the first holder's time is over

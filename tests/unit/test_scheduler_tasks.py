"""Tasks and their arguments, locks, hooks and async twins of a scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

import evenbeat
from evenbeat import (
    Event,
    InvalidValue,
    LockHeld,
    Run,
    RunContext,
    RunRefused,
    ScheduleNotFound,
    Scheduler,
    Task,
    every,
)
from evenbeat.app.locks import Lock, this_process
from evenbeat.app.runs import Runs
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.testing import VirtualScheduler, virtual
from tests.unit import virtual_time
from tests.unit.virtual_time import NOON, minute, minutes, starts

calls = virtual_time.calls


# -- tasks and their arguments -------------------------------------------------------------------------------


def test_a_payload_that_does_not_fit_is_refused_with_the_names(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def digest(team: str, urgent: bool = False) -> None: ...

    attempts: list[Callable[[], object]] = [
        lambda: scheduler.enqueue(digest, {"teem": "ops"}),
        lambda: scheduler.enqueue("digest"),
        lambda: scheduler.schedules.add("daily", every("1d"), digest),
        lambda: digest.bind(),  # type: ignore[call-arg]
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValue, match="team") as refused:
            attempt()
        assert refused.value.field == "payload"
        assert refused.value.hint == "it takes team, urgent"
    with pytest.raises(InvalidValue, match="already"):
        scheduler.enqueue(digest.bind("ops"), {"team": "ops"})
    with pytest.raises(InvalidValue, match="not an object"):
        scheduler.enqueue(digest, ["ops"])  # type: ignore[arg-type]


def test_bind_gives_positional_and_named_arguments_their_names(scheduler: VirtualScheduler) -> None:
    def function(run: RunContext, team: str, *, urgent: bool = False, **more: int) -> dict[str, Any]:
        return {"team": team, "urgent": urgent, **more}

    # mypy 2.4 does not take a run before **more out of the parameters.
    digest: Task[..., dict[str, Any]] = scheduler.task(name="digest")(function)
    call = digest.bind("ops", urgent=True, extra=1)
    assert (call.task, call.payload) == ("digest", {"team": "ops", "urgent": True, "extra": 1})
    scheduler.enqueue(call)
    (run,) = scheduler.run_pending()
    assert run.result == call.payload
    assert digest("ops", urgent=True, extra=1) == call.payload


def test_the_run_is_given_where_its_annotation_stands(scheduler: VirtualScheduler) -> None:
    # This module has ``from __future__ import annotations``: annotations are texts here.
    @contextlib.contextmanager
    def span() -> Iterator[None]:
        yield

    @scheduler.task
    def first(run: RunContext, value: int = 1) -> str:
        return f"{run.task} {value}"

    @scheduler.task
    def last(value: int = 1, *, current: evenbeat.RunContext) -> str:
        return f"{current.task} {value}"

    @scheduler.task
    @span()  # a wrapper of another module, where RunContext means nothing
    def wrapped(run: RunContext) -> str:
        return run.task

    # As in a module without it.
    def plain(run: Any) -> str:
        return str(run.task)

    plain.__annotations__["run"] = RunContext
    scheduler.task(plain)

    for name in ("first", "last", "wrapped", "plain"):
        scheduler.enqueue(name, id=name)
    results = {run.id: run.result for run in scheduler.run_pending()}
    assert results == {"first": "first 1", "last": "last 1", "wrapped": "wrapped", "plain": "plain"}


def test_what_a_run_says_of_itself(scheduler: VirtualScheduler) -> None:
    seen: list[RunContext] = []

    @scheduler.task
    def work(run: RunContext, value: int) -> None:
        run.log("by hand")
        logging.getLogger("myapp").warning("by logging")
        assert run.holds_lease()
        run.raise_if_cancelled()
        seen.append(run)

    scheduler.schedules.add("beat", every("10m"), work, {"value": 1}, tenant="acme", queue="q", priority=7)
    scheduler.down_for("25m")
    (info,) = scheduler.run_pending()
    (run,) = seen
    assert (run.id, run.task, run.tenant, run.schedule) == (info.id, "work", "acme", "beat")
    assert (run.tick, run.scheduled_at, run.coalesced, run.cause) == (minute(20), minute(20), 1, "tick")
    assert (run.attempt, run.attempt, run.failures) == (1, 1, 0)
    assert (run.payload, run.queue, run.priority) == ({"value": 1}, "q", 7)
    lines = scheduler.runs.logs(run.id, tenant="acme")
    assert [line.text for line in lines] == ["by hand", "WARNING myapp: by logging"]
    assert {line.at for line in lines} == {minute(25)}


def test_a_function_that_is_no_task_is_refused_with_what_to_do(scheduler: VirtualScheduler) -> None:
    with pytest.raises(InvalidValue, match=r"decorate the function with @app\.task"):
        scheduler.enqueue(minutes)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"is not registered"):
        scheduler.schedules.add("beat", every("1m"), minutes)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"@app\.task\(name=…, schedule="):
        scheduler.task("digest")  # type: ignore[call-overload]


def test_two_functions_can_not_have_one_name(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(minutes)
    scheduler.task(name="work")(minutes)
    with pytest.raises(InvalidValue, match="registered already"):
        scheduler.task(name="work")(minute)


def test_a_misspelt_option_is_refused_with_those_there_are(scheduler: VirtualScheduler) -> None:
    refused: list[Callable[[], object]] = [
        lambda: scheduler.task(retry=3),  # type: ignore[call-overload]
        lambda: scheduler.enqueue("work", retry=3),  # type: ignore[call-arg]
        lambda: scheduler.schedules.add("beat", every("1m"), "work", retry=3),  # type: ignore[call-arg]
        lambda: Scheduler("memory://", threads=3),  # type: ignore[call-arg]
    ]
    for attempt in refused:
        with pytest.raises(InvalidValue, match="has no option") as error:
            attempt()
        assert re.search("did you mean (retries|thread_concurrency)", str(error.value))
    for theirs, ours in {
        "max_instances": "overlap",
        "misfire_grace_time": "grace",
        "jitter": "spread",
        "every": r"@app\.task\(schedule=every",
        "trigger": r"@app\.task\(schedule=",
    }.items():
        with pytest.raises(InvalidValue, match=f"did you mean .*{ours}"):
            scheduler.task(**{theirs: 1})  # type: ignore[call-overload]
    with pytest.raises(InvalidValue, match="there are retries, backoff"):
        scheduler.enqueue("work", zzz=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="there is none"):
        scheduler.task(overlap="skip")


# -- locks ---------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_until_it_is_released_or_its_time_is_over(scheduler: VirtualScheduler) -> None:
    mine, theirs = scheduler.lock("import", ttl="1m"), scheduler.lock("import")
    with mine:
        with pytest.raises(LockHeld, match="import"), theirs:
            pass
        assert scheduler.lock("import", tenant="acme").try_acquire()
    assert theirs.try_acquire()
    scheduler.travel("+20s")
    assert theirs.extend()
    scheduler.travel("+29s")
    assert not mine.try_acquire()
    scheduler.travel("+1s")
    assert mine.try_acquire()
    assert not theirs.extend()
    assert not theirs.release()


def test_lock_held_names_the_holder_the_description_and_the_time(scheduler: VirtualScheduler) -> None:
    since = scheduler.now
    with scheduler.lock("import", ttl="1m", description="new prices"):
        scheduler.travel("+5s")
        with pytest.raises(LockHeld) as caught, scheduler.lock("import"):
            pass
    error = caught.value
    assert (error.holder, error.description, error.created_at) == (this_process(), "new prices", since)
    assert str(error) == (
        f'lock "import" of tenant "default" is held by {this_process()} '
        f'since {since.isoformat(timespec="seconds")}: "new prices"'
    )
    assert str(LockHeld("default", "import")) == 'lock "import" of tenant "default" is held by somebody'
    for wrong in ("x" * 1001, "\udc00", 7):
        with pytest.raises(InvalidValue, match="description"):
            scheduler.lock("import", description=wrong)  # type: ignore[arg-type]


def test_making_a_lock_opens_no_store() -> None:
    app = Scheduler("sqlite:////no/such/folder/evenbeat.db")
    lock = app.lock("import")
    with virtual(app), lock:
        assert not app.lock("import").try_acquire()


# -- hooks ---------------------------------------------------------------------------------------------------


def test_hooks_are_called_when_a_node_starts_and_stops() -> None:
    called: list[str] = []
    app = Scheduler("memory://", poll_interval="10ms")
    app.on_start(lambda: called.append("start"))
    app.on_stop(lambda: called.append("stop"))
    with app:
        assert app.is_running
        with pytest.raises(InvalidValue, match="started already"):
            app.start()
    app.stop()
    assert called == ["start", "stop"]
    assert not app.is_running


def test_on_idle_is_called_once_per_turn(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    idle: list[datetime] = []
    scheduler.on_idle(lambda: idle.append(scheduler.now))
    scheduler.run_pending()
    assert idle == []
    scheduler.enqueue("work")
    scheduler.enqueue("work")
    scheduler.enqueue("work", delay="10m")
    scheduler.travel("+1h")
    assert idle == [NOON, minute(10)]


def test_what_a_listener_enqueues_runs_in_the_same_stretch(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    left = [2, 1]
    scheduler.on_idle(lambda: scheduler.enqueue("work", {"value": left.pop()}) if left else None)
    scheduler.enqueue("work")
    scheduler.run_pending()
    assert calls == [0, 1, 2]


def test_on_error_is_called_with_the_run(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    received: list[Event] = []
    scheduler.on_error(received.append)
    scheduler.enqueue("work")
    scheduler.enqueue("fails", retries=1)
    scheduler.travel("+1h")
    assert [event.kind for event in received] == ["retrying", "failed"]
    assert received[0].run is not None
    assert (received[0].run.task, received[0].delay is not None) == ("fails", True)
    assert all(event.error is not None and "not today" in event.error for event in received)


def test_events_report_what_happens_and_a_listener_that_raises_harms_nobody(
    scheduler: VirtualScheduler, calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "evenbeat")
    received: list[tuple[str, int]] = []
    scheduler.on_event(lambda _: 1 / 0)
    scheduler.on_event(lambda event: received.append((event.kind, event.at.minute)))
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.travel("+10m")
    scheduler.down_for("25m")
    scheduler.run_pending()
    assert received == [
        ("fired", 10),
        ("started", 10),
        ("succeeded", 10),
        ("idle", 10),
        ("fired", 35),
        ("skipped", 35),
        ("started", 35),
        ("succeeded", 35),
        ("idle", 35),
    ]
    assert "a listener raised" in caplog.text


def test_the_next_tick_is_not_moved_into_the_past(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("beat", every("1h"), "work")
    with pytest.raises(InvalidValue, match="is in the past; give a time to come, or run it now"):
        scheduler.schedules.reschedule("beat", "2020-01-01T00:00:00Z")


def test_a_name_that_was_copied_and_not_changed_is_refused(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def report() -> None: ...

    with pytest.raises(InvalidValue, match=r"registered already, by .*report \(line \d+\)"):

        @scheduler.task
        def report() -> None: ...


def test_a_task_with_a_schedule_and_arguments_that_nobody_gives_is_refused_where_it_stands(
    scheduler: VirtualScheduler,
) -> None:
    with pytest.raises(InvalidValue, match=r"gives it no arguments.*name.*; give them defaults, or"):

        @scheduler.task(schedule=every("1h"))
        def greet(name: str) -> None: ...


def test_no_way_of_adding_a_run_passes_the_overlap_policy_by(scheduler: VirtualScheduler) -> None:
    schedules, runs = scheduler.schedules, scheduler.runs
    schedules.add("a", every("1h"), "elsewhere")
    old = schedules.run_now("a")
    runs.cancel(old.id)
    schedules.update("a", overlap="skip")
    schedules.run_now("a")
    with pytest.raises(RunRefused, match="no room"):
        runs.retry(old.id)  # it was made before the policy was
    schedules.delete("a")
    with pytest.raises(RunRefused, match="run_now"):
        schedules.add("a", every("1h"), "elsewhere", overlap="skip", run_now=True)
    assert len(runs.list(schedule="a", state="queued")) == 1


def test_a_bound_of_many_runs_is_a_bound(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("b", every("1h"), "elsewhere", max_concurrent=501)
    for _ in range(501):
        scheduler.schedules.run_now("b")
    with pytest.raises(RunRefused, match="501 active"):
        scheduler.schedules.run_now("b")


def test_a_retry_by_way_of_the_schedule_has_the_payload_of_the_run(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("c", every("1h"), "elsewhere", overlap="skip")
    run = scheduler.schedules.run_now("c")
    scheduler.runs.cancel(run.id)
    scheduler.schedules.update("c", payload={"new": 1})
    assert scheduler.runs.retry(run.id).payload is None


def test_what_a_run_is_meant_for_is_the_same_for_every_attempt(scheduler: VirtualScheduler) -> None:
    seen: list[tuple[int, object]] = []

    @scheduler.task(retries=2, backoff="1m")
    def fails(run: RunContext) -> None:
        seen.append((run.attempt, run.scheduled_at))
        raise ValueError("not today")

    due = scheduler.enqueue(fails, delay="10m").scheduled_at
    (run,) = scheduler.travel("+1h")
    assert seen == [(1, due), (2, due), (3, due)]
    assert (run.scheduled_at, run.lateness) == (due, None)


# -- twins ---------------------------------------------------------------------------------------------------


NOT_AWAITED = {
    # Nothing in them waits for a store,
    Scheduler: {
        "task",
        "before",
        "after",
        "lock",
        "alert_service",
        "on_start",
        "on_stop",
        "on_idle",
        "on_error",
        "on_event",
    }
    # they are for signals, for supervisors, or for tests.
    | {"run", "hurry", "node_settings", "stand_in"},
    Schedules: set(),
    Runs: set(),
    Lock: {"raise_if_lost"},
}


@pytest.mark.parametrize("kind", NOT_AWAITED, ids=lambda kind: kind.__name__)
def test_every_method_that_waits_has_a_twin_of_the_same_signature(kind: type) -> None:
    public = {name for name, value in vars(kind).items() if name[0] != "_" and callable(value)}
    twins = {name for name in public if inspect.iscoroutinefunction(getattr(kind, name))}
    assert {name.removeprefix("a") for name in twins} == public - twins - NOT_AWAITED[kind]
    for name in twins:
        original, awaited = getattr(kind, name.removeprefix("a")), getattr(kind, name)
        assert inspect.signature(awaited) == inspect.signature(original)
        assert awaited.__name__ == name
        assert awaited.__qualname__ == f"{kind.__name__}.{name}"


def test_twins_do_what_their_originals_do(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    async def day() -> list[Run]:
        app = scheduler.app
        await app.schedules.aadd("beat", every("10m"), "work", {"value": 1})
        await app.schedules.apause("beat")
        await app.schedules.aresume("beat")
        run = await app.aenqueue("work", {"value": 2}, delay="5m")
        async with app.lock("import") as lock:
            assert not await app.lock("import").atry_acquire()
            assert await lock.aextend()
        done = await scheduler.atravel("+10m")
        assert (await app.runs.aget(run.id)).result == 4
        assert [s.name for s in await app.schedules.alist()] == ["beat"]
        with pytest.raises(ScheduleNotFound):
            await app.schedules.aget("other")
        return done

    assert starts(asyncio.run(day())) == [5, 10]
    assert calls == [2, 1]


def test_an_app_is_an_async_context_manager() -> None:
    async def live() -> str:
        app = Scheduler("memory://", poll_interval="10ms")

        @app.task
        async def work() -> str:
            return "done"

        async with app:
            run = await app.aenqueue(work)
            return str((await app.runs.ajoin(run.id, timeout="20s")).result)

    assert asyncio.run(live()) == "done"

"""Batches of which the database refuses some rows, from the callers' side: the others are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evenbeat import RowRefused, Scheduler, StoreUnavailable, every
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition
from evenbeat.node.backfills import BUSY_EVERY, Backfiller
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.node.reaper import Reaper
from evenbeat.node.settling import settle_in_parts
from evenbeat.observe.events import Events
from evenbeat.rules import attempts
from evenbeat.rules.counters import counter_name
from evenbeat.rules.firing import Planned, plan
from evenbeat.rules.flow_parts import FlowState, part_text
from evenbeat.stores.base import Fired, PlanFunction, RunQuery, ScheduleQuery, Store
from evenbeat.stores.refusals import FireRefused, Refusals, Selection
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock, VirtualScheduler, virtual
from tests.refusing import refusing
from tests.store_calls import claim


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[Store]:
    store = SqliteStore(tmp_path / "evenbeat.db", clock)
    store.open()
    yield store
    store.close()


@pytest.fixture
def app(store: Store) -> Scheduler:
    return Scheduler(store)


def ids(store: Store, **query: object) -> list[str]:
    return sorted(run.id for run in store.find_runs(RunQuery(limit=100, **query)).items)  # type: ignore[arg-type]


def test_enqueue_many_adds_the_runs_that_are_not_refused_and_says_so(app: Scheduler, store: Store) -> None:
    wanted = [f"r{at}" for at in range(9)]
    with refusing(store, "runs", "add", {"id": "r5"}):
        with pytest.raises(RowRefused, match="1 of 9 runs were not added, the others were") as raised:
            app.enqueue_many([("work", None)] * 9, ids=wanted)
        assert raised.value.reason == "auditors say no"
        assert "r5" in str(raised.value)
        assert ids(store) == [name for name in wanted if name != "r5"]
        with pytest.raises(RowRefused, match="auditors say no"):
            app.enqueue("work", id="r5")
    assert app.enqueue_many([("work", None)] * 9, ids=wanted) == wanted
    assert ids(store) == wanted


def test_a_bulk_change_changes_the_schedules_that_are_not_refused(app: Scheduler, store: Store) -> None:
    for at in range(5):
        app.schedules.add(f"s{at}", every("1m"), "work")
    with refusing(store, "schedules", "change", {"name": "s3"}):
        result = app.schedules.update_all({"retries": 3})
    assert result.done == 4
    (refused,) = result.refused
    assert (refused.id, "auditors say no" in refused.why) == ("s3", True)
    assert [app.schedules.get(f"s{at}").retries for at in range(5)] == [3, 3, 3, 0, 3]


def test_moved_runs_are_moved_unless_the_database_refuses_one(app: Scheduler, store: Store) -> None:
    app.enqueue_many([("old", None)] * 5, ids=[f"r{at}" for at in range(5)])
    with refusing(store, "runs", "change", {"id": "r3"}):
        moved = app.runs.move(task="old", to="new")
    assert moved.done == 4
    (refused,) = moved.refused
    assert (refused.id, "auditors say no" in refused.why) == ("r3", True)
    assert ids(store, task="new") == ["r0", "r1", "r2", "r4"]


def test_a_refused_tick_of_a_schedule_without_a_row_is_tried_again_and_the_others_fire(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [ScheduleRecord(name=name, task="work", trigger="every 1m", managed_by="code") for name in "ab"]
    events, counting = Events(), Counting()
    ticker = CodeTicker(store, events, Fallback(store, events), rows, counting=counting)
    ticker.step(clock.now)
    with refusing(store, "runs", "add", {"schedule": "b"}):
        clock.advance("1m")
        ticker.step(clock.now)
        assert len(ids(store, schedule="a")) == 1
        assert ids(store, schedule="b") == []
        first = clock.now
        (note,) = Scheduler(store).quarantine.list()
        assert (note.kind, note.name) == ("deferred", "b")
        assert note.reason == "the database refuses its run: auditors say no"
        (item,) = [found for found in Scheduler(store).attention().items if found.kind == "quarantined"]
        assert item.sentence == "Schedule b does not fire: the database refuses its run, and nodes try again."
        for wait in (1_000, 1_000, 2_000, 4_000):
            assert ticker.step(clock.now) == clock.now + wait
            clock.now += wait
    ticker.step(clock.now)
    assert [run.tick for run in store.find_runs(RunQuery(schedule="b")).items] == [first]
    assert not Scheduler(store).quarantine.list()
    assert counting.sums().numbers[counter_name("lock_failures", "schedules", "refused")] == 4
    refused = [record for record in caplog.records if record.name == "evenbeat.node.adding"]
    assert {record.__dict__["component"] for record in refused} == {"code ticker"}
    assert len(refused) == 4


def test_a_refused_end_does_not_stop_the_others(
    app: Scheduler, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue_many([("work", None)] * 5, ids=[f"r{at}" for at in range(5)])
    ends = [attempts.succeeded(run, None, store.now(), run.id) for run in claim(store)]
    with refusing(store, "runs", "change", {"id": "r3"}):
        answers = [answer for part in settle_in_parts(store, ends, "test") for answer in part]
    assert answers == [end.run != "r3" for end in ends]
    # The traceback is logged once.
    first, *others = [record for record in caplog.records if record.name == "evenbeat.node.settling"]
    assert (first.__dict__["component"], first.__dict__["runs"], bool(first.exc_info)) == ("test", 5, True)
    assert [(each.__dict__["component"], each.__dict__["job_id"], each.exc_info) for each in others] == [
        ("test", "r3", None)
    ]


def test_a_single_end_that_is_refused_is_logged_with_its_traceback(
    app: Scheduler, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue("work", id="r")
    ends = [attempts.succeeded(run, None, store.now(), run.id) for run in claim(store)]
    with refusing(store, "runs", "change", {"id": "r"}):
        assert list(settle_in_parts(store, ends, "test")) == [[False]]
    (record,) = [record for record in caplog.records if record.name == "evenbeat.node.settling"]
    assert (record.__dict__["job_id"], bool(record.exc_info)) == ("r", True)


def refuse(
    monkeypatch: pytest.MonkeyPatch, store: Store, is_refused: Callable[[Transition], bool]
) -> Callable[[], None]:
    """Refuse transitions, until the returned function is called."""
    settle = store.settle_runs

    def settle_others(transitions: Sequence[Transition]) -> list[bool]:
        if any(map(is_refused, transitions)):
            raise RowRefused("auditors say no")
        return settle(transitions)

    monkeypatch.setattr(store, "settle_runs", settle_others)
    return lambda: monkeypatch.setattr(store, "settle_runs", settle)


def take_lost(time: VirtualScheduler) -> None:
    """Let leases end, and take the runs back, as the reaper of a node does."""
    store = time.app.store
    reaper = Reaper(store, Events(), clock=lambda: store.now() / 1000)
    for _ in range(4):  # one that starts waits for a while
        reaper.step(store.now())
        time.travel("15s")


def state_of(time: VirtualScheduler, task: str) -> str:
    (run,) = time.app.store.find_runs(RunQuery(task=task)).items
    return run.state


def test_a_resumed_flow_that_is_refused_does_not_stop_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with virtual() as time:
        tries: list[None] = []

        @time.task
        def work() -> None:
            tries.append(None)
            assert len(tries) > 1

        @time.task
        def innocent() -> None: ...

        @time.flow
        def nightly() -> Any:
            return work.step()

        run = nightly.enqueue()
        time.run_pending()
        assert state_of(time, "nightly") == "failed"
        accept = refuse(monkeypatch, time.app.store, lambda each: each.run == run.id and bool(each.adds))
        time.app.flows.resume(run.id)
        innocent.enqueue()
        time.run_pending()
        assert (state_of(time, "innocent"), state_of(time, "nightly")) == ("succeeded", "running")
        accept()
        take_lost(time)
        time.travel("1m")
        assert state_of(time, "nightly") == "succeeded"
        assert len(tries) == 2


def test_a_hand_back_that_is_refused_does_not_stop_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a step whose limit has a key that another step gives it: see ``attempts.regrouped``."""
    with virtual() as time:

        @time.task
        def find() -> int:
            return 7

        @time.task
        def charge(customer: int) -> None: ...

        @time.task
        def innocent() -> None: ...

        @time.flow
        def nightly() -> Any:
            return charge.step(find.step())

        time.app.limits.set(task="charge", key="customer", concurrency=1)
        accept = refuse(monkeypatch, time.app.store, lambda each: each.state == "queued")
        nightly.enqueue()
        innocent.enqueue()
        time.run_pending()
        innocent.enqueue()
        time.run_pending()
        ended = time.app.store.find_runs(RunQuery(task="innocent")).items
        assert [run.state for run in ended] == ["succeeded"] * 2
        assert state_of(time, "charge") == "running"
        accept()
        take_lost(time)
        time.travel("1m")
        assert state_of(time, "nightly") == "succeeded"


def test_flows_that_are_refused_do_not_hide_lost_runs_behind_them(
    monkeypatch: pytest.MonkeyPatch, store: Store, clock: VirtualClock
) -> None:
    monkeypatch.setattr("evenbeat.node.reaper.REAP_BATCH", 3)
    state = FlowState(graph="none", steps="o")
    flows = [RunRecord(id=f"f{at}", task="work", flow=part_text(None, state)) for at in range(5)]
    store.add_runs([*flows, RunRecord(id="lost", task="work", run_at=1)])
    assert len(claim(store, limit=5)) == 5
    assert [run.id for run in claim(store, token="late")] == ["lost"]
    clock.advance("10m")
    refuse(monkeypatch, store, lambda each: each.run.startswith("f"))
    reaper = Reaper(store, Events(), clock=lambda: clock.now / 1000)
    for _ in range(5):
        reaper.step(clock.now)
        clock.advance("15s")
    assert ids(store, states=("queued",)) == ["lost"]


@pytest.mark.parametrize("fails_at", [3, 4])
def test_what_was_fired_before_the_store_went_away_is_reported(
    store: Store, clock: VirtualClock, fails_at: int
) -> None:
    Scheduler(store).schedules.add("a", every("1m"), "work")
    (row,) = store.find_schedules(ScheduleQuery()).items
    clock.advance("1m")
    calls = 0

    def attempt(selection: Selection, plan: PlanFunction) -> Fired:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise StoreUnavailable("gone")
        if calls == 2:
            return Fired((Planned(row),), clock.now)
        # The first refusal concerns several rows, the second a single one, which is set aside.
        raise FireRefused([row] * (2 if calls == 1 else 1), (), RowRefused("auditors say no"))

    fired = Refusals().fire(attempt, clock.now, 10, plan)
    assert (len(fired.planned), fired.next_wake) == (1, clock.now)
    calls = fails_at - 1
    with pytest.raises(StoreUnavailable):
        Refusals().fire(attempt, clock.now, 10, plan)


def test_a_backfill_whose_runs_are_refused_says_so_and_goes_on_later(
    app: Scheduler, store: Store, clock: VirtualClock
) -> None:
    app.schedules.add("report", "0 * * * *", "work")
    backfiller = Backfiller(store)
    with refusing(store, "runs", "add", {"schedule": "report"}):
        backfill = app.schedules.backfill("report", "2026-03-01T00:00Z", "2026-03-01T06:00Z")
        assert backfiller.step(clock()) == clock() + BUSY_EVERY
        shown = app.backfills.get(backfill.id)
        assert (shown.state, shown.waits_for) == ("running", "the database refuses its run: auditors say no")
    assert ids(store) == []
    clock.advance(BUSY_EVERY)
    backfiller.step(clock())
    assert app.backfills.get(backfill.id).waits_for is None
    assert len(ids(store)) > 0

"""Batches of which the database refuses some rows, from the callers' side: the others are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenbeat import RowRefused, Scheduler, every
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.node.settling import settle_in_parts
from evenbeat.observe.events import Events
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery, Store
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.refusing import refusing
from tests.store_calls import claim


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Store:
    store = SqliteStore(tmp_path / "evenbeat.db", clock)
    store.open()
    return store


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
    store: Store, clock: VirtualClock
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
        for wait in (1_000, 1_000, 2_000, 4_000):
            assert ticker.step(clock.now) == clock.now + wait
            clock.now += wait
    ticker.step(clock.now)
    assert [run.tick for run in store.find_runs(RunQuery(schedule="b")).items] == [first]


def test_a_refused_end_does_not_stop_the_others(app: Scheduler, store: Store) -> None:
    app.enqueue_many([("work", None)] * 5, ids=[f"r{at}" for at in range(5)])
    ends = [attempts.succeeded(run, None, store.now(), run.id) for run in claim(store)]
    with refusing(store, "runs", "change", {"id": "r3"}):
        answers = [answer for part in settle_in_parts(store, ends, "test") for answer in part]
    assert answers == [end.run != "r3" for end in ends]

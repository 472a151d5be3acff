"""Alerts on every store: from the end of a run to the receiver, and the ends of incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenbeat.core.records import CatchUp
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.stores.base import RunQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.alerting import Process, Receiver, a_run, end_run, incidents, log, past, pending, put_rule, signals
from tests.store_calls import add_schedules

SERVERS: dict[str, Callable[[str, VirtualClock], Store]] = {
    "postgres": PostgresStore,
    "valkey": RedisStore,
    "mongo": MongoStore,
}


class Bench:
    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.receiver = Receiver()
        self.processes = [Process(store, self.receiver, name) for name in ("one", "two")]

    def turn(self) -> None:
        """Both processes try; one of them gets the turn."""
        self.clock.advance("5s")
        assert [process.turn() for process in self.processes] in ([True, False], [False, True])
        self.processes.reverse()

    def end(self, name: str, error: str | None, schedule: str | None = "s") -> None:
        self.clock.advance("1s")
        end_run(self.store, a_run(name, schedule, run_at=self.clock.now, created_at=self.clock.now), error)


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    clock = VirtualClock()
    if request.param == "memory":
        store: Store = MemoryStore(clock)
    elif request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "evenbeat.db"), clock)
    else:
        store = SERVERS[request.param](request.getfixturevalue(request.param), clock)
    store.open()
    yield Bench(store, clock)
    store.close()


def test_a_job_fails_escalates_and_recovers(bench: Bench) -> None:
    put_rule(bench.store, "failed", "failing:3", tag="nightly", to=("ops", "mail"))
    add_schedules(bench.store, "s", trigger="every 1h", tags="billing nightly")
    bench.end("fine", None)
    for number in range(3):
        bench.end(f"bad-{number}", "ValueError: boom")
        bench.turn()
    assert bench.receiver.kinds == ["opened", "opened", "escalated", "escalated"]
    (incident,) = incidents(bench.store)
    assert (incident.failures, incident.run, incident.error) == (3, "bad-0", "ValueError: boom")
    bench.end("good", None)
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds[4:] == ["recovered", "recovered"]
    assert len(set(bench.receiver.ids)) == 6
    assert len(past(bench.store)) == 1
    assert [each.state for each in log(bench.store)] == ["sent"] * 6
    assert (incidents(bench.store), signals(bench.store), pending(bench.store)) == ([], [], [])


def test_conditions_that_leave_no_signal_are_found_and_end(bench: Bench) -> None:
    conditions = ("late:5m", "no_node:5m", "stuck:1h", "missed")
    put_rule(bench.store, *conditions)
    put_rule(bench.store, "queue:1", "node_lost", "store_unsafe", name="shared", owner=None)
    add_schedules(bench.store, "s", trigger="every 1h", catch_up=CatchUp("skip", grace=600_000))
    bench.clock.advance("2h6m")
    bench.turn()
    assert [each.condition for each in bench.receiver.messages if each.schedule] == ["late:5m"]
    bench.receiver.messages.clear()
    ticker = Ticker(bench.store, Events(), signals=Signals(stored_rules(bench.store)))
    ticker.step(bench.clock.now)
    bench.turn()
    found = {(each.condition, each.subject) for each in bench.receiver.messages}
    # The first tick was too late. The second one has fired, and nobody takes its run.
    assert found >= {("missed", "s"), ("no_node:5m", "work"), ("queue:1", "default")}
    bench.receiver.messages.clear()
    (waiting,) = bench.store.find_runs(RunQuery(states=("queued",))).items
    end_run(bench.store, waiting, None)
    bench.turn()
    over = {(each.announcement, each.condition) for each in bench.receiver.messages}
    assert over == {("recovered", each) for each in ("late:5m", "no_node:5m", "queue:1")}

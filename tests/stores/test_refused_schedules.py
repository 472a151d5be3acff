"""A schedule whose runs the database refuses: its tenant's neighbours go on, and its state says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenbeat import Scheduler, every
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.node.counting import Counting
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.stores.base import Claim, RunQuery, Store
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.alerting import Process, Receiver, incidents, past, put_rule
from tests.refusing import RefusingMemoryStore, refusing

SERVERS: dict[str, Callable[[str, VirtualClock], Store]] = {
    "postgres": PostgresStore,
    "valkey": RedisStore,
    "mongo": MongoStore,
}


class Bench:
    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.app = Scheduler(store)
        self.counting = Counting()
        self.ticker = Ticker(store, Events(), name="n1", counting=self.counting)

    def tick(self, seconds: int = 1) -> None:
        """Let the time pass, and fire what is due in each second."""
        for _ in range(seconds):
            self.clock.advance("1s")
            while (wake := self.ticker.step(self.clock.now)) is not None and wake <= self.clock.now:
                pass

    def fired(self, tenant: str) -> int:
        return sum(run.tenant == tenant for run in self.store.find_runs(RunQuery(limit=1_000)).items)


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    clock = VirtualClock()
    if request.param == "memory":
        store: Store = RefusingMemoryStore(clock)
    elif request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "evenbeat.db"), clock)
    else:
        store = SERVERS[request.param](request.getfixturevalue(request.param), clock)
    store.open()
    yield Bench(store, clock)
    store.close()


def test_a_tenant_whose_runs_are_refused_stops_no_other_and_its_state_says_why(bench: Bench) -> None:
    app, store = bench.app, bench.store
    for tenant in ("acme", "globex"):
        app.schedules.add("j", every("1s"), "work", tenant=tenant)
    put_rule(store, "late:10s", owner="acme")
    process = Process(store, Receiver())
    process.turn()
    with refusing(store, "runs", "add", {"tenant": "acme"}):
        bench.tick(15)
        assert bench.fired("globex") == 15
        assert bench.fired("acme") == 0
        refused = app.schedules.get("j", tenant="acme")
        words = "is a string" if isinstance(store, RedisStore) else _message(store)
        assert (refused.last_error or "").startswith("the database refuses its run: ")
        assert words in (refused.last_error or "")
        assert app.schedules.stats("j", tenant="acme").last_error == refused.last_error
        assert app.schedules.get_with_stats([("acme", "j")])[0][1].last_error == refused.last_error
        assert app.schedules.get("j", tenant="globex").last_error is None
        assert app.schedules.stats("j", tenant="globex").last_error is None
        why = app.schedules.why("j", tenant="acme")
        assert (why.verdict, why.sentence) == ("deferred", f"j does not fire: {refused.last_error}")
        assert why.remedy is not None
        assert "fix what the database names" in why.remedy
        (item,) = [found for found in app.attention(tenant="acme").items if found.kind == "quarantined"]
        assert (item.level, item.schedule) == ("fail", "j")
        assert item.sentence == "Schedule j does not fire: the database refuses its run, and nodes try again."
        assert words in item.evidence[0].text
        (note,) = app.quarantine.list(tenant="acme")
        assert (note.kind, note.name, note.reason) == ("deferred", "j", refused.last_error)
        (finding,) = [found for found in diagnose(store, bench.clock.now) if found.check == "refused"]
        assert finding.level == "fail"
        process.turn()
        (incident,) = incidents(store)
        assert "has not fired: the database refuses its run: " in incident.reason
    bench.tick(60)
    assert bench.fired("globex") == 75
    # The missed ticks are one run, as the schedule wants it.
    assert bench.fired("acme") > 0
    assert store.find_records("deferred") == []
    assert app.schedules.get("j", tenant="acme").last_error is None
    assert app.schedules.stats("j", tenant="acme").last_error is None
    assert app.schedules.account("j", tenant="acme").missing == 0
    assert app.schedules.why("j", tenant="acme").verdict != "deferred"
    assert "quarantined" not in [found.kind for found in app.attention(tenant="acme").items]
    # Once the runs have started, nothing is late any more.
    claim = Claim(worker="w", token="t", limit=1_000, now=bench.clock.now, lease=60_000)
    assert len(store.claim_runs(claim).runs) == bench.fired("acme") + bench.fired("globex")
    process.turn()
    assert incidents(store) == []
    assert len(past(store)) == 1


def _message(store: Store) -> str:
    return "failed validation" if isinstance(store, MongoStore) else "auditors say no"


def test_another_node_that_fires_it_again_deletes_the_note(bench: Bench) -> None:
    bench.app.schedules.add("j", every("1m"), "work")
    with refusing(bench.store, "runs", "add", {"schedule": "j"}):
        bench.tick(61)
    assert len(bench.store.find_records("deferred")) == 1
    bench.ticker = Ticker(bench.store, Events(), name="n2")
    bench.tick(2)
    assert bench.fired("default") == 1
    assert bench.store.find_records("deferred") == []


# Not Redis: it has nothing that refuses to change a schedule.
@pytest.mark.parametrize("bench", ["memory", "sqlite", "postgres", "mongo"], indirect=True)
def test_a_schedule_whose_row_can_not_be_written_says_so_as_well(bench: Bench) -> None:
    for name in ("a", "j"):
        bench.app.schedules.add(name, every("1s"), "work")
    with refusing(bench.store, "schedules", "change", {"name": "j"}):
        bench.tick(10)
        assert bench.fired("default") == 10
        assert "the database refuses its run" in (bench.app.schedules.get("j").last_error or "")
        assert bench.app.schedules.why("j").verdict == "deferred"
    bench.tick(60)
    assert bench.app.schedules.get("j").last_error is None
    assert bench.app.schedules.account("j").missing == 0

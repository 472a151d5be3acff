"""Rollups: what nodes count, how it is written once a minute, and who was alive."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evenbeat.core.records import Execution, Record, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Attempt
from evenbeat.executors.inline import InlineExecutor
from evenbeat.node.attempt_ends import AttemptEnd
from evenbeat.node.counting import Counting
from evenbeat.node.lanes import Lane
from evenbeat.node.node import Node
from evenbeat.node.reaper import Reaper
from evenbeat.node.rollups import KIND, Rollups, read_rollups
from evenbeat.node.settings import NodeSettings
from evenbeat.node.ticker import Ticker
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts, rollups
from evenbeat.rules.rollups import HOUR, MINUTE, By, Counts, Rollup, start_of
from evenbeat.stores.base import Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.tasks.task import Task, Tasks
from evenbeat.testing import VirtualClock
from tests.store_calls import add_schedules, claim


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open()
    return store


@pytest.fixture(params=["memory", "sqlite"])
def either(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that needs no server."""
    store: Store = MemoryStore(clock)
    if request.param == "sqlite":
        store = SqliteStore(f"{tmp_path}/figures.db", clock=clock)
    store.open()
    yield store
    store.close()


def works() -> int:
    return 1


def breaks() -> None:
    raise ValueError("broken")


class SmallNode:
    """The ticker, worker, reaper and rollups of a node, without threads; a listener notes its events."""

    def __init__(self, store: Store, clock: VirtualClock, name: str = "n1") -> None:
        self.store, self.clock = store, clock
        self.events = Events()
        self.emitted: list[Event] = []
        self.events.listen(self.emitted.append)
        tasks = Tasks()
        for function in (works, breaks):
            tasks.add(Task(function, function.__name__))
        self.counting = Counting()
        self.ticker = Ticker(store, self.events, counting=self.counting)
        self.worker = Worker(
            store,
            tasks,
            self.events,
            lambda _: Lane(InlineExecutor(), 10),
            name=name,
            clock=lambda: clock.now / 1000,
            counting=self.counting,
        )
        self.reaper = Reaper(store, self.events, clock=lambda: clock.now / 1000, counting=self.counting)
        self.rollups = Rollups(store, self.counting, name)

    def step(self, seconds: int = 10) -> None:
        """Let time pass, and do what is due."""
        self.clock.advance(f"{seconds}s")
        self.ticker.step(self.clock.now)
        for _ in range(3):
            self.worker.step(self.clock.now)
        self.reaper.step(self.clock.now)
        self.rollups.step(self.clock.now)

    def published(self, kind: str, tenant: str | None = None) -> int:
        """how many events of a kind the node has published."""
        return sum(
            event.count for event in self.emitted if event.kind == kind and tenant in (None, event.tenant)
        )


def counted(store: Store, by: By = "minute", tenant: str = "default") -> Counts:
    """The sum of all records of minutes, or of hours, for a tenant."""
    tally = rollups.new_tally()
    for _, _, rollup in read_rollups(store, by, store.now() - 3 * HOUR, store.now() + HOUR):
        if tenant in rollup.tenants:
            rollups.add_counts(tally, rollup.tenants[tenant].total)
    return rollups.to_counts(tally)


def by_name(store: Store, kind: str, by: By = "hour", tenant: str = "default") -> dict[str, Counts]:
    """The counts of each schedule, or of each task, in the only record of an hour."""
    (written,) = read_rollups(store, by, store.now() - HOUR, store.now() + HOUR)
    return rollups.read_named(getattr(written.rollup.tenants[tenant], kind))


def alive(store: Store, start: int, end: int, *, ticker: bool = False) -> list[set[str]]:
    """The nodes that were alive in each minute; those that fire schedules, or all."""
    found: dict[int, set[str]] = {minute: set() for minute in range(start_of("minute", start), end, MINUTE)}
    for minute, node, rollup in read_rollups(store, "minute", start, end):
        if rollup.ticker or (rollup.worker and not ticker):
            found[minute].add(node)
    return list(found.values())


def a_run(name: str = "r", **fields: Any) -> RunRecord:
    return RunRecord(id=name, **{"task": "works", "attempt": 1, "started_at": 0, **fields})


# -- what is counted -----------------------------------------------------------------------------------------


def test_the_counts_add_up_to_the_events_of_the_node(either: Store, clock: VirtualClock) -> None:
    node = SmallNode(either, clock)
    add_schedules(either, "good", "spare", task="works", trigger="every 20s")
    add_schedules(
        either, "bad", task="breaks", trigger="every 30s", execution=Execution(retries=1, backoff=1_000)
    )
    add_schedules(either, "theirs", task="works", tenant="acme")
    for _ in range(40):
        node.step()
    # The node was down for ten minutes: the missed ticks coalesce.
    clock.advance("10m")
    for _ in range(10):
        node.step()
    # A worker takes a run and dies with it.
    either.add_runs([RunRecord(id="lost", task="other", run_at=clock.now, scheduled_at=clock.now)])
    claim(either, tasks=frozenset(["other"]))
    clock.advance("31s")
    for _ in range(12):
        node.step()
    node.rollups.write(clock.now, is_last=True)

    for by in ("minute", "hour"):
        for tenant in ("default", "acme"):
            found = counted(either, by, tenant)
            assert (found.fired, found.started) == (
                node.published("fired", tenant),
                node.published("started", tenant),
            )
            assert (found.succeeded, found.failed, found.retried, found.crashed, found.cancelled) == tuple(
                node.published(kind, tenant)
                for kind in ("succeeded", "failed", "retrying", "crashed", "cancelled")
            )
            assert sum(found.skipped.values()) == node.published("skipped", tenant)
            assert sum(found.took.values()) == found.succeeded + found.failed + found.retried
    assert counted(either).crashed == 1
    assert counted(either).failed > 5
    assert set(counted(either).skipped) == {"coalesced"}
    assert counted(either, tenant="acme").succeeded > 5


def test_figures_need_no_listener(store: MemoryStore, clock: VirtualClock) -> None:
    node = SmallNode(store, clock)
    node.events._listeners = ()
    add_schedules(store, "good", task="works", trigger="every 10s")
    for _ in range(7):
        node.step()
    assert counted(store).succeeded > 3
    assert node.emitted == []


def test_runs_are_counted_by_schedule_and_by_task(store: MemoryStore, clock: VirtualClock) -> None:
    node = SmallNode(store, clock)
    add_schedules(store, "a", "b", task="works", trigger="every 10s")
    add_schedules(store, "c", task="breaks", trigger="every 20s")
    store.add_runs([a_run("by-hand", run_at=clock.now, attempt=0)])
    for _ in range(6):
        node.step()
    node.rollups.write(clock.now, is_last=True)
    schedules, tasks = by_name(store, "schedules"), by_name(store, "tasks")
    assert sorted(schedules) == ["a", "b", "c"]
    assert schedules["a"].succeeded == schedules["b"].succeeded == 6
    assert schedules["c"].failed == 3
    assert (tasks["works"].succeeded, tasks["breaks"].failed) == (13, 3)
    assert counted(store).started == 16


def test_a_crash_that_ends_the_run_counts_as_a_failed_run_as_well(clock: VirtualClock) -> None:
    counting = Counting()
    rerun, final = a_run(), a_run(execution=Execution(on_crash="fail"))
    asked = a_run(cancel_requested=True)
    ends = [(run, attempts.crashed(run, clock.now, "t")) for run in (rerun, final, asked)]
    counting.count_taken_over(ends, clock.now)
    (minute, _) = counting.take(clock.now, is_last=True)
    found = rollups.to_counts(minute.tallies["default", None, "works"])
    assert (found.crashed, found.failed, found.cancelled, found.released) == (3, 1, 1, 0)


def test_runs_that_a_supervisor_hands_back_are_counted_by_their_end(clock: VirtualClock) -> None:
    counting = Counting()
    run = a_run(execution=Execution(retries=1, timeout=1))
    ends: list[tuple[RunRecord, Transition]] = [
        (run, attempts.released(run, clock.now, "t")),
        (run, attempts.failed(run, "timed out", clock.now, "t")),
        (run, attempts.failed(msgspec.structs.replace(run, failures=1), "timed out", clock.now, "t")),
        (run, attempts.cancelled(run, clock.now, "t")),
    ]
    counting.count_taken_over(ends, clock.now, crashed=False)
    (minute, _) = counting.take(clock.now, is_last=True)
    found = rollups.to_counts(minute.tallies["default", None, "works"])
    assert (found.released, found.retried, found.failed, found.cancelled, found.crashed) == (1, 1, 1, 1, 0)


def test_lateness_is_that_of_first_attempts(clock: VirtualClock) -> None:
    counting = Counting()
    runs = [
        a_run(scheduled_at=clock.now, started_at=clock.now + 5),
        a_run(scheduled_at=clock.now, started_at=clock.now + 5_000, attempt=2),
        a_run(scheduled_at=clock.now, started_at=clock.now - 3),
    ]
    counting.count_started(runs, clock.now)
    (minute, _) = counting.take(clock.now, is_last=True)
    found = rollups.to_counts(minute.tallies["default", None, "works"])
    assert (found.started, found.late) == (3, {0: 1, 3: 1})


# -- buckets and percentiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "bucket"),
    [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1_023, 10), (1_024, 11), (10**12, 31)],
)
def test_the_buckets_double(ms: int, bucket: int) -> None:
    assert rollups.bucket(ms) == bucket


@pytest.mark.parametrize("seed", range(5))
def test_a_percentile_lies_in_the_bucket_of_the_exact_value(seed: int) -> None:
    rng = random.Random(seed)
    lengths = sorted(int(rng.lognormvariate(5, 2)) for _ in range(1_000))
    buckets = [0] * rollups.BUCKETS
    for length in lengths:
        buckets[rollups.bucket(length)] += 1
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = lengths[math.ceil(share * len(lengths)) - 1]
        found = rollups.percentile(buckets, share)
        assert found is not None
        low, high = (0, 1) if exact == 0 else (1 << (exact.bit_length() - 1), 1 << exact.bit_length())
        assert low <= found <= high, (share, exact, found)


def test_percentiles_of_known_lengths() -> None:
    assert rollups.percentile([0] * rollups.BUCKETS, 0.5) is None
    # 100 lengths from 1,024 ms to under 2,048 ms, spread evenly.
    buckets = [0] * rollups.BUCKETS
    buckets[11] = 100
    assert rollups.percentile(buckets, 0.5) == 1_536
    assert rollups.percentile(buckets, 1.0) == 2_048
    buckets[1] = 900
    assert rollups.percentile(buckets, 0.5) == pytest.approx(1 + 500 / 900)
    assert rollups.percentile(buckets, 0.95) == 1_536


# -- minutes, hours, bounds ----------------------------------------------------------------------------------


def test_a_node_writes_each_minute_when_it_is_over_also_without_any_work(
    either: Store, clock: VirtualClock
) -> None:
    clock.now = start_of("hour", clock.now) + 58 * MINUTE + 5_000
    node = SmallNode(either, clock)
    begin = clock.now
    assert node.rollups.step(clock.now) == start_of("minute", clock.now) + MINUTE
    assert either.find_records(KIND) == []
    for _ in range(3):
        clock.advance("1m")
        node.rollups.step(clock.now)
    keys = [record.key for record in either.find_records(KIND)]
    assert keys == [
        "hour/2026-03-01T12:00Z/n1",
        "hour/2026-03-01T13:00Z/n1",
        "minute/2026-03-01T12:58Z/n1",
        "minute/2026-03-01T12:59Z/n1",
        "minute/2026-03-01T13:00Z/n1",
    ]
    assert alive(either, begin, clock.now) == [{"n1"}, {"n1"}, {"n1"}, set()]


def test_an_hour_is_the_sum_of_its_minutes(store: MemoryStore, clock: VirtualClock) -> None:
    clock.now = start_of("hour", clock.now) + 57 * MINUTE
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    for minute in range(6):
        counting.count_started([a_run()] * (minute + 1), clock.now)
        clock.advance("1m")
        duty.step(clock.now)
    hours = [written.rollup.tenants["default"].total.started for written in _read(store, "hour")]
    minutes = [written.rollup.tenants["default"].total.started for written in _read(store, "minute")]
    assert minutes == [1, 2, 3, 4, 5, 6]
    assert hours == [1 + 2 + 3, 4 + 5 + 6]


def test_an_idle_node_writes_its_hour_once_and_seldom_looks_for_old_records(clock: VirtualClock) -> None:
    calls: Counter[str] = Counter()

    class Counted(MemoryStore):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            calls[f"{record.kind} {record.key.split('/')[0]}"] += 1
            return super().put_record(record, expect)

        def find_records(self, kind: str, *given: Any, **bounds: Any) -> list[Record]:
            calls[f"find {kind}"] += 1
            return super().find_records(kind, *given, **bounds)

    node = Rollups(Counted(clock), Counting(), "n")
    node.step(clock.now)
    clock.now = start_of("hour", clock.now) + HOUR
    node.step(clock.now)
    calls.clear()
    for _ in range(50):
        clock.advance("1m")
        node.step(clock.now)
    assert (calls["rollup minute"], calls["rollup hour"], calls["find rollup"]) == (50, 1, 5)


def _read(store: Store, by: By) -> list[Any]:
    return list(read_rollups(store, by, store.now() - 3 * HOUR, store.now() + HOUR))


def test_records_of_minutes_are_deleted_after_three_hours_whichever_node_wrote_them(
    either: Store, clock: VirtualClock
) -> None:
    dead = SmallNode(either, clock, "dead")
    dead.rollups.step(clock.now)
    clock.advance("1m")
    dead.rollups.step(clock.now)
    living = SmallNode(either, clock, "alive")
    for _ in range(181):
        living.rollups.step(clock.now)
        clock.advance("1m")
    found = [record.key for record in either.find_records(KIND, start="minute/", end="minute0")]
    assert all("dead" not in key for key in found)
    assert len(found) == 180
    assert [record.key for record in either.find_records(KIND, end="hour/9") if "dead" in record.key]


def test_names_past_the_bounds_are_counted_together(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MOST_NAMES", 3)
    monkeypatch.setattr(rollups, "MOST_TENANTS", 2)
    counting = Counting()
    for _ in range(2):
        for at in range(5):
            counting.count_started([a_run(schedule=f"s{at}", task="works")], clock.now)
    counting.count_started([a_run(task=f"t{at}", tenant="acme") for at in range(5)], clock.now)
    counting.count_started([a_run(tenant="third"), a_run(tenant="fourth")], clock.now)
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    (written,) = _read(store, "hour")
    tenants = written.rollup.tenants
    assert sorted(tenants) == ["acme", "default"]
    assert tenants["default"].total.started == 10
    assert {name: each.started for name, each in by_name(store, "schedules").items()} == {
        "s0": 2,
        "s1": 2,
        "s2": 2,
    }
    # The task is known of all of them.
    assert {name: each.started for name, each in by_name(store, "tasks").items()} == {"works": 10}
    assert tenants["default"].has_others
    assert tenants["acme"].has_others
    assert sorted(by_name(store, "tasks", tenant="acme")) == ["t0", "t1", "t2"]
    assert written.rollup.others is not None
    assert written.rollup.others.started == 2


def test_the_number_of_names_in_a_record_is_bounded(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MOST_NAMES_IN_ALL", 4)
    counting = Counting()
    for tenant in ("a", "b", "c"):
        counting.count_started([a_run(schedule=f"s{at}", tenant=tenant) for at in range(3)], clock.now)
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    (written,) = _read(store, "hour")
    assert [counts.total.started for counts in written.rollup.tenants.values()] == [3, 3, 3]
    names = [rollups.read_named(counts.schedules) for counts in written.rollup.tenants.values()]
    assert [sorted(each) for each in names] == [["s0", "s1", "s2"], ["s0"], []]


def test_a_name_that_no_database_stores_is_counted_with_the_others(
    store: MemoryStore, clock: VirtualClock
) -> None:
    counting = Counting()
    counting.count_started([a_run(schedule="\ud800")], clock.now)
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    (written,) = _read(store, "minute")
    assert written.rollup.tenants == {}
    assert written.rollup.others == Counts(started=1, late={0: 1})


def test_a_clock_that_is_set_back_loses_no_counts(store: MemoryStore, clock: VirtualClock) -> None:
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    start = clock.now = start_of("hour", clock.now) + 90_000
    for now in (start, start + MINUTE, start - HOUR, start, start + MINUTE, start + HOUR):
        counting.count_started([a_run()], now)
        clock.now = max(clock.now, now)
        duty.write(now)
    duty.write(clock.now, is_last=True)
    assert counted(store).started == 6
    assert counted(store, "hour").started == 6


# -- writes that fail, and nodes that restart ----------------------------------------------------------------


class Flaky(MemoryStore):
    """A store whose next writes of records fail, with or without taking effect."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.fails: list[str] = []

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        how = self.fails.pop(0) if self.fails and record.kind == KIND else ""
        if how == "away":
            raise StoreUnavailable("away")
        answer = super().put_record(record, expect)
        if how == "lost":
            raise StoreUnavailable("the reply was lost")
        return answer


@pytest.mark.parametrize(
    "fails",
    [
        ["away"],
        ["lost"],
        ["", "away"],
        ["", "lost"],
        ["lost", "lost", "lost"],
        ["lost", "away", "lost", "", "lost", "away"],
        ["away", "lost", "lost", "away", "", "", "lost"],
    ],
)
def test_figures_are_written_later_and_not_twice_if_the_store_fails(
    clock: VirtualClock, fails: list[str]
) -> None:
    store = Flaky(clock)
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    store.fails = list(fails)
    for number in range(1, 13):
        counting.count_started([a_run()] * number, clock.now)
        clock.advance("30s")
        try:
            duty.step(clock.now)
        except StoreUnavailable:
            continue
    duty.write(clock.now, is_last=True)
    assert counted(store).started == sum(range(1, 13))
    assert counted(store, "hour").started == sum(range(1, 13))
    assert store.fails == []


def test_a_long_outage_keeps_the_figures_of_the_latest_minutes(clock: VirtualClock) -> None:
    store = Flaky(clock)
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    store.fails = ["away"] * 1_000
    for _ in range(300):
        counting.count_started([a_run()], clock.now)
        clock.advance("1m")
        with pytest.raises(StoreUnavailable):
            duty.step(clock.now)
    assert len(counting.take(clock.now)) <= 180 + 6
    store.fails = []
    duty.step(clock.now)
    assert counted(store).started == 180
    assert sum(written.rollup.tenants["default"].total.started for written in _all_hours(store)) == 300


def _all_hours(store: Store) -> list[Any]:
    return list(read_rollups(store, "hour", store.now() - 24 * HOUR, store.now() + HOUR))


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_a_node_that_restarts_continues_the_figures(either: Store, clock: VirtualClock, name: str) -> None:
    for node in ("n1", name, name):
        counting = Counting()
        counting.count_started([a_run(schedule="s")] * 2, clock.now)
        duty = Rollups(either, counting, node)
        duty.write(clock.now, is_last=True)
        counting.count_started([a_run(schedule="s")], clock.now)
        duty.write(clock.now, is_last=True)
    assert counted(either).started == 9
    assert counted(either, "hour").started == 9
    assert len(_read(either, "minute")) == len({"n1", name})
    total = rollups.new_tally()
    for written in _read(either, "hour"):
        for counts in rollups.read_named(written.rollup.tenants["default"].schedules).values():
            rollups.add_counts(total, counts)
    assert total[rollups.STARTED] == 9


def test_a_record_that_was_damaged_by_hand_is_ignored_and_written_anew(
    store: MemoryStore, clock: VirtualClock
) -> None:
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    counting.count_started([a_run()], clock.now)
    minute = start_of("minute", clock.now)
    for key in (rollups.rollup_key("minute", minute, "n1"), rollups.rollup_key("minute", minute, "n2")):
        store.put_record(Record(kind=KIND, key=key, body='{"tenants": 5', version=7))
    store.put_record(Record(kind=KIND, key=f"minute/yesterday/{'n3'}", body="{}"))
    assert _read(store, "minute") == []
    assert alive(store, minute, minute + MINUTE) == [set()]
    duty.write(clock.now, is_last=True)
    assert counted(store).started == 1
    # Names of schedules that can't be read do not hide the total.
    (written,) = _read(store, "minute")
    assert rollups.read_named(msgspec.Raw(b"[1]")) == {}
    assert written.node == "n1"


@pytest.mark.parametrize("key", ["", "minute", "minute/x/n", "minute/2026-03-01T12:00/n", "hour//n"])
def test_keys_that_are_not_ours_are_not_read(key: str) -> None:
    assert rollups.read_key(key) is None


def test_a_period_that_can_not_be_written_does_not_block_the_next(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosy(MemoryStore):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            if "12:00Z" in record.key and record.key.startswith("minute"):
                raise ValueError("not this one")
            return super().put_record(record, expect)

    store = Choosy(clock)
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    for _ in range(3):
        counting.count_started([a_run()], clock.now)
        clock.advance("1m")
        duty.step(clock.now)
    assert counted(store).started == 2
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "figures can't be written"
    ]


# -- who was alive -------------------------------------------------------------------------------------------


def test_the_nodes_that_were_alive_are_known_by_minute(store: MemoryStore, clock: VirtualClock) -> None:
    start = clock.now = start_of("minute", clock.now)
    both, only_worker = Counting(), Counting()
    nodes = [
        Rollups(store, both, "both"),
        Rollups(store, only_worker, "worker", ticker=False),
        Rollups(store, Counting(), "supervisor", ticker=False, worker=False),
    ]
    for step in range(4):
        for node in nodes[: 3 if step < 3 else 1]:
            node.step(clock.now)
        clock.advance("1m")
    expected = [{"both", "worker"}, {"both", "worker"}, {"both"}, set()]
    assert alive(store, start, clock.now) == expected
    assert alive(store, start, clock.now, ticker=True) == [{"both"}, {"both"}, {"both"}, set()]


def test_a_supervisor_writes_only_what_it_counted(store: MemoryStore, clock: VirtualClock) -> None:
    counting = Counting()
    duty = Rollups(store, counting, "supervisor", ticker=False, worker=False)
    duty.write(clock.now)
    clock.advance("1m")
    duty.write(clock.now)
    assert store.find_records(KIND) == []
    run = a_run()
    counting.count_taken_over([(run, attempts.crashed(run, clock.now, "t"))], clock.now)
    duty.write(clock.now, is_last=True)
    assert counted(store).crashed == 1
    assert len(store.find_records(KIND)) == 2


def test_counts_of_a_later_version_are_read_as_far_as_they_are_known() -> None:
    body = (
        '{"written_at": 1, "format": 9, "tenants": {"default": {"total": {"started": 2, "dreamt": 5,'
        ' "skipped": {"tired": 3, "late": 1}, "took": {"99": 1, "2": 4}}}}}'
    )
    rollup = rollups.read_rollup(body)
    assert isinstance(rollup, Rollup)
    tally = rollups.new_tally()
    rollups.add_counts(tally, rollup.tenants["default"].total)
    assert rollups.to_counts(tally) == Counts(started=2, skipped={"late": 1}, took={2: 4})


def test_every_thread_may_count(clock: VirtualClock) -> None:
    import threading

    counting = Counting()
    runs = [a_run()] * 100

    def count() -> None:
        for at in range(50):
            counting.count_started(runs, clock.now + at * 7_000)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: Counter[str] = Counter()
    for period in counting.take(clock.now + HOUR, is_last=True):
        found[period.by] += sum(tally[rollups.STARTED] for tally in period.tallies.values())
    assert found == {"minute": 20_000, "hour": 20_000}


def test_counts_that_come_while_a_period_is_written_are_written_next(
    store: MemoryStore, clock: VirtualClock
) -> None:
    counting = Counting()
    counting.count_started([a_run()], clock.now)
    clock.advance("1m")
    minute, hour = sorted(counting.take(clock.now), key=lambda period: period.by, reverse=True)
    written = hour.tallies
    counting.count_started([a_run()], clock.now)
    clock.advance("1m")
    counting.count_started([], clock.now)
    counting.mark_written(minute, minute.tallies)
    counting.mark_written(hour, written)
    assert [period.by for period in counting.take(clock.now)] == ["hour", "minute"]
    Rollups(store, counting, "n1").write(clock.now)
    assert counted(store, "hour").started == 2


def test_each_hour_has_room_for_other_names(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MOST_NAMES", 1)
    counting = Counting()
    duty = Rollups(store, counting, "n1")
    for name in ("first", "second"):
        counting.count_started([a_run(schedule=name), a_run(schedule="late")], clock.now)
        clock.advance("1h")
        duty.step(clock.now)
    names = [
        list(rollups.read_named(each.rollup.tenants["default"].schedules)) for each in _read(store, "hour")
    ]
    assert names == [["first"], ["second"]]


def test_an_end_that_the_store_refused_is_not_counted(clock: VirtualClock) -> None:
    counting = Counting()
    run = a_run(claim="c")
    attempt = Attempt(run, Task(works, "works"), 0.0, 30.0, lambda _: True)
    attempt.began, attempt.over = 10.0, 10.25
    end = AttemptEnd(attempt, attempts.succeeded(run, None, clock.now, "t"), "succeeded")
    counting.count_ended([end, end, end], [True, False, True], clock.now)
    (minute, _) = counting.take(clock.now, is_last=True)
    found = rollups.to_counts(minute.tallies["default", None, "works"])
    assert (found.succeeded, found.took) == (2, {8: 2})


def test_a_restart_does_not_hide_that_names_were_left_out(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (1, 5):
        monkeypatch.setattr(rollups, "MOST_NAMES", most)
        counting = Counting()
        counting.count_started([a_run(schedule="a"), a_run(schedule="b")], clock.now)
        Rollups(store, counting, "n1").write(clock.now, is_last=True)
    (written,) = _read(store, "hour")
    assert written.rollup.tenants["default"].has_others
    assert {name: each.started for name, each in by_name(store, "schedules").items()} == {"a": 2, "b": 1}


def test_minutes_of_an_outage_show_that_the_node_was_alive(store: MemoryStore, clock: VirtualClock) -> None:
    seconds = 1_000.0
    start = clock.now = start_of("minute", clock.now)
    counting = Counting(lambda: seconds)
    duty = Rollups(store, counting, "n1")
    duty.step(clock.now)
    # For three minutes the store is unavailable, and nobody knows its time. Then the machine is suspended.
    for _ in range(18):
        counting.note_alive()
        seconds += 10
    seconds += 120
    clock.now = start + 300_000
    counting.count_started([a_run()], clock.now)
    duty.step(clock.now)
    assert alive(store, start, clock.now) == [{"n1"}, {"n1"}, {"n1"}, set(), set()]
    late = [written.rollup.written_at - written.start for written in _read(store, "minute")]
    assert late == [300_000, 240_000, 180_000]
    # A minute that was written is not written again.
    clock.advance("1m")
    duty.step(clock.now)
    assert [each.rollup.written_at for each in _read(store, "minute")] == [start + 300_000] * 3 + [clock.now]


def test_a_node_notes_that_it_is_alive_while_the_store_does_not_tell_the_time(clock: VirtualClock) -> None:
    class Away(MemoryStore):
        away = False

        def now(self) -> int:
            if self.away:
                raise StoreUnavailable("away")
            return super().now()

    store = Away(clock)
    node = Node(store, Tasks(), Events(), NodeSettings())
    store.away = True
    with pytest.raises(StoreUnavailable):
        node.now()
    assert len(node.counting._seen) == 1
    node._probe.close()

"""Counters: the sums of what all nodes have counted never go down, lose nothing, and count nothing twice."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from evenbeat.core.records import Record, RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.node.counters import BASE_KIND, FOLD_EVERY, KIND, CounterWriter, fold_old_records, read_counters
from evenbeat.node.counting import Counting
from evenbeat.node.metered_store import OPERATIONS, metered
from evenbeat.node.rollups import Rollups
from evenbeat.rules import counters, rollups
from evenbeat.rules.counters import OLD, REMEMBERED, SEALED, Base, CounterRecord, Sums
from evenbeat.rules.rollups import HOUR, MINUTE
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.lengths import LONG


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


def a_run(tenant: str = "default", task: str = "works", **fields: Any) -> RunRecord:
    return RunRecord(id="r", task=task, tenant=tenant, **{"attempt": 1, "started_at": 0, **fields})


def started(sums: Sums) -> int:
    return sum(tally[rollups.STARTED] for tally in sums.tallies.values())


class Process:
    """A process that counts, and its duty."""

    def __init__(self, store: MemoryStore, name: str = "n1") -> None:
        self.counting = Counting()
        self.rollups = Rollups(store, self.counting, name)

    def count(self, now: int, number: int = 1, **fields: Any) -> None:
        self.counting.count_started([a_run(**fields)] * number, now)

    def write(self, now: int) -> None:
        self.rollups.write(now, is_last=True)


# -- arithmetic ----------------------------------------------------------------------------------------------


def sums_of(**tasks: int) -> Sums:
    made = Sums.empty()
    for task, number in tasks.items():
        tally = rollups.new_tally()
        tally[rollups.SUCCEEDED] = number
        tally[rollups.TOOK + 3] = number
        tally[rollups.TOOK_SUM] = 5_000 * number
        made.add_tally("acme", task, tally)
    made.numbers["lease_losses"] = 2
    made.lengths["calls/fire"] = [70, 3, *[0] * (rollups.BUCKETS - 1)]
    return made


def test_counts_are_read_as_they_were_written() -> None:
    sums = sums_of(mail=3, bill=1)
    record = counters.read_record(counters.write_record(sums, 7))
    assert record is not None
    assert record.written_at == 7
    again = Sums.empty()
    again.add(record)
    assert again == sums


def test_what_was_counted_since_then_is_the_difference() -> None:
    later = sums_of(mail=5, bill=1)
    later.numbers["duplicates/end"] = 4
    since = later.minus(sums_of(mail=3))
    assert since.tallies["acme", "mail"][rollups.SUCCEEDED] == 2
    assert since.tallies["acme", "mail"][rollups.TOOK_SUM] == 10_000
    assert since.tallies["acme", "bill"][rollups.SUCCEEDED] == 1
    assert since.numbers == {"lease_losses": 0, "duplicates/end": 4}
    assert not any(since.lengths["calls/fire"])
    # Nothing is stored of what is zero.
    stored = counters.read_record(counters.write_record(since, 0))
    assert stored is not None
    assert (stored.numbers, stored.lengths) == ({"duplicates/end": 4}, {})


def test_names_past_the_bounds_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MOST_PAIRS", 3)
    monkeypatch.setattr(counters, "MOST_OTHERS", 1)
    sums = Sums.empty()
    tally = rollups.new_tally()
    tally[rollups.STARTED] = 1
    for tenant, task in [("a", "x"), ("a", "y"), ("b", "x"), ("a", "z"), ("a", "w"), ("c", "x"), ("b", "x")]:
        sums.add_tally(tenant, task, tally)
    assert {pair: each[rollups.STARTED] for pair, each in sums.tallies.items()} == {
        ("a", "x"): 1,
        ("a", "y"): 1,
        ("b", "x"): 2,
        ("a", ""): 2,
        ("", ""): 1,
    }


def test_a_record_is_added_to_the_base_once() -> None:
    record = counters.read_record(counters.write_record(sums_of(mail=3), 0))
    assert record is not None
    base = counters.with_folded(Base(), {"n1/a": (4, record)}, 100)
    assert base.folded["n1/a"] == (4, 100)
    assert counters.with_folded(base, {"n1/a": (4, record)}, 200) == base
    assert counters.total(base, [("n1/a", record)]).tallies["acme", "mail"][rollups.SUCCEEDED] == 3
    assert counters.total(base, [("n2/b", record)]).tallies["acme", "mail"][rollups.SUCCEEDED] == 6
    # Its name is forgotten after a day, unless the record is still there.
    much_later = 100 + REMEMBERED
    assert counters.with_folded(base, {}, much_later).folded == {}
    assert counters.with_folded(base, {"n1/a": (4, record)}, much_later) == base


def test_records_that_can_not_be_read_are_ignored(store: MemoryStore, clock: VirtualClock) -> None:
    assert counters.read_record('{"tenants": 5}') is None
    assert counters.read_base("[") is None
    process = Process(store)
    process.count(clock.now, 2)
    process.write(clock.now)
    store.put_record(Record(kind=KIND, key="n2/x", body="no"))
    assert started(read_counters(store)) == 2
    clock.advance("1h")
    assert fold_old_records(store, clock.now)
    assert [record.key for record in store.find_records(KIND)] == ["n2/x"]
    assert started(read_counters(store)) == 2


def test_a_base_that_was_damaged_by_hand_begins_again(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_record(Record(kind=BASE_KIND, key="base", body="no", version=3))
    process = Process(store)
    process.count(clock.now, 2)
    process.write(clock.now)
    clock.advance("1h")
    assert fold_old_records(store, clock.now)
    assert "counters can't be read" in caplog.text
    assert started(read_counters(store)) == 2


def test_records_of_a_newer_format_are_not_folded(store: MemoryStore, clock: VirtualClock) -> None:
    body = '{"format": 2, "tenants": {"acme": {"mail": {"started": 3, "dreamt": 1}}}, "dreams": 5}'
    store.put_record(Record(kind=KIND, key="n1/x", body=body))
    assert fold_old_records(store, clock.now)
    assert started(read_counters(store)) == 3
    assert len(store.find_records(KIND)) == 1
    # Nor is a base of a newer format written: what this version does not know would be lost.
    store.put_record(Record(kind=BASE_KIND, key="base", body=body))
    process = Process(store)
    process.count(clock.now, 2)
    process.write(clock.now)
    clock.advance("1h")
    fold_old_records(store, clock.now)
    assert started(read_counters(store)) == 8
    (base,) = store.find_records(BASE_KIND)
    assert base.body == body


# -- what is counted -----------------------------------------------------------------------------------------


def test_a_process_writes_everything_since_its_start_in_one_record(
    store: MemoryStore, clock: VirtualClock
) -> None:
    process = Process(store)
    for _ in range(3 * 60):
        process.count(clock.now)
        clock.advance("1m")
        process.rollups.step(clock.now)
    assert len(store.find_records(KIND)) == 1
    assert started(read_counters(store)) == 180
    clock.advance("50d")
    store.purge(clock.now, 10_000)
    assert store.find_records("rollup") == []
    assert started(read_counters(store)) == 180


def test_a_process_that_has_counted_nothing_new_writes_nothing(
    store: MemoryStore, clock: VirtualClock
) -> None:
    process = Process(store)
    process.count(clock.now)
    process.write(clock.now)
    (before,) = store.find_records(KIND)
    clock.advance("5m")
    process.write(clock.now)
    assert store.find_records(KIND) == [before]


def test_a_node_at_rest_writes_every_five_minutes_and_at_its_end(
    store: MemoryStore, clock: VirtualClock
) -> None:
    process = Process(store)
    process.count(clock.now)
    writes = []
    begin = clock.now
    for _ in range(12):
        process.counting.count_call("claim", 0.001)
        clock.advance("1m")
        process.rollups.step(clock.now)
        (record,) = store.find_records(KIND)
        body = counters.read_record(record.body)
        assert body is not None
        writes.append((body.written_at - begin) // MINUTE)
    assert writes == [1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 11, 11]
    process.counting.count("lease_losses")
    clock.advance("1m")
    process.rollups.step(clock.now)
    process.counting.count_call("claim", 0.001)
    process.write(clock.now)
    assert sum(read_counters(store).lengths["calls/claim"][1:]) == 13
    assert read_counters(store).numbers == {"lease_losses": 1}


def test_claims_and_lengths_have_their_sums(clock: VirtualClock) -> None:
    counting = Counting()
    now = clock.now
    counting.count_started(
        [
            a_run(scheduled_at=now, run_at=now, started_at=now + 5),
            a_run(scheduled_at=now, run_at=now + 9, started_at=now + 10, attempt=2),
            a_run(scheduled_at=now, run_at=now, started_at=now - 3),
        ],
        now,
    )
    counting.count_call("fire", 0.0025)
    counting.count_call("fire", 0.0001, failed=True)
    counting.take(now, is_last=True)
    sums = counting.sums()
    claims = sums.lengths["claims"]
    assert (claims[0], claims[1], claims[2], claims[4]) == (6_000, 1, 1, 1)
    assert sum(claims[1:]) == 3
    calls = sums.lengths["calls/fire"]
    assert (calls[0], calls[1], calls[3], sum(calls[1:])) == (2_600, 1, 1, 2)
    assert sums.numbers == {"store_errors/fire": 1}
    tally = sums.tallies["default", "works"]
    assert tally[rollups.LATE_SUM] == 5_000
    assert sum(tally[rollups.LATE : rollups.TOOK_SUM]) == 2


def test_alerts_are_counted_by_channel_and_outcome() -> None:
    counting = Counting()
    counting.count_alert("webhook", "sent")
    counting.count_alert("webhook", "sent")
    counting.count_alert("apprise", "failed")
    assert counting.sums().numbers == {"alerts/webhook/sent": 2, "alerts/apprise/failed": 1}


def test_calls_of_a_metered_store_are_counted_also_those_that_fail(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, counting = MemoryStore(clock), Counting()
    measured = metered(store, counting, settle_runs="heartbeat")
    assert measured.now() == clock.now
    assert measured.settle_runs([]) == []
    measured.hint()

    def fails(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "find_records", fails)
    with pytest.raises(StoreUnavailable):
        measured.find_records("node")
    sums = counting.sums()
    assert {name: sum(each[1:]) for name, each in sums.lengths.items()} == {
        "claims": 0,
        "calls/clock": 1,
        "calls/heartbeat": 1,
        "calls/record": 1,
    }
    assert sums.numbers == {"store_errors/record": 1}
    assert all(hasattr(store, method) for method in OPERATIONS)


def test_every_thread_may_count() -> None:
    counting = Counting()

    def work() -> None:
        for _ in range(1_000):
            counting.count("duplicates", "end")
            counting.count_call("fire", 0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counting.sums().numbers == {"duplicates/end": 4_000}
    assert sum(counting.sums().lengths["calls/fire"][1:]) == 4_000


# -- processes that end, freeze and come back ----------------------------------------------------------------


def test_the_counts_of_a_process_that_ended_stay(store: MemoryStore, clock: VirtualClock) -> None:
    dead, living = Process(store, "dead"), Process(store, "alive")
    dead.count(clock.now, 5)
    dead.write(clock.now)
    for _ in range(15):
        living.count(clock.now)
        clock.advance("1m")
        living.rollups.step(clock.now)
    assert [record.key.partition("/")[0] for record in store.find_records(KIND)] == ["alive"]
    assert started(read_counters(store)) == 5 + 15


def test_a_process_of_the_same_name_adds_to_the_counts(store: MemoryStore, clock: VirtualClock) -> None:
    for _ in range(3):
        process = Process(store, "n1")
        process.count(clock.now, 2)
        process.write(clock.now)
    assert started(read_counters(store)) == 6


def test_a_process_that_was_frozen_continues_where_its_record_was_sealed(
    store: MemoryStore, clock: VirtualClock
) -> None:
    frozen = Process(store, "frozen")
    frozen.count(clock.now, 5)
    frozen.write(clock.now)
    frozen.count(clock.now, 2)
    clock.advance("1h")
    assert fold_old_records(store, clock.now)
    assert started(read_counters(store)) == 5
    for expected in (8, 9):
        frozen.count(clock.now)
        frozen.write(clock.now)
        assert started(read_counters(store)) == expected
    assert len(store.find_records(KIND)) == 1


def test_a_process_that_was_frozen_for_days_loses_no_count(store: MemoryStore, clock: VirtualClock) -> None:
    process = Process(store)
    process.count(clock.now, 3)
    process.write(clock.now)
    clock.advance(OLD)
    fold_old_records(store, clock.now)
    clock.advance(REMEMBERED)
    other = Process(store, "n2")  # whose fold forgets the name of the first record
    other.count(clock.now)
    other.write(clock.now)
    clock.advance(OLD)
    fold_old_records(store, clock.now)
    process.count(clock.now, 4)
    process.write(clock.now)
    assert started(read_counters(store)) == 8


def test_a_record_that_was_only_sealed_is_folded_by_the_next_node(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(store)
    process.count(clock.now, 5)
    process.write(clock.now)
    clock.advance("1h")
    put = store.put_record

    def dies(record: Record, expect: int | None = None) -> bool:
        if record.kind == BASE_KIND:
            raise StoreUnavailable("the node died")
        return put(record, expect)

    monkeypatch.setattr(store, "put_record", dies)
    with pytest.raises(StoreUnavailable):
        fold_old_records(store, clock.now)
    (sealed,) = store.find_records(KIND)
    assert sealed.version >= SEALED
    assert started(read_counters(store)) == 5
    # Its process finds it sealed before it is folded, and goes on.
    process.count(clock.now, 2)
    monkeypatch.undo()
    process.write(clock.now)
    assert started(read_counters(store)) == 7
    assert fold_old_records(store, clock.now)
    assert started(read_counters(store)) == 7
    assert len(store.find_records(KIND)) == 1


def test_a_process_that_wrote_meanwhile_is_not_folded(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(store)
    process.count(clock.now, 5)
    process.write(clock.now)
    clock.advance("1h")
    find = store.find_records

    def find_and_let_write(kind: str, *arguments: Any, **options: Any) -> list[Record]:
        found = find(kind, *arguments, **options)
        if kind == KIND:
            process.count(clock.now, 1)
            process.write(clock.now)
        return found

    monkeypatch.setattr(store, "find_records", find_and_let_write)
    assert not fold_old_records(store, clock.now)
    monkeypatch.undo()
    assert store.get_record(BASE_KIND, "default", "base") is None
    assert started(read_counters(store)) == 6


def test_nodes_that_fold_at_once_count_nothing_twice(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        process = Process(store, name)
        process.count(clock.now, 5)
        process.write(clock.now)
    clock.advance("1h")
    get, again = store.get_record, [3]

    def get_and_let_fold(kind: str, tenant: str, key: str) -> Record | None:
        found = get(kind, tenant, key)
        if kind == BASE_KIND and again[0]:
            again[0] -= 1
            fold_old_records(store, clock.now)
        return found

    monkeypatch.setattr(store, "get_record", get_and_let_fold)
    fold_old_records(store, clock.now)
    monkeypatch.undo()
    assert started(read_counters(store)) == 10
    assert store.find_records(KIND) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_record_that_is_folded_during_a_scrape_counts_once(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    process = Process(store)
    process.count(clock.now, 5)
    process.write(clock.now)
    clock.advance("1h")
    find = store.find_records

    def find_while_others_fold(kind: str, *arguments: Any, **options: Any) -> list[Record]:
        monkeypatch.undo()
        if when == "before":
            fold_old_records(store, clock.now)
        found = find(kind, *arguments, **options)
        fold_old_records(store, clock.now)
        return found

    monkeypatch.setattr(store, "find_records", find_while_others_fold)
    assert started(read_counters(store)) == 5


def test_many_records_are_folded_step_by_step(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.node.counters._MOST_FOLDED", 2)
    for at in range(5):
        process = Process(store, f"n{at}")
        process.count(clock.now)
        process.write(clock.now)
    clock.advance("1h")
    writer = CounterWriter(store, Counting(), "n9")
    left = []
    for _ in range(4):
        writer.fold(clock.now)
        left.append(len(store.find_records(KIND)))
        assert started(read_counters(store)) == 5
    assert left == [3, 1, 0, 0]


def test_a_node_folds_every_ten_minutes_and_after_a_clock_was_set_back(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []
    find = store.find_records

    def noting(kind: str, *arguments: Any, **options: Any) -> list[Record]:
        searches.append(clock.now)
        return find(kind, *arguments, **options)

    monkeypatch.setattr(store, "find_records", noting)
    writer = CounterWriter(store, Counting(), "n1")
    begin = clock.now
    for now in (0, MINUTE, FOLD_EVERY - 1, FOLD_EVERY, FOLD_EVERY + MINUTE, -HOUR):
        clock.now = begin + now
        writer.fold(clock.now)
    assert [at - begin for at in searches] == [0, FOLD_EVERY, -HOUR]


# -- anything at any time ------------------------------------------------------------------------------------


class Hostile(MemoryStore):
    """A store whose calls fail, with or without taking effect, and during which others act."""

    def __init__(self, clock: VirtualClock, rng: random.Random) -> None:
        super().__init__(clock)
        self.rng = rng
        self.meanwhile: list[Callable[[], None]] = []
        self.failing = 0.0
        self._inside = False

    def _disturbed(self, call: Callable[[], Any]) -> Any:
        how = self.rng.random()
        if how < self.failing / 2:
            raise StoreUnavailable("away")
        if self.meanwhile and not self._inside and self.rng.random() < 0.2:
            self._inside = True
            try:
                self.rng.choice(self.meanwhile)()
            finally:
                self._inside = False
        answer = call()
        if how < self.failing:
            raise StoreUnavailable("the reply was lost")
        return answer

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        return bool(self._disturbed(lambda: MemoryStore.put_record(self, record, expect)))

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        found: Record | None = self._disturbed(lambda: MemoryStore.get_record(self, kind, tenant, key))
        return found

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        return bool(self._disturbed(lambda: MemoryStore.delete_record(self, kind, tenant, key, version)))


@pytest.mark.parametrize("first", [0, *(pytest.param(at, marks=LONG) for at in range(50, 500, 50))])
def test_counters_never_go_down_and_end_exact_whatever_happens(first: int) -> None:
    for seed in range(first, first + 50):
        _play(seed)


def _play(seed: int) -> None:
    rng, clock = random.Random(seed), VirtualClock()
    store = Hostile(clock, rng)
    processes = [Process(store, f"n{at}") for at in range(3)]
    truth, seen = 0, 0

    def scrape() -> None:
        nonlocal seen
        failing, store.failing = store.failing, 0.0
        found = started(read_counters(store))
        store.failing = failing
        assert seen <= found <= truth, f"seed {seed}: {seen} <= {found} <= {truth}"
        seen = found

    def fold() -> None:
        with contextlib.suppress(StoreUnavailable):
            fold_old_records(store, clock.now)

    def write() -> None:
        with contextlib.suppress(StoreUnavailable):
            rng.choice(processes).write(clock.now)

    store.meanwhile = [fold, lambda: rng.choice(processes).count(clock.now, 0)]
    for _ in range(60):
        store.failing = rng.choice((0.0, 0.0, 0.3))
        if rng.random() < 0.5:
            number = rng.randrange(1, 5)
            rng.choice(processes).count(clock.now, number)
            truth += number
        rng.choice((write, write, fold, scrape))()
        # A jump makes every process look dead; the clock may also be set back.
        clock.now += rng.choice((0, 1_000, MINUTE, MINUTE, OLD, -5 * MINUTE))
    store.failing = 0.0
    store.meanwhile = []
    for process in processes:
        process.write(clock.now)
        process.write(clock.now)
    scrape()
    assert seen == truth, f"seed {seed}"
    clock.now += 12 * HOUR
    fold()
    scrape()
    assert (seen, store.find_records(KIND)) == (truth, [])


def test_a_folded_record_is_no_longer_there() -> None:
    record = CounterRecord(written_at=0)
    assert not counters.is_old(record, OLD - 1)
    assert counters.is_old(record, OLD)
    assert counters.is_old(CounterRecord(written_at=OLD, is_sealed=True), OLD)
    # A clock that was set back: the record will be old later.
    assert not counters.is_old(CounterRecord(written_at=2 * OLD), OLD)

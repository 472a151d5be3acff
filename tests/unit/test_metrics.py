"""Metrics: what Prometheus reads comes from the store, within bounds, and its counters never go down."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from evenbeat import LockHeld, LockLost, Scheduler, every
from evenbeat.app import metrics
from evenbeat.app.metrics import NUMBER_METRICS, read_metrics
from evenbeat.core.records import Execution, RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.executors.inline import InlineExecutor
from evenbeat.node.counters import fold_old_records
from evenbeat.node.counting import Counting
from evenbeat.node.lanes import Lane
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.reaper import Reaper
from evenbeat.node.rollups import Rollups
from evenbeat.node.ticker import Ticker
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Events
from evenbeat.observe.metrics import BUCKET_NAMES, METRICS
from evenbeat.rules.counters import NUMBERS
from evenbeat.rules.firing import Planned
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import Fired, Page, PlanFunction, ScheduleQuery, Store, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Task, Tasks
from evenbeat.testing import VirtualClock, virtual
from tests.prometheus import Scrape
from tests.store_calls import add_schedules, claim


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


def scrape(store: Store, **options: Any) -> Scrape:
    return Scrape(read_metrics(store, **options).encode()[0].decode())


def works() -> None:
    pass


def breaks() -> None:
    raise ValueError("broken")


class SmallNode:
    """The ticker, worker, reaper and rollups of a node, without threads."""

    def __init__(self, store: Store, clock: VirtualClock, name: str = "n1") -> None:
        self.clock = clock
        tasks, events = Tasks(), Events()
        for function in (works, breaks):
            tasks.add(Task(function, function.__name__))
        self.counting = Counting()
        self.ticker = Ticker(store, events, counting=self.counting)
        self.worker = Worker(
            store,
            tasks,
            events,
            lambda _: Lane(InlineExecutor(), 10),
            name=name,
            clock=lambda: clock.now / 1000,
            counting=self.counting,
        )
        self.reaper = Reaper(store, events, clock=lambda: clock.now / 1000, counting=self.counting)
        self.rollups = Rollups(store, self.counting, name)

    def step(self, seconds: int = 10) -> None:
        self.clock.advance(f"{seconds}s")
        self.ticker.step(self.clock.now)
        for _ in range(3):
            self.worker.step(self.clock.now)
        self.reaper.step(self.clock.now)
        self.rollups.step(self.clock.now)

    def stop(self) -> None:
        self.rollups.write(self.clock.now, is_last=True)


# -- values --------------------------------------------------------------------------------------------------


def test_the_counters_equal_what_the_store_says(store: MemoryStore, clock: VirtualClock) -> None:
    nodes = [SmallNode(store, clock, f"n{at}") for at in range(3)]
    add_schedules(store, "good", "spare", task="works", trigger="every 20s")
    add_schedules(
        store, "bad", task="breaks", trigger="every 30s", execution=Execution(retries=1, backoff=1_000)
    )
    add_schedules(store, "theirs", task="works", tenant="acme", trigger="every 30s")
    store.add_runs([RunRecord(id=f"by-hand-{at}", task="works", run_at=clock.now) for at in range(5)])
    for _ in range(30):
        for node in nodes:
            node.step(5)
    for node in nodes:
        node.stop()
    found = scrape(store)
    for tenant in ("default", "acme"):
        counted = store.count_runs(tenant)
        for status in ("succeeded", "failed"):
            assert found.total("evenbeat_runs_total", tenant=tenant, status=status) == counted.get(status, 0)
        keys = [row.key for row in store.find_schedules(ScheduleQuery(tenant=tenant)).items]
        for figures in store.statistics(keys):
            labels = {"tenant": tenant, "schedule_id": figures.schedule}
            runs = "scheduler_runs_total"
            assert found.value(runs, **labels, status="succeeded") == figures.success_count
            assert found.value(runs, **labels, status="failed") == figures.failure_count
            assert figures.last_run is not None
            assert found.value("scheduler_last_run_timestamp", **labels) == figures.last_run / 1000
    retries = found.value("evenbeat_retries_total", tenant="default")
    failed = found.value("scheduler_runs_total", schedule_id="bad", status="failed")
    assert found.value("scheduler_run_duration_seconds_count", task="breaks") == retries + failed
    assert retries >= failed > 5
    attempts = found.total("evenbeat_attempts_total")
    assert attempts == found.value("evenbeat_claim_latency_seconds_count")
    active = sum(found.matching("evenbeat_queue_depth"))
    assert found.total("evenbeat_ticks_fired_total") == found.total("scheduler_runs_total") + active


def test_the_next_tick_is_that_of_active_schedules(store: MemoryStore, clock: VirtualClock) -> None:
    add_schedules(store, "runs", task="works", trigger="every 20s")
    add_schedules(store, "rests", task="works", trigger="every 20s", state="paused", next_tick=None)
    found = scrape(store)
    assert found.value("scheduler_next_run_timestamp") == (clock.now + 20_000) / 1000
    # The series of the other are there nevertheless.
    assert found.value("scheduler_runs_total", schedule_id="rests", status="failed") == 0


def test_cancelled_runs_of_a_schedule_are_counted_as_such() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with virtual(app) as scheduler:
        scheduler.schedules.add("nightly", every("1h"), "work")
        run = scheduler.schedules.run_now("nightly")
        scheduler.runs.cancel(run.id)
        scheduler.travel("90m")
        found = Scrape(scheduler.metrics())
    for status, number in (("succeeded", 1), ("failed", 0), ("cancelled", 1)):
        assert found.value("scheduler_runs_total", schedule_id="nightly", status=status) == number


def test_virtual_time_counts_each_run_once_however_often_it_travels() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with virtual(app) as scheduler:
        for number in range(1, 6):
            scheduler.enqueue(work)
            scheduler.travel("7m")
            assert Scrape(scheduler.metrics()).value("evenbeat_runs_total", status="succeeded") == number


def test_buckets_are_cumulative_and_the_sum_is_known(store: MemoryStore, clock: VirtualClock) -> None:
    counting = Counting()
    lengths = [0, 1, 3, 3, 1_000, 20_000_000]
    runs = [
        RunRecord(id="r", task="works", attempt=1, started_at=clock.now + late, scheduled_at=clock.now)
        for late in lengths
    ]
    counting.count_started(runs, clock.now)
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    found = scrape(store)
    name = "evenbeat_tick_lateness_seconds"
    values = [found.value(f"{name}_bucket", le=bound) for bound in BUCKET_NAMES]
    assert all(one <= other for one, other in pairwise(values))
    assert found.value(f"{name}_bucket", le="0.001") == 1
    assert found.value(f"{name}_bucket", le="0.002") == 2
    assert found.value(f"{name}_bucket", le="0.004") == 4
    assert found.value(f"{name}_bucket", le="1.024") == 5
    # 5.5 hours: past the last bound.
    assert found.value(f"{name}_bucket", le="16777.2") == 5
    assert found.value(f"{name}_bucket", le="+Inf") == found.value(f"{name}_count") == 6
    assert found.value(f"{name}_sum") == pytest.approx(sum(lengths) / 1000)


def test_queues_nodes_and_late_schedules_are_those_of_the_present(
    store: MemoryStore, clock: VirtualClock
) -> None:
    add_schedules(store, "late", task="works", trigger="every 20s")
    info = NodeInfo(
        name="box-1",
        host="box",
        pid=1,
        version="0.1.0",
        started_at=clock.now,
        seen_at=clock.now,
        ticker=False,
        worker=True,
        tasks={},
        queues=["default", "mail"],
        slots={},
    )
    clock.advance("1m")
    Presence(store, info).step(clock.now)
    store.add_runs(
        [
            RunRecord(id="due", task="works", run_at=clock.now - 5_000),
            RunRecord(id="held", task="other", run_at=clock.now - 9_000),
            RunRecord(id="later", task="works", run_at=clock.now + 5_000, queue="slow"),
        ]
    )
    claim(store, tasks=frozenset(["other"]))
    found = scrape(store)
    assert found.value("evenbeat_schedules_overdue") == 1
    assert found.value("evenbeat_node_up", node="box-1", host="box", version="0.1.0") == 1
    assert found.value("evenbeat_nodes", duty="ticker") == 0
    assert found.value("evenbeat_nodes", duty="worker") == 1
    depth = {
        (labels["queue"], labels["state"]): value for labels, value in found.samples["evenbeat_queue_depth"]
    }
    assert depth == {
        ("default", "due"): 1,
        ("default", "later"): 0,
        ("mail", "due"): 0,
        ("mail", "later"): 0,
        ("slow", "due"): 0,
        ("slow", "later"): 1,
    }
    assert found.value("evenbeat_queue_oldest_seconds", queue="default") == 5
    assert found.value("evenbeat_queue_oldest_seconds", queue="mail") == 0
    assert found.value("evenbeat_runs_in_flight", queue="default") == 1


def test_takeovers_lease_losses_and_late_ends_are_counted(store: MemoryStore, clock: VirtualClock) -> None:
    slow, other = SmallNode(store, clock, "slow"), SmallNode(store, clock, "other")
    store.add_runs([RunRecord(id=f"r{at}", task="works", run_at=clock.now) for at in range(2)])
    # The slow worker executes both, and freezes before it records the ends.
    slow.worker._claim(slow.worker._lanes["thread"], clock.now)
    other.step(31)
    for _ in range(4):
        other.step(11)
    slow.worker.step(clock.now)
    slow.stop()
    other.stop()
    found = scrape(store)
    assert found.total("evenbeat_takeovers_total") == 2
    assert found.value("evenbeat_duplicates_prevented_total", kind="end") == 2
    assert found.value("evenbeat_lease_losses_total") == 2
    assert found.value("evenbeat_runs_total", status="succeeded") == 2


def test_ticks_that_other_nodes_fire_and_fires_that_fail_are_counted(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock)
    node = SmallNode(store, clock)
    answers: list[Fired | Exception] = [
        Fired((), None, lost=(("default", "a"), ("default", "b"))),
        Fired((), clock.now - 1),
        StoreUnavailable("away"),
    ]

    def fire_due(now: int, limit: int, plan: PlanFunction) -> Fired:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(store, "fire_due", fire_due)
    node.ticker.step(clock.now)
    assert node.ticker.step(clock.now) == clock.now + 20
    with pytest.raises(StoreUnavailable):
        node.ticker.step(clock.now)
    node.rollups.write(clock.now)
    clock.advance("1m")
    node.stop()
    found = scrape(store)
    assert found.value("evenbeat_duplicates_prevented_total", kind="tick") == 2
    assert found.value("scheduler_lock_failures_total", lock="schedules", reason="held") == 1
    assert found.value("scheduler_lock_failures_total", lock="schedules", reason="error") == 1


def test_locks_that_a_node_does_not_get_are_counted() -> None:
    app = Scheduler("memory://")
    with app:
        with app.lock("import"):
            assert not app.lock("import").try_acquire()
            with pytest.raises(LockHeld):
                app.lock("import").acquire("50ms")
            with pytest.raises(LockHeld), app.lock("import"):
                pass
        with pytest.raises(LockLost), app.lock("export"):
            assert all(
                app.store.delete_record("lock", "default", "export", record.version)
                for record in app.store.find_records("lock")
            )
    found = Scrape(app.metrics())
    for reason, number in (("held", 3), ("lost", 1), ("error", 0)):
        assert found.value("scheduler_lock_failures_total", lock="named", reason=reason) == number


def test_locks_are_counted_once_also_if_they_are_awaited() -> None:
    app = Scheduler("memory://")

    async def wait_for_locks() -> str:
        await app.astart()
        async with app.lock("import"):
            assert not await app.lock("import").atry_acquire()
            with pytest.raises(LockHeld):
                await app.lock("import").aacquire("50ms")
        await app.astop()
        return await app.ametrics()

    found = Scrape(asyncio.run(wait_for_locks()))
    assert found.value("scheduler_lock_failures_total", lock="named", reason="held") == 2


def test_a_lock_fails_if_the_store_does(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Scheduler("memory://")
    noted: list[str] = []
    lock = app.lock("import")
    lock._note_failure = noted.append

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.store, "get_record", away)
    with pytest.raises(StoreUnavailable):
        lock.try_acquire()
    assert noted == ["error"]


def test_a_node_measures_its_calls_of_the_store() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with app:
        app.runs.join(work.enqueue().id, "30s")
    found = Scrape(app.metrics())
    for operation in ("clock", "fire", "claim", "settle", "record", "reap"):
        assert found.value("evenbeat_store_call_seconds_count", operation=operation) >= 1
    assert found.total("evenbeat_store_errors_total") == 0


# -- across the lives of nodes -------------------------------------------------------------------------------


def test_counters_do_not_go_down_when_nodes_die_restart_and_are_folded(
    store: MemoryStore, clock: VirtualClock
) -> None:
    add_schedules(store, "good", task="works", trigger="every 20s")
    before = scrape(store)
    node = SmallNode(store, clock, "n0")
    for at in range(400):
        node.step(30)
        if at % 40 == 39:
            # Killed without a last write, or stopped; then another process, at times of the same name.
            if at % 80 == 39:
                node.stop()
            node = SmallNode(store, clock, f"n{at % 3}")
        if at % 100 == 99:
            clock.advance("50d")
            store.purge(clock.now, 100_000)
        if at % 8 == 0:
            after = scrape(store)
            assert after.is_at_least(before)
            before = after
    assert before.value("evenbeat_runs_total", status="succeeded") > 300
    node.stop()
    clock.advance("1h")
    assert fold_old_records(store, clock.now)
    assert scrape(store).is_at_least(before)


# -- bounds --------------------------------------------------------------------------------------------------


class Reading(MemoryStore):
    """A store that counts the schedules that it returns."""

    read = 0

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        page = super().find_schedules(query)
        self.read += len(page.items)
        return page


@pytest.mark.parametrize("bound", [0, 1, 600, 1_499, 1_500, 2_000])
def test_schedules_have_series_of_their_own_up_to_the_bound(clock: VirtualClock, bound: int) -> None:
    store = Reading(clock)
    add_schedules(store, *(f"s{at:04}" for at in range(1_500)), task="works", trigger="every 1h")
    counting = Counting()
    counting.count_taken_over([], clock.now)
    node = SmallNode(store, clock)
    store.add_runs([RunRecord(id="r", task="works", run_at=clock.now)])
    node.step(1)
    node.stop()
    store.read = 0
    found = scrape(store, schedules=bound)
    assert store.read <= bound + 1
    if bound >= 1_500:
        assert len(list(found.matching("scheduler_next_run_timestamp"))) == 1_500
        assert found.labels("scheduler_runs_total") == {frozenset(("tenant", "schedule_id", "status"))}
    else:
        assert found.labels("scheduler_runs_total") == {frozenset(("tenant", "status"))}
        assert found.value("scheduler_runs_total", status="succeeded") == 1
        assert "scheduler_next_run_timestamp" not in found.samples


@pytest.mark.parametrize("bound", [-1, 100_001, "many"])
def test_a_bound_that_makes_no_sense_is_refused(store: MemoryStore, bound: Any) -> None:
    with pytest.raises(InvalidValue, match="schedules"):
        read_metrics(store, schedules=bound)


@pytest.mark.parametrize(
    ("tenants", "tasks", "labels"),
    [(2, 3, ({"tenant"}, {"tenant", "task"})), (3, 4, ({"tenant"}, {"tenant"})), (7, 1, (set(), set()))],
)
def test_labels_that_would_have_too_many_values_are_left_out(
    store: MemoryStore,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
    tenants: int,
    tasks: int,
    labels: tuple[set[str], set[str]],
) -> None:
    monkeypatch.setattr(metrics, "MOST_LABELLED", 6)
    counting = Counting()
    counting.count_started(
        [
            RunRecord(id="r", task=f"t{task}", tenant=f"tenant-{tenant}")
            for tenant in range(tenants)
            for task in range(tasks)
        ],
        clock.now,
    )
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    found = scrape(store)
    assert found.labels("evenbeat_attempts_total") == {frozenset(labels[0])}
    assert found.labels("scheduler_run_duration_seconds_sum") == {frozenset(labels[1])}
    assert found.total("evenbeat_attempts_total") == tenants * tasks


def test_a_name_that_can_not_be_encoded_does_not_break_the_answer(
    store: MemoryStore, clock: VirtualClock
) -> None:
    rows = [
        ScheduleRecord(name=name, task="works", trigger="every 1h", next_tick=clock.now)
        for name in ('q"\\\n', "ü\ud800")
    ]
    store.put_schedules([Write(Planned(row), None) for row in rows])
    found = scrape(store)
    names = {labels["schedule_id"] for labels, _ in found.samples["scheduler_next_run_timestamp"]}
    assert names == {'q"\\\n', "ü?"}


# -- tenants -------------------------------------------------------------------------------------------------


def test_a_tenant_sees_its_own_figures_and_nothing_about_nodes_queues_or_the_store() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with app:
        for tenant in ("acme", "globex-marker"):
            app.schedules.add(f"nightly-of-{tenant}", every("1h"), "work", tenant=tenant)
            app.runs.join(app.enqueue("work", tenant=tenant).id, "30s", tenant=tenant)
        text = app.metrics(tenant="acme")
    assert "globex-marker" not in text
    found = Scrape(text)
    assert set(found.families) == {
        name.removesuffix("_total") for name, metric in METRICS.items() if metric.scope == "tenant"
    }
    assert found.value("scheduler_next_run_timestamp", schedule_id="nightly-of-acme", tenant="acme")
    whole = Scrape(app.metrics())
    assert whole.value("evenbeat_attempts_total", tenant="acme") == 1
    assert whole.value("evenbeat_attempts_total", tenant="globex-marker") == 1
    assert Scrape(app.metrics(tenant="acme")).total("evenbeat_attempts_total") == 1
    # One that has never had a run has zeros.
    assert Scrape(app.metrics(tenant="new")).value("evenbeat_runs_total", status="failed") == 0
    with pytest.raises(InvalidValue, match="tenant"):
        app.metrics(tenant="a b")


# -- names and formats ---------------------------------------------------------------------------------------


def test_every_family_is_there_from_the_start_with_its_help(store: MemoryStore) -> None:
    found = scrape(store)
    described = {name.removesuffix("_total"): (metric.help, metric.kind) for name, metric in METRICS.items()}
    assert {name: (family.documentation, family.type) for name, family in found.families.items()} == described


def test_counters_that_matter_to_alerts_are_zero_before_anything_happens(store: MemoryStore) -> None:
    found = scrape(store)
    for name in NUMBER_METRICS.values():
        if name != "evenbeat_alerts_sent_total":
            assert set(found.matching(name)) == {0}


def test_samples_have_the_labels_of_their_description(store: MemoryStore, clock: VirtualClock) -> None:
    node = SmallNode(store, clock)
    add_schedules(store, "good", task="works", trigger="every 5s")
    for _ in range(10):
        node.step()
    node.counting.count_alert("webhook", "sent")
    node.stop()
    assert store.put_record(limit_record(Limit(task="works", concurrency=1)))
    found = scrape(store)
    for name, metric in METRICS.items():
        sample = f"{name}_sum" if metric.kind == "histogram" else name
        if name not in ("evenbeat_node_up", "evenbeat_store_call_seconds") and "queue" not in metric.labels:
            assert found.labels(sample) == {frozenset(metric.labels)}, name


def test_numbers_of_nodes_have_the_labels_of_their_metrics() -> None:
    assert NUMBER_METRICS.keys() == NUMBERS.keys()
    assert all(METRICS[name].labels == NUMBERS[own] for own, name in NUMBER_METRICS.items())


def test_names_follow_the_rules_of_prometheus() -> None:
    for name, metric in METRICS.items():
        assert name.startswith(("scheduler_", "evenbeat_"))
        assert name.endswith("_total") is (metric.kind == "counter"), name
        if metric.kind == "histogram":
            assert name.endswith("_seconds")
        assert metric.help.endswith(".")


def test_numbers_of_a_later_version_are_ignored(store: MemoryStore, clock: VirtualClock) -> None:
    counting = Counting()
    counting.count("dreams", "blue")
    counting.count("duplicates", "end", "twice")
    counting.count("lease_losses")
    counting.count_started([], clock.now)
    Rollups(store, counting, "n1").write(clock.now, is_last=True)
    found = scrape(store)
    assert found.value("evenbeat_lease_losses_total") == 1
    assert found.total("evenbeat_duplicates_prevented_total") == 0


def test_openmetrics_is_sent_to_clients_that_ask_for_it(store: MemoryStore) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    body, content_type = read_metrics(store).encode(accept)
    assert content_type.startswith("application/openmetrics-text")
    parse: Any = text_string_to_metric_families
    names = {family.name for family in parse(body.decode())}
    assert names == {name.removesuffix("_total") for name in METRICS}
    _, plain = read_metrics(store).encode("*/*")
    assert plain.startswith("text/plain; version=0.0.4")


@contextmanager
def without_prometheus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    original = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name="prometheus_client")
        return original(name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", refuse)
        yield


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Scheduler("memory://")
    with without_prometheus(monkeypatch), pytest.raises(ImportError, match=r"evenbeat\[metrics\]"):
        app.metrics()


def test_a_claim_counts_from_when_the_run_could_be_claimed(store: MemoryStore, clock: VirtualClock) -> None:
    node = SmallNode(store, clock)
    store.add_runs([RunRecord(id="r", task="works", run_at=clock.now, scheduled_at=clock.now - 60_000)])
    clock.advance("3s")
    node.worker.step(clock.now)
    node.worker.step(clock.now)
    node.stop()
    found = scrape(store)
    assert found.value("evenbeat_claim_latency_seconds_sum") == 3
    assert found.value("evenbeat_tick_lateness_seconds_sum") == 63

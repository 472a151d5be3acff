"""Loops, the ticker and upkeep: due work is done, failures are survived, nothing turns in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from evenbeat.core.instants import from_ms
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.node.duties import PeriodicDuties
from evenbeat.node.loop import Loop
from evenbeat.node.presence import PRESENT_FOR, NodeInfo, Presence, live_nodes
from evenbeat.node.pruner import PURGE_EVERY, Pruner
from evenbeat.node.reaper import Reaper
from evenbeat.node.ticker import BATCH, Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts, changes, firing
from evenbeat.stores.base import Claim, Lost, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open()
    return store


def told() -> tuple[Events, list[Event]]:
    events, heard = Events(), list[Event]()
    events.listen(heard.append)
    return events, heard


def make(store: MemoryStore, name: str, trigger: str = "every 1m") -> None:
    wanted = ScheduleRecord(name=name, task="work", trigger=trigger)
    store.put_schedules([Write(changes.create(wanted, store.now()), None)])


# -- the ticker ------------------------------------------------------------------------------------------


def test_a_schedule_that_a_node_can_not_plan_is_left_to_others_and_noted(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events, heard = told()
    make(store, "minutely")
    clock.advance("1m")

    def out_of_files(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(firing, "trigger_of", out_of_files)
        poor = Ticker(store, events)
        waits = []
        for _ in range(7):
            again = poor.step(clock.now)
            assert again is not None
            waits.append(again - clock.now)
            clock.now = again
        # Briefly at first, so that a node that can plan it gets it soon.
        assert waits == [1_000] * 5 + [60_000] * 2
    (note,) = store.find_records("deferred")
    assert (note.key, note.version) == ("minutely", 7)
    assert "Too many open files" in note.body
    assert "can't plan a schedule" in caplog.text
    assert heard == []
    assert Ticker(store, events).step(clock.now) is not None
    (run,) = store.find_runs(RunQuery()).items
    assert run.coalesced == 2
    assert store.find_records("quarantine") == []
    clock.advance("2m")
    assert store.find_records("deferred") == []


def test_the_ticker_fires_what_is_due_and_says_when_to_come_back(
    store: MemoryStore, clock: VirtualClock
) -> None:
    events, heard = told()
    woken: list[bool] = []
    ticker = Ticker(store, events, lambda: woken.append(True))
    make(store, "minutely")
    assert ticker.step(clock.now) == clock.now + 60_000
    assert not woken
    clock.advance("1m")
    assert ticker.step(clock.now) == clock.now + 60_000
    assert woken == [True]
    assert [(event.kind, event.schedule, event.next_run) for event in heard] == [
        ("fired", "minutely", from_ms(clock.now + 60_000))
    ]


def test_the_ticker_comes_back_no_later_than_the_next_tick(store: MemoryStore, clock: VirtualClock) -> None:
    make(store, "often", "every 100ms")
    clock.advance("97ms")
    assert Ticker(store, Events()).step(clock.now) == clock.now + 3


def test_the_ticker_comes_back_at_once_when_more_is_due_than_a_batch(
    store: MemoryStore, clock: VirtualClock
) -> None:
    for at in range(BATCH + 1):
        make(store, f"s{at}")
    clock.advance("1m")
    ticker = Ticker(store, Events())
    due = ticker.step(clock.now)
    assert due is not None
    assert due <= clock.now
    ticker.step(clock.now)
    assert store.count_runs() == {"queued": BATCH + 1}


def test_the_ticker_tells_of_skipped_ticks_and_why(store: MemoryStore, clock: VirtualClock) -> None:
    events, heard = told()
    make(store, "minutely")
    clock.advance("1h")
    Ticker(store, events).step(clock.now)
    assert [(event.kind, event.count, event.reason) for event in heard] == [
        ("fired", 1, None),
        ("skipped", 59, "coalesced"),
    ]


def test_the_ticker_tells_of_a_schedule_that_can_not_be_understood(
    store: MemoryStore, clock: VirtualClock
) -> None:
    events, heard = told()
    make(store, "good")
    make(store, "bad")
    # A row that somebody edited by hand.
    row = store.find_schedules(ScheduleQuery(name="bad")).items[0]
    from msgspec.structs import replace

    from evenbeat.rules.firing import Planned

    store.put_schedules([Write(Planned(replace(row, trigger="nonsense", revision=2)), row.version)])
    clock.advance("1m")
    Ticker(store, events).step(clock.now)
    assert {(event.kind, event.schedule) for event in heard} == {("fired", "good"), ("quarantined", "bad")}


# -- upkeep ----------------------------------------------------------------------------------------------


def claimed(store: MemoryStore, clock: VirtualClock, name: str = "r") -> RunRecord:
    """A run of a worker with a lease of 30 s."""
    store.add_runs([RunRecord(id=name, task="work", run_at=clock.now, created_at=clock.now)])
    claim = Claim(worker="w", token=f"claim-{name}", limit=1, now=clock.now, lease=30_000)
    return store.claim_runs(claim).runs[0]


def make_reaper(store: MemoryStore, clock: VirtualClock, events: Events | None = None) -> Reaper:
    return Reaper(store, events or Events(), clock=lambda: clock.now / 1000)


def reap_until(reaper: Reaper, clock: VirtualClock, until: int) -> None:
    """Step whenever it asks for it, as its loop does."""
    while (due := reaper.step(clock.now)) <= until:
        assert due > clock.now, "it turns in a circle"
        clock.now = due
    clock.now = until


def test_the_reaper_gives_the_run_of_a_lost_worker_to_others(store: MemoryStore, clock: VirtualClock) -> None:
    events, heard = told()
    claimed(store, clock)
    reaper = make_reaper(store, clock, events)
    reap_until(reaper, clock, clock.now + 30_000)
    assert store.find_runs(RunQuery(ids=("r",))).items[0].state == "running"
    reap_until(reaper, clock, clock.now + 1)
    run = store.find_runs(RunQuery(ids=("r",))).items[0]
    assert (run.state, run.crashes) == ("queued", 1)
    assert [event.kind for event in heard] == ["crashed"]


def test_a_reaper_that_starts_takes_nothing_for_a_third_of_a_lease(
    store: MemoryStore, clock: VirtualClock
) -> None:
    claimed(store, clock)
    clock.advance("60s")
    reaper = make_reaper(store, clock)
    reap_until(reaper, clock, clock.now + 9_999)
    assert store.count_runs() == {"running": 1}
    reap_until(reaper, clock, clock.now + 1)
    assert store.count_runs() == {"queued": 1}


class Outage(MemoryStore):
    """A store that can be away."""

    away = False

    def lost_runs(self, ended_by: int, limit: int) -> Lost:
        if self.away:
            raise StoreUnavailable("away")
        return super().lost_runs(ended_by, limit)


@pytest.mark.parametrize("fails", [True, False])
def test_after_an_outage_a_living_worker_renews_before_the_reaper_takes_its_runs(
    clock: VirtualClock, fails: bool
) -> None:
    store = Outage(clock)
    store.open()
    living, _ = claimed(store, clock, "living"), claimed(store, clock, "dead")
    reaper = make_reaper(store, clock)
    reap_until(reaper, clock, clock.now + 15_000)
    if fails:  # otherwise the call waits for a frozen server, or this node sleeps
        store.away = True
        with pytest.raises(StoreUnavailable):
            reaper.step(clock.now)
        store.away = False
    clock.advance("25s")
    reap_until(reaper, clock, clock.now + 9_000)
    assert store.count_runs() == {"running": 2}
    # The lease ended 19 s ago: it is renewed as long as nobody took the run.
    assert store.settle_runs([attempts.heartbeat(living, 30_000, "beat")]) == [True]
    reap_until(reaper, clock, clock.now + 1_000)
    states = {run.id: run.state for run in store.find_runs(RunQuery()).items}
    assert states == {"living": "running", "dead": "queued"}


def test_a_look_that_fails_now_and_then_does_not_keep_the_reaper_from_its_work(clock: VirtualClock) -> None:
    store = Outage(clock)
    store.open()
    claimed(store, clock)
    reaper = make_reaper(store, clock)
    began = clock.now
    # Every other call fails, for longer than the loop backs off.
    while store.count_runs() == {"running": 1}:
        due = reaper.step(clock.now)
        clock.now = max(due, clock.now + 1)
        store.away = True
        with pytest.raises(StoreUnavailable):
            reaper.step(clock.now)
        store.away = False
        clock.advance("2s")
        assert clock.now - began < 60_000


def test_one_run_that_can_not_be_written_does_not_keep_the_reaper_from_the_others(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(10):
        claimed(store, clock, f"r{at}")
    settle = store.settle_runs

    def picky(transitions: list[Transition]) -> list[bool]:
        if any(transition.run == "r3" for transition in transitions):
            raise ValueError("can't write that")
        return settle(transitions)

    monkeypatch.setattr(store, "settle_runs", picky)
    reaper = make_reaper(store, clock)
    reap_until(reaper, clock, clock.now + 31_000)
    assert store.count_runs() == {"queued": 9, "running": 1}


def test_the_pruner_deletes_what_is_older_than_kept(store: MemoryStore, clock: VirtualClock) -> None:
    store.add_runs([RunRecord(id="r", task="work", run_at=clock.now, created_at=clock.now)])
    (run,) = store.claim_runs(Claim(worker="w", token="t", limit=1, now=clock.now, lease=30_000)).runs
    store.settle_runs([attempts.succeeded(run, None, clock.now, "end")])
    pruner = Pruner(store, retention=86_400_000)
    pruner.step(clock.now)
    assert store.count_runs() == {"succeeded": 1}
    clock.advance("1d")
    clock.advance("1ms")
    assert pruner.step(clock.now) == clock.now + PURGE_EVERY
    assert store.count_runs() == {}


def test_the_pruner_goes_on_soon_where_a_store_stopped_before_the_batch_was_full(clock: VirtualClock) -> None:
    class LongLogs(MemoryStore):
        def purge(self, finished_before: int, limit: int) -> int:
            return limit // 4

    assert Pruner(LongLogs(clock), retention=0).step(clock.now) == clock.now + 1_000


def node_info(name: str = "n1") -> NodeInfo:
    return NodeInfo(
        name=name,
        host="h",
        pid=1,
        version="",
        started_at=0,
        seen_at=0,
        ticker=True,
        worker=True,
        tasks={"work": "thread"},
        queues=["default"],
        slots={"thread": 1},
    )


def test_a_node_says_which_tasks_it_has_learnt_since_it_started(
    store: MemoryStore, clock: VirtualClock
) -> None:
    presence = Presence(store, node_info())
    presence.step(clock.now)
    presence.add_task("fetch", "async")
    presence.step(clock.now)
    (node,) = live_nodes(store)
    assert node.tasks == frozenset(("work", "fetch"))
    assert node.kinds == {"work": "thread", "fetch": "async"}
    assert node.slots == {"thread": 1}


def test_a_node_says_that_it_is_there_until_it_leaves(store: MemoryStore, clock: VirtualClock) -> None:
    presence = Presence(store, node_info())
    presence.step(clock.now)
    clock.advance("10s")
    presence.step(clock.now)
    assert [record.key for record in store.find_records("node")] == ["n1"]
    presence.leave()
    assert store.find_records("node") == []


def test_a_node_that_slept_too_long_is_gone_and_comes_back(store: MemoryStore, clock: VirtualClock) -> None:
    presence = Presence(store, node_info())
    presence.step(clock.now)
    clock.now += PRESENT_FOR + 1
    assert store.find_records("node") == []
    presence.step(clock.now)
    assert len(store.find_records("node")) == 1


@pytest.mark.parametrize("error", [StoreUnavailable("away"), UnicodeEncodeError("utf-8", "x", 0, 1, "bad")])
def test_a_duty_that_fails_does_not_keep_the_others_from_theirs(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    class Failing:
        def step(self, now: int) -> int:
            raise error

    class Working:
        def step(self, now: int) -> int:
            done.append(now)
            return now + 10

    rota = PeriodicDuties([Failing(), Working()])
    assert rota.step(1_000) == 1_010
    assert rota.step(1_005) == 1_010
    assert done == [1_000]
    assert rota.step(1_010) == 1_020
    assert done == [1_000, 1_010]
    # It is tried again a second later, and logged ever more seldom.
    for now in (2_000, 3_000, 4_000):
        rota.step(now)
    errors = [record.args for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [("failing", error)] * 3


def test_a_store_that_comes_and_goes_does_not_keep_a_reaper_from_its_work_for_ever(
    clock: VirtualClock,
) -> None:
    class Flapping(MemoryStore):
        """Up for 9 s, down for 18."""

        def lost_runs(self, ended_by: int, limit: int) -> Lost:
            if (clock.now - start) % 27_000 >= 9_000:
                raise StoreUnavailable("away")
            return super().lost_runs(ended_by, limit)

    start = clock.now
    store = Flapping(clock)
    store.add_runs([RunRecord(id="a", task="work", run_at=clock.now)])
    store.claim_runs(Claim(worker="gone", token="t", limit=1, now=clock.now, lease=30_000))
    duty = make_reaper(store, clock)
    while clock.now < start + 3_600_000 and store.count_runs() == {"running": 1}:
        try:
            clock.now = duty.step(clock.now)
        except StoreUnavailable:
            clock.now += 1_000
    assert store.count_runs() == {"queued": 1}
    assert clock.now < start + 400_000


def test_a_rota_survives_a_clock_that_is_set_back() -> None:
    done: list[int] = []

    class Duty:
        def step(self, now: int) -> int:
            done.append(now)
            return now + 1_000

    rota = PeriodicDuties([Duty()])
    rota.step(100_000_000)
    rota.step(1_000)
    assert done == [100_000_000, 1_000]


# -- loops -----------------------------------------------------------------------------------------------
# Threads are the subject here: they run in real time, and the tests wait for what they do, never for a time.


def stopped(loop: Loop) -> None:
    loop.stop()
    assert loop.join(10)


def loop_of(step: Callable[[int], int | None], events: Events | None = None, poll: int = 60_000) -> Loop:
    return Loop("test", step, lambda: 0, poll, events or Events())


def test_a_loop_steps_when_it_is_woken_and_sleeps_otherwise() -> None:
    steps: list[int] = []
    stepped = threading.Semaphore(0)

    def step(now: int) -> None:
        steps.append(now)
        stepped.release()

    loop = loop_of(step)
    loop.start()
    assert stepped.acquire(timeout=10)
    loop.wake()
    assert stepped.acquire(timeout=10)
    stopped(loop)
    assert len(steps) == 2


def test_what_wakes_a_loop_during_its_step_asks_for_another_one() -> None:
    stepped = threading.Semaphore(0)
    loop: Loop

    def step(now: int) -> None:
        if not stepped._value:
            loop.wake()
        stepped.release()

    loop = loop_of(step)
    loop.start()
    for _ in range(2):
        assert stepped.acquire(timeout=10)
    stopped(loop)


def test_a_loop_survives_whatever_its_step_raises_and_says_when_the_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, heard = told()
    outcomes: list[Exception | None] = [StoreUnavailable("locked"), ValueError("a bug"), None]
    done = threading.Event()

    def step(now: int) -> None:
        outcome = outcomes.pop(0) if outcomes else None
        if outcome is not None:
            raise outcome
        done.set()

    loop = loop_of(step, events)
    loop.start()
    assert done.wait(10)
    stopped(loop)
    assert [event.kind for event in heard] == ["store_unavailable", "store_back"]
    assert [record.levelname for record in caplog.records][:2] == ["ERROR", "ERROR"]
    assert "locked" in caplog.records[0].getMessage()


def test_a_store_that_stays_away_is_asked_ever_more_seldom() -> None:
    loop = loop_of(lambda _: None)
    waits = [loop._fail(StoreUnavailable("away")) for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == 2.0


def test_a_long_outage_is_logged_ever_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    loop = loop_of(lambda _: None)
    for _ in range(100):
        loop._fail(StoreUnavailable("away"))
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 7

"""The reaper: when it steps, when it lets living workers renew first, and what it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.node.reaper import REAP_BATCH, Reaper
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Lost, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

NOW = 1_772_366_400_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open()
    return store


def recorded_events() -> tuple[Events, list[Event]]:
    events, emitted = Events(), list[Event]()
    events.listen(emitted.append)
    return events, emitted


def claimed(store: MemoryStore, clock: VirtualClock, name: str = "r") -> RunRecord:
    """A run of a worker with a lease of 30 s."""
    store.add_runs([RunRecord(id=name, task="work", run_at=clock.now, created_at=clock.now)])
    claim = Claim(worker="w", token=f"claim-{name}", limit=1, now=clock.now, lease=30_000)
    return store.claim_runs(claim).runs[0]


def make_reaper(store: MemoryStore, clock: VirtualClock, events: Events | None = None) -> Reaper:
    return Reaper(store, events or Events(), clock=lambda: clock.now / 1000)


def reap_until(reaper: Reaper, clock: VirtualClock, until: int) -> None:
    """Step whenever the reaper is due, as its loop does."""
    while (due := reaper.step(clock.now)) <= until:
        assert due > clock.now, "the reaper steps without a pause"
        clock.now = due
    clock.now = until


def test_the_reaper_queues_the_run_of_a_lost_worker_again(store: MemoryStore, clock: VirtualClock) -> None:
    events, emitted = recorded_events()
    claimed(store, clock)
    reaper = make_reaper(store, clock, events)
    reap_until(reaper, clock, clock.now + 30_000)
    assert store.find_runs(RunQuery(ids=("r",))).items[0].state == "running"
    reap_until(reaper, clock, clock.now + 1)
    run = store.find_runs(RunQuery(ids=("r",))).items[0]
    assert (run.state, run.crashes) == ("queued", 1)
    assert [event.kind for event in emitted] == ["crashed"]


def test_living_workers_renew_first_after_the_machine_was_suspended(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_time = time.clock_gettime_ns
    ahead = [0]
    monkeypatch.setattr(time, "clock_gettime_ns", lambda of: boot_time(of) + ahead[0] * 10**9)
    reaper = Reaper(store, Events())  # its clock is that of this machine
    claimed(store, clock)
    for seconds in (0, 11, 31):  # the start and its grace, then a suspend that is longer than the lease
        ahead[0] += seconds
        clock.advance(f"{seconds}s")
        reaper.step(clock.now)
    assert store.count_runs() == {"running": 1}
    ahead[0] += 11
    reaper.step(clock.now)
    assert store.count_runs() == {"queued": 1}


def test_a_reaper_takes_no_run_for_a_third_of_a_lease_after_its_start(
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
    """A store that can be unavailable."""

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
    if fails:  # otherwise the call waits for a frozen server, or this machine is suspended
        store.away = True
        with pytest.raises(StoreUnavailable):
            reaper.step(clock.now)
        store.away = False
    clock.advance("25s")
    reap_until(reaper, clock, clock.now + 9_000)
    assert store.count_runs() == {"running": 2}
    # The lease expired 19 s ago: it can be renewed as long as no other worker took the run.
    assert store.settle_runs([attempts.heartbeat(living, 30_000, "beat")]) == [True]
    reap_until(reaper, clock, clock.now + 1_000)
    states = {run.id: run.state for run in store.find_runs(RunQuery()).items}
    assert states == {"living": "running", "dead": "queued"}


def test_occasional_failures_do_not_stop_the_reaper(clock: VirtualClock) -> None:
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


def test_a_run_that_can_not_be_written_does_not_stop_the_reaper(
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


def test_repeated_outages_do_not_stop_a_reaper_forever(clock: VirtualClock) -> None:
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


# -- when it steps, with a scripted store -----------------------------------------------------------------


class Scripted(MemoryStore):
    """Returns the lost runs that the test sets; accepts all transitions or none."""

    def __init__(self) -> None:
        super().__init__(VirtualClock())
        self.lost = Lost((), None)
        self.limits: list[int] = []
        self.accepts = True
        self.hints = 0

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        self.limits.append(limit)
        return self.lost

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return [self.accepts] * len(transitions)

    def hint(self) -> None:
        self.hints += 1


class Bench:
    """A reaper with a lease of 30 s and a clock that the test sets."""

    def __init__(self, lease: int = 30_000) -> None:
        self.store = Scripted()
        self.seconds = 1_000.0
        self.emitted: list[Event] = []
        events = Events()
        events.listen(self.emitted.append)
        self.reaper = Reaper(self.store, events, lease, clock=lambda: self.seconds)

    def settled(self) -> Bench:
        self.reaper.step(NOW)
        self.seconds += 10
        self.reaper.step(NOW)
        return self

    def step(self, *runs: RunRecord, next_end: Instant | None = None) -> int:
        """Step; return the milliseconds until the next step."""
        self.store.lost = Lost(runs, next_end)
        return self.reaper.step(NOW) - NOW


def lost(name: str = "r") -> RunRecord:
    return RunRecord(id=name, task="work", state="running", attempt=1, worker="w", lease_until=NOW - 1)


@pytest.mark.parametrize(("lease", "every"), [(30_000, 15_000), (60_000, 15_000), (4_000, 2_000)])
def test_the_reaper_steps_every_15_s_and_more_often_for_short_leases(lease: int, every: int) -> None:
    bench = Bench(lease).settled()
    bench.seconds += lease / 3000
    bench.reaper.step(NOW)
    assert bench.step() == every
    assert set(bench.store.limits) == {REAP_BATCH}


@pytest.mark.parametrize(
    ("next_end", "wait"),
    [(20_000, 15_000), (14_999, 15_000), (14_998, 14_999), (499, 500), (0, 500), (-9, 500)],
)
def test_the_reaper_steps_when_the_next_lease_expires_and_not_too_soon(next_end: int, wait: int) -> None:
    assert Bench().settled().step(next_end=NOW + next_end) == wait


def test_living_workers_renew_first_at_the_start_and_after_an_outage() -> None:
    bench = Bench()
    # A third of a lease, in two steps at least.
    assert bench.step(lost()) == 5_000
    bench.seconds += 5
    assert bench.step(lost()) == 5_000
    bench.seconds += 4.5
    assert bench.step(lost()) == 500
    assert bench.emitted == []
    bench.seconds += 0.5
    assert bench.step(lost()) == 15_000
    assert [event.kind for event in bench.emitted] == ["crashed"]
    # A lease of 30 s survives an outage of 17.5 s, but not a longer one.
    bench.seconds += 17.5
    assert bench.step(lost()) == 15_000
    bench.seconds += 17.6
    assert bench.step(lost()) == 5_000
    assert len(bench.emitted) == 2


def test_a_run_that_the_reaper_ends_is_emitted_and_one_that_was_renewed_is_not() -> None:
    bench = Bench().settled()
    assert bench.step(lost("a"), lost("b")) == 15_000
    assert [(event.kind, event.run and event.run.id, event.error) for event in bench.emitted] == [
        ("crashed", "a", "worker w was lost"),
        ("crashed", "b", "worker w was lost"),
    ]
    assert bench.store.hints == 1
    bench.store.accepts = False
    bench.step(lost("c"))
    assert len(bench.emitted) == 2
    bench.step()
    assert bench.store.hints == 2


def test_a_full_batch_is_followed_by_the_next_at_once_unless_all_were_refused() -> None:
    bench = Bench().settled()
    batch = [lost(f"r{number}") for number in range(REAP_BATCH)]
    assert bench.step(*batch) == 0
    assert bench.step(*batch[1:]) == 15_000
    bench.store.accepts = False
    assert bench.step(*batch) == 15_000

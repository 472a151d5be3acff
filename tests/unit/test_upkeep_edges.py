"""Reaper, presence and rota at their edges: when they come again, and what they leave behind."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.node.duties import PeriodicDuties
from evenbeat.node.presence import PRESENT_FOR, NodeInfo, Presence
from evenbeat.node.pruner import PURGE_EVERY
from evenbeat.node.reaper import REAP_BATCH, Reaper
from evenbeat.observe.events import Event, Events
from evenbeat.stores.base import Lost
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

NOW = 1_772_366_400_000


class Scripted(MemoryStore):
    """Answers a look for lost runs with what the test says; settles all or none."""

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
    """A reaper with a lease of 30 s, at work for longer than it lets living workers go first."""

    def __init__(self, lease: int = 30_000) -> None:
        self.store = Scripted()
        self.seconds = 1_000.0
        self.heard: list[Event] = []
        events = Events()
        events.listen(self.heard.append)
        self.reaper = Reaper(self.store, events, lease, clock=lambda: self.seconds)

    def settled(self) -> Bench:
        self.reaper.step(NOW)
        self.seconds += 10
        self.reaper.step(NOW)
        return self

    def step(self, *runs: RunRecord, next_end: Instant | None = None) -> int:
        """Milliseconds until it comes again."""
        self.store.lost = Lost(runs, next_end)
        return self.reaper.step(NOW) - NOW


def lost(name: str = "r") -> RunRecord:
    return RunRecord(id=name, task="work", state="running", attempt=1, worker="w", lease_until=NOW - 1)


@pytest.mark.parametrize(("lease", "every"), [(30_000, 15_000), (60_000, 15_000), (4_000, 2_000)])
def test_the_reaper_looks_every_quarter_of_a_minute_and_more_often_for_short_leases(
    lease: int, every: int
) -> None:
    bench = Bench(lease).settled()
    bench.seconds += lease / 3000
    bench.reaper.step(NOW)
    assert bench.step() == every
    assert set(bench.store.limits) == {REAP_BATCH}


@pytest.mark.parametrize(
    ("next_end", "wait"),
    [(20_000, 15_000), (14_999, 15_000), (14_998, 14_999), (499, 500), (0, 500), (-9, 500)],
)
def test_the_reaper_comes_when_the_next_lease_ends_and_not_too_soon(next_end: int, wait: int) -> None:
    assert Bench().settled().step(next_end=NOW + next_end) == wait


def test_living_workers_go_first_at_the_start_and_after_an_outage() -> None:
    bench = Bench()
    # A third of a lease, in two steps at least.
    assert bench.step(lost()) == 5_000
    bench.seconds += 5
    assert bench.step(lost()) == 5_000
    bench.seconds += 4.5
    assert bench.step(lost()) == 500
    assert bench.heard == []
    bench.seconds += 0.5
    assert bench.step(lost()) == 15_000
    assert [event.kind for event in bench.heard] == ["crashed"]
    # 17.5 s is no outage that a lease of 30 s would not survive; any longer one is.
    bench.seconds += 17.5
    assert bench.step(lost()) == 15_000
    bench.seconds += 17.6
    assert bench.step(lost()) == 5_000
    assert len(bench.heard) == 2


def test_a_run_that_is_taken_over_is_told_of_and_one_that_was_saved_is_not() -> None:
    bench = Bench().settled()
    assert bench.step(lost("a"), lost("b")) == 15_000
    assert [(event.kind, event.run and event.run.id, event.error) for event in bench.heard] == [
        ("crashed", "a", "worker w was lost"),
        ("crashed", "b", "worker w was lost"),
    ]
    assert bench.store.hints == 1
    bench.store.accepts = False
    bench.step(lost("c"))
    assert len(bench.heard) == 2
    bench.step()
    assert bench.store.hints == 2


def test_a_full_batch_is_followed_by_the_next_at_once_unless_nothing_was_taken() -> None:
    bench = Bench().settled()
    batch = [lost(f"r{number}") for number in range(REAP_BATCH)]
    assert bench.step(*batch) == 0
    assert bench.step(*batch[1:]) == 15_000
    bench.store.accepts = False
    assert bench.step(*batch) == 15_000


# -- presence ------------------------------------------------------------------------------------------------


def test_a_node_says_that_it_is_there_every_20_s_and_is_gone_65_s_after_it_did() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    info = NodeInfo(
        name="n1",
        host="h",
        pid=7,
        version="1",
        started_at=clock.now,
        seen_at=clock.now,
        ticker=True,
        worker=False,
        tasks={"work": "thread"},
        queues=["default"],
        slots={"thread": 10},
    )
    presence = Presence(store, info)
    for _ in range(2):
        clock.advance("20s")
        assert presence.step(clock.now) == clock.now + 20_000
        record = store.get_record("node", "default", "n1")
        assert record is not None
        assert record.expires == clock.now + PRESENT_FOR
        said = msgspec.json.decode(record.body, type=NodeInfo)
        assert said == msgspec.structs.replace(info, seen_at=clock.now)
    clock.now += PRESENT_FOR
    assert store.get_record("node", "default", "n1") is None
    # It slept for long: it comes back though its record is not the one that it knows.
    presence.step(clock.now)
    assert store.get_record("node", "default", "n1") is not None
    presence.leave()
    assert store.get_record("node", "default", "n1") is None


# -- rota ----------------------------------------------------------------------------------------------------


class Duty:
    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.steps: list[Instant] = []

    def step(self, now: Instant) -> Instant:
        self.steps.append(now)
        return now + self.wait


def test_each_duty_has_its_time_and_a_clock_that_was_set_back_keeps_none_waiting() -> None:
    often, seldom = Duty(100), Duty(PURGE_EVERY)
    rota = PeriodicDuties([often, seldom])
    assert rota.step(NOW) == NOW + 100
    rota.step(NOW + 99)
    rota.step(NOW + 100)
    assert (often.steps, seldom.steps) == ([NOW, NOW + 100], [NOW])
    # Back by a minute: what it asked for lies no more than two periods ahead.
    rota.step(NOW - PURGE_EVERY)
    assert len(seldom.steps) == 1
    rota.step(NOW - PURGE_EVERY - 1)
    assert len(seldom.steps) == 2


def test_a_duty_that_fails_is_due_a_second_later_and_keeps_no_other_waiting() -> None:
    class Failing(Duty):
        def step(self, now: Instant) -> Instant:
            super().step(now)
            raise ValueError("not now")

    failing, other = Failing(0), Duty(10_000)
    rota = PeriodicDuties([failing, other])
    assert rota.step(NOW) == NOW + 1_000
    rota.step(NOW + 999)
    assert (len(failing.steps), len(other.steps)) == (1, 1)
    assert rota.step(NOW + 1_000) == NOW + 2_000
    assert (len(failing.steps), len(other.steps)) == (2, 1)
    assert PeriodicDuties([]).step(NOW) is None

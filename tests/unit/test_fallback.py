"""The fallback: schedules of the code are fired from memory while their rows can't be read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.app.accounting import account_of
from evenbeat.app.repairs import duplicates
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import StoreUnavailable
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.fallback import AFTER, Fallback
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Fired, Page, PlanFunction, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

MINUTE = 60_000
BEAT = ScheduleRecord(name="beat", task="work", trigger="* * * * *", managed_by="code")


class Locked(MemoryStore):
    """A store whose table of schedules, or all of it, may be out of reach."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.is_locked = self.is_down = False
        self.searches = 0

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        self._check(self.is_locked)
        return super().fire_due(now, limit, plan)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self._check(self.is_locked)
        self.searches += 1
        return super().find_schedules(query)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self._check(False)
        return super().find_runs(query)

    def add_runs(self, runs: Any) -> list[bool]:
        self._check(False)
        return super().add_runs(runs)

    def _check(self, is_locked: bool) -> None:
        if is_locked or self.is_down:
            raise StoreUnavailable("permission denied for table schedules")


class Node:
    """The parts of a node that take part, stepped by the test twice a second."""

    def __init__(self, store: Locked, clock: VirtualClock, *names: str) -> None:
        self.clock = clock
        self.heard: list[Event] = []
        events = Events()
        events.listen(self.heard.append)
        self.fallback = Fallback(store, events, [("default", name) for name in names])
        self.ticker = Ticker(store, events, fallback=self.fallback)
        self.code = CodeTicker(store, events, self.fallback, retention=1 << 40, name="n")
        self.code_due: Instant = 0

    def step(self) -> None:
        now = self.clock.now
        for part in (self.fallback.step, self.ticker.step, self.code.step):
            try:
                part(now)
            except StoreUnavailable:
                continue

    def kinds(self) -> list[str]:
        return [event.kind for event in self.heard if event.kind.startswith("fallback")]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Locked:
    made = Locked(clock)
    made.open()
    return made


def add(store: Locked, **fields: Any) -> ScheduleRecord:
    made = changes.create(replace(BEAT, **fields), store.now()).schedule
    assert store.put_schedules([Write(Planned(made), None)])[0].accepted
    return made


def go(clock: VirtualClock, seconds: int, *nodes: Node) -> None:
    for _ in range(seconds * 2):
        clock.advance("500ms")
        for node in nodes:
            node.step()


def ticks(store: Locked) -> list[int]:
    found = sorted(run.tick for run in MemoryStore.find_runs(store, RunQuery(limit=999)).items if run.tick)
    return [(tick - found[0]) // MINUTE for tick in found]


def skipped(store: Locked, name: str = "beat") -> list[Skipped]:
    return list(store.find_skipped("default", name, 100))


def test_ticks_fire_while_the_rows_cant_be_read_and_once_each(store: Locked, clock: VirtualClock) -> None:
    add(store)
    nodes = [Node(store, clock, "beat") for _ in range(3)]
    go(clock, 90, *nodes)
    store.is_locked = True
    go(clock, 180, *nodes)
    assert ticks(store) == [0, 1, 2, 3]
    store.is_locked = False
    go(clock, 120, *nodes)
    assert ticks(store) == [0, 1, 2, 3, 4, 5]
    assert skipped(store) == []
    assert nodes[0].kinds() == ["fallback_started", "fallback_ended"]


def test_a_short_outage_is_left_to_the_rows(store: Locked, clock: VirtualClock) -> None:
    add(store)
    node = Node(store, clock, "beat")
    go(clock, 58, node)
    store.is_locked = True
    go(clock, AFTER // 1000 - 1, node)
    assert ticks(store) == []
    store.is_locked = False
    go(clock, 1, node)
    assert ticks(store) == [0]
    assert node.kinds() == []


def test_where_the_whole_database_is_down_nothing_begins(store: Locked, clock: VirtualClock) -> None:
    add(store)
    node = Node(store, clock, "beat")
    go(clock, 30, node)
    store.is_down = True
    go(clock, 120, node)
    store.is_down = False
    assert node.kinds() == []
    go(clock, 1, node)
    assert ticks(store) == [0]
    assert [(row.reason, row.count) for row in skipped(store)] == [("coalesced", 1)]


def test_a_tick_from_before_the_failure_was_noticed_fires_too(store: Locked, clock: VirtualClock) -> None:
    add(store)
    node = Node(store, clock, "beat")
    go(clock, 59, node)
    store.is_locked = True
    clock.advance("3s")
    go(clock, 12, node)
    assert ticks(store) == [0]


def test_a_paused_schedule_and_one_of_other_code_do_not_fire(store: Locked, clock: VirtualClock) -> None:
    paused = add(store)
    assert store.put_schedules([Write(changes.pause(paused, store.now()), paused.version)])[0].accepted
    add(store, name="by-hand")
    add(store, name="ours")
    node = Node(store, clock, "beat", "ours")
    go(clock, 10, node)
    store.is_locked = True
    go(clock, 120, node)
    found = MemoryStore.find_runs(store, RunQuery(limit=99)).items
    assert {run.schedule for run in found} == {"ours"}


def test_a_pause_is_seen_soon_after_its_hint(store: Locked, clock: VirtualClock) -> None:
    made = add(store)
    node = Node(store, clock, "beat")
    go(clock, 10, node)
    assert store.put_schedules([Write(changes.pause(made, store.now()), made.version)])[0].accepted
    node.fallback.hint()
    go(clock, 31, node)
    store.is_locked = True
    go(clock, 120, node)
    assert ticks(store) == []


def test_an_overlap_policy_holds_in_a_fallback(store: Locked, clock: VirtualClock) -> None:
    add(store, overlap="skip")
    node = Node(store, clock, "beat")
    go(clock, 30, node)
    store.is_locked = True
    go(clock, 180, node)
    assert ticks(store) == [0]  # its run is still queued
    store.is_locked = False
    go(clock, 1, node)
    assert [(row.reason, row.count) for row in skipped(store)] == [("overlap", 2)]


@pytest.mark.parametrize(("policy", "most"), [({"overlap": "skip"}, 1), ({"max_concurrent": 2}, 2)])
def test_a_policy_holds_for_ticks_that_come_together(
    store: Locked, clock: VirtualClock, policy: dict[str, Any], most: int
) -> None:
    add(store, trigger="every 1s", **policy)
    node = Node(store, clock, "beat")
    node.step()
    store.is_locked = True
    go(clock, 60, node)
    assert len(MemoryStore.find_runs(store, RunQuery(limit=99)).items) == most


def test_ticks_before_the_next_one_of_the_row_do_not_fire(store: Locked, clock: VirtualClock) -> None:
    made = add(store)
    later = changes.reschedule(made, store.now() + 3 * MINUTE, store.now())
    assert store.put_schedules([Write(later, made.version)])[0].accepted
    node = Node(store, clock, "beat")
    go(clock, 10, node)
    store.is_locked = True
    go(clock, 240, node)
    found = [run.tick or 0 for run in MemoryStore.find_runs(store, RunQuery(limit=99)).items]
    assert min(found) == later.schedule.next_tick


def test_a_tick_that_was_moved_earlier_is_left_to_the_row(store: Locked, clock: VirtualClock) -> None:
    made = add(store, trigger="0 * * * *")
    moved = changes.reschedule(made, store.now() + 45 * MINUTE, store.now())
    assert store.put_schedules([Write(moved, made.version)])[0].accepted
    node = Node(store, clock, "beat")
    go(clock, 10, node)
    assert node.fallback.rows() == []


def test_a_node_that_knows_nothing_of_a_fallback_makes_nobody_count_twice(
    store: Locked, clock: VirtualClock
) -> None:
    add(store)
    node = Node(store, clock, "beat")
    go(clock, 30, node)
    store.is_locked = True
    go(clock, 180, node)
    store.is_locked = False
    other = Node(store, clock)
    other.step()  # it coalesces ticks that ran
    assert [(row.reason, row.count) for row in skipped(store)] == [("coalesced", 2)]
    found, _ = duplicates(store)
    assert found == []
    (row,) = store.find_schedules(ScheduleQuery()).items
    outcome = account_of(store, row, None, None)
    assert (outcome.missing, outcome.doubled) == (0, 0)


def test_a_node_without_schedules_of_its_own_reads_nothing(store: Locked, clock: VirtualClock) -> None:
    node = Node(store, clock)
    go(clock, 300, node)
    assert store.searches == 0


def test_rows_are_read_rarely_at_rest(store: Locked, clock: VirtualClock) -> None:
    add(store, trigger="0 0 1 1 *")
    node = Node(store, clock, "beat")
    go(clock, 600, node)
    assert store.searches <= 7


def test_a_fallback_that_another_node_does_not_see_fires_nothing_twice(
    store: Locked, clock: VirtualClock
) -> None:
    add(store)
    blind, seeing = Node(store, clock, "beat"), Node(store, clock)
    for _ in range(600):
        clock.advance("500ms")
        store.is_locked = True
        blind.step()
        store.is_locked = False
        seeing.step()
    assert ticks(store) == [0, 1, 2, 3, 4]

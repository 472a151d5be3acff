"""The fallback: schedules of the code are fired from memory while their rows can't be read."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from evenbeat.app.accounting import account_of
from evenbeat.app.repairs import duplicates
from evenbeat.core.ids import new_key
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import CatchUp, Record, RunRecord, ScheduleRecord, ScheduleState, Skipped
from evenbeat.errors import StoreUnavailable
from evenbeat.node import fallback_ticker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import AFTER, Fallback
from evenbeat.node.fallback_ticker import FallbackTicker
from evenbeat.node.pruner import Pruner
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts, changes, retention
from evenbeat.rules.auditing import Change, records_of, schedule_change
from evenbeat.rules.fallback import changed_by_hand
from evenbeat.rules.firing import Planned, plan_or_defer
from evenbeat.rules.owed import without_schedule
from evenbeat.stores.base import Claim, Fired, Page, PlanFunction, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

MINUTE = 60_000
ALL = get_args(ScheduleState)
BEAT = ScheduleRecord(name="beat", task="work", trigger="* * * * *", managed_by="code")


class Locked(MemoryStore):
    """A store whose table of schedules, or all of it, may be out of reach."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self._virtual = clock
        self.is_locked = self.is_down = False
        self.blocks: int | None = None
        """For how many ms a fire waits for the lock of the table."""
        self.searches = 0

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        if self.is_locked and self.blocks is not None:
            self._virtual.now += self.blocks
        self._check(self.is_locked)
        return super().fire_due(now, limit, plan)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self._check(self.is_locked)
        self.searches += 1
        return super().find_schedules(query)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self._check(False)
        return super().find_runs(query)

    def add_runs(self, runs: Any, before: Instant | None = None) -> list[bool]:
        self._check(False)
        return super().add_runs(runs, before)

    def _check(self, is_locked: bool) -> None:
        if is_locked or self.is_down:
            raise StoreUnavailable("permission denied for table schedules")


class Node:
    """The parts of a node that take part, stepped by the test twice a second."""

    def __init__(self, store: Store, clock: VirtualClock, *names: str) -> None:
        self.clock = clock
        self.heard: list[Event] = []
        events = Events()
        events.listen(self.heard.append)
        self.fallback = Fallback(store, events, [("default", name) for name in names])
        self.ticker = Ticker(store, events, fallback=self.fallback)
        self.memory = FallbackTicker(store, events, self.fallback, name="n")

    def step(self) -> None:
        now = self.clock.now
        for part in (self.fallback.step, self.ticker.step, self.memory.step):
            try:
                part(now)
            except StoreUnavailable:
                continue

    def fail(self, began: Instant) -> None:
        """Step the ticker, which waits for the lock of the table since that instant."""
        with pytest.raises(StoreUnavailable):
            self.ticker.step(began)

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


def test_a_row_fires_no_tick_again_that_a_fallback_fired_and_a_rule_would_delete(
    store: Locked, clock: VirtualClock
) -> None:
    """Another node than the one that fired from memory may be the first to fire the row again."""
    owner, key = retention.record_place(None, None)
    body = encode(retention.StoredRule(keep=MINUTE, most=1))
    store.put_record(Record(kind=retention.KIND, tenant=owner, key=key, body=body))
    add(store, catch_up=CatchUp("all", limit=1_000))
    node, pruner, executed = Node(store, clock, "beat"), Pruner(store, 30 * 86_400_000), []

    def work(minutes: int, *nodes: Node) -> None:
        for _ in range(minutes):
            go(clock, 60, *nodes)
            claim = Claim(worker="w", token=f"c{clock.now}", limit=99, now=clock.now, lease=MINUTE)
            for run in store.claim_runs(claim).runs:
                executed.append(run.id)
                store.settle_runs([attempts.succeeded(run, "null", clock.now, run.id)])
            due = clock.now
            while due < clock.now + MINUTE:
                due = pruner.step(max(due, clock.now))

    work(3, node)
    store.is_locked = True
    work(20, node)
    store.is_locked = False
    work(3, Node(store, clock, "beat"))
    assert len(executed) == len(set(executed)) == 26


def test_a_node_that_was_stopped_in_a_fallback_leaves_its_ticks_to_the_rows(
    store: Locked, clock: VirtualClock
) -> None:
    """Others may have fired the ticks from the row, and purged the runs since."""
    add(store)
    node, other = Node(store, clock, "beat"), Node(store, clock, "beat")
    go(clock, 90, node, other)
    store.is_locked = True
    go(clock, 60, node)
    assert node.fallback.since is not None
    store.is_locked = False
    go(clock, 125, other)
    fired = ticks(store)
    for run in store.claim_runs(Claim(worker="w", token="c", limit=9, now=clock.now, lease=MINUTE)).runs:
        store.settle_runs([attempts.succeeded(run, "null", clock.now, run.id)])
    store.purge(clock.now + 1, 100)
    node.memory.step(clock.now)
    assert len(fired) == 4
    assert ticks(store) == []


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


def test_a_statement_that_waits_for_a_lock_counts_as_an_outage(store: Locked, clock: VirtualClock) -> None:
    add(store, trigger="every 1s")
    node = Node(store, clock, "beat")
    go(clock, 5, node)
    store.is_locked, store.blocks = True, 11_000
    node.step()  # one step: PostgreSQL gives up after eleven seconds
    assert node.kinds() == ["fallback_started"]
    node.memory.step(clock.now)
    newest = max(MemoryStore.find_runs(store, RunQuery(limit=999)).items, key=lambda run: run.tick or 0)
    assert (newest.tick, newest.coalesced) == (clock.now, 10)


@pytest.mark.parametrize(
    ("policy", "expected", "ledger"),
    [
        ({}, [11], [("coalesced", 10)]),
        ({"catch_up": CatchUp(kind="all")}, list(range(1, 12)), []),
        ({"catch_up": CatchUp(kind="skip", grace=3_000)}, [8, 9, 10, 11], [("late", 7)]),
        ({"overlap": "queue"}, [11], [("coalesced", 10)]),
    ],
    ids=["latest", "all", "skip", "queue"],
)
def test_ticks_that_were_missed_when_a_fallback_begins_are_caught_up_by_the_policy(
    store: Locked, clock: VirtualClock, policy: dict[str, Any], expected: list[int], ledger: list[Any]
) -> None:
    add(store, trigger="every 1s", **policy)
    node, other = Node(store, clock, "beat"), Node(store, clock, "beat")
    node.step()
    other.step()
    start = clock.now
    store.is_locked = True
    clock.advance("11s")
    for each in (node, other):
        each.fail(start)
        each.memory.step(clock.now)
    found = MemoryStore.find_runs(store, RunQuery(limit=999)).items
    assert sorted(((run.tick or 0) - start) // 1000 for run in found) == expected
    store.is_locked = False
    node.ticker.step(clock.now)
    assert [(row.reason, row.count) for row in skipped(store)] == ledger
    (row,) = store.find_schedules(ScheduleQuery()).items
    assert row.next_tick == clock.now + 1000
    outcome = account_of(store, row, None, None)
    assert (outcome.missing, outcome.doubled) == (0, 0)


def test_a_node_that_begins_later_does_not_catch_up_again(store: Locked, clock: VirtualClock) -> None:
    add(store, trigger="every 1s")
    node, other = Node(store, clock, "beat"), Node(store, clock, "beat")
    node.step()
    other.step()
    start = clock.now
    store.is_locked = True
    clock.advance("11s")
    node.fail(start)
    node.memory.step(clock.now)
    clock.advance("1s")
    other.fail(start)
    other.memory.step(clock.now)
    found = MemoryStore.find_runs(store, RunQuery(limit=999)).items
    assert sorted(((run.tick or 0) - start, run.coalesced) for run in found) == [(11_000, 10), (12_000, 0)]


def test_ticks_that_a_node_finds_much_later_are_left_to_the_row(store: Locked, clock: VirtualClock) -> None:
    """Another node may have fired them, and their runs may have been purged."""
    add(store, catch_up=CatchUp(kind="all"))
    node = Node(store, clock, "beat")
    node.step()
    store.is_locked = True
    go(clock, 70, node)
    clock.advance("20m")  # the process was frozen
    node.memory.step(clock.now)
    assert ticks(store) == [0, 20]
    store.is_locked = False
    go(clock, 1, node)
    assert ticks(store) == list(range(21))


def test_a_tick_that_waits_for_a_run_fires_soon_after_it(store: Locked, clock: VirtualClock) -> None:
    add(store, overlap="queue")
    node = Node(store, clock, "beat")
    node.step()
    store.is_locked = True
    go(clock, 130, node)
    assert ticks(store) == [0]
    (held,) = store.claim_runs(Claim(worker="w", token="c", limit=9, now=clock.now, lease=60_000)).runs
    end = without_schedule(attempts.succeeded(held, None, clock.now, "e"), clock.now)
    assert store.settle_runs([end]) == [True]
    go(clock, 2, node)
    assert ticks(store) == [0, 1]


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


def by_hand(
    store: MemoryStore, action: str, planned: Planned | None, row: ScheduleRecord, now: Instant | None = None
) -> None:
    """Write what a user does, with its entry in the audit."""
    assert planned is not None
    now = store.now() if now is None else now
    change = schedule_change(action, row, planned)
    planned = planned._replace(records=records_of(change, "anna", "cli", new_key(now), now))
    assert store.put_schedules([Write(planned, row.version)])[0].accepted


def row_of(store: MemoryStore, name: str = "beat") -> ScheduleRecord:
    (row,) = MemoryStore.find_schedules(store, ScheduleQuery(keys=(("default", name),), states=ALL)).items
    return row


@pytest.mark.parametrize("is_noticed", [True, False], ids=["in the fallback", "before it"])
@pytest.mark.parametrize(
    ("action", "plan"),
    [
        ("pause", changes.pause),
        ("delete", changes.delete),
        ("reschedule", lambda row, now: changes.reschedule(row, now + 30 * MINUTE, now)),
        ("update", lambda row, now: changes.change(row, {"payload": '{"x":1}'}, now)),
    ],
    ids=["pause", "delete", "move", "change"],
)
def test_what_a_user_did_after_the_rows_were_read_is_left_to_the_row(
    store: Locked, clock: VirtualClock, action: str, plan: Any, is_noticed: bool
) -> None:
    add(store)
    add(store, name="other")
    node = Node(store, clock, "beat", "other")
    go(clock, 10, node)
    if is_noticed:
        store.is_locked = True
        go(clock, 30, node)
        assert node.kinds() == ["fallback_started"]
    row = row_of(store)
    by_hand(store, action, plan(row, clock.now), row)
    store.is_locked = True  # at once: nobody has read the row again
    go(clock, 200, node)
    found = MemoryStore.find_runs(store, RunQuery(limit=99)).items
    assert {run.schedule for run in found} == {"other"}


def test_a_pause_that_was_decided_before_the_rows_were_read_and_written_after_it(
    store: Locked, clock: VirtualClock
) -> None:
    made = add(store)
    clock.advance("2s")
    before = clock.now
    clock.advance("2s")
    node = Node(store, clock, "beat")
    node.step()
    by_hand(store, "pause", changes.pause(made, before), made, before)
    store.is_locked = True
    go(clock, 130, node)
    assert ticks(store) == []


def test_a_pause_that_ends_in_a_fallback_ends_with_it(store: Locked, clock: VirtualClock) -> None:
    made = add(store)
    by_hand(store, "pause", changes.pause(made, clock.now), made)
    node = Node(store, clock, "beat")
    go(clock, 10, node)
    store.is_locked = True
    row = row_of(store)
    by_hand(store, "resume", changes.resume(row, clock.now), row)
    go(clock, 200, node)
    assert ticks(store) == []
    store.is_locked = False
    go(clock, 1, node)
    assert ticks(store) == [0]


def test_a_run_by_hand_stops_no_tick(store: Locked, clock: VirtualClock) -> None:
    add(store)
    node = Node(store, clock, "beat")
    go(clock, 10, node)
    row = row_of(store)
    planned = changes.run_now(row, "by-hand", clock.now)
    by_hand(store, "run_now", planned, row)
    store.is_locked = True
    go(clock, 110, node)
    assert ticks(store) == [0, 1]


def test_a_calendar_that_a_user_changed_leaves_its_schedules_to_their_rows(
    store: Locked, clock: VirtualClock
) -> None:
    entry = Change("calendar", "closed", "default", "set", {}, {})
    rows = [replace(BEAT, calendars="{}"), replace(BEAT, name="plain"), replace(BEAT, name="t", template="x")]
    entries = records_of(entry, "anna", "cli", new_key(clock.now), clock.now)[:1]
    assert changed_by_hand(rows, entries) == {("default", "beat")}
    assert changed_by_hand([replace(rows[0], updated_at=clock.now)], entries) == set()


def test_a_node_that_starts_in_an_outage_fires_nothing(store: Locked, clock: VirtualClock) -> None:
    add(store)
    store.is_locked = True
    node = Node(store, clock, "beat")
    go(clock, 180, node)
    assert (ticks(store), node.kinds()) == ([], [])
    store.is_locked = False
    go(clock, 1, node)
    assert ticks(store) == [0]
    assert [(row.reason, row.count) for row in skipped(store)] == [("coalesced", 2)]


class Blind:
    """One node's view of a store: it may not see the rows of schedules."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_blind = False

    def __getattr__(self, name: str) -> Any:
        if self.is_blind and name in ("fire_due", "find_schedules"):
            raise StoreUnavailable("permission denied for table schedules")
        return getattr(self._store, name)


@pytest.mark.parametrize("seed", range(40))
def test_no_tick_is_lost_doubled_or_fired_in_a_pause_whoever_sees_the_rows(
    seed: int, clock: VirtualClock
) -> None:
    random = Random(seed)
    store = MemoryStore(clock)
    store.open()
    policies: list[dict[str, Any]] = [{}, {"catch_up": CatchUp(kind="all")}, {"spread": 3_000}]
    made = changes.create(replace(BEAT, trigger="every 5s", **random.choice(policies)), clock.now).schedule
    assert store.put_schedules([Write(Planned(made), None)])[0].accepted
    views = [Blind(store) for _ in range(3)]
    nodes = [Node(view, clock, "beat") for view in views]
    paused: list[tuple[Instant, Instant]] = []
    begun: Instant | None = None
    for _ in range(300):
        clock.advance(f"{random.choice((200, 1_000, 4_000))}ms")
        if random.random() < 0.04:
            random.choice(views).is_blind = True
        if random.random() < 0.02:
            for view in views:
                view.is_blind = True
        if random.random() < 0.05:
            random.choice(views).is_blind = False
        if random.random() < 0.03:
            row = row_of(store)
            if begun is None:
                by_hand(store, "pause", changes.pause(row, clock.now), row)
                begun = clock.now
            else:
                by_hand(store, "resume", changes.resume(row, clock.now), row)
                paused.append((begun, clock.now))
                begun = None
        for node in random.sample(nodes, k=random.randint(1, 3)):
            node.step()
    if begun is not None:
        paused.append((begun, clock.now))
    for view in views:
        view.is_blind = False
    for _ in range(4):
        clock.advance("1s")
        for node in nodes:
            node.step()
    runs = store.find_runs(RunQuery(limit=9_999)).items
    assert len({run.tick for run in runs}) == len(runs)
    assert not [run.id for run in runs for begin, end in paused if begin < run.created_at < end]
    outcome = account_of(store, row_of(store), None, None)
    assert (outcome.missing, outcome.doubled) == (0, 0)


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


def fallen_back(store: Locked, clock: VirtualClock, *names: str, **options: Any) -> FallbackTicker:
    """Return the ticker of a node that has read its rows, just before the table is locked."""
    events = Events()
    fallback = Fallback(store, events, [("default", name) for name in names])
    fallback.step(clock.now)
    fallback.since = clock.now
    store.is_locked = True
    return FallbackTicker(store, events, fallback, **options)


def test_a_tick_from_memory_wakes_the_workers_here_and_elsewhere_and_is_counted(
    store: Locked, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store)
    woken: list[str] = []
    counting = Counting()
    monkeypatch.setattr(
        counting, "count_fired", lambda plans, _: woken.extend(p.schedule.name for p in plans)
    )
    ticker = fallen_back(
        store, clock, "beat", wake_worker=lambda: woken.append("here"), counting=counting, name="n"
    )
    monkeypatch.setattr(store, "hint", lambda: woken.append("elsewhere"))
    ticker.step(clock.now)
    assert woken == []
    clock.advance("1m")
    ticker.step(clock.now)
    assert woken == ["here", "elsewhere", "beat"]


def test_the_next_step_is_due_at_the_next_tick_that_is_not_left_to_its_row(
    store: Locked, clock: VirtualClock
) -> None:
    now = clock.now
    add(store, trigger="every 7s")
    moved = add(store, name="moved", trigger="every 3s")
    far = add(store, name="far", trigger="every 9h")
    assert FallbackTicker(store, Events(), Fallback(store, Events())).step(now) is None
    ticker = fallen_back(store, clock, "beat", "moved", "far")
    assert ticker.step(now) == now + 3_000
    clock.advance("1s")
    by_hand(store, "pause", changes.pause(moved, store.now()), moved)
    clock.advance("2s")
    assert ticker.step(clock.now) == now + 7_000
    assert MemoryStore.find_runs(store, RunQuery(limit=9)).items == ()
    # Without a tick soon, it looks again after a while.
    store.is_locked = False
    assert clock.now < (fallen_back(store, clock, "far").step(clock.now) or 0) < (far.next_tick or 0)


def test_runs_of_other_schedules_and_tenants_hold_nothing_up(store: Locked, clock: VirtualClock) -> None:
    add(store, overlap="skip")
    tick = clock.now + MINUTE
    run = RunRecord(id="x", task="work", schedule="other", generation=1, cause="tick", tick=tick, run_at=0)
    others = [run, replace(run, id="y", tenant="acme", schedule="beat", tick=tick + 9 * MINUTE)]
    assert store.add_runs(others) == [True, True]
    ticker = fallen_back(store, clock, "beat")
    clock.advance("1m")
    ticker.step(clock.now)
    found = MemoryStore.find_runs(store, RunQuery(tenant="default", schedule="beat")).items
    assert [found_run.tick for found_run in found] == [tick]


def test_ticks_of_a_process_that_was_stopped_are_planned_again(store: Locked, clock: VirtualClock) -> None:
    add(store, name="a")
    add(store, name="b")
    ticker = fallen_back(store, clock, "a", "b", name="n")
    fired: list[str] = []
    ticker._events.listen(lambda event: fired.append(event.schedule or ""))
    clock.advance("1m")
    ticker.step(clock.now)
    assert sorted(fired) == ["a", "b"]
    fired.clear()
    # Another node has fired one of them, and the store would soon refuse such a late run.
    tick = clock.now + MINUTE
    (run,) = MemoryStore.find_runs(store, RunQuery(schedule="a")).items
    assert store.add_runs([replace(run, id=f"default/a/1/{tick}", tick=tick)]) == [True]
    clock.now = tick + 36_000
    ticker.step(tick + 5_000)
    assert fired == ["b"]
    assert {each.row.next_tick for each in ticker._fallback.remembered.values()} == {tick}
    clock.now = tick + 34_000
    ticker.step(tick + 5_000)
    assert fired == ["b"]
    assert {each.row.next_tick for each in ticker._fallback.remembered.values()} == {tick + MINUTE}


def test_a_tick_that_waits_for_a_run_is_looked_at_every_second(store: Locked, clock: VirtualClock) -> None:
    add(store, overlap="queue")
    ticker = fallen_back(store, clock, "beat")
    clock.advance("1m")
    ticker.step(clock.now)
    clock.advance("1m")
    assert ticker.step(clock.now) == clock.now + fallback_ticker._WAIT_CHECK


def test_a_schedule_that_can_not_be_planned_is_left_to_its_row(
    store: Locked, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, name="a")
    add(store, name="b")
    ticker = fallen_back(store, clock, "a", "b")

    def fail_for_a(row: ScheduleRecord, *rest: Any) -> Planned:
        if row.name == "a":
            raise RuntimeError("no such zone")
        return plan_or_defer(row, *rest)

    monkeypatch.setattr(fallback_ticker, "plan_or_defer", fail_for_a)
    for _ in range(2):
        clock.advance("1m")
        ticker.step(clock.now)
    found = MemoryStore.find_runs(store, RunQuery(limit=9)).items
    assert [run.schedule for run in found] == ["b", "b"]
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    fields = record.__dict__
    assert (fields["component"], fields["schedule_id"], fields["tenant"]) == (
        "fallback ticker",
        "a",
        "default",
    )


def test_after_its_only_tick_a_schedule_is_due_no_more(store: Locked, clock: VirtualClock) -> None:
    add(store, trigger="at 2026-03-01T12:01:00Z")
    ticker = fallen_back(store, clock, "beat")
    clock.advance("1m")
    assert (ticker.step(clock.now) or 0) > clock.now
    clock.advance("1m")
    assert (ticker.step(clock.now) or 0) > clock.now
    assert len(MemoryStore.find_runs(store, RunQuery(limit=9)).items) == 1

"""Processes that make, advance and cancel backfills die, or are paused, between any two store calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import BackfillNotFound, Scheduler
from evenbeat.core.records import Record
from evenbeat.node import backfills as node
from evenbeat.rules import backfills as rules
from evenbeat.rules.backfills import KIND, StoredBackfill
from evenbeat.stores.base import Store, Write, Written
from tests import backfilling
from tests.backfilling import TICKS, World
from tests.lengths import chunks
from tests.simulator.interleaving import Crash, Interleaving, Strand
from tests.unit.test_alert_deaths import Died, Failpoint, die


def story(world: World, store: Store) -> Iterator[None]:
    """What the first process does; after each part of it, others may act."""
    world.make(store)
    yield
    for _ in range(4):
        world.work()
        world.purge()
        world.advance(store)
        yield


def calls_of(play: Callable[[World, Store], Iterator[None]]) -> int:
    world = World()
    counted = Failpoint(world.store, -1, die)
    for _ in play(world, counted):
        pass
    return counted.calls


CALLS = calls_of(story)


def play_death(at: int, is_after: bool) -> World:
    world = World()
    store: Any = Failpoint(world.store, at, die, is_after=is_after)
    try:
        for _ in story(world, store):
            pass
    except Died:
        world.clock.advance("2s")
        world.make()  # the user repeats the call
    world.finish()
    return world


@pytest.mark.parametrize("is_after", [False, True])
def test_a_death_between_any_two_calls_loses_and_doubles_nothing(is_after: bool) -> None:
    assert CALLS > 30
    for at in range(1, CALLS + 1):
        play_death(at, is_after).check()


ACTS = ("advance", "advance work", "advance work purge", "advance work purge advance", "finish")


def play_pause(at: int, acts: str) -> World:
    """The first process is paused before a call, while another node acts, and then goes on."""
    world = World()

    def others() -> None:
        for act in acts.split():
            world.clock.advance("100ms")
            getattr(world, act)()

    for _ in story(world, Failpoint(world.store, at, others)):
        pass
    world.finish()
    return world


@pytest.mark.parametrize("acts", ACTS)
def test_a_node_that_is_paused_while_others_go_on_doubles_nothing(acts: str) -> None:
    for at in range(1, CALLS + 1):
        play_pause(at, acts).check()


@pytest.mark.parametrize("when", ["dies", "is paused"])
def test_no_run_is_added_after_a_cancellation(when: str) -> None:
    """Also not by a node that had reserved ticks, or planned their runs, before it."""
    for at in range(1, CALLS + 1):
        world = World()
        added: list[int] = []

        def cancel(world: World = world, added: list[int] = added) -> None:
            try:
                Scheduler(world.store).backfills.cancel("b")
            except BackfillNotFound:
                return
            added.append(world.store.added.total())
            if when == "dies":
                raise Died

        try:
            for _ in story(world, Failpoint(world.store, at, cancel)):
                pass
        except Died:
            pass
        world.finish()
        if added:
            found = world.backfill()
            assert world.store.added.total() == added[0], f"paused before call {at}"
            assert (found.state, found.active) in (("cancelled", 0), ("done", 0))
            assert found.ended == added[0]
            assert world.leftovers() == []
        else:
            world.make()
            world.finish()
            world.check()


def test_a_canceller_that_dies_at_any_call_leaves_no_run_behind() -> None:
    for at in range(1, 40):
        for is_after in (False, True):
            world = World()
            world.make()
            world.claim(limit=1)
            store: Any = Failpoint(world.store, at, die, is_after=is_after)
            try:
                Scheduler(store).backfills.cancel("b")
            except Died:
                world.clock.advance("2s")
                # The user repeats the call, or has been answered by the record.
                Scheduler(world.store).backfills.cancel("b")
            (held,) = [run for run in world.store.backfilled() if run.state == "running"]
            assert held.cancel_requested
            assert all(run.state != "queued" for run in world.store.backfilled())
            world.end(held)
            world.finish()
            found = world.backfill()
            assert (found.state, found.active, world.store.added.total()) == ("cancelled", 0, 2)
            assert world.leftovers() == []


# -- many nodes, any order -------------------------------------------------------------------------------


class Stepped:
    """A store that lets another strand run before each call, and after which the process may die."""

    def __init__(self, store: Store, strands: Interleaving, crashes: float = 0.0) -> None:
        self._store = store
        self._strands = strands
        self._crashes = crashes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("now", "wait", "hint"):
            return method

        def call(*args: Any, **options: Any) -> Any:
            self._strands.switch()
            answer = method(*args, **options)
            if self._crashes and self._strands.random.random() < self._crashes:
                raise Crash
            return answer

        return call


def simulate(seed: int, *, is_cancelled: bool = False, **fields: Any) -> World:
    """Four nodes advance one backfill, two workers execute its runs, and a pruner deletes what has ended."""
    random = Random(seed)
    world = World(most=random.choice((1, 2, 3)), **fields)
    strands = Interleaving(random, world.clock)
    strands.pace = 20
    world.make()

    def advancing() -> None:
        while True:
            node.advance(Stepped(world.store, strands, 0.01), "default", "b", world.clock.now)
            strands.sleep(50)

    def working() -> None:
        while True:
            for run in world.claim(limit=1):
                strands.sleep(random.randint(1, 300))
                world.end(run)
            strands.sleep(30)

    def pruning() -> None:
        while True:
            strands.sleep(200)
            world.purge()

    def cancelling() -> None:
        strands.sleep(random.randint(0, 2_000))
        Scheduler(Stepped(world.store, strands)).backfills.cancel("b")
        world.store.most = min(world.store.most, world.store.added.total())
        cancelled_at.append(world.store.added.total())

    cancelled_at: list[int] = []

    def start_again(strand: Strand) -> None:
        strands.spawn(strand.name, strand.program, 50)

    strands.on_crash = start_again
    for name, program in (("a", advancing), ("b", advancing), ("c", advancing), ("d", advancing)):
        strands.spawn(name, program)
    for name in ("v", "w"):
        strands.spawn(name, working)
    strands.spawn("pruner", pruning)
    if is_cancelled:
        strands.spawn("user", cancelling)
    deadline = world.clock.now + 600_000
    try:
        strands.run(lambda: world.backfill().is_over or world.clock.now > deadline)
    finally:
        strands.close()
    world.finish()
    if cancelled_at:
        assert world.store.added.total() == cancelled_at[0]
    return world


@pytest.mark.parametrize("first", chunks(range(0, 300, 25), in_test=1))
def test_nodes_in_any_order_add_each_run_once_and_never_too_many(first: int) -> None:
    for seed in range(first, first + 25):
        simulate(seed).check()


@pytest.mark.parametrize("first", chunks(range(0, 300, 25), in_test=1))
def test_nodes_in_any_order_obey_the_policies_of_the_schedule(first: int) -> None:
    for seed in range(first, first + 25):
        world = simulate(seed, overlap="queue")
        world.check()


@pytest.mark.parametrize("first", chunks(range(0, 300, 25), in_test=1))
def test_a_cancellation_in_any_order_is_final(first: int) -> None:
    for seed in range(first, first + 25):
        world = simulate(seed, is_cancelled=True)
        found = world.backfill()
        assert (found.state in ("cancelled", "done"), found.active, world.leftovers()) == (True, 0, [])
        assert found.ended == world.store.added.total() <= TICKS
        assert max(world.store.added.values()) == 1


# -- mutants ---------------------------------------------------------------------------------------------


def caught(*, is_cancelled: bool = False) -> bool:
    """Whether the tests above find a fault."""
    try:
        for acts in ACTS:
            test_a_node_that_is_paused_while_others_go_on_doubles_nothing(acts)
        for is_after in (False, True):
            test_a_death_between_any_two_calls_loses_and_doubles_nothing(is_after)
        if is_cancelled:
            test_no_run_is_added_after_a_cancellation("is paused")
        for seed in range(60):
            simulate(seed).check()
    except AssertionError:
        return True
    return False


def test_runs_without_the_proof_of_their_batch_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def confirmed(backfill: StoredBackfill, batches: list[Record]) -> StoredBackfill:
        return replace(backfill, reserved=(), written=backfill.written + backfill.reserved)

    monkeypatch.setattr(rules, "confirmed", confirmed)
    assert caught()


def test_a_write_that_does_not_touch_the_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "touched", lambda row, _now: row)
    assert caught()


def test_a_write_that_ignores_the_version_of_the_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(backfilling.Watched):
        def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
            row = node._row(self, "default", "s")
            if row is None:
                return super().put_schedules(writes)
            planned = [write.planned._replace(schedule=rules.touched(row, self.now())) for write in writes]
            return super().put_schedules([Write(each, row.version) for each in planned])

    monkeypatch.setattr(backfilling, "Watched", Careless)
    assert caught()


def test_a_backfill_without_compare_and_set_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(backfilling.Watched):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            if record.kind == KIND and expect is not None:
                present = self.get_record(record.kind, record.tenant, record.key)
                expect = None if present is None else present.version
            return super().put_record(record, expect)

    monkeypatch.setattr(backfilling, "Watched", Careless)
    assert caught()


def test_adding_runs_before_they_are_reserved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than max_concurrent: each node adds what it would reserve."""
    write = node._Step._write

    def late(self: node._Step, before: StoredBackfill, after: StoredBackfill) -> bool:
        if after.reserved and after.state == "running":
            return True  # the record is not written
        return write(self, before, after)

    monkeypatch.setattr(node._Step, "_write", late)
    assert caught()


def test_a_cancellation_that_leaves_the_row_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node._Step, "_refuse_late_writes", lambda *_: True)
    assert caught(is_cancelled=True)

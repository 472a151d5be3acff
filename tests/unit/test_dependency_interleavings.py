"""Dependencies in a model: processes that write, remove and deploy dependencies and die, in orders of many
seeds.

After every write, no schedule waits for itself. Each part of the guarantee has a mutant, which the same seeds
find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar, cast

import pytest

from evenbeat import InvalidValue, ScheduleExists, ScheduleNotFound, Scheduler, every, on_success_of
from evenbeat.app import dependencies as app_dependencies
from evenbeat.app import rows
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.rules.dependencies import broken
from evenbeat.stores.base import Page, RecordWrite, ScheduleQuery, Store, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from tests.simulator.interleaving import Crash, Interleaving

T = TypeVar("T")
SEEDS = range(120)
NAMES = "abcd"
_CRASHES = 0.01


class Cycle(AssertionError):
    """A schedule waits for itself."""


class SteppedStore:
    """A store of which each call lets other strands run before and after, and in which a process may die."""

    def __init__(self, inner: MemoryStore, strands: Interleaving) -> None:
        self._inner = inner
        self._strands = strands

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        return self._stepped(lambda: self._inner.get_record(kind, tenant, key))

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        return self._stepped(lambda: self._inner.find_schedules(query))

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        return self._stepped(lambda: self._inner.put_schedules(writes))

    def _stepped(self, call: Callable[[], T]) -> T:
        self._strands.switch()
        self._die_maybe()
        answer = call()
        self._check()
        self._die_maybe()
        self._strands.switch()
        return answer

    def _die_maybe(self) -> None:
        if self._strands.random.random() < _CRASHES:
            raise Crash

    def _check(self) -> None:
        found = broken(self._inner.find_schedules(ScheduleQuery()).items)
        if cycles := [each.cycle for each in found if each.cycle]:
            raise Cycle(cycles)


def simulate(seed: int) -> int:
    """Let the processes work; return how many dependencies were refused."""
    random, clock = Random(seed), VirtualClock()
    strands = Interleaving(random, clock)
    inner = MemoryStore(clock=clock)
    inner.open()
    for name in NAMES:
        Scheduler(inner).schedules.add(name, every("1h"), "work")
    app = Scheduler(cast(Store, SteppedStore(inner, strands)))
    refused = 0

    def follow(name: str, leader: str) -> None:
        app.schedules.update(name, trigger=on_success_of(leader), after=None)

    def wait(name: str, leader: str) -> None:
        app.schedules.update(name, trigger="every 1h", after=f"{leader} within 1h")

    def deploy(name: str, leader: str) -> None:
        other, its_leader = random.choice(NAMES), random.choice(NAMES)
        wanted = {
            name: {"trigger": f"on success of {leader}", "task": "work"},
            other: {"trigger": "every 1h", "task": "work", "after": f"{its_leader} within 1h"},
        }
        app.apply(schedules=wanted, source="model", adopt=True)

    def leave(name: str, _: str) -> None:
        app.schedules.update(name, trigger="every 1h", after=None)

    def remove(name: str, _: str) -> None:
        app.schedules.delete(name)

    def add(name: str, leader: str) -> None:
        app.schedules.add(name, on_success_of(leader), "work")

    acts: tuple[Callable[[str, str], None], ...] = (follow, follow, wait, deploy, deploy, leave, remove, add)

    def program() -> None:
        nonlocal refused
        for _ in range(6):
            act, name, leader = random.choice(acts), random.choice(NAMES), random.choice(NAMES)
            try:
                act(name, leader)
            except InvalidValue:
                refused += 1
            except (ScheduleNotFound, ScheduleExists, Crash):
                continue

    for number in range(4):
        strands.spawn(f"user-{number}", program)
    try:
        strands.run(lambda: not strands.strands)
    finally:
        strands.close()
    inner.close()
    return refused


@pytest.mark.parametrize("first", range(0, len(SEEDS), 30))
def test_no_schedule_ever_waits_for_itself(first: int) -> None:
    assert sum(simulate(seed) for seed in SEEDS[first : first + 30]) > 100


def links_without_a_record(*arguments: Any) -> None:
    """A mutant: a write of a dependency does not notice others."""
    link(*arguments)


def reads_the_record_last(session: Any, wanted: ScheduleRecord, previous: Any) -> RecordWrite | None:
    """A mutant: the record is read after the check."""
    made = link(session, wanted, previous)
    if made is None:
        return None
    last = session.store().get_record(made.record.kind, wanted.tenant, made.record.key)
    return made._replace(expect=None if last is None else last.version)


def ignores_the_record(store: MemoryStore, writes: Sequence[Write]) -> list[Written]:
    """A mutant: the store does not compare the record."""
    return put_schedules(store, [write._replace(record=None) for write in writes])


link = app_dependencies.link
put_schedules = MemoryStore.put_schedules


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (rows, "link", links_without_a_record),
        (rows, "link", reads_the_record_last),
        (MemoryStore, "put_schedules", ignores_the_record),
    ],
)
def test_the_model_finds_mutants(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mutant)
    with pytest.raises(Cycle):
        [simulate(seed) for seed in SEEDS]

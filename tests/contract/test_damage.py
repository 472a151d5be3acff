"""A row that cannot be read does not affect other rows, and can be listed, replaced and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.adapters import ADAPTERS, Adapter
from tests.damage import can_be_deleted, can_be_found_and_written_anew, sweep
from tests.lengths import some
from tests.refusing import refusing
from tests.store_calls import add_schedules, claim

from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.rules.firing import plan
from evenbeat.stores.base import RunQuery
from evenbeat.testing import VirtualClock

EACH_SCHEDULE_DAMAGE = [
    pytest.param(name, damage, id=f"{name}-{number}")
    for name, kind in ADAPTERS.items()
    for number, damage in enumerate(kind.schedule_damage)
]
EACH_RUN_DAMAGE = [
    pytest.param(name, damage, id=f"{name}-{number}")
    for name, kind in ADAPTERS.items()
    for number, damage in enumerate(kind.run_damage)
]


@pytest.mark.parametrize(("adapter", "damage"), EACH_SCHEDULE_DAMAGE, indirect=["adapter"])
def test_an_unreadable_schedule_sleeps_and_its_neighbours_fire(
    adapter: Adapter, clock: VirtualClock, damage: Any
) -> None:
    store = adapter.open()
    add_schedules(store, "a", "b", "c", "d")
    for name in "bd":
        adapter.damage_schedule(name, damage)
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, plan)
    assert [planned.schedule.name for planned in fired.planned] == ["a", "c"]
    assert sorted(fired.quarantined) == [("default", "b"), ("default", "d")]
    notes = store.find_records("quarantine")
    assert [(note.key, note.version) for note in notes] == [("b", 1), ("d", 1)]
    assert all(note.body for note in notes)
    clock.advance("1m")
    assert store.fire_due(clock.now, 10, plan).quarantined == ()
    can_be_found_and_written_anew(
        store, "b", listed=adapter.is_listed(damage), paged=adapter.has_position(damage)
    )
    can_be_deleted(store, "d")


@pytest.mark.parametrize("adapter", some(ADAPTERS, "redis"), indirect=True)
def test_no_value_of_any_field_affects_neighbours_or_keeps_a_schedule_from_being_replaced(
    adapter: Adapter, clock: VirtualClock
) -> None:
    sweep(adapter.open(), clock, adapter.fields, adapter.values, adapter.set_field)


def test_an_unreadable_schedule_of_a_newer_format_is_left_alone(
    adapter: Adapter, clock: VirtualClock
) -> None:
    store = adapter.open()
    add_schedules(store, "a", format=FORMAT + 1)
    adapter.damage_schedule("a", adapter.unknown_state)
    before = adapter.dump()
    clock.advance("1m")
    assert store.fire_due(clock.now, 10, plan).next_wake is None
    assert adapter.dump() == before


@pytest.mark.parametrize(("adapter", "damage"), EACH_RUN_DAMAGE, indirect=["adapter"])
def test_an_unreadable_run_does_not_block_its_queue(adapter: Adapter, damage: Any) -> None:
    store = adapter.open()
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    adapter.damage_run("a", damage)
    assert claim(store, "one", limit=1) == []
    assert [(run.id, run.attempt) for run in claim(store, "two", limit=1)] == [("b", 1)]
    (note,) = store.find_records("quarantine")
    assert note.key == "a"
    assert [found.id for found in store.find_runs(RunQuery(limit=1)).items] == ["b"]
    assert store.count_runs() == {"running": 1, "failed": 1}


# Not Redis: it has nothing that refuses to change a run that can be read.
@pytest.mark.parametrize(
    ("adapter", "damage"),
    [each for each in EACH_RUN_DAMAGE if each.values[0] != "redis"],
    indirect=["adapter"],
)
def test_an_unreadable_run_that_can_not_be_set_to_failed_does_not_block_its_queue(
    adapter: Adapter, damage: Any, clock: VirtualClock
) -> None:
    store = adapter.open()
    store.add_runs([RunRecord(id=name, task="work", run_at=at) for at, name in enumerate("abcd")])
    for name in "ab":
        adapter.damage_run(name, damage)
    with refusing(store, "runs", "change", {"id": "a", "state": "failed"}):
        claimed: list[str] = []
        for at in range(5):
            claimed += [run.id for run in claim(store, f"claim-{at}", limit=1)]
        assert sorted(claimed) == ["c", "d"]
        clock.advance("10m")
        assert [run.id for run in store.lost_runs(clock.now, 10).runs] == ["c", "d"]
    assert [note.key for note in store.find_records("quarantine")] == ["b"]


@pytest.mark.parametrize(("adapter", "damage"), EACH_RUN_DAMAGE, indirect=["adapter"])
def test_an_unreadable_run_costs_its_neighbours_no_attempt(adapter: Adapter, damage: Any) -> None:
    store = adapter.open()
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    adapter.damage_run("b", damage)
    assert [(run.id, run.attempt) for run in claim(store)] == [("a", 1), ("c", 1)]
    assert store.count_runs() == {"running": 2, "failed": 1}
    assert [(run.id, run.state) for run in store.find_runs(RunQuery()).items] == [
        ("a", "running"),
        ("c", "running"),
    ]


@pytest.mark.parametrize(("adapter", "damage"), EACH_RUN_DAMAGE, indirect=["adapter"])
def test_an_unreadable_running_run_ends_with_its_lease(
    adapter: Adapter, clock: VirtualClock, damage: Any
) -> None:
    store = adapter.open()
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    claim(store)
    adapter.damage_run("a", damage)
    assert store.lost_runs(clock.now, 10).runs == ()
    assert store.count_runs() == {"running": 2}
    clock.advance("1h")
    assert [lost.id for lost in store.lost_runs(clock.now, 10).runs] == ["b"]
    assert store.count_runs() == {"running": 1, "failed": 1}
    (note,) = store.find_records("quarantine")
    assert note.key == "a"

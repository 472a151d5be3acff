"""Presence: the record of a node, and how it is read."""

from __future__ import annotations

import msgspec
import pytest

from evenbeat.node.presence import PRESENT_FOR, NodeInfo, Presence, live_nodes
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


def test_the_record_of_a_node_has_tasks_that_were_added_after_its_start(
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


def test_a_node_has_a_record_until_it_leaves(store: MemoryStore, clock: VirtualClock) -> None:
    presence = Presence(store, node_info())
    presence.step(clock.now)
    clock.advance("10s")
    presence.step(clock.now)
    assert [record.key for record in store.find_records("node")] == ["n1"]
    presence.leave()
    assert store.find_records("node") == []


def test_a_node_that_was_suspended_for_long_writes_its_expired_record_again(
    store: MemoryStore, clock: VirtualClock
) -> None:
    presence = Presence(store, node_info())
    presence.step(clock.now)
    clock.now += PRESENT_FOR + 1
    assert store.find_records("node") == []
    presence.step(clock.now)
    assert len(store.find_records("node")) == 1


def test_a_node_renews_its_record_every_20_s_and_the_record_expires_after_65_s() -> None:
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
        written = msgspec.json.decode(record.body, type=NodeInfo)
        assert written == msgspec.structs.replace(info, seen_at=clock.now)
    clock.now += PRESENT_FOR
    assert store.get_record("node", "default", "n1") is None
    # After a long suspend it writes its record again, though the version is not the one that it knows.
    presence.step(clock.now)
    assert store.get_record("node", "default", "n1") is not None
    presence.leave()
    assert store.get_record("node", "default", "n1") is None

"""Presence: the record of a node, and how it is read."""

from __future__ import annotations

import msgspec
import pytest

from evenbeat.core.records import Record, RunRecord
from evenbeat.node.presence import PRESENT_FOR, LiveNode, NodeInfo, Presence, live_nodes
from evenbeat.rules.waiting import Taker
from evenbeat.stores.base import Claim
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
    (first,) = store.find_records("node")
    clock.advance("10s")
    presence.step(clock.now)
    (second,) = store.find_records("node")
    assert (first.key, second.key) == ("n1", "n1")
    # Another one each time, so that the reply to a lost write is not mistaken for that of the next.
    assert first.version != second.version
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


# -- how a record is read ------------------------------------------------------------------------------------


def test_a_node_is_read_as_its_record_describes_it(store: MemoryStore, clock: VirtualClock) -> None:
    Presence(store, msgspec.structs.replace(node_info(), ticker=False, queues=["mail"])).step(clock.now)
    (node,) = live_nodes(store)
    assert (node.key, node.host, node.pid) == ("n1", "h", 1)
    assert (node.ticker, node.worker, node.queues) == (False, True, ("mail",))
    assert node.taker == Taker("n1", True, frozenset(["work"]), ("mail",))
    Presence(store, msgspec.structs.replace(node_info("n2"), worker=False)).step(clock.now)
    assert [node.worker for node in live_nodes(store)] == [True, False]


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"tasks": 5, "queues": 5, "slots": 5, "pid": "x"}'])
def test_fields_of_a_record_that_can_not_be_read_have_defaults(store: MemoryStore, body: str) -> None:
    store.put_record(Record(kind="node", key="n1", body=body))
    (node,) = live_nodes(store)
    assert node == LiveNode("n1", None, None, None, ("default",), True, True, {}, {})
    assert not node.is_busy(store, "work")


@pytest.mark.parametrize(
    ("slots", "running", "is_busy"),
    [
        ({"thread": 2}, ["work", "work"], True),
        ({"thread": 2}, ["work"], False),
        ({"thread": 2}, ["work", "fetch"], False),
        ({"thread": 1, "async": 5}, ["fetch", "work"], True),
        ({"async": 1}, ["work", "work"], False),
        ({"thread": 0}, [], True),
    ],
)
def test_a_node_is_busy_when_all_slots_of_the_tasks_executor_are_in_use(
    store: MemoryStore, clock: VirtualClock, slots: dict[str, int], running: list[str], is_busy: bool
) -> None:
    node = LiveNode("n1", "h", 1, None, ("default",), True, True, {"work": "thread", "fetch": "async"}, slots)
    runs = [RunRecord(id=f"r{at}", task=task, run_at=clock.now) for at, task in enumerate(running)]
    store.add_runs([*runs, RunRecord(id="waits", task="work", run_at=clock.now, priority=0)])
    claim = Claim(worker="n1", token="t", limit=len(running), now=clock.now, lease=30_000)
    assert len(store.claim_runs(claim).runs) == len(running)
    assert node.is_busy(store, "work") is is_busy
    assert not node.is_busy(store, "of another node")


def test_a_busy_node_is_found_over_several_pages(store: MemoryStore, clock: VirtualClock) -> None:
    store.add_runs([RunRecord(id=f"r{at}", task="work", run_at=clock.now) for at in range(1_001)])
    claim = Claim(worker="n1", token="t", limit=2_000, now=clock.now, lease=30_000)
    assert len(store.claim_runs(claim).runs) == 1_001
    node = LiveNode("n1", "h", 1, None, ("default",), True, True, {"work": "thread"}, {"thread": 1_001})
    assert node.is_busy(store, "work")
    assert not node._replace(slots={"thread": 1_002}).is_busy(store, "work")

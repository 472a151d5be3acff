"""``app.queues()``: what waits where, who takes it, and whether it drains."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from evenbeat import InvalidValue, QueueStats, Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def node(app: Scheduler, name: str, **fields: Any) -> None:
    given = {"ticker": True, "worker": True, "tasks": {}, "slots": {}, "queues": ["default"], **fields}
    info = NodeInfo(name=name, host="h", pid=1, version="", started_at=0, seen_at=0, **given)
    Presence(app.store, info).step(app.store.now())


def test_queues_of_runs_and_of_live_nodes_are_counted(app: Scheduler, clock: VirtualClock) -> None:
    assert app.queues() == []
    node(app, "n1")
    node(app, "n2", queues=["slow", "default"])
    node(app, "ticker", worker=False, queues=["default"])
    app.enqueue("work", queue="nobodys", tenant="acme")
    due = clock.now
    clock.advance("1m")
    app.enqueue("work", id="a")
    app.enqueue("work", delay="1h")
    claim = Claim(worker="n1", token="t", limit=1, now=clock.now, lease=30_000)
    (held,) = app.store.claim_runs(claim).runs
    assert app.store.settle_runs([attempts.succeeded(held, None, clock.now, "t")]) == [True]

    usual: dict[str, Any] = dict.fromkeys(("due", "later", "retrying", "running", "came_due", "ended"), 0)
    assert app.queues() == [
        QueueStats(
            name="default",
            nodes=("n1", "n2"),
            oldest_due=None,
            **usual | {"later": 1, "came_due": 1, "ended": 1},
        ),
        QueueStats(name="nobodys", nodes=(), oldest_due=from_ms(due), **usual | {"due": 1, "came_due": 1}),
        QueueStats(name="slow", nodes=("n2",), oldest_due=None, **usual),
    ]
    assert app.queues("30s")[1].came_due == 0
    assert app.queues(timedelta(minutes=5)) == asyncio.run(app.aqueues())
    with pytest.raises(InvalidValue, match="period"):
        app.queues("soon")


@pytest.mark.parametrize(
    ("due", "came_due", "ended", "trend"),
    [
        (0, 0, 0, "empty"),
        (0, 5, 5, "empty"),
        (3, 5, 9, "drains"),
        (3, 5, 5, "steady"),
        (3, 9, 5, "grows"),
        (3, 9, 0, "stands still"),
        (3, 0, 0, "stands still"),
    ],
)
def test_a_queue_drains_if_more_runs_end_than_come_due(
    due: int, came_due: int, ended: int, trend: str
) -> None:
    queue = QueueStats(
        name="q",
        due=due,
        later=0,
        retrying=0,
        running=0,
        oldest_due=None,
        came_due=came_due,
        ended=ended,
        nodes=(),
    )
    assert queue.trend == trend


def test_a_node_that_says_nothing_readable_takes_the_default_queue(app: Scheduler) -> None:
    assert app.store.put_record(Record(kind="node", key="odd", body="[]"))
    assert [(queue.name, queue.nodes) for queue in app.queues()] == [("default", ("odd",))]

"""Ten nodes watch a job that fails; the one that announces it dies before each of its commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules.alert_records import LOG, PENDING, SIGNAL
from evenbeat.stores.base import Store
from tests.alerting import put_rule
from tests.faults.fleet import Account, Fleet, add_schedules, fleet, opened, wait_until
from tests.faults.scene import Ground, Outcome, Scene
from tests.unit.receivers import Receiver, receiver

NODES = 10
_TURN_COMMANDS = 6
"""The commands with which a turn begins, before it reads signals."""
_FEW = 20


def alerts(ground: Ground, faults: int) -> Outcome:
    """A schedule fails in each round, and a node dies before the nth command of its announcement.

    All commands in turn, or some of them if ``faults`` are few.
    """
    armed = ground.folder / "armed"
    died = rounds = 0
    with receiver() as server, opened(ground.url) as store, fleet(ground.url, ground.folder) as nodes:
        put_rule(store, "failed", url=server.url)
        for _ in range(NODES):
            nodes.start("--armed", str(armed), module="tests.faults.watcher")
        nodes.await_ready()
        for failpoint in _failpoints(faults):
            armed.write_text(failpoint)
            _fail(ground, store, f"s{rounds:03}")
            rounds += 1
            _await_round(store, nodes, rounds)
            if armed.exists():
                armed.unlink()
                if failpoint.startswith("batch"):
                    break  # beyond the last command
            else:
                wait_until(nodes.reap, "the node at the failpoint did not die")
                died += 1
                nodes.start("--armed", str(armed), module="tests.faults.watcher")
        _await_round(store, nodes, rounds)
        nodes.await_ready()
        nodes.stop()
        sent = _check(server, rounds)
    return Outcome(
        Account(0, rounds, rounds), died, result=f"{rounds} alerts, {sent} messages, each with one id"
    )


def _failpoints(faults: int) -> Iterator[str]:
    if faults <= _FEW:
        yield from (f"batch {4 * at + 3}" for at in range(faults))
        return
    yield from (f"turn {at}" for at in range(1, _TURN_COMMANDS + 1))
    yield from (f"batch {at}" for at in count(1))


def _fail(ground: Ground, store: Store, name: str) -> None:
    """Let a run of a new schedule fail."""
    add_schedules(ground.url, [ScheduleRecord(name=name, task="work", trigger="every 1d")])
    now = store.now()
    run = RunRecord(id=f"{name}-run", schedule=name, generation=1, task="work", run_at=now, created_at=now)
    assert store.add_runs([run]) == [True]
    store.hint()


def _await_round(store: Store, nodes: Fleet, rounds: int) -> None:
    """Wait until every failure so far was announced, and nothing is left to do."""

    def is_over() -> bool:
        return len(store.find_records(LOG)) >= rounds and not (
            store.find_records(SIGNAL) or store.find_records(PENDING)
        )

    wait_until(is_over, lambda: f"an alert was not sent: {nodes.errors()}")


def _check(server: Receiver, rounds: int) -> int:
    """Check that the messages about each schedule have one id; return how many messages there were."""
    ids: dict[str, set[str]] = {}
    for request in server.requests:
        message = json.loads(request.body)
        assert message["announcement"] == "opened"
        ids.setdefault(message["schedule"], set()).add(message["id"])
    assert sorted(ids) == [f"s{at:03}" for at in range(rounds)], "an alert was lost"
    doubled = [name for name, found in ids.items() if len(found) > 1]
    assert not doubled, f"{doubled} were announced under several ids"
    return len(server.requests)


SCENES = (
    Scene(
        "alerts",
        alerts,
        "10 nodes watch a failing job; SIGKILL of the one that announces it before each command",
        4,
        1_000,
    ),
)

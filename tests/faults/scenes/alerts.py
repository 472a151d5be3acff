"""Ten nodes watch a job that fails; the one that announces it dies before each of its commands."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import count

from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules.alert_records import LOG, PENDING, SIGNAL
from evenbeat.stores.base import Store
from tests.alerting import put_rule
from tests.faults.fleet import Account, Fleet, add_schedules, fleet, opened, wait_until
from tests.faults.scene import Ground, Outcome, Scene
from tests.unit.receivers import Receiver, receiver

NODES = 10
_BEGINNINGS = ("turn", "batch", "send")
"""From where the commands of a node are counted: see ``tests/faults/watcher.py``."""
_FEW = 20
_MISSES = 3
"""After so many rounds without a death in a row, the failpoint is beyond the last command. One is not enough:
another node may have taken over the rest of the work."""


def alerts(ground: Ground, faults: int) -> Outcome:
    """A schedule fails in each round, and a node dies before the nth command of its announcement.

    All commands in turn, or some of them if ``faults`` are few.
    """
    armed = ground.folder / "armed"
    died = rounds = 0
    with receiver() as server, opened(ground.url) as store, fleet(ground.url, ground.folder) as nodes:
        put_rule(store, "failed", url=server.url)
        for _ in range(3 if faults <= _FEW else NODES):
            nodes.start("--armed", str(armed), module="tests.faults.watcher")
        nodes.await_ready()
        failpoints = _failpoints(faults)
        failpoint = next(failpoints, None)
        while failpoint is not None:
            armed.write_text(failpoint)
            _fail(ground, store, f"s{rounds:03}")
            rounds += 1
            _await_round(store, nodes, rounds)
            is_missed = armed.exists()
            armed.unlink(missing_ok=True)
            if not is_missed:
                wait_until(nodes.reap, "the node at the failpoint did not die")
                died += 1
                nodes.start("--armed", str(armed), module="tests.faults.watcher")
            try:
                failpoint = failpoints.send(is_missed)
            except StopIteration:
                break
        nodes.await_ready()
        nodes.stop()
        sent = check_announced(server, rounds)
    # A node that died between a message and its record in the log: another node has sent it again.
    assert faults <= _FEW or sent > rounds, "no node died between sending and its note of that"
    result = f"{rounds} alerts in {sent} messages, each alert under one id"
    return Outcome(Account(0, rounds, rounds), died, result=result)


def _failpoints(faults: int) -> Generator[str, bool, None]:
    """Yield failpoints, and receive whether no node died at them."""
    if faults <= _FEW:
        for at in range(faults):
            yield f"batch {4 * at + 3}" if at % 2 else f"send {3 * at + 2}"
        return
    for beginning in _BEGINNINGS:
        missed = 0
        for at in count(1):
            missed = missed + 1 if (yield f"{beginning} {at}") else 0
            if missed == _MISSES:
                break


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


def check_announced(server: Receiver, rounds: int) -> int:
    """Check that the messages about each schedule have one id; return how many messages there were."""
    ids: dict[str, set[str]] = {}
    for request in server.requests:
        message = json.loads(request.body)
        assert message["announcement"] == "opened", message
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
        3,
        1_000,
    ),
)

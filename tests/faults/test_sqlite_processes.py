"""Real processes on one SQLite file, killed and frozen: every tick is accounted for exactly once.

Real time, because real signals and leases are the subject.
"""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from evenbeat.model import CatchUp, Execution, Run, Schedule
from evenbeat.rules import changes
from evenbeat.rules.firing import trigger_of
from evenbeat.stores.base import RunQuery, ScheduleQuery, Write
from evenbeat.stores.sqlite import SqliteStore

NODE = Path(__file__).with_name("node.py")
SCHEDULES = 20
PERIOD = "50ms"

# Every command that firing, claiming and settling send, and the moment after their commits.
FAILPOINTS = (
    "begin", "select due", "update schedules", "insert runs", "select claimable", "claim runs",
    "select runs", "update runs", "count", "commit", "committed",
)  # fmt: skip


class Fleet:
    """Node processes on one database, started and ended by their pids."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "evenbeat.db"
        self.folder = folder
        self.started = 0
        self.alive: list[subprocess.Popen[bytes]] = []

    def start(self, failpoint: str | None = None) -> None:
        self.started += 1
        output = (self.folder / f"node-{self.started}.log").open("wb")
        words = [sys.executable, str(NODE), str(self.database), f"n{self.started}"]
        with output:
            process = subprocess.Popen(words + ([failpoint] if failpoint else []), stdout=output)
        self.alive.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(10)
        self.alive.remove(process)

    def bury(self) -> int:
        """Forget the nodes that died by themselves, at a failpoint; answers how many."""
        dead = [process for process in self.alive if process.poll() is not None]
        for process in dead:
            assert process.returncode == -signal.SIGKILL, "a node failed"
            self.alive.remove(process)
        return len(dead)

    def stop(self) -> None:
        self.database.with_suffix(".stop").touch()
        for process in self.alive:
            assert process.wait(20) == 0

    def reports(self) -> list[dict[str, object]]:
        lines = []
        for log in sorted(self.folder.glob("node-*.log")):
            for line in log.read_text().splitlines():
                lines.append(json.loads(line))
        return lines


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    nodes = Fleet(folder)
    try:
        yield nodes
    finally:
        for process in nodes.alive:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)


def prepare(database: Path) -> None:
    store = SqliteStore(database)
    store.open()
    now = store.now()
    writes = [
        Write(
            changes.create(
                Schedule(
                    name=f"s{at:02}",
                    task="work",
                    trigger=f"every {PERIOD}",
                    catch_up=CatchUp(("latest", "all", "skip")[at % 3], grace=500, limit=50),
                    execution=Execution(crashes=1000),
                ),
                now,
            ),
            None,
        )
        for at in range(SCHEDULES)
    ]
    assert all(written.accepted for written in store.put_schedules(writes))
    store.close()


def drain(database: Path) -> None:
    """Let everything that is still out be finished by a last, unharmed node, and no new tick fire."""
    store = SqliteStore(database)
    store.open()
    for schedule in store.find_schedules(ScheduleQuery(limit=SCHEDULES)).items:
        while True:
            current = store.find_schedules(ScheduleQuery(name=schedule.name)).items[0]
            if store.put_schedules([Write(changes.pause(current, store.now()), current.version)])[0].accepted:
                break
    deadline = time.monotonic() + 20
    while {"queued", "running"} & store.count_runs().keys():
        assert time.monotonic() < deadline, "the nodes did not finish what was due"
        time.sleep(0.05)
    store.close()


def check(database: Path, reports: list[dict[str, object]]) -> int:
    """The promise, from what is stored and what the nodes say they did; answers the number of ticks."""
    store = SqliteStore(database)
    store.open()
    with closing(store):
        return _checked(store, reports)


def _checked(store: SqliteStore, reports: list[dict[str, object]]) -> int:
    runs: list[Run] = []
    cursor = None
    while True:
        page = store.find_runs(RunQuery(limit=1000, cursor=cursor))
        runs += page.items
        cursor = page.cursor
        if cursor is None:
            break
    total = 0
    for schedule in store.find_schedules(ScheduleQuery(states=("paused",), limit=SCHEDULES)).items:
        trigger = trigger_of(schedule)
        assert schedule.next_tick is not None
        expected = set(trigger.between_ms(schedule.created_at + 1, schedule.next_tick))
        fired = [run.tick for run in runs if run.schedule == schedule.name]
        passed: list[int] = []
        for row in store.find_skipped("default", schedule.name, limit=100_000):
            covered = list(trigger.between_ms(row.first, row.last + 1))
            assert len(covered) == row.count
            passed += covered
        counts = Counter([*fired, *passed])
        assert set(counts) == expected, f"{schedule.name} lost or invented a tick"
        assert set(counts.values()) <= {1}, f"{schedule.name} doubled a tick"
        total += len(expected)
    for run in runs:
        assert run.state == "succeeded", run
        assert run.tick is not None
        assert run.created_at >= run.tick, "fired early"
    done = Counter(report["run"] for report in reports if report["what"] == "done accepted")
    # A node may die after its completion was stored and before it could say so, never say it twice.
    assert set(done.values()) <= {1}, "completed twice"
    assert set(done) <= {run.id for run in runs}
    attempts = Counter((report["run"], report["attempt"]) for report in reports if report["what"] == "ran")
    assert set(attempts.values()) <= {1}, "two workers had the same attempt"
    return total


def test_twenty_kills_at_random_and_a_freeze_past_the_lease_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    prepare(tmp_path / "evenbeat.db")
    with fleet(tmp_path) as nodes:
        for _ in range(3):
            nodes.start()
        for round_ in range(20):
            time.sleep(chance.uniform(0.1, 0.4))
            if round_ % 7 == 3:
                frozen = chance.choice(nodes.alive)
                frozen.send_signal(signal.SIGSTOP)
                time.sleep(1.5)  # longer than the lease
                frozen.send_signal(signal.SIGCONT)
            nodes.kill(chance.choice(nodes.alive))
            nodes.start()
        drain(tmp_path / "evenbeat.db")
        nodes.stop()
    ticks = check(tmp_path / "evenbeat.db", nodes.reports())
    assert ticks > 2000


def test_a_kill_before_each_command_and_after_commits_loses_and_doubles_nothing(tmp_path: Path) -> None:
    prepare(tmp_path / "evenbeat.db")
    with fleet(tmp_path) as nodes:
        nodes.start()
        for nth in (2, 7):
            for command in FAILPOINTS:
                nodes.start(f"{command}:{nth}")
                deadline = time.monotonic() + 20
                while not nodes.bury():
                    assert time.monotonic() < deadline, f"{command} was never sent"
                    time.sleep(0.01)
        drain(tmp_path / "evenbeat.db")
        nodes.stop()
    check(tmp_path / "evenbeat.db", nodes.reports())


def test_the_check_can_fail(tmp_path: Path) -> None:
    """A run that is removed behind everybody's back is noticed."""
    prepare(tmp_path / "evenbeat.db")
    with fleet(tmp_path) as nodes:
        nodes.start()
        time.sleep(0.5)
        drain(tmp_path / "evenbeat.db")
        nodes.stop()
    check(tmp_path / "evenbeat.db", nodes.reports())
    connection = sqlite3.connect(tmp_path / "evenbeat.db")
    connection.execute("DELETE FROM evenbeat_runs WHERE id = (SELECT max(id) FROM evenbeat_runs)")
    connection.commit()
    connection.close()
    with pytest.raises(AssertionError, match="lost"):
        check(tmp_path / "evenbeat.db", nodes.reports())

"""Node processes on one store, started and ended by their pids, and the account of their ticks and runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, FORMAT, CatchUp, Execution, RunRecord, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import trigger_of
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.urls import open_url

PERIOD = "50ms"
ROOT = Path(__file__).parents[2]


class Fleet:
    """Nodes that work on one store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.stopping = folder / "stop"
        self.alive: dict[int, subprocess.Popen[bytes]] = {}
        """By number: the node's output is ``node-NUMBER.log``."""
        self._started = 0
        self._read: dict[Path, tuple[int, list[dict[str, Any]]]] = {}

    def start(
        self,
        *options: str,
        url: str | None = None,
        environment: Mapping[str, str] | None = None,
        module: str = "tests.faults.node",
    ) -> int:
        self._started += 1
        words = [sys.executable, "-m", module, url or self.url, str(self.stopping), *options]
        words += ["--really", str(time.time())]
        with self.log(self._started).open("wb") as output, (self.folder / "errors").open("ab") as errors:
            self.alive[self._started] = subprocess.Popen(
                words, stdout=output, stderr=errors, cwd=ROOT, env=os.environ | dict(environment or {})
            )
        return self._started

    def log(self, number: int) -> Path:
        return self.folder / f"node-{number}.log"

    def await_ready(self) -> None:
        """Wait until every node has started."""
        for number in self.alive:
            wait_until(lambda number=number: self.reports(number), f"node {number} did not start")  # type: ignore[misc]  # a default binds the number

    def kill(self, number: int) -> None:
        process = self.alive.pop(number)
        process.kill()
        process.wait(10)

    def signal(self, number: int, what: signal.Signals) -> None:
        self.alive[number].send_signal(what)

    def reap(self) -> int:
        """Forget the nodes that died by themselves, at a failpoint; return how many."""
        dead = [number for number, process in self.alive.items() if process.poll() is not None]
        for number in dead:
            code = self.alive.pop(number).returncode
            assert code == -signal.SIGKILL, f"a node failed: {self.errors()}"
        return len(dead)

    def stop(self) -> None:
        self.stopping.touch()
        for number, process in self.alive.items():
            assert process.wait(30) == 0, f"node {number} failed: {self.errors()}"

    def errors(self) -> str:
        return self.errors_of_all()[-3000:]

    def errors_of_all(self) -> str:
        return (self.folder / "errors").read_text(errors="replace")

    def reports(self, number: int | None = None) -> list[dict[str, Any]]:
        logs = sorted(self.folder.glob("node-*.log")) if number is None else [self.log(number)]
        return [report for log in logs for report in self._reports_in(log)]

    def _reports_in(self, log: Path) -> list[dict[str, Any]]:
        """Return the reports of a node; lines that were read before are not read again."""
        read, reports = self._read.setdefault(log, (0, []))
        with log.open("rb") as file:
            file.seek(read)
            new = file.read()
        # A node that was killed may have left half a line behind.
        whole = new[: new.rfind(b"\n") + 1]
        reports += map(json.loads, whole.splitlines())
        self._read[log] = (read + len(whole), reports)
        return reports


@contextmanager
def fleet(url: str, folder: Path) -> Iterator[Fleet]:
    nodes = Fleet(url, folder)
    try:
        yield nodes
    finally:
        for process in nodes.alive.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open the store through a connection without faults."""
    store = open_url(url)
    with closing(store):
        store.open()
        yield store


def wait_until(
    condition: Callable[[], object], otherwise: str | Callable[[], str], seconds: float = 60
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(0.02)


def prepare(url: str, schedules: int) -> None:
    """Schedules of every policy, ticking twenty times a second each."""
    add_schedules(
        url,
        [
            ScheduleRecord(
                name=f"s{at:02}",
                task="work",
                trigger=f"every {PERIOD}",
                catch_up=CatchUp(("latest", "all", "skip")[at % 3], grace=500, limit=50),
                execution=Execution(max_crashes=1000),
            )
            for at in range(schedules)
        ],
    )


def add_schedules(url: str, wanted: Sequence[ScheduleRecord], apart: int = 0, unchanged: int = 0) -> None:
    """Add schedules, each ``apart`` milliseconds older than the one before, so that their ticks differ.

    Their rows look as if they had not been changed for ``unchanged`` milliseconds.
    """
    with opened(url) as store:
        now = store.now()
        made = [changes.create(one, now - at * apart) for at, one in enumerate(wanted)]
        rows = [replace(planned.schedule, updated_at=now - unchanged) for planned in made]
        writes = [Write(Planned(row), None) for row in rows]
        assert all(written.accepted for written in store.put_schedules(writes))


def check_ticks(store: Store, name: str) -> None:
    """Check that every tick of a schedule became one run, or has a row in the ledger."""
    schedule = store.find_schedules(ScheduleQuery(name=name)).items[0]
    trigger = trigger_of(schedule)
    assert schedule.next_tick is not None
    page = store.find_runs(RunQuery(schedule=name, limit=10_000))
    assert page.cursor is None
    ticks = [run.tick for run in page.items]
    for row in store.find_skipped("default", name, limit=10_000):
        ticks += trigger.between_ms(row.first, row.last + 1)
    counts = Counter(ticks)
    assert set(counts) == set(trigger.between_ms(schedule.created_at + 1, schedule.next_tick))
    assert set(counts.values()) == {1}


def drain(url: str) -> None:
    """Pause every schedule, and let the nodes finish the remaining runs."""
    with opened(url) as store:
        wait_until(lambda: are_paused(store), "the schedules could not be paused")
        await_rest(store)


def are_paused(store: Store) -> bool:
    """Pause the active schedules in one write, and return whether there were none.

    Single writes compete, one by one, with nodes that fire all of the schedules every few milliseconds: on
    MongoDB and a busy machine that takes minutes, in which the backlog grows.
    """
    try:
        rows = store.find_schedules(ScheduleQuery(states=("active",), limit=10_000)).items
        now = store.now()
        store.put_schedules([Write(_pause(row, now), row.version) for row in rows])
    except StoreUnavailable:
        return False  # MongoDB: the transaction of a killed node still blocks the rows
    store.hint()
    return not rows


def _pause(row: ScheduleRecord, now: Instant) -> Planned:
    """Plan the pause as the version of Evenbeat that wrote the row."""
    planned = changes.pause(replace(row, format=FORMAT), now)
    return planned._replace(schedule=replace(planned.schedule, format=row.format))


def await_rest(store: Store) -> None:
    """Wait until no run is queued or running. A slow machine may take long, as long as runs end."""
    ended, deadline = -1, time.monotonic() + 60
    is_clean = False
    while True:
        try:
            counts = store.count_runs()
        except StoreUnavailable:  # PostgreSQL restarts if the jump of a clock ended one of its processes
            assert time.monotonic() < deadline, "the store did not come back"
            time.sleep(0.5)
            continue
        if not {"queued", "running"} & counts.keys():
            # MongoDB may miss a run that changes its state while it counts.
            if is_clean:
                return
            is_clean = True
            continue
        is_clean = False
        over = sum(number for state, number in counts.items() if state in FINAL_STATES)
        if over > ended:
            ended, deadline = over, time.monotonic() + 60
        assert time.monotonic() < deadline, f"the nodes did not finish what was due: {counts}"
        time.sleep(0.05)


class Account(NamedTuple):
    """The numbers of a check that found no broken promise."""

    ticks: int
    """The ticks of all schedules, each accounted for exactly once."""
    runs: int
    completions: int
    """The completions that nodes report as accepted, no run twice."""


def check(url: str, reports: list[dict[str, Any]]) -> Account:
    """Check the promise, from the store and from the reports of the nodes."""
    with opened(url) as store:
        runs = list(all_runs(store))
        of_schedule: dict[str | None, list[RunRecord]] = {}
        for run in runs:
            of_schedule.setdefault(run.schedule, []).append(run)
        total = 0
        for schedule in store.find_schedules(ScheduleQuery(states=("paused",), limit=1000)).items:
            fired = [run.tick for run in of_schedule.get(schedule.name, ())]
            total += _check_ticks(store, schedule, fired)
    for run in runs:
        assert run.state == "succeeded", run
        assert run.tick is None or run.created_at >= run.tick, f"{run.id} was fired early"
    done = Counter(report["run"] for report in reports if report["what"] == "done accepted")
    # A node may die after a completion was stored and before it reports it; it never reports one twice.
    assert set(done.values()) <= {1}, "completed twice"
    assert set(done) <= {run.id for run in runs}
    ran = Counter((report["run"], report["attempt"]) for report in reports if report["what"] == "ran")
    assert set(ran.values()) <= {1}, "two workers had the same attempt"
    return Account(total, len(runs), len(done))


def _check_ticks(store: Store, schedule: ScheduleRecord, fired: list[int | None]) -> int:
    trigger = trigger_of(schedule)
    assert schedule.next_tick is not None
    expected = set(trigger.between_ms(schedule.created_at + 1, schedule.next_tick))
    passed: list[int] = []
    for row in store.find_skipped("default", schedule.name, limit=100_000):
        covered = list(trigger.between_ms(row.first, row.last + 1))
        assert len(covered) == row.count
        passed += covered
    counts = Counter([*fired, *passed])
    assert set(counts) == expected, f"{schedule.name} lost or invented a tick"
    assert set(counts.values()) <= {1}, f"{schedule.name} doubled a tick"
    return len(expected)


def all_runs(store: Store) -> Iterator[RunRecord]:
    cursor = None
    while True:
        page = store.find_runs(RunQuery(limit=1000, cursor=cursor))
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return

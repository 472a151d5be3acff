"""A node without file descriptors quarantines no schedule that it, or another node, can fire later.

Real processes, because their limits are the subject.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import DEFERRED, plan_or_defer
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store, Write
from tests import servers
from tests.conftest import server_url
from tests.faults.fleet import ROOT, opened, wait_until
from tests.isolation import own_place


@pytest.mark.parametrize("kind", ["sqlite", *servers.KINDS])
def test_a_node_without_file_descriptors_quarantines_no_healthy_schedule(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        check(f"sqlite:///{tmp_path / 'evenbeat.db'}")
        return
    with own_place(server_url(kind)) as url:
        check(url)


def check(url: str) -> None:
    with opened(url) as store:
        add(store, ScheduleRecord(name="warm-up", task="work", trigger="every 100ms"))
        with starved(url):
            # A zone that its process has not loaded.
            add(
                store, ScheduleRecord(name="far-away", task="work", trigger="* * * * * * tz=Antarctica/Troll")
            )
            wait_until(lambda: store.find_records("deferred"), "there is no note")
        assert store.find_records("quarantine") == []
        (note,) = store.find_records("deferred")
        assert (note.key, "Too many open files" in note.body) == ("far-away", True)
        (row,) = store.find_schedules(ScheduleQuery(name="far-away")).items
        assert row.wake_at is not None
        assert row.wake_at <= store.now() + DEFERRED
        # A healthy node, at the time to which the schedule was deferred.
        assert len(plan_or_defer(row, row.wake_at).runs) == 1
        assert store.find_runs(RunQuery(schedule="far-away")).items == ()


def add(store: Store, wanted: ScheduleRecord) -> None:
    assert store.put_schedules([Write(changes.create(wanted, store.now()), None)])[0].accepted


@contextmanager
def starved(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.faults.starved", url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != "starved\n":
                raise AssertionError(process.stderr.read())
            yield
            process.stdin.close()
            assert process.wait(60) == 0, process.stderr.read()
        finally:
            process.kill()

"""Processes that fire until nothing is due: the ticker of a node, or many claimers at once.

``python -m bench.claimers STORE THREADS LIMIT`` opens the store, prints a line when it is ready, begins when
it reads a line, and prints the figures of each call.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from bench.processes import ROOT
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Store, Write
from evenbeat.stores.urls import open_url

# The wait of a ticker when other nodes hold all rows that are due.
_AGAIN = 0.02
_BATCH = 1_000
_MINUTE = 60_000


class Work(msgspec.Struct):
    """The calls of a process, by the clock of the machine."""

    begin: float
    end: float
    """When its last call that fired something had come back."""
    calls: list[tuple[float, int]]
    """Seconds and ticks of each call that fired something."""


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_url(url)
    store.open()
    try:
        yield store
    finally:
        store.close()


def make_due(store: Store, count: int, name: str = "due") -> None:
    """Add schedules that tick once a day, each with one tick that was due ten minutes ago."""
    now = store.now()
    tick = time.gmtime(now / 1000 - 600)
    trigger = f"{tick.tm_min} {tick.tm_hour} * * *"
    for start in range(0, count, _BATCH):
        wanted = (
            ScheduleRecord(name=f"{name}-{number:06}", task="noop", trigger=trigger)
            for number in range(start, min(start + _BATCH, count))
        )
        made = store.put_schedules(
            [Write(changes.create(schedule, now - 20 * _MINUTE), None) for schedule in wanted]
        )
        assert all(written.accepted for written in made)


def fire(url: str, claimers: Sequence[int], limit: int) -> list[Work]:
    """Fire all that is due, by a process for each entry of ``claimers``; they begin when all are ready."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.claimers", url, str(threads), str(limit)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for threads in claimers
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        answers = [child.communicate(timeout=120)[0] for child in children]
        return [msgspec.json.decode(answer, type=Work) for answer in answers]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()


def _claim(store: Store, limit: int) -> list[tuple[float, float, int]]:
    """Fire until nothing is due; return (begin, end, ticks) of each call."""
    calls = []
    while True:
        now, begin = store.now(), time.time()
        fired = store.fire_due(now, limit, plan)
        if fired.planned:
            calls.append((begin, time.time(), sum(len(planned.runs) for planned in fired.planned)))
        elif fired.next_wake is not None and fired.next_wake <= now:
            time.sleep(_AGAIN)
        else:
            return calls


def _main(url: str, threads: int, limit: int) -> None:
    with opened(url) as store, ThreadPoolExecutor(threads) as pool:
        # Each thread connects before it is measured: nothing is due at time 0.
        list(pool.map(lambda _: store.fire_due(0, 1, plan), range(threads * 4)))
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.time()
        calls = [call for calls in pool.map(lambda _: _claim(store, limit), range(threads)) for call in calls]
        end = max((end for _, end, _ in calls), default=begin)
        print(msgspec.json.encode(Work(begin, end, [(e - b, ticks) for b, e, ticks in calls])).decode())


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

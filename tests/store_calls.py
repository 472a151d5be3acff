"""Short forms of calls to a store, for tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from evenbeat.core.records import LogChunk, Record, RunRecord, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Store, Write
from evenbeat.testing import VirtualClock

WAITER = """
import sys
from evenbeat.stores.urls import open_url
store = open_url(sys.argv[1])
store.open()
store.wait(0)
print("waiting", flush=True)
print(store.wait(60), flush=True)
store.close()
"""
"""A program that waits for a hint on the store of a URL."""


def add_schedules(store: Store, *names: str, **fields: Any) -> None:
    """Create schedules that fire every minute, unless ``fields`` say otherwise."""
    usual = {"task": "work", "trigger": "every 1m"}
    wanted = [ScheduleRecord(name=name, **{**usual, **fields}) for name in names]
    store.put_schedules([Write(changes.create(entry, store.now()), None) for entry in wanted])


def claim(store: Store, token: str = "c", limit: int = 10, **fields: Any) -> list[RunRecord]:
    """Claim due runs for 30 seconds."""
    wanted = {"worker": "w", "now": store.now(), "lease": 30_000, **fields}
    return list(store.claim_runs(Claim(token=token, limit=limit, **wanted)).runs)


def schedule_names(store: Store) -> list[str]:
    return [found.name for found in store.find_schedules(ScheduleQuery()).items]


def with_due_schedules(store: Store, clock: VirtualClock) -> None:
    """Create schedules of several kinds that have fired once and are due again."""
    add_schedules(store, "free", "other")
    add_schedules(store, "single", overlap="cancel_running")
    add_schedules(store, "late", trigger="every 10s")
    add_schedules(store, "broken")
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    clock.advance("1m")


def wait_until_receiving(store: Any) -> None:
    """Wait until hints of other processes arrive in this process."""
    deadline = time.monotonic() + 60
    while not store._waker.is_receiving:
        assert time.monotonic() < deadline, "hints do not arrive"
        store.wait(0.01)


class WaitingThread:
    """A thread that waits for a hint. Every hint that comes after the constructor returns ends its wait."""

    def __init__(self, store: Store, timeout: float = 60) -> None:
        self._woken: list[bool] = []
        self._thread = threading.Thread(target=self._wait, args=(store, timeout))
        self._is_ready = threading.Event()
        self._thread.start()
        assert self._is_ready.wait(60)

    def _wait(self, store: Store, timeout: float) -> None:
        store.wait(0)  # hints count from a thread's last wait
        self._is_ready.set()
        self._woken.append(store.wait(timeout))

    def is_woken(self) -> bool:
        """Return what the wait returned, when it has ended."""
        self._thread.join()
        return self._woken == [True]


def every_call(store: Store) -> dict[str, Callable[[], object]]:
    """Every operation of a store on rows, by name, to check how errors are reported."""
    run = RunRecord(id="a", task="work", attempt=1)
    chunk = LogChunk(run="a", attempt=1, seq=0, text="", at=0)
    return {
        "put_schedules": lambda: add_schedules(store, "a"),
        "find_schedules": lambda: store.find_schedules(ScheduleQuery()),
        "find_schedules late": lambda: store.find_schedules(ScheduleQuery(wakes_before=1)),
        "fire_due": lambda: store.fire_due(store.now(), 1, plan),
        "add_runs": lambda: store.add_runs([replace(run, id="b")]),
        "claim_runs": lambda: claim(store),
        "settle_runs": lambda: store.settle_runs([attempts.succeeded(run, None, 0, "t")]),
        "find_runs": lambda: store.find_runs(RunQuery()),
        "find_runs since": lambda: store.find_runs(RunQuery(since=1)),
        "find_runs ended": lambda: store.find_runs(RunQuery(finished_since=1)),
        "lost_runs": lambda: store.lost_runs(store.now(), 1),
        "count_runs": lambda: store.count_runs(),
        "count_queues": lambda: store.count_queues(1, 1),
        "count_tenants": lambda: store.count_tenants(),
        "count_tenants of one": lambda: store.count_tenants("a"),
        "find_skipped": lambda: store.find_skipped("default", "a"),
        "statistics": lambda: store.statistics([("default", "a")]),
        "purge": lambda: store.purge(1, 1),
        "purge_tenant": lambda: store.purge_tenant("default", ["k"], 1),
        "get_record": lambda: store.get_record("k", "default", "x"),
        "put_record": lambda: store.put_record(Record(kind="k", key="x", body="")),
        "find_records": lambda: store.find_records("k"),
        "find_records of a range": lambda: store.find_records("k", start="a", end="b", limit=1),
        "delete_record": lambda: store.delete_record("k", "default", "x", 1),
        "append_log": lambda: store.append_log([chunk]),
        "read_log": lambda: store.read_log("a"),
    }


class Crash(BaseException):
    """The process ends here, as far as the store can tell."""


class CommandLog:
    """An ``on_command`` that notes commands while it is on, and crashes at one of them."""

    def __init__(self, crash_at: int = -1, on: bool = True) -> None:
        self.seen: list[str] = []
        self.crash_at = crash_at
        self.on = on

    def __call__(self, name: str) -> None:
        if self.on:
            self.seen.append(name)
            if len(self.seen) - 1 == self.crash_at:
                raise Crash


def exit_code_of_child(work: Callable[[], object]) -> int:
    """The exit code of a forked child that does this and nothing else."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

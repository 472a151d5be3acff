"""Short forms of calls to a store, for tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, ScheduleQuery, Store, Write
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
    wanted = [ScheduleRecord(name=name, task="work", **{"trigger": "every 1m", **fields}) for name in names]
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

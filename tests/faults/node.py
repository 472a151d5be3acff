"""A node for fault tests: fires, claims, works, settles and reaps on one SQLite file until told to stop.

    python node.py DATABASE NAME [FAILPOINT]

A failpoint such as ``commit:3`` kills the process with SIGKILL when the store is about to send that
command for the third time; ``committed:3`` right after the third commit. What it did goes to stdout,
a JSON line each, written before the process can die.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from evenbeat.errors import StoreUnavailable
from evenbeat.model import Run, Transition
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.sqlite import SqliteStore

T = TypeVar("T")

LEASE = 1000
POLL = 0.01


class Node:
    def __init__(self, database: Path, name: str, failpoint: str | None) -> None:
        self.name = name
        self.tokens = (f"{name}-{os.getpid()}-{number}" for number in itertools.count())
        self.command, _, nth = (failpoint or "").partition(":")
        self.nth = int(nth or 0)
        self.seen: Counter[str] = Counter()
        self.store = SqliteStore(database, busy_timeout=0.5, on_command=self.on_command)
        self.store.open()

    def on_command(self, command: str) -> None:
        self.seen[command] += 1
        if command == self.command and self.seen[command] == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> int:
        """One turn of everything a node does; answers how much there was to do."""
        now = self.store.now()
        fired = self.store.fire_due(now, 50, plan).planned
        expired = self.store.find_runs(RunQuery(lease_ended_by=now, limit=20)).items
        self.settle("crashed", [attempts.crashed(run, now, next(self.tokens)) for run in expired])
        claim = Claim(worker=self.name, token=next(self.tokens), limit=20, now=now, lease=LEASE)
        claimed = self.repeated(lambda: self.store.claim_runs(claim)).runs
        for run in claimed:
            report("ran", run)
        now = self.store.now()
        self.settle("done", [attempts.succeeded(run, None, now, next(self.tokens)) for run in claimed])
        return len(fired) + len(expired) + len(claimed)

    def settle(self, what: str, transitions: list[Transition]) -> None:
        if not transitions:
            return
        accepted = self.repeated(lambda: self.store.settle_runs(transitions))
        for transition, was in zip(transitions, accepted, strict=True):
            report(f"{what} {'accepted' if was else 'refused'}", transition)

    def repeated(self, call: Callable[[], T]) -> T:
        """Repeat a call whose outcome is not known, with the same identities."""
        while True:
            try:
                return call()
            except StoreUnavailable:
                time.sleep(POLL)


def report(what: str, about: Run | Transition) -> None:
    run = about.id if isinstance(about, Run) else about.run
    line = json.dumps({"what": what, "run": run, "attempt": about.attempt}) + "\n"
    os.write(1, line.encode())


def main() -> None:
    database, name = Path(sys.argv[1]), sys.argv[2]
    node = Node(database, name, sys.argv[3] if len(sys.argv) > 3 else None)
    stop = database.with_suffix(".stop")
    while not stop.exists():
        try:
            busy = node.step()
        except StoreUnavailable:
            busy = 0
        if not busy:
            time.sleep(POLL)
    node.store.close()


if __name__ == "__main__":
    main()

"""Three nodes on one SQLite file, one of them killed: every tick becomes one run, and none is lost.

    python examples/exactly_once.py

Each node does by hand what a worker loop will do by itself: fire what is due, claim runs, execute them,
settle them, and take back the runs of nodes that died.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from evenbeat.errors import StoreUnavailable
from evenbeat.model import Schedule
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan, trigger_of
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.sqlite import SqliteStore

SCHEDULES = {"heartbeat": "every 500ms", "poll": "* * * * * *", "report": "*/3 * * * * *"}
NODES = 3
LEASE = 1_500
SECONDS = 9
KILL_AFTER = 4


def node(database: Path, name: str) -> None:
    """One node, until it is killed or the file ``stop`` appears beside the database."""
    store = SqliteStore(database)
    store.open()
    tokens = (f"{name}-{os.getpid()}-{number}" for number in itertools.count())
    while not (database.parent / "stop").exists():
        try:
            work(store, name, tokens)
        except StoreUnavailable:
            print(f"{name}: the file is locked, once more", flush=True)
        store.wait(0.05)
    store.close()


def work(store: SqliteStore, name: str, tokens: Iterator[str]) -> None:
    now = store.now()
    store.fire_due(now, 100, plan)
    expired = store.find_runs(RunQuery(lease_ended_by=now)).items
    store.settle_runs([attempts.crashed(run, now, next(tokens)) for run in expired])
    claim = Claim(worker=name, token=next(tokens), limit=3, now=now, lease=LEASE)
    for run in store.claim_runs(claim).runs:
        time.sleep(0.3)  # the job
        (held,) = store.settle_runs([attempts.succeeded(run, None, store.now(), next(tokens))])
        tick = datetime.fromtimestamp((run.tick or 0) / 1000, UTC)
        again = f", attempt {run.attempt}: its first worker died" if run.attempt > 1 else ""
        outcome = f"ran{again}" if held else "came too late: refused"
        print(
            f"{tick:%H:%M:%S}.{tick.microsecond // 100_000}  {name}  {run.schedule:9}  {outcome}", flush=True
        )


def main() -> None:
    console = Console(highlight=False)
    with TemporaryDirectory(prefix="evenbeat-demo-") as folder:
        database = Path(folder) / "evenbeat.db"
        store = SqliteStore(database)
        store.open()
        for name, trigger in SCHEDULES.items():
            wish = changes.create(Schedule(name=name, task="demo", trigger=trigger), store.now())
            store.put_schedules([Write(wish, None)])
        console.print(
            f"{NODES} nodes, one SQLite file: {', '.join(f'{n} ({t})' for n, t in SCHEDULES.items())}\n"
        )
        command = [sys.executable, __file__, str(database)]
        nodes = [subprocess.Popen([*command, f"node-{number}"]) for number in range(1, NODES + 1)]
        try:
            time.sleep(KILL_AFTER)
            while not any(
                run.worker == "node-1" for run in store.find_runs(RunQuery(states=("running",))).items
            ):
                time.sleep(0.01)  # in the middle of a job, of course
            nodes[0].kill()
            console.print("\n[bold red]kill -9 node-1[/bold red]: the others take over what it held\n")
            time.sleep(SECONDS - KILL_AFTER)
            pause(store)
            finish(store)
        finally:
            (database.parent / "stop").touch()
            for process in nodes:
                process.wait(10)
        account(store, console)
        store.close()


def pause(store: SqliteStore) -> None:
    for name in SCHEDULES:
        accepted = False
        while not accepted:  # a node may have fired it in between: look again
            (row,) = store.find_schedules(ScheduleQuery(name=name)).items
            accepted = store.put_schedules([Write(changes.pause(row, store.now()), row.version)])[0].accepted


def finish(store: SqliteStore) -> None:
    while {"queued", "running"} & store.count_runs().keys():
        time.sleep(0.1)


def account(store: SqliteStore, console: Console) -> None:
    """Every tick from the beginning to the pause: once as a run, or recorded as coalesced into one."""
    console.print()
    runs = store.find_runs(RunQuery(limit=1000)).items
    for row in store.find_schedules(ScheduleQuery(states=("paused",))).items:
        assert row.next_tick is not None
        expected = trigger_of(row).count_ms(row.created_at + 1, row.next_tick)
        ticks = Counter(run.tick for run in runs if run.schedule == row.name)
        coalesced = sum(skipped.count for skipped in store.find_skipped("default", row.name))
        twice = sum(1 for count in ticks.values() if count > 1)
        lost = expected - len(ticks) - coalesced
        console.print(
            f"{row.name:9}  {expected:3} ticks: {len(ticks)} ran, {coalesced} coalesced, "
            f"[bold green]{twice} twice, {lost} lost[/bold green]"
        )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        node(Path(sys.argv[1]), sys.argv[2])
    else:
        main()

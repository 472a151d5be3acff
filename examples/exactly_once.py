"""Three nodes on one SQLite file, one of them killed: no tick runs twice, and none is lost.

python examples/exactly_once.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from evenbeat import RunContext, Scheduler, parse_trigger

SCHEDULES = {"heartbeat": "every 500ms", "poll": "* * * * * *", "report": "*/3 * * * * *"}
NODES = 3
SECONDS = 9
KILL_AFTER = 4


def scheduler(database: Path) -> Scheduler:
    """Make the scheduler of a node. A short lease, so that it expires while the example runs."""
    app = Scheduler(f"sqlite:///{database}", lease="1500ms", thread_concurrency=2)

    @app.task
    def job(run: RunContext) -> None:
        time.sleep(0.3)
        again = f", attempt {run.attempt}: its first worker died" if run.attempt > 1 else ""
        print(
            f"{run.scheduled_at:%H:%M:%S.%f}"[:10], sys.argv[-1], f"{run.schedule:9} ran{again}", flush=True
        )

    return app


def main(console: Console, database: Path) -> None:
    app = scheduler(database)
    for name, trigger in SCHEDULES.items():
        app.schedules.add(name, trigger, "job")
    listed = ", ".join(f"{name} ({trigger})" for name, trigger in SCHEDULES.items())
    console.print(f"{NODES} nodes, one SQLite file: {listed}\n")
    command = [sys.executable, __file__, str(database)]
    nodes = [subprocess.Popen([*command, f"node-{number}"]) for number in range(1, NODES + 1)]
    try:
        time.sleep(KILL_AFTER)
        pid = f"-{nodes[0].pid}-"
        while not any(pid in (run.worker or "") for run in app.runs.list(state="running")):
            time.sleep(0.01)  # until it is in the middle of a job
        nodes[0].kill()
        console.print("\n[bold red]kill -9 node-1[/bold red]: the others take over its runs\n")
        time.sleep(SECONDS - KILL_AFTER)
        for name in SCHEDULES:
            app.schedules.pause(name)
        while {"queued", "running"} & app.runs.count().keys():
            time.sleep(0.1)
    finally:
        for process in nodes:
            process.terminate()
            process.wait(10)
    account(app, console)
    app.close()


def account(app: Scheduler, console: Console) -> None:
    """Count the ticks from the beginning to the pause: each ran once, or was coalesced into another one."""
    console.print()
    for schedule in app.schedules.list():
        assert schedule.next_run is not None
        ticks = Counter(run.tick for run in app.runs.list(schedule=schedule.name, limit=1000))
        coalesced = sum(skipped.count for skipped in app.schedules.skipped(schedule.name))
        since = int(schedule.created_at.timestamp() * 1000)
        trigger = parse_trigger(schedule.trigger).bind(schedule.name, since)
        expected = trigger.count_ms(since + 1, int(schedule.next_run.timestamp() * 1000))
        twice = sum(1 for count in ticks.values() if count > 1)
        lost = expected - len(ticks) - coalesced
        console.print(
            f"{schedule.name:9}  {expected:3} ticks: {len(ticks)} ran, {coalesced} coalesced, "
            f"[bold green]{twice} twice, {lost} lost[/bold green]"
        )
        assert (twice, lost) == (0, 0)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        scheduler(Path(sys.argv[1])).run()
    else:
        with TemporaryDirectory(prefix="evenbeat-example-") as folder:
            main(Console(highlight=False), Path(folder) / "evenbeat.db")

"""Two nodes on one store. One of them is killed in the middle of a job, and the other one takes over.

    python examples/takeover.py                    the whole example, on SQLite
    python examples/takeover.py postgresql://…     the same on a database of yours

Or by hand, in two terminals, and kill one of them:

    python examples/takeover.py URL node
    python examples/takeover.py URL job      a job to kill one of them in the middle of
    python examples/takeover.py URL end      delete the schedule
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from evenbeat import RunContext, Scheduler, every


def make_app(url: str) -> Scheduler:
    """Make the scheduler of a node. A short lease, so that it expires while the example runs."""
    app = Scheduler(url, lease="2s", thread_concurrency=2)

    @app.task(schedule=every("1s"))
    def heartbeat(run: RunContext) -> None:
        say(run, "tick")

    @app.task
    def count_stock(run: RunContext) -> None:
        if run.attempt > 1:
            say(run, f"attempt {run.attempt}: its first worker died, and this node took it over")
        for shelf in range(1, 6):
            time.sleep(0.5)
            say(run, f"shelf {shelf} of 5")

    return app


def say(run: RunContext, text: str) -> None:
    print(f"  {sys.argv[-1]:7} {run.task:12} {text}", flush=True)


def story(url: str, console: Console, script: str = __file__) -> None:
    """Start two nodes, kill the one that executes the job, and wait until the other one has finished it."""
    app = make_app(url)
    app.declare_tasks()
    job = app.enqueue("count_stock")
    console.print(f"two nodes on {app.url}\n")
    nodes = [subprocess.Popen([sys.executable, script, url, "node", f"node-{at}"]) for at in (1, 2)]
    try:
        while (held := app.runs.get(job.id)).worker is None:
            time.sleep(0.05)
        time.sleep(1.2)
        (victim,) = [node for node in nodes if f"-{node.pid}-" in held.worker]
        victim.kill()
        name = f"node-{nodes.index(victim) + 1}"
        console.print(f"\n[bold red]kill -9 {name}[/bold red], in the middle of its job\n")
        over = app.runs.join(job.id, timeout="60s")
        console.print(f"\n{over.task}: {over.state} at attempt {over.attempt}")
        app.schedules.pause("heartbeat")
        while {"queued", "running"} & app.runs.count().keys():
            time.sleep(0.1)
        ticks = [run.scheduled_at for run in app.runs.list(schedule="heartbeat", limit=1000)]
        assert over.state == "succeeded"
        assert len(ticks) == len(set(ticks)), "a tick ran twice"
        console.print(f"heartbeat: {len(ticks)} ticks, each ran once")
    finally:
        for node in nodes:
            node.kill()
            node.wait()
        app.schedules.delete("heartbeat")
        app.close()


def main(url: str | None, script: str = __file__) -> None:
    """Run the whole example, on this store or on SQLite; or only the part that the command line names."""
    app = make_app(url or "memory://")
    if "node" in sys.argv[1:]:
        app.run()
        return
    if "job" in sys.argv[1:]:
        app.enqueue("count_stock")
        return
    if "end" in sys.argv[1:]:
        app.schedules.delete("heartbeat")
        return
    if url is not None:
        story(url, Console(), script)
        return
    with TemporaryDirectory() as folder:
        story(f"sqlite:///{Path(folder) / 'evenbeat.db'}", Console(), script)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)

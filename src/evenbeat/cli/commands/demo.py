"""``evenbeat demo``: an app with jobs of every kind, live."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenbeat.cli.local import own_command
from evenbeat.core.durations import read_duration
from evenbeat.observe.phrases import span

if TYPE_CHECKING:
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.cli.live import LiveOutput

_UNWATCHED = "15s"


@click.command("demo")
@click.option("--for", "length", metavar="DURATION", help="Stop after this long, such as 30s.")
@click.option("--fresh", is_flag=True, help="Delete the database of the last time first.")
def command(length: str | None, fresh: bool) -> None:
    """Run jobs of every kind on an SQLite file, and watch.

    The file is evenbeat-demo.db, in this folder. Stop the demo with Ctrl-C, wait a while and start it again:
    each schedule catches up on missed ticks by its own policy. Without a terminal it stops after 15 seconds.
    """
    from evenbeat.cli.live import LiveOutput
    from evenbeat.demo.app import app, welcome
    from evenbeat.processes.signals import until_signalled

    if length is None and not sys.stdout.isatty():
        length = _UNWATCHED
    end = None if length is None else read_duration(length, "--for") / 1000
    if fresh:
        _forget()
    with LiveOutput(app) as live:
        live.write("Evenbeat: every tick, exactly once. Jobs of every kind, on evenbeat-demo.db.", "bold")
        _show_downtime(live, app)
        app.enqueue(welcome.bind(name="welcome to Evenbeat"))
        app.start()
        try:
            until_signalled(app.hurry, timeout=end)
        finally:
            live.write("stopping: running jobs may end, no new ones start (Ctrl-C again ends the wait) …")
            app.stop()
    counts = app.runs.count(all_tenants=True)
    app.close()
    over = ", ".join(
        f"{counts[state]:,} {state}" for state in ("succeeded", "failed", "queued") if state in counts
    )
    live.write(f"Stopped; evenbeat-demo.db has {over}.")
    live.write("Start it again after a while to see how it catches up on missed ticks. To look inside:")
    evenbeat = own_command()
    live.write(f"  {evenbeat} schedules list --store sqlite:///evenbeat-demo.db", "")
    live.write(f"  {evenbeat} runs list --store sqlite:///evenbeat-demo.db", "")


def _show_downtime(live: LiveOutput, app: Scheduler) -> None:
    """Show how long the demo was stopped."""
    last = app.runs.list(all_tenants=True, limit=1)
    if last:
        away = (datetime.now(UTC) - last[0].created_at).total_seconds()
        live.write(
            f"Stopped for {span(int(away) * 1000)}: watch what happens to the ticks of that time.", "yellow"
        )


def _forget() -> None:
    for name in ("evenbeat-demo.db", "evenbeat-demo.db-wal", "evenbeat-demo.db-shm"):
        Path(name).unlink(missing_ok=True)

"""``evenbeat demo``: an app with jobs of every kind, live, and the dashboard with a week of history."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.local import own_command
from evenbeat.core.durations import read_duration
from evenbeat.observe.phrases import measured, span

if TYPE_CHECKING:
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.cli.live import LiveOutput
    from evenbeat.web.serving import WebServer

_UNWATCHED = "15s"
_PORT = 8787
_MOST_PORTS = 20
"""How many ports are tried, from the default one on."""


@click.command("demo")
@click.option("--for", "length", metavar="DURATION", help="Stop after this long, such as 30s.")
@click.option("--fresh", is_flag=True, help="Delete the database of the last time first.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"The port of the dashboard; by default {_PORT}, or the next free one.",
)
@click.option("--no-web", is_flag=True, help="Don't serve the dashboard.")
@click.option("--page-follows", is_flag=True, hidden=True, help="make builds the page meanwhile.")
def command(length: str | None, fresh: bool, port: int | None, no_web: bool, page_follows: bool) -> None:
    """Run jobs of every kind on an SQLite file, and watch.

    The file is evenbeat-demo.db, in this folder. A new one gets a week of history first. The dashboard shows
    it on a loopback address, without tokens, if the extra "web" is installed.

    Stop the demo with Ctrl-C, wait a while and start it again: each schedule catches up on missed ticks by
    its own policy. Without a terminal it stops after 15 seconds.
    """
    from evenbeat.cli.live import LiveOutput
    from evenbeat.demo.app import app, welcome
    from evenbeat.demo.on_call import CHANNEL, OnCall
    from evenbeat.processes.signals import until_signalled

    if length is None and not sys.stdout.isatty():
        length = _UNWATCHED
    end = None if length is None else read_duration(length, "--for") / 1000
    if fresh:
        _forget()
    with (
        LiveOutput(app) as live,
        OnCall(lambda title: live.write(f"alert to {CHANNEL}: {title}", "bold yellow")),
    ):
        # The dashboard shows that a schedule of the code was edited by hand.
        logging.getLogger("evenbeat.app.declarations").setLevel(logging.CRITICAL)
        live.write("Evenbeat: every tick, exactly once. Jobs of every kind, on evenbeat-demo.db.", "bold")
        server = None if no_web else _bound_web(app, port, live.write, page_follows=page_follows)
        _write_history(live, app)
        if server is not None:
            # Not before: the server reads all schedules once, and then only those that change.
            server.start()
        page = None if server is None else PageWait(server.url, live.write)
        app.enqueue(welcome.bind(name="Ada"))
        app.start()
        try:
            until_signalled(app.hurry, timeout=end)
        finally:
            live.write("stopping: running jobs may end, no new ones start (Ctrl-C again ends the wait) …")
            if page is not None:
                page.stop()
            if server is not None:
                server.stop()
            app.stop()
    counts = app.runs.count(all_tenants=True)
    app.close()
    over = ", ".join(
        f"{counts[state]:,} {state}" for state in ("succeeded", "failed", "queued") if state in counts
    )
    live.write(f"Stopped; evenbeat-demo.db has {over}.")
    live.write("Start it again after a while to see how it catches up on missed ticks.")
    live.write("To look inside:")
    evenbeat = own_command()
    for question in ("attention", "why invoice-export", "schedules list", "runs list"):
        live.write_command(f"{evenbeat} {question} --store sqlite:///evenbeat-demo.db")


class PageWait:
    """Waits for the page of the dashboard if it is not built, and says when it is there.

    A thread: the command itself waits for a signal.
    """

    def __init__(self, url: str, write: Callable[[str, str], None], every: float = 1.0) -> None:
        self._url = url
        self._write = write
        self._every = every
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if not _has_page():
            self._thread = threading.Thread(target=self._wait, name="evenbeat-demo-page", daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        while not self._stopped.wait(self._every):
            if _has_page():
                self._write(f"The page is ready: {self._url}/", "bold green")
                return

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()


def _has_page() -> bool:
    from evenbeat.web import page

    return (page.BUILT / "index.html").is_file()


def _bound_web(
    app: Scheduler, port: int | None, write: Callable[[str, str], None], *, page_follows: bool = False
) -> WebServer | None:
    """Take a port for the dashboard and show its URL; None if the extra ``web`` is not installed.

    A browser that connects before the server starts waits until then.
    """
    try:
        from evenbeat.web import web_app
        from evenbeat.web.serving import CannotListen, WebServer, listen
    except ModuleNotFoundError as error:
        write(f"No dashboard: {error.name} is not installed (pip install 'evenbeat[web]').", "yellow")
        return None
    wanted = range(_PORT, _PORT + _MOST_PORTS) if port is None else (port,)
    bound = None
    for each in wanted:
        try:
            bound = listen("127.0.0.1", each)
            break
        except CannotListen as error:
            problem = error
    if bound is None:
        raise Failed(str(problem), "choose another port with --port, or leave the dashboard out: --no-web")
    server = WebServer(web_app(app, needs_token=False), bound)
    write(f"Dashboard: {server.url}/", "bold green")
    if not _has_page():
        building = "The page is being built; this takes about 20 seconds."
        write(building if page_follows else "The page is not built: run make ui", "yellow")
    return server


def _write_history(live: LiveOutput, app: Scheduler) -> None:
    """Write a week of history to a new file; of an older one, show how long the demo was stopped."""
    from evenbeat.demo.history import is_empty, write_history

    if not is_empty(app.store):
        _show_downtime(live, app)
        return
    live.write("Writing a week of history; the jobs start in some seconds …")
    began = time.monotonic()
    runs = write_history(app.store)
    took = measured((time.monotonic() - began) * 1000)
    live.write(f"A week of history: {runs:,} runs, written in {took}. The jobs start now.")


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

"""``evenbeat dev``: run an app, show its runs, restart it when its files change."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click

from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.option_flags import setting_flags

if TYPE_CHECKING:
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.config import Settings
    from evenbeat.node.settings import NodeOptions
    from evenbeat.web.serving import WebServer

_LOOK_EVERY = 0.4
# Only so many files of a folder are watched: looking must stay cheap.
_MOST_FILES = 2_000
# How long running jobs may take to end after a change: the editor waits for the restart.
_DRAIN = "3s"
_ALERTS = ("public_url", "allow_private_webhooks")


@click.command("dev")
@click.argument("app", metavar="[APP]", required=False)
@click.option("--no-reload", is_flag=True, help="Don't restart the app when a file changes.")
@click.option("--no-web", is_flag=True, help="Don't serve the dashboard and the REST API.")
@setting_flags(*_ALERTS)
@click.option(
    "--once", type=int, hidden=True, help="The descriptor that is closed when the watching process ends."
)
def command(app: str | None, no_reload: bool, no_web: bool, once: int | None, **flags: Any) -> None:
    """Run an app here, and restart it when its files change.

    APP is a file (app.py) or a module, with the name of the scheduler in it (shop.jobs:app); the setting
    "app" names it, too. The app runs in one process with a ticker and a worker; in production use 'evenbeat
    run'.

    The dashboard and the REST API are served beside it, on a loopback address and without tokens, if the
    extra "web" is installed.
    """
    from evenbeat.cli.store_input import settings_here

    settings = settings_here(app=app, **flags)
    target = settings["app"]
    if target is not None and target.partition(":")[0].endswith(".py"):
        file = Path(target.partition(":")[0]).expanduser()
        if not file.is_file():
            raise Failed(f"there is no file {file}", "give the file that has your Scheduler, like app.py")
    if target is None:
        raise click.UsageError(
            'which app? give a file, like app.py, or write app = "app.py" in evenbeat.toml'
        )
    if once is not None:
        from evenbeat.processes.signals import end_with

        end_with(once)
    if no_reload or once is not None:
        raise SystemExit(_serve(target, settings, with_web=not no_web, quick=once is not None))
    if not hasattr(os, "fork"):
        raise Failed(
            "restarting an app needs process groups, which this system does not have", "add --no-reload"
        )
    words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items() if value is not None]
    raise SystemExit(_Watch(target, [*(["--no-web"] if no_web else []), *words]).until_stopped())


def _serve(target: str, settings: Settings, *, with_web: bool, quick: bool) -> int:
    """Run the app until a signal comes."""
    from evenbeat.app.loading import load_app
    from evenbeat.cli.live import LiveOutput
    from evenbeat.cli.store_input import warn_of_other_store
    from evenbeat.cli.worker_warnings import worker_warnings
    from evenbeat.processes.signals import until_signalled

    app = load_app(target)
    warn_of_other_store(settings, app)
    names = (*_ALERTS, "schedule_mode")
    options = cast("NodeOptions", {name: settings[name] for name in names if settings.is_set(name)})
    if "schedule_mode" in options:
        app.declare_mode(options["schedule_mode"])
    with LiveOutput(app) as live:
        tasks = ", ".join(sorted(task.name for task in app.tasks))
        live.write(f"Evenbeat runs {target} on {app.url}", "bold")
        live.write(f"tasks: {tasks or 'none; register some with @app.task'}")
        for warning in worker_warnings(app.tasks, app.node_settings()) if tasks else ():
            live.write(f"warning: {warning}", "yellow")
        server = _started_web(app, settings, live.write) if with_web else None
        app.alerts.declare_config(settings.alerts)
        if (file := settings.schedule_file()) is not None:
            app.declare_file(file)
        app.start(**options)
        try:
            until_signalled(app.hurry)
        finally:
            if server is not None:
                server.stop()
            app.stop(_DRAIN if quick else None)
            app.close()
    return ExitCode.OK


def _started_web(app: Scheduler, settings: Settings, write: Callable[[str], None]) -> WebServer | None:
    """Serve the API on a loopback address, without tokens; None if the extra ``web`` is not installed."""
    try:
        from evenbeat.web import web_app
        from evenbeat.web.serving import CannotListen, WebServer, check_bind, listen
    except ModuleNotFoundError as error:
        write(f"no dashboard: {error.name} is not installed (pip install 'evenbeat[web]')")
        return None
    web = web_app(
        app, needs_token=False, **{name: settings[name] for name in _ALERTS if settings.is_set(name)}
    )
    host, port = settings["web_host"], settings["web_port"]
    check_bind(host, web.state.settings)
    try:
        bound = listen(host, port)
    except CannotListen:
        bound = listen(host, 0)  # another app is being developed on this machine
    server = WebServer(web, bound)
    server.start()
    write(server.places)
    return server


class _Watch:
    """Runs the app in a process of its own, and restarts that after each change."""

    def __init__(self, target: str, options: list[str]) -> None:
        self._target = target
        self._options = options
        self._folder = _folder_of(target)
        self._signals: list[int] = []
        # Nothing is ever written: the app's end of the pipe reads an end of file when this process is gone.
        self._alive = os.pipe()

    def until_stopped(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note)
        seen = _stamps(self._folder)
        child = self._start()
        while not self._signals:
            time.sleep(_LOOK_EVERY)
            now = _stamps(self._folder)
            changed = sorted({path for path, _ in now.items() ^ seen.items()})
            seen = now
            if changed:
                self._end(child)
                self._write(f"{os.path.relpath(changed[0])} changed: restarting")
                child = self._start()
            elif child.poll() is not None and not self._signals:
                self._write("the app ended: waiting for a change of its files (Ctrl-C stops)")
                while child.poll() is not None and not self._signals and _stamps(self._folder) == seen:
                    time.sleep(_LOOK_EVERY)
        self._end(child)
        return child.returncode if child.returncode and child.returncode > 0 else ExitCode.OK

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _start(self) -> subprocess.Popen[bytes]:
        reading = self._alive[0]
        command = [sys.executable, "-m", "evenbeat", "dev", *self._options]
        command += ["--once", str(reading), self._target]
        # Not in the terminal's process group: this process passes Ctrl-C on, once.
        return subprocess.Popen(command, process_group=0, pass_fds=(reading,))  # noqa: S603  # ourselves

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Let the app drain; a further signal ends the wait."""
        passed_on = len(self._signals)
        if child.poll() is None:
            child.terminate()
        while child.poll() is None:
            time.sleep(0.02)
            if len(self._signals) > max(1, passed_on):
                passed_on = len(self._signals)
                child.terminate()

    def _write(self, text: str) -> None:
        click.echo(click.style(text, dim=True))


def _folder_of(target: str) -> Path:
    """Return the folder of the app's file, or the working directory."""
    path = Path(target.rpartition(":")[0] or target)
    return path.parent.resolve() if path.suffix == ".py" and path.parent.is_dir() else Path.cwd()


def _stamps(folder: Path) -> dict[Path, int]:
    """Return the Python files below a folder, and when they were changed."""
    stamps: dict[Path, int] = {}
    for path in _sources(folder):
        try:
            stamps[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # deleted in between
        if len(stamps) >= _MOST_FILES:
            break
    return stamps


def _sources(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        # Nobody edits environments, caches and version control.
        hidden = (".", "__pycache__", "node_modules", "site-packages", "venv")
        folders[:] = sorted(name for name in folders if not name.startswith(hidden))
        yield from (Path(place, name) for name in sorted(files) if name.endswith((".py", ".toml")))

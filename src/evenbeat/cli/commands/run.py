"""``evenbeat run``: an app in production, in processes that are supervised."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.option_flags import setting_flags
from evenbeat.core.options import NODE

if TYPE_CHECKING:
    from evenbeat.config import Settings
    from evenbeat.supervision.supervisor import Supervisor

_HEALTH = ("health_port", "health_host")
_WEB = ("web_host", "web_port", "web_hosts", "web_proxies", "web_metrics", "metrics_schedules")


@click.command("run")
@click.argument("app", metavar="[APP]", required=False)
@click.option("--no-ticker", is_flag=True, help="Fire no schedules: only execute runs.")
@click.option("--no-worker", is_flag=True, help="Execute no runs: only fire schedules.")
@click.option("--web", is_flag=True, help="Serve the dashboard and the REST API in a process of their own.")
@setting_flags("processes", *NODE, "wait_for_store", *_HEALTH, *_WEB, "log_format", "log_level")
def command(app: str | None, no_ticker: bool, no_worker: bool, web: bool, **flags: Any) -> int:
    """Run an app: fire its schedules, execute its tasks.

    APP is a file (app.py) or a module (shop.jobs), with the name of the scheduler where there are several
    (app.py:app); the setting "app" names it, too. Flags override EVENBEAT_* variables, these override
    evenbeat.toml, and that overrides the code. The store is the exception: one that the code names stays.

    This process executes nothing itself: it supervises processes that do. It keeps their leases alive,
    whatever a task does, releases the runs of a process that died at once, and starts the next one. SIGTERM,
    Ctrl-C or SIGHUP (the terminal was closed) drains; a second one ends the wait.
    """
    if no_ticker and no_worker:
        raise click.UsageError("--no-ticker and --no-worker leave nothing to do")
    if not hasattr(os, "fork"):
        raise Failed(
            "evenbeat run supervises processes by means that this system does not have",
            "start a program of your own that calls app.run(): it is a node, too",
        )
    from evenbeat.app.loading import load_app
    from evenbeat.cli.store_input import warn_of_other_store
    from evenbeat.cli.worker_warnings import worker_warnings
    from evenbeat.config import read_settings
    from evenbeat.core.durations import read_duration
    from evenbeat.node.settings import node_options
    from evenbeat.observe import logs
    from evenbeat.supervision.node_process import Begin
    from evenbeat.supervision.supervisor import Supervisor

    settings = read_settings({"app": app, **flags})
    target = settings["app"]
    if target is None:
        raise click.UsageError(
            'which app? give a file, like app.py, or write app = "app.py" in evenbeat.toml'
        )
    form, level = settings["log_format"], settings["log_level"].upper()
    logs.configure(form, level)
    begin = Begin(
        app=target,
        ticker=not no_ticker,
        worker=not no_worker,
        options=dict(node_options(settings)),
        alerts=settings.alerts,
        schedules=settings.schedule_file(),
        log_format=form,
        log_level=level,
    )
    loaded = load_app(target)
    warn_of_other_store(settings, loaded)
    loaded.alerts.declare_config(settings.alerts)  # refuses wrong values; the nodes write it
    if begin.schedules is not None:
        loaded.declare_file(begin.schedules)
    log = logging.getLogger("evenbeat.cli")
    log.info("running", extra={"app": target, "store": loaded.url})
    if begin.worker:
        for warning in worker_warnings(loaded.tasks, loaded.node_settings(**begin.options)):
            log.warning(warning)
    patience = read_duration(settings["wait_for_store"], "wait_for_store")
    port = settings["health_port"]
    supervisor = Supervisor(
        loaded,
        begin,
        settings["processes"],
        wait_for_store=patience,
        health_address=None if port is None else (settings["health_host"], port),
    )
    return _with_web(supervisor, target, settings) if web else supervisor.run()


def _with_web(supervisor: Supervisor, target: str, settings: Settings) -> int:
    """Run the supervisor, and beside it a process that serves the API with the same settings."""
    from evenbeat.supervision.web_process import WebProcess

    names = (*_WEB, "public_url", "allow_private_webhooks", "log_format", "log_level")
    given = [f"--{name.replace('_', '-')}={_flag(settings[name])}" for name in names if settings.is_set(name)]
    api = WebProcess([target, *given])
    api.start()
    try:
        return supervisor.run()
    finally:
        api.stop()


def _flag(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)

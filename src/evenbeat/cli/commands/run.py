"""``evenbeat run``: an app in production, in processes that are supervised."""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from evenbeat.cli.failures import Failed
from evenbeat.config import LOG_FORMATS, LOG_LEVELS


@click.command("run")
@click.argument("app", metavar="[APP]", required=False)
@click.option("--processes", type=int, metavar="N", help="How many processes, each with its own node (1).")
@click.option("--no-ticker", is_flag=True, help="Fire no schedules: only execute runs.")
@click.option("--no-worker", is_flag=True, help="Execute no runs: only fire schedules.")
@click.option("--queues", metavar="A,B", help="The queues to take runs from (default).")
@click.option(
    "--thread-concurrency", type=int, metavar="N", help="How many def tasks at once, per process (10)."
)
@click.option(
    "--async-concurrency",
    type=int,
    metavar="N",
    help="How many async def tasks at once, per process (100). An API that they call gets as many requests "
    "at once: lower it for one that limits them.",
)
@click.option(
    "--process-concurrency",
    type=int,
    metavar="N",
    help="How many tasks at once in processes of their own (cores).",
)
@click.option(
    "--lease", metavar="TIME", help="How long a run stays with a worker that is not heard of (30s)."
)
@click.option(
    "--drain-timeout", metavar="TIME", help="How long running jobs may take to end at a stop (30s)."
)
@click.option(
    "--wait-for-store",
    metavar="TIME",
    help="How long to wait for a database that is away at the start (60s).",
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="text for people, json for programs.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), help="info, unless said.")
def command(app: str | None, no_ticker: bool, no_worker: bool, **flags: Any) -> int:
    """Run an app: fire its schedules, execute its tasks.

    APP is a file (app.py) or a module (shop.jobs), with the name of the scheduler where there are several
    (app.py:app); evenbeat.toml can say it, too. Flags go before EVENBEAT_* variables, these before
    evenbeat.toml, and that before what the code says; but a store that the code names is the store.

    The work is done in processes that this one supervises: it keeps their leases alive whatever a job
    does, hands back the runs of one that died at once, and starts the next. SIGTERM, Ctrl-C or SIGHUP (the
    terminal was closed) drains; a second one hurries.
    """
    if no_ticker and no_worker:
        raise click.UsageError("--no-ticker and --no-worker leave nothing to do")
    if not hasattr(os, "fork"):
        raise Failed(
            "evenbeat run supervises processes by means that this system does not have",
            "write a program with app.run() in it and start that: it is a node, too",
        )
    from evenbeat.app.loading import load_app
    from evenbeat.cli.store_input import warn_of_other_store
    from evenbeat.cli.unserved import unserved
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
        log_format=form,
        log_level=level,
    )
    loaded = load_app(target)
    warn_of_other_store(settings, loaded)
    log = logging.getLogger("evenbeat.cli")
    log.info("running", extra={"app": target, "store": loaded.url})
    if begin.worker:
        for warning in unserved(loaded.tasks, loaded.node_settings(**begin.options)):
            log.warning(warning)
    patience = read_duration(settings["wait_for_store"], "wait_for_store")
    return Supervisor(loaded, begin, settings["processes"], wait_for_store=patience).run()

"""``evenbeat documents run``: a processor in production."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.config import LOG_FORMATS, LOG_LEVELS


@click.command("run")
@click.argument("processor", metavar="PROCESSOR")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="text for people, json for programs.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), help="info, unless said.")
def command(processor: str, **flags: Any) -> int:
    """Run a processor: handle the documents that are due.

    PROCESSOR is a file (orders.py) or a module (shop.orders), with the name of the processor where there are
    several (orders.py:processor). Start as many of these as you like, on as many machines: each document is
    processed by one at a time.

    SIGTERM or Ctrl-C takes nothing more and waits for the documents in hand. A second one does not wait: what
    was in hand is processed again when its lock has ended.
    """
    from evenbeat.app.loading import load_processor
    from evenbeat.config import read_settings
    from evenbeat.observe import logs

    settings = read_settings(flags)
    logs.configure(settings["log_format"], settings["log_level"].upper())
    return 0 if load_processor(processor).run() else 1

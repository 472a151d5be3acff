"""``evenbeat documents run``: run a processor until a signal stops it."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.option_flags import setting_flags


@click.command("run")
@click.argument("processor", metavar="PROCESSOR")
@setting_flags("log_format", "log_level")
def command(processor: str, **flags: Any) -> int:
    """Run a processor: process the documents that are due.

    PROCESSOR is a file (orders.py) or a module (shop.orders), with the name of the processor if it has
    several (orders.py:processor). Start as many of these as you like, on as many machines as you like: one at
    a time processes each document.

    On SIGTERM or Ctrl-C, the processor takes no more documents and waits for the handlers that run. On
    a second signal it does not wait: their documents are processed again when their locks end.
    """
    from evenbeat.app.loading import load_processor
    from evenbeat.config import read_settings
    from evenbeat.observe import logs

    settings = read_settings(flags)
    logs.configure(settings["log_format"], settings["log_level"].upper())
    return 0 if load_processor(processor).run() else 1

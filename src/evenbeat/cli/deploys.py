"""``plan`` and ``apply``: their options, the app and the file that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from evenbeat.app.acting import acting_as, this_user
from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.output import json_option
from evenbeat.cli.store_input import find_store, settings_here, store_option, warn_of_other_store
from evenbeat.core.checks import check_label

_Function = TypeVar("_Function", bound=Callable[..., Any])


def deploy_options(function: _Function) -> _Function:
    """Add APP and the options that ``plan`` and ``apply`` share."""
    options = (
        click.argument("app", required=False),
        click.option(
            "--file",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            show_default="the setting schedules_file",
            help="A TOML file with tables [schedules.NAME].",
        ),
        click.option(
            "--source",
            metavar="LABEL",
            show_default="that of the file, else of the app",
            help="The label under which the schedules of the file are managed.",
        ),
        click.option(
            "--prune",
            is_flag=True,
            help="Remove schedules that the same code or file declared once, and does not any more.",
        ),
        click.option(
            "--adopt",
            is_flag=True,
            help="Take over schedules that were made by hand, or that another source declares.",
        ),
        click.option(
            "--tenant",
            metavar="TENANT",
            callback=_label,
            show_default="all",
            help="Only the schedules of this tenant.",
        ),
        store_option,
        json_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


def _label(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        check_label(value, f"--{parameter.name}")
    return value


@contextmanager
def opened_app(app: str | None, file: str | None, store: str | None) -> Iterator[Scheduler]:
    """Yield the app that the argument or the settings name, with the file that they name, and close it.

    Without an app, it is a scheduler on the store, and only the file declares something.
    """
    settings = settings_here(app=app, store=store)
    if settings.is_set("app"):
        from evenbeat.app.loading import load_app

        scheduler = load_app(settings["app"])
        warn_of_other_store(settings, scheduler)
    else:
        scheduler = Scheduler(find_store(settings).store, tenant=settings["tenant"])
    if file is None and (found := settings.schedule_file()) is not None:
        scheduler.declare_file(found)
    try:
        with acting_as(this_user(), "cli"):
            yield scheduler
    finally:
        scheduler.close()

"""``plan`` and ``apply``: their options, the app and the file that they name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from evenbeat.app.acting import acting_as, this_user
from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.output import json_option
from evenbeat.cli.store_input import find_store, settings_here, store_option, warn_of_other_store
from evenbeat.config import read_settings
from evenbeat.core.checks import check_label
from evenbeat.core.deploys import DeployPlan, DeployResult, PlanEntry
from evenbeat.stores.urls import without_password

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
    if settings.is_set("schedule_mode"):
        scheduler.declare_mode(settings["schedule_mode"])
    if file is None and (found := settings.schedule_file()) is not None:
        scheduler.declare_file(found)
    try:
        with acting_as(this_user(), "cli"):
            yield scheduler
    finally:
        scheduler.close()


def pasted_plan(plan: DeployPlan, app: Scheduler) -> DeployPlan:
    """Return the plan with commands that work when they are pasted: with the options of this command."""
    return replace(plan, entries=tuple(_pasted(entry, app) for entry in plan.entries))


def pasted_result(result: DeployResult, app: Scheduler) -> DeployResult:
    """Return the result with commands that work when they are pasted, as in ``pasted_plan``."""
    return replace(
        result,
        left=tuple(_pasted(entry, app) for entry in result.left),
        refused=tuple(
            each if each.entry is None else replace(each, entry=_pasted(each.entry, app))
            for each in result.refused
        ),
    )


def _pasted(entry: PlanEntry, app: Scheduler) -> PlanEntry:
    if not entry.command:
        return entry
    given = click.get_current_context().params
    words: list[str] = []
    store = None if given["store"] is None else without_password(given["store"])
    if entry.command.startswith("evenbeat apply"):
        words += [] if given["app"] is None else [given["app"]]
        for name in ("file", "source", "tenant"):
            words += [] if given[name] is None else [f"--{name}", given[name]]
    elif given["app"] is not None and "://" in app.url:
        # Other commands don't take APP. A store that the code made itself has no URL.
        store = None if app.url == read_settings({}).of("store").shown else app.url
    words += [] if store is None else ["--store", store]
    return replace(entry, command=" ".join((entry.command, *map(shlex.quote, words))))

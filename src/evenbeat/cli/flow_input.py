"""Flows on the command line: the app that registers them, their names, and errors about what is missing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, TypeVar

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.failures import Failed
from evenbeat.cli.store_input import settings_here, store_options
from evenbeat.config import read_settings
from evenbeat.core.flows import FlowInfo
from evenbeat.errors import InvalidValue, shown

_Function = TypeVar("_Function", bound=Callable[..., Any])

app_option = click.option(
    "--app",
    "app_name",
    metavar="TEXT",
    help='The app that registers the flow: app.py or shop.jobs:app.  [default: the setting "app"]',
)


def flow_options(function: _Function) -> _Function:
    """Add --app, --store and --tenant."""
    return app_option(store_options(function))


def app_here(app_name: str | None) -> Scheduler | None:
    """Return the app that the flag or the settings name, whose store stays closed; None without one."""
    settings = settings_here(app=app_name)
    if not settings.is_set("app"):
        return None
    from evenbeat.app.loading import load_app

    return load_app(settings["app"])


def needed_app(app_name: str | None) -> Scheduler:
    """Return the app; refuse the command without one: only code knows which flows there are."""
    app = app_here(app_name)
    if app is None:
        raise Failed(
            "which app? flows are registered by code, which a store does not contain",
            "name the app with --app or EVENBEAT_APP",
        )
    return app


def flow_of(app: Scheduler, name: str) -> FlowInfo:
    """Return a flow of an app; refuse the name of a task, and a name that the app does not have."""
    task = app.tasks.get(name)
    if task is not None and task.kind != "flow":
        raise InvalidValue(
            f"{shown(name)} is a task, not a flow",
            field="flow",
            value=name,
            hint=f"'evenbeat runs enqueue {name}' adds a run of it",
        )
    return app.flows.get(name)


def neither_flow_nor_run(app: Scheduler | None, name: str) -> Failed:
    """Return the failure of a name that is neither a flow of the app nor the id of a run."""
    if app is None:
        return Failed(
            f"there is no run {name}", "for a flow, name the app that registers it with --app or EVENBEAT_APP"
        )
    names = [flow.name for flow in app.flows.list()]
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"the app has: {', '.join(names) or 'no flow'}"
    return Failed(f"there is neither a flow nor a run {name}", hint)


def complete_flow(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return names of flows for the shell. After any error there are none: completion never fails."""
    with suppress(Exception):
        settings = read_settings({"app": ctx.params.get("app_name")})
        if settings.is_set("app"):
            from evenbeat.app.loading import load_app

            names = [flow.name for flow in load_app(settings["app"]).flows.list()]
            return [name for name in names if name.startswith(incomplete)]
    return []

"""The options that say what a retention rule is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from evenbeat.core.retention import ENDED_STATES

F = TypeVar("F", bound=Callable[..., Any])


def subject_options(function: F) -> F:
    """Add ``--state`` and ``--tenant``. Without them, a rule is about all ended runs."""
    state = click.option("--state", type=click.Choice(ENDED_STATES), help="Runs that ended so; default: all.")
    tenant = click.option(
        "--tenant", metavar="NAME", help="The runs of this tenant; default: of all tenants."
    )
    return state(tenant(function))

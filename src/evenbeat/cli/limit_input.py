"""The flags that name a limit, and the failure if there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from evenbeat.cli.failures import Failed
from evenbeat.record_errors import LimitNotFound

_Function = TypeVar("_Function", bound=Callable[..., Any])


def limit_names(function: _Function) -> _Function:
    """Add --task, --queue, --tenant and --key."""
    for option in (
        click.option("--key", metavar="FIELD", help="A field of the payload: one limit for each value."),
        click.option("--tenant", metavar="NAME", help="Runs of this tenant."),
        click.option("--queue", metavar="NAME", help="Runs in this queue."),
        click.option("--task", metavar="NAME", help="Runs of this task."),
    ):
        function = option(function)
    return function


@contextmanager
def finding_limit() -> Iterator[None]:
    """Report a limit that does not exist, with the nearest name."""
    try:
        yield
    except LimitNotFound as error:
        problem = f'there is no limit "{error.limit}"'
        raise Failed(problem, error.hint or "'evenbeat limits list' shows those that exist") from error

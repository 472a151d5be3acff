"""The options of runs and schedules as flags: those of ``evenbeat.tasks.options``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

import click

from evenbeat.core.records import CatchUpKind, OnCrash, Overlap
from evenbeat.tasks.options import RUN, SCHEDULE

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Name, what it takes, what it does.
_FLAGS: dict[str, tuple[Any, str | None, str]] = {
    "description": (str, "TEXT", "What it is for."),
    "catch_up": (click.Choice(get_args(CatchUpKind)), None, "What becomes of missed ticks."),
    "grace": (str, "DURATION", "With catch-up skip: ticks no later than this still run."),
    "catch_up_limit": (int, "COUNT", "With catch-up all: no more than this many."),
    "overlap": (click.Choice(get_args(Overlap)), None, "While the last run is still active."),
    "max_concurrent": (int, "COUNT", "No more runs of it at once."),
    "spread": (str, "DURATION", "Fire up to this much later, by an amount of its own."),
    "retries": (int, "COUNT", "How many times a failed run is tried again."),
    "backoff": (str, "DURATION", "The wait before the first retry; it doubles."),
    "max_backoff": (str, "DURATION", "No wait is longer."),
    "timeout": (str, "DURATION", "A run that takes longer is stopped and has failed."),
    "on_crash": (click.Choice(get_args(OnCrash)), None, "When the worker of a run dies."),
    "max_crashes": (int, "COUNT", "How many times at most it is then run again."),
    "queue": (str, "NAME", "The queue of its runs."),
    "priority": (str, "0-9", "Of its runs: higher first; also low, normal, high."),
}


def schedule_options(function: _Function) -> _Function:
    """All of ``ScheduleOptions``."""
    return _flags(function, SCHEDULE)


def run_options(function: _Function) -> _Function:
    """All of ``RunOptions``."""
    return _flags(function, RUN)


def _flags(function: _Function, names: tuple[str, ...]) -> _Function:
    for name, (kind, metavar, words) in reversed(_FLAGS.items()):
        if name in names:
            flag = f"--{name.replace('_', '-')}"
            function = click.option(flag, name, type=kind, metavar=metavar, help=words)(function)
    return function


def said(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as ``app`` takes them."""
    given = {key: value for key, value in options.items() if value is not None}
    if str(given.get("priority", "")).isdigit():
        given["priority"] = int(given["priority"])
    return given

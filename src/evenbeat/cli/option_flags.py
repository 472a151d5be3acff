"""Options as flags: made from the descriptions in ``evenbeat.core.options``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from evenbeat.core.option import Option
from evenbeat.core.options import NEW_SCHEDULE, RUN, SCHEDULE, SETTINGS

_Function = TypeVar("_Function", bound=Callable[..., Any])

# By kind: the type of the value, and what the help shows in its place.
_TAKES: dict[str, tuple[Any, str]] = {
    "count": (int, "N"),
    "duration": (str, "DURATION"),
    "label": (str, "NAME"),
    "labels": (str, "A,B"),
    "hosts": (str, "A,B"),
    "tags": (str, "A,B"),
    "priority": (str, "0-9"),
    "text": (str, "TEXT"),
    "url": (str, "URL"),
    "web_url": (str, "URL"),
    "rate": (str, "RATE"),
    "after": (str, "TEXT"),
}


def added(*options: Callable[[Any], Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds arguments and options, which the help lists in this order."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def run_options(function: _Function) -> _Function:
    """Add all of ``RunOptions``."""
    return _add(function, *RUN.values())


def schedule_options(function: _Function) -> _Function:
    """Add all of ``ScheduleOptions``."""
    return _add(function, *SCHEDULE.values())


def new_schedule_options(function: _Function) -> _Function:
    """Add all of ``NewScheduleOptions``."""
    return _add(function, *NEW_SCHEDULE.values())


def setting_flags(*names: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the flags of these settings; their help shows the defaults."""

    def decorate(function: _Function) -> _Function:
        return _add(function, *(SETTINGS[name] for name in names), with_default=True)

    return decorate


def setting_override(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds a flag that overrides the setting of this name."""
    option = SETTINGS[name]
    metavar = _TAKES[option.kind][1]
    words = f'{option.help}  [default: the setting "{name}"]'
    return click.option(f"--{name}", name, metavar=metavar, help=words)


def _add(function: _Function, *options: Option, with_default: bool = False) -> _Function:
    for option in reversed(options):
        function = _flag(option, with_default)(function)
    return function


def _flag(option: Option, with_default: bool) -> Callable[[_Function], _Function]:
    name, words = f"--{option.name.replace('_', '-')}", option.help.replace("`", "")
    if option.kind == "flag":
        return click.option(name, option.name, is_flag=True, default=None, help=words)
    if with_default:
        words = f"{words}  [default: {option.shown_default}]"
    if option.kind == "choice":
        choice = click.Choice(option.choices, case_sensitive=False)
        return click.option(name, option.name, type=choice, help=words)
    kind, metavar = _TAKES[option.kind]
    return click.option(name, option.name, type=kind, metavar=metavar, help=words)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as ``app`` takes them."""
    found = {key: value for key, value in options.items() if value is not None}
    if str(found.get("priority", "")).isdigit():
        found["priority"] = int(found["priority"])
    if "tags" in found:
        found["tags"] = [tag.strip() for tag in found["tags"].split(",") if tag.strip()]
    return found

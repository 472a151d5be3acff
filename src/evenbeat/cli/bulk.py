"""Commands with ``--all``: count the runs or schedules that match, ask, act and report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from evenbeat.app.bulk import MOST_AT_ONCE
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, show_before_asking
from evenbeat.cli.phrases import warning_lines
from evenbeat.core.json_form import json_form
from evenbeat.core.results import BulkResult
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType

_Item = TypeVar("_Item")

_REFUSED = 10


class BulkAction(NamedTuple, Generic[_Item]):
    """An action on many runs or schedules, and its words."""

    name: str
    """``retry``"""
    noun: str
    """``run`` or ``schedule``."""
    done: str
    """``queued {items} again``: the report."""
    table: Callable[[Sequence[_Item], LocalTime], RenderableType]
    """Shows a few of the items."""


def limit_option(noun: str) -> Callable[[Any], Any]:
    """Return ``--limit`` of commands with ``--all``."""
    return click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1),
        default=MOST_AT_ONCE,
        show_default=True,
        help=f"With --all: at most this many {noun}s.",
    )


def act_on_all(
    action: BulkAction[_Item],
    on_all: Callable[..., BulkResult[_Item]],
    local: LocalTime,
    *,
    yes: bool,
    as_json: bool,
) -> ExitCode:
    """Count and ask, unless ``yes``; then act on all and report. ``on_all`` takes ``dry_run``."""
    result = on_all(dry_run=not yes)
    if not yes and result.matched:
        _ask(action, result, local, as_json=as_json)
        result = on_all(dry_run=False)
    answer(json_form(result), lambda: _report(action, result), as_json=as_json)
    return ExitCode.FAILED if result.refused else ExitCode.OK


def _ask(action: BulkAction[_Item], found: BulkResult[_Item], local: LocalTime, *, as_json: bool) -> None:
    """Show on stderr what matches; go on only after a yes."""
    number = f"{'more than ' if found.more else ''}{count(found.matched, action.noun)}"
    if as_json or not sys.stdin.isatty():
        raise Failed(
            f"nothing was done: {number} {'matches' if found.matched == 1 else 'match'}",
            f"add --yes to {action.name} them",
        )
    show_before_asking(_sample(action, found, local))
    click.confirm(f"{action.name} {number}?", abort=True, err=True)


def _sample(
    action: BulkAction[_Item], found: BulkResult[_Item], local: LocalTime
) -> Iterable[RenderableType]:
    yield action.table(found.sample, local)
    if found.matched > len(found.sample):
        yield f"and {found.matched - len(found.sample):,} more"
    yield ""
    yield from warning_lines(found.warnings)


def _report(action: BulkAction[_Item], result: BulkResult[_Item]) -> Iterable[RenderableType]:
    if not result.matched:
        yield f"there are no such {action.noun}s to {action.name}"
        return
    yield action.done.format(items=count(result.done, action.noun))
    if result.refused:
        yield f"left {count(len(result.refused), action.noun)} alone:"
        for refused in result.refused[:_REFUSED]:
            yield f"  {refused.why}"
        if len(result.refused) > _REFUSED:
            yield f"  and {len(result.refused) - _REFUSED:,} more"
    if result.more:
        yield "there are more: run it again, or with a higher --limit"
    yield from warning_lines(result.warnings)

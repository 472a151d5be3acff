"""Commands with ``--all``: count the runs or schedules that match, ask, act and report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from evenbeat.app.bulk import MOST_AT_ONCE
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.layout import indented
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, show_before_asking
from evenbeat.cli.phrases import warning_lines
from evenbeat.cli.progress import bulk_progress
from evenbeat.core.json_form import json_form
from evenbeat.core.results import BulkResult, RefusedItem
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
    dry_run: bool = False,
) -> ExitCode:
    """Count and ask, unless ``yes``; then act on all and report. ``on_all`` takes ``dry_run`` and
    ``progress``. With ``dry_run``, only report what would be done."""
    found = on_all(dry_run=True) if dry_run or not yes else None
    if found is not None and (dry_run or len(found.refused) == found.matched):
        result, words = found, _would(action, found, local) if dry_run else _report(action, found)
    else:
        if found is not None:
            _ask(action, found, local, as_json=as_json)
        with bulk_progress(action.noun, None if found is None else found.matched) as progress:
            result = on_all(dry_run=False, progress=progress)
        words = _report(action, result)
    answer(json_form(result), lambda: words, as_json=as_json)
    return ExitCode.FAILED if result.refused else ExitCode.OK


def refusal_lines(refused: Sequence[RefusedItem], noun: str, left: str = "left") -> Iterator[RenderableType]:
    """Yield how many runs or schedules a change leaves alone, and of the first ones the name and why."""
    if not refused:
        return
    yield f"{left} {count(len(refused), noun)} alone:"
    tenants = {each.tenant for each in refused}
    for each in refused[:_REFUSED]:
        name = each.id if len(tenants) == 1 else f"{each.tenant}/{each.id}"
        yield indented(f"{name}: {each.why.removeprefix(f'{noun} {each.id} ')}")
    if len(refused) > _REFUSED:
        yield f"  and {len(refused) - _REFUSED:,} more"


def _ask(action: BulkAction[_Item], found: BulkResult[_Item], local: LocalTime, *, as_json: bool) -> None:
    """Show on stderr what matches; go on only after a yes."""
    number = _number(action, found)
    if as_json or not sys.stdin.isatty():
        left = f", and {len(found.refused):,} would be left alone" if found.refused else ""
        raise Failed(
            f"nothing was done: {number} {'matches' if found.matched == 1 else 'match'}{left}",
            f"add --yes to {action.name} them",
        )
    show_before_asking(
        [*_sample(action, found, local), *refusal_lines(found.refused, action.noun, "would leave")]
    )
    click.confirm(f"{action.name} {number}?", abort=True, err=True)


def _number(action: BulkAction[_Item], found: BulkResult[_Item]) -> str:
    return f"{'more than ' if found.more else ''}{count(found.matched, action.noun)}"


def _sample(
    action: BulkAction[_Item], found: BulkResult[_Item], local: LocalTime
) -> Iterable[RenderableType]:
    yield action.table(found.sample, local)
    if found.matched > len(found.sample):
        yield f"and {found.matched - len(found.sample):,} more"
    yield ""
    yield from warning_lines(found.warnings)


def _would(action: BulkAction[_Item], found: BulkResult[_Item], local: LocalTime) -> Iterable[RenderableType]:
    """Yield the report of a dry run."""
    if not found.matched:
        yield from _report(action, found)
        return
    yield from _sample(action, found, local)
    number = count(found.matched - len(found.refused), action.noun)
    yield f"would {action.name} {'more than ' if found.more else ''}{number}; nothing was done"
    yield from refusal_lines(found.refused, action.noun, "would leave")


def _report(action: BulkAction[_Item], result: BulkResult[_Item]) -> Iterable[RenderableType]:
    if not result.matched:
        yield f"there are no such {action.noun}s to {action.name}"
        return
    yield action.done.format(items=count(result.done, action.noun))
    yield from refusal_lines(result.refused, action.noun)
    if result.more:
        yield "there are more: run it again, or with a higher --limit"
    yield from warning_lines(result.warnings)

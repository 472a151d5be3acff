"""Plans and their results, as people read them in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evenbeat.cli.layout import listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.phrases import printable, warning_lines
from evenbeat.core.deploys import DeployPlan, DeployResult, PlanAction, PlanEntry
from evenbeat.core.masking import masked
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType

_MARKS: dict[PlanAction, tuple[str, str]] = {
    "add": ("+", "green"),
    "change": ("~", "yellow"),
    "remove": ("-", "red"),
    "refused": ("x", "red"),
    "conflict": ("!", "red"),
    "drift": ("^", "magenta"),
    "orphan": ("?", "dim"),
    "unchanged": ("=", "dim"),
}
_LONGEST = 200


def plan_words(plan: DeployPlan, local: LocalTime) -> Iterator[RenderableType]:
    """Yield a plan: each schedule with its changes and ticks, and then the counts."""
    for entry in plan.entries:
        yield from entry_words(entry, local)
    if plan.entries:
        yield ""
    yield counts_words(plan)
    yield from warning_lines(plan.warnings)


def counts_words(plan: DeployPlan) -> str:
    """Return ``2 to add, 1 to change, 0 to remove; 12 unchanged``."""
    words = ", ".join(f"{plan.count(action):,} to {action}" for action in _DONE)
    others = [f"{plan.unchanged:,} unchanged"]
    if number := plan.count("refused"):
        others.append(f"{number:,} refused")
    if number := plan.count("conflict"):
        others.append(count(number, "conflict"))
    if number := plan.count("drift"):
        others.append(f"{number:,} edited by hand")
    if number := plan.count("orphan"):
        others.append(f"{number:,} not declared")
    return f"{words}; {', '.join(others)}"


_DONE: tuple[PlanAction, ...] = ("add", "change", "remove")


def result_words(result: DeployResult, local: LocalTime) -> Iterator[RenderableType]:
    """Yield what ``apply`` did, and what it did not do."""
    if not result.done:
        yield "nothing was changed"
    else:
        numbers = {action: sum(e.action == action for e in result.done) for action in _DONE}
        past = {"add": "added", "change": "changed", "remove": "removed"}
        yield ", ".join(f"{past[action]} {numbers[action]:,}" for action in _DONE if numbers[action])
    for refused in result.refused:
        if refused.entry is None or refused.entry.why != refused.why:
            yield styled((f"refused {refused.name}: {printable(refused.why)}", "red"))
        if refused.entry is not None:
            yield from entry_words(refused.entry, local)
    for entry in result.left:
        if entry.action != "orphan":
            yield from entry_words(entry, local)
    yield from warning_lines(result.warnings)


def entry_words(entry: PlanEntry, local: LocalTime) -> Iterator[RenderableType]:
    """Yield a schedule: what to do about it, the fields that differ, and the ticks before and after."""
    mark, style = _MARKS[entry.action]
    owner = "" if entry.tenant == "default" else f" of {entry.tenant}"
    source = entry.managed_by + (f" {entry.source}" if entry.source else "")
    why = f": {entry.why}" if entry.why else ""
    yield styled((f"{mark} {entry.name}{owner}  {entry.action} ({source}){printable(why)}", style))
    rows: list[tuple[str, RenderableType]] = [
        (f"    {each.field}", printable(_difference(entry, each.field, each.before, each.after)))
        for each in entry.changes
    ]
    rows += _tick_rows(entry, local)
    if entry.command:
        rows.append(("    to settle it", entry.command))
    if rows:
        yield listed(rows)


def _difference(entry: PlanEntry, field: str, before: Any, after: Any) -> str:
    old, new = _value(field, before), _value(field, after)
    if entry.action == "add":
        return new
    if entry.action == "remove":
        return old
    if entry.action == "drift":
        return f"{old}, declared {new}"
    return f"{old} -> {new}"


def _value(field: str, value: Any) -> str:
    shown = masked({field: value})[field]
    text = shown if isinstance(shown, str) and shown else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _tick_rows(entry: PlanEntry, local: LocalTime) -> Iterable[tuple[str, str]]:
    if entry.action not in _DONE:
        return
    before, after = _ticks(entry.ticks_before, local), _ticks(entry.ticks_after, local)
    if entry.action == "change" and before == after:
        yield "    ticks", f"{after or 'none'}, as before"
        return
    if entry.action != "add":
        yield "    ticks before", before or "none"
    if entry.action != "remove":
        yield "    ticks after" if entry.action == "change" else "    ticks", after or "none"


def _ticks(ticks: Sequence[datetime], local: LocalTime) -> str:
    return ", ".join(local.near(tick) for tick in ticks)

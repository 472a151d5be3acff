"""The dependencies of a schedule, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evenbeat.cli.layout import labelled, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.core.dependencies import Dependencies, Predecessor

if TYPE_CHECKING:
    from rich.console import RenderableType


def dependency_lines(linked: Dependencies, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    """Yield what the schedule waits for, and what waits for it; nothing if there is neither."""
    lines: list[RenderableType] = []
    if linked.after is not None:
        lines.append(linked.after)
    lines += [_predecessor(each, local) for each in linked.predecessors]
    if linked.waits_until is not None:
        lines.append(f"a tick waits until {local.full(linked.waits_until)}")
    if linked.pending:
        lines.append(f"successes that have not fired yet: {linked.pending:,}")
    yield from labelled("after", lines)
    if linked.followers:
        yield "followed by", ", ".join(linked.followers)


def _predecessor(each: Predecessor, local: LocalTime) -> RenderableType:
    if each.state in (None, "deleted"):
        return styled((f"{each.name} does not exist any more", "red"))
    if each.last_success is None:
        return f"{each.name} has never succeeded"
    when = f"{local.full(each.last_success)}, {local.away(each.last_success)}"
    return f"{each.name} succeeded {when}" + ("" if each.is_met is not False else ": too long ago")

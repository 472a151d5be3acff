"""Backfills in the terminal: their state and progress, a dry run, and the bar that follows one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from evenbeat.cli.layout import Cell, Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.progress import bar, followed
from evenbeat.core.backfills import Backfill, BackfillPlan, BackfillTick, TickState
from evenbeat.core.instants import to_ms
from evenbeat.observe.phrases import count, date_time, timespec
from evenbeat.observe.reasons import skip_reason

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenbeat.app.scheduler import Scheduler

_SHOWN = 20
_STYLES = {"running": "cyan", "done": "green", "cancelling": "yellow", "cancelled": "yellow"}
_STATES: dict[TickState, str] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "queued": "queued now",
    "running": "running now",
    "skipped": "skipped",
    "none": "no record",
    "unknown": "unknown: its history may be deleted",
}


def state_cell(backfill: Backfill) -> Cell:
    style = "red" if backfill.state == "done" and backfill.failed else _STYLES.get(backfill.state, "")
    return (backfill.state.replace("_", " "), style)


END_WIDTH = len("00:00 +00:00")
"""The width in which an end of a range takes two lines."""


def end_text(end: datetime) -> str:
    """Return an end of a range in the zone of the trigger: ``2026-03-01 00:00 +01:00``."""
    return date_time(end, timespec([to_ms(end) // 1000 * 1000]), weekday=False)


def progress_line(backfill: Backfill) -> str:
    """Return ``[####....] 12 of 24 runs ended, 1 failed, 2 active``."""
    parts = [f"{backfill.ended:,} of {count(backfill.total, 'run')} ended"]
    if backfill.failed:
        parts.append(f"{backfill.failed:,} failed")
    if backfill.active:
        parts.append(f"{backfill.active:,} active")
    line = f"{bar(backfill.ended, backfill.total)} {', '.join(parts)}"
    return line if backfill.waits_for is None else f"{line}; waits: {backfill.waits_for}"


def follow(app: Scheduler, backfill: Backfill) -> Backfill:
    """Show the progress on stderr until the backfill is over."""

    def again(backfill: Backfill) -> Backfill:
        return app.backfills.get(backfill.id, tenant=backfill.tenant)

    return followed(backfill, again, progress_line, lambda backfill: backfill.is_over)


def report(backfill: Backfill, local: LocalTime) -> Iterator[RenderableType]:
    """Yield what ``backfills show`` prints."""
    yield styled((f"backfill {backfill.id} of {backfill.schedule}", "bold"))
    yield ""
    yield listed(_lines(backfill, local))


def _lines(backfill: Backfill, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "state", styled(state_cell(backfill))
    if backfill.note:
        yield "because", backfill.note
    yield "progress", progress_line(backfill)
    yield "range", f"{_zoned(backfill.start)} to before {_zoned(backfill.end)}"
    yield "trigger", backfill.trigger
    missing = ", only those without a succeeded run" if backfill.missing_only else ""
    yield (
        "ticks",
        f"{backfill.ticks:,}, {backfill.order} first, at most {backfill.max_concurrent:,} at once{missing}",
    )
    ends = f"{backfill.succeeded:,} succeeded, {backfill.failed:,} failed, {backfill.cancelled:,} cancelled"
    yield "runs", f"{ends}, {backfill.left:,} to come"
    if backfill.purged:
        yield "purged", f"{count(backfill.purged, 'run')} deleted before a node had counted the end"
    if backfill.created_at is not None:
        yield "made", f"{local.near(backfill.created_at)} by {backfill.created_by}"
    if backfill.ended_at is not None:
        yield "ended", local.near(backfill.ended_at)
    for run in backfill.failed_runs[-3:]:
        yield "failed", run


def plan_report(backfill: Backfill, plan: BackfillPlan) -> Iterator[RenderableType]:
    """Yield what a dry run prints."""
    if backfill.existed_since is not None:
        yield exists_line(backfill)
    yield styled((f"would add {count(backfill.total, 'run')} of {backfill.schedule}", "bold"))
    span = f"{_zoned(backfill.start)} to before {_zoned(backfill.end)}"
    yield f"{count(backfill.ticks, 'tick')} from {span}:"
    for state, number in plan.states.items():
        yield f"  {number:,} {_STATES[state]}"
    if plan.unknown_before is not None and backfill.total:
        yield f"history before {_zoned(plan.unknown_before)} may be deleted: such ticks would run again"
    yield ""
    shown = plan.ticks[:_SHOWN]
    yield Fitted(
        [
            Column("tick", [_zoned(tick.tick) for tick in shown]),
            Column("before", [_before(tick) for tick in shown]),
            Column("run", ["yes" if tick.is_made else "no" for tick in shown]),
        ]
    )
    if backfill.ticks > len(shown):
        yield f"and {backfill.ticks - len(shown):,} more ticks"
    yield ""
    if backfill.existed_since is not None:
        yield f"nothing would be added: {AGAIN}"
    elif not backfill.total:
        yield nothing_line(backfill)
    else:
        yield "nothing was added: leave out --dry-run to add them"


AGAIN = "another --id runs the range again"


def exists_line(backfill: Backfill) -> str:
    """Return when the same backfill was made before."""
    assert backfill.existed_since is not None
    since = _zoned(backfill.existed_since.replace(microsecond=0))
    return f"backfill {backfill.id} of {backfill.schedule} exists since {since}"


def nothing_line(backfill: Backfill) -> str:
    """Return why a backfill of missing runs adds none."""
    those = "its only tick has" if backfill.ticks == 1 else f"all {backfill.ticks:,} ticks have"
    return f"there is nothing to add: {those} a succeeded run"


def _before(tick: BackfillTick) -> str:
    if tick.reason is not None:
        return f"skipped: {skip_reason(tick.reason, 1)}"
    return _STATES[tick.state]


def _zoned(moment: datetime) -> str:
    """Return a time in the zone of the trigger."""
    return date_time(moment, timespec([to_ms(moment)]))

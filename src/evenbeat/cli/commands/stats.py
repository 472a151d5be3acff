"""``evenbeat stats``: how many runs started, failed and were late, over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.bars import BarChart
from evenbeat.cli.layout import Cell, Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import all_tenants_option, complete_schedule, opened, store_options
from evenbeat.core.figures import Figures, FigureSeries, NamedFigures, Percentiles
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count, measured
from evenbeat.rules.rollups import LENGTH, By

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_BARS = 72
_INCOMPLETE = "some runs are missing: a node counts only 200 schedules and 200 tasks of a tenant separately"
# The lengths of a bar of hours, in minutes.
_HOURS = (60, 120, 180, 240, 360, 720, 1440)


@click.command("stats")
@click.option(
    "--since", metavar="WHEN", default="1h", show_default=True, help="From when: 02:55, a date, or 2h ago."
)
@click.option("--until", metavar="WHEN", show_default="now", help="Until when.")
@click.option(
    "--by",
    type=click.Choice(tuple(LENGTH)),
    show_default="minutes as far as they are kept",
    help="Minutes are kept for 3 hours, hours for 40 days.",
)
@click.option(
    "--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only figures of this schedule."
)
@click.option("--task", metavar="TASK", help="Only figures of this task.")
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(0, 100),
    default=5,
    show_default=True,
    help="How many of the busiest tasks and schedules to show.",
)
@all_tenants_option
@store_options
@json_option
def command(
    since: str,
    until: str | None,
    by: By | None,
    schedule: str | None,
    task: str | None,
    top: int,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show how many runs started, failed and were late, over time.

    Nodes write these figures once a minute, so the present minute is not included.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        start, end = local.read_window(since, until)
        assert start is not None
        series = app.statistics(
            from_ms(start),
            None if end is None else from_ms(end),
            by=by,
            schedule=schedule,
            task=task,
            all_tenants=all_tenants,
            top=0 if schedule or task else top,
        )

    def people() -> Iterable[RenderableType]:
        yield from _summary(series, local)
        if not any(series.total.skipped.values()) and not series.total.started and not series.total.fired:
            yield ""
            yield _quiet(series)
            return
        yield ""
        yield _chart(series, local)
        yield ""
        yield _lengths(series.total)
        for title, rows in (("task", series.tasks), ("schedule", series.schedules)):
            if rows:
                yield ""
                yield _table(title, rows, with_tenant=all_tenants)
        if notes := list(_notes(series)):
            yield ""
            yield listed([("note:", note) for note in notes])

    answer(json_form(series), people, as_json=as_json)


def _summary(series: FigureSeries, local: LocalTime) -> Iterable[RenderableType]:
    total = series.total
    words = [f"{count(total.started, 'attempt')} started", f"{total.succeeded:,} succeeded"]
    for number, word in (
        (total.failed, "failed"),
        (total.retried, "retried"),
        (total.cancelled, "cancelled"),
        (total.crashed, "crashed"),
        (total.released, "handed back"),
    ):
        words += [f"{number:,} {word}"] if number else []
    yield styled((", ".join(words), "bold"))
    range_ = f"from {local.near(series.since)} to {local.near(series.until)} ({local.zone.name})"
    yield f"{range_}, by the {series.by}"


def _quiet(series: FigureSeries) -> str:
    if not series.is_complete:
        return _INCOMPLETE
    if any(point.nodes for point in series.points):
        return "nothing fired and nothing ran, though nodes were alive"
    return "no node has written figures of this time: none was running, or they are gone"


def _chart(series: FigureSeries, local: LocalTime) -> BarChart:
    """Return the chart of the attempts that started."""
    length = LENGTH[series.by] // 60_000
    counts: list[int] = []
    for point in series.points:
        counts += [point.figures.started] + [0] * (length - 1)
    minutes = None
    if series.by == "hour":
        minutes = next((step for step in _HOURS if len(counts) / step <= _MOST_BARS), _HOURS[-1])
    return BarChart(counts, to_ms(series.since), minutes, local.zone)


def _lengths(total: Figures) -> Fitted:
    rows = [("took", total.duration), ("late", total.lateness)]
    known = [(name, length) for name, length in rows if length is not None]
    return Fitted(
        [
            Column("", [name for name, _ in known]),
            Column("half at most", [measured(length.p50) for _, length in known], justify="right"),
            Column("95 %", [measured(length.p95) for _, length in known], justify="right"),
            Column("99 %", [measured(length.p99) for _, length in known], justify="right"),
        ]
    )


def _table(title: str, rows: tuple[NamedFigures, ...], *, with_tenant: bool) -> Fitted:
    figures = [row.figures for row in rows]
    return Fitted(
        [
            Column("tenant", [row.tenant if with_tenant else "" for row in rows]),
            Column(title, [row.name for row in rows]),
            Column("started", [f"{each.started:,}" for each in figures], justify="right"),
            Column("failed", [_failed(each) for each in figures], justify="right"),
            Column("retried", [_number(each.retried) for each in figures], drop=3, justify="right"),
            Column(
                "skipped", [_number(sum(each.skipped.values())) for each in figures], drop=4, justify="right"
            ),
            Column(
                "took, half", [_length(each.duration, "p50") for each in figures], drop=2, justify="right"
            ),
            Column("95 %", [_length(each.duration, "p95") for each in figures], drop=2, justify="right"),
            Column(
                "late, 95 %", [_length(each.lateness, "p95") for each in figures], drop=1, justify="right"
            ),
        ]
    )


def _notes(series: FigureSeries) -> Iterable[str]:
    if series.total.skipped:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in series.total.skipped.items())
        yield f"ticks that did not become runs of their own: {reasons}"
    if not series.is_complete:
        yield _INCOMPLETE


def _failed(figures: Figures) -> Cell:
    return (f"{figures.failed:,}", STYLES["failed"]) if figures.failed else ""


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _length(lengths: Percentiles | None, which: str) -> str:
    return "" if lengths is None else measured(getattr(lengths, which))

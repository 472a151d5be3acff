"""``evenbeat forecast``: the coming load of the store's schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from evenbeat.cli.bars import BarChart, bars, fitting
from evenbeat.cli.failures import Failed
from evenbeat.cli.layout import Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.instants import Instant, from_ms, write_instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.observe.phrases import count
from evenbeat.rules.ticks import readable_trigger, spread_delay, trigger_of
from evenbeat.stores.base import ScheduleQuery, Store

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenbeat.timeline import Expected, Load

_HOUR = 3_600_000
_PAGE = 500
# How many of the busiest minutes to examine. Minutes with the same schedules share a line of the table.
_LOOKED_AT = 60
_LINES = 5
_NAMES = 6
# The command prints a hint if a minute has at least _PEAK runs, and at least _STEEP times the mean.
_PEAK, _STEEP = 5, 4


class Meeting(NamedTuple):
    """Minutes in which the same schedules start."""

    runs: int
    minutes: list[Instant]
    schedules: list[str]


@click.command("forecast")
@click.option(
    "--hours",
    metavar="HOURS",
    type=click.IntRange(1, 24 * 31),
    default=24,
    show_default=True,
    help="How far ahead to look.",
)
@click.option(
    "--minutes",
    metavar="MINUTES",
    type=click.IntRange(1, 1440),
    show_default="as short as the line allows",
    help="The length of a bar.",
)
@all_tenants_option
@store_options
@json_option
def command(
    hours: int, minutes: int | None, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Show the coming load, and which schedules start together.

    The forecast leaves out retries, runs by hand, and delays that overlapping runs cause.
    """
    from evenbeat.timeline.extra import has_numpy

    if not has_numpy():
        raise Failed("the forecast needs numpy, which is not installed", "pip install 'evenbeat[timeline]'")
    from evenbeat.timeline import Load

    with opened(store, tenant) as app:
        owner = None if all_tenants else app.tenant
        now = app.store.now()
        rows = list(_firing(app.store, owner))
    local = LocalTime.at(now)
    load = Load((_expected(row, all_tenants) for row in rows), now, now + hours * _HOUR)
    meetings = _meetings(load)
    notes = list(_notes(load, meetings))
    counts = load.per_minute()

    def people() -> Iterable[RenderableType]:
        if not load.total():
            yield f"{count(len(rows), 'active schedule')}, no runs in the next {count(hours, 'hour')}"
            return
        peak = max(counts)
        yield styled((f"{count(load.total(), 'run')} of {count(len(rows), 'schedule')}", "bold"))
        yield f"in the next {count(hours, 'hour')}, up to {peak:,} a minute ({local.zone.name})"
        yield ""
        yield BarChart(counts, load.start, minutes, local.zone)
        if meetings:
            yield ""
            yield _table(meetings[:_LINES], local)
        if notes:
            yield ""
            yield listed([("hint:", note) for note in notes])

    step = minutes or fitting(counts, load.start, 110, local.zone)
    answer(
        {
            "from": write_instant(load.start),
            "until": write_instant(load.end),
            "schedules": len(rows),
            "runs": load.total(),
            "minutes": step,
            "bars": [
                {"at": write_instant(bar.start), "runs": bar.runs}
                for bar in bars(counts, load.start, step, local.zone)
            ],
            "busiest": [
                {
                    "runs": meeting.runs,
                    "at": [write_instant(minute) for minute in meeting.minutes],
                    "schedules": meeting.schedules,
                }
                for meeting in meetings
            ],
            "notes": notes,
        },
        people,
        as_json=as_json,
    )


def _firing(store: Store, tenant: str | None) -> Iterator[ScheduleRecord]:
    """Yield the schedules that will fire."""
    query = ScheduleQuery(tenant=tenant, states=("active", "paused"), limit=_PAGE)
    while True:
        page = store.find_schedules(query)
        for row in page.items:
            goes_on = row.state == "active" or row.paused_until is not None
            # A schedule that cannot be read does not fire: ``schedules list`` and ``doctor`` name it.
            if row.next_tick is not None and goes_on and readable_trigger(row) is not None:
                yield row
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def _expected(row: ScheduleRecord, with_tenant: bool) -> Expected:
    from evenbeat.timeline import Expected

    trigger = trigger_of(replace(row, moved=None))
    first = row.next_tick
    assert first is not None
    if row.paused_until is not None and row.paused_until > first:
        # If the trigger ends during the pause, use an instant far beyond any forecast.
        first = trigger.next_ms(row.paused_until - 1) or row.paused_until + 100 * 366 * 24 * _HOUR
    name = f"{row.tenant}/{row.name}" if with_tenant else row.name
    return Expected(name, trigger, first, spread_delay(row), row.moved)


def _meetings(load: Load) -> list[Meeting]:
    """Return the minutes in which two or more schedules start, the busiest first."""
    found: dict[tuple[str, ...], Meeting] = {}
    for minute in load.busiest(_LOOKED_AT):
        whose = load.whose(minute)
        names = tuple(sorted(whose))
        if len(names) > 1:
            meeting = found.setdefault(names, Meeting(whose.total(), [], list(names)))
            meeting.minutes.append(minute)
    return list(found.values())


def _notes(load: Load, meetings: list[Meeting]) -> Iterator[str]:
    mean = load.total() / max(1, len(load.counts))
    if meetings and meetings[0].runs >= _PEAK and meetings[0].runs >= _STEEP * mean:
        yield "write H for the minute ('H * * * *'): each schedule gets its own minute; or set a spread"
    if not load.complete:
        yield "too many ticks of spread schedules to count them all: the last bars are too low"


def _table(meetings: list[Meeting], local: LocalTime) -> Fitted:
    def when(meeting: Meeting) -> str:
        first = local.near(from_ms(min(meeting.minutes)))
        more = len(meeting.minutes) - 1
        return f"{first} and {more} more" if more else first

    def whose(meeting: Meeting) -> str:
        names = ", ".join(meeting.schedules[:_NAMES])
        more = len(meeting.schedules) - _NAMES
        return f"{names} and {more:,} more" if more > 0 else names

    return Fitted(
        [
            Column("busiest", [when(meeting) for meeting in meetings]),
            Column("runs", [f"{meeting.runs:,}" for meeting in meetings], justify="right"),
            Column("schedules", [whose(meeting) for meeting in meetings], wraps=20),
        ]
    )

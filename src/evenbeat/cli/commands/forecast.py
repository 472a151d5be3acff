"""``evenbeat forecast``: the coming load of the store's schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.bars import BarChart, bars, fitting
from evenbeat.cli.failures import Failed
from evenbeat.cli.layout import Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.durations import write_duration
from evenbeat.core.forecasts import LONGEST_BY_HOUR, LONGEST_BY_MINUTE, Forecast, ForecastPeak, SpreadProposal
from evenbeat.core.instants import from_ms, to_ms, write_instant
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count, some, span
from evenbeat.timeline.extra import has_numpy

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES = 5
_QUIET, _PROPOSALS = 3, 3
_NAMES = 6
# The command prints a hint if a minute has at least _PEAK runs, and at least _STEEP times the mean.
_PEAK, _STEEP = 5, 4


@click.command("forecast")
@click.option(
    "--hours",
    metavar="HOURS",
    type=click.IntRange(1, LONGEST_BY_HOUR),
    default=24,
    show_default=True,
    help="How far ahead to look.",
)
@click.option(
    "--from",
    "since",
    metavar="WHEN",
    show_default="now",
    help="Where to begin: 02:55, a date, or 2h from now.",
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
    hours: int,
    since: str | None,
    minutes: int | None,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show the coming load, and which schedules start together.

    Names quiet times, too, and spreads that would lower the peaks. The forecast leaves out retries, runs by
    hand, and delays that overlapping runs cause.
    """
    if not has_numpy():
        raise Failed("the forecast needs numpy, which is not installed", "pip install 'evenbeat[timeline]'")
    by_minute = hours <= LONGEST_BY_MINUTE
    if not by_minute and minutes is not None and minutes < 60:
        raise click.UsageError(f"--minutes under 60 needs --hours of at most {LONGEST_BY_MINUTE}")
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        begin = None if since is None else from_ms(local.read(since, "--from"))
        found = app.forecast(
            hours, since=begin, by="minute" if by_minute else "hour", all_tenants=all_tenants
        )
    counts = _by_minute(found)
    meetings = _meetings(found)
    notes = [*_hints(found), *found.notes]
    length = count(hours, "hour")
    window = f"in the next {length}" if since is None else f"in {length} from {local.full(found.start)}"

    def people() -> Iterable[RenderableType]:
        if not found.total:
            schedules = count(found.schedules, "active schedule")
            yield f"{schedules}, no runs {window}"
            return
        yield styled((f"{count(found.total, 'run')} of {count(found.schedules, 'schedule')}", "bold"))
        peak = found.peaks[0].runs
        yield f"{window}, up to {peak:,} a minute ({local.zone.name})"
        yield ""
        yield BarChart(counts, to_ms(found.start), minutes, local.zone)
        if meetings:
            yield ""
            yield _table(meetings[:_LINES], local)
        lines = [
            *[("quiet:", words) for words in _quiet_words(found, local)],
            *[("spread:", _proposal_words(proposal, local)) for proposal in found.proposals[:_PROPOSALS]],
            *[("hint:", note) for note in notes],
        ]
        if lines:
            yield ""
            yield listed(lines)

    answer(_document(found, notes, minutes, local), people, as_json=as_json)


def _by_minute(found: Forecast) -> list[int]:
    """Return the counts by the minute; those of an hour are in its first minute."""
    if found.by == "minute":
        return [*found.counts]
    return [number for runs in found.counts for number in (runs, *[0] * 59)]


def _meetings(found: Forecast) -> list[ForecastPeak]:
    """Return the peaks in which several schedules start together."""
    return [peak for peak in found.peaks if len(peak.schedules) + peak.more > 1]


def _document(found: Forecast, notes: list[str], minutes: int | None, local: LocalTime) -> dict[str, Any]:
    counts, start = _by_minute(found), to_ms(found.start)
    step = minutes or fitting(counts, start, 110, local.zone)
    return {
        "from": json_form(found.start),
        "until": json_form(found.end),
        "schedules": found.schedules,
        "runs": found.total,
        "minutes": step,
        "bars": [
            {"at": write_instant(bar.start), "runs": bar.runs}
            for bar in bars(counts, start, step, local.zone)
        ],
        "busiest": [
            {
                "runs": peak.runs,
                "at": json_form(peak.minutes),
                "schedules": json_form(peak.schedules),
                "more": peak.more,
            }
            for peak in _meetings(found)
        ],
        "quiet": json_form(found.quiet),
        "proposals": json_form(found.proposals),
        "notes": notes,
    }


def _hints(found: Forecast) -> Iterator[str]:
    mean = found.mean if found.by == "minute" else found.mean / 60
    meetings = _meetings(found)
    if meetings and meetings[0].runs >= max(_PEAK, _STEEP * mean):
        yield "write H for the minute ('H * * * *'): each schedule gets its own minute; or set a spread"


def _quiet_words(found: Forecast, local: LocalTime) -> Iterator[str]:
    for window in found.quiet[:_QUIET]:
        if window.most == found.peaks[0].runs:
            continue  # all minutes are alike
        runs = (
            "no runs" if window.runs == 0 else f"{count(window.runs, 'run')}, up to {window.most:,} a minute"
        )
        length = span(window.end - window.start)
        yield f"{local.near(window.start)} to {local.near(window.end)} ({length}): {runs}"


def _proposal_words(proposal: SpreadProposal, local: LocalTime) -> str:
    names = some(proposal.schedules, _NAMES, proposal.more)
    fall = f"{proposal.peak_before:,} to {proposal.peak_after:,} runs a minute"
    return f"{write_duration(proposal.spread)} for {names} lowers {local.near(proposal.at)} from {fall}"


def _table(meetings: list[ForecastPeak], local: LocalTime) -> Fitted:
    def when(peak: ForecastPeak) -> str:
        first = local.near(peak.at)
        more = len(peak.minutes) - 1
        return f"{first} and {more} more" if more else first

    return Fitted(
        [
            Column("busiest", [when(peak) for peak in meetings]),
            Column("runs", [f"{peak.runs:,}" for peak in meetings], justify="right"),
            Column("schedules", [some(peak.schedules, _NAMES, peak.more) for peak in meetings], wraps=20),
        ]
    )

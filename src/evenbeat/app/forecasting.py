"""``app.forecast``: the coming load, its peaks and quiet windows, and spreads that would lower the peaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, get_args

from msgspec.structs import replace

from evenbeat.core.checks import check_one_of, check_whole
from evenbeat.core.forecasts import (
    LONGEST_BY_HOUR,
    LONGEST_BY_MINUTE,
    MOST_NAMES,
    MOST_PROPOSALS,
    Forecast,
    ForecastPeak,
    ForecastStep,
    QuietWindow,
    SpreadProposal,
)
from evenbeat.core.instants import LAST, Instant, Moment, from_ms, read_moment
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import InvalidTrigger, InvalidValue, shown
from evenbeat.observe.phrases import count
from evenbeat.rules.ticks import spread_delay, spread_number, trigger_of
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.stores.pages import every_schedule
from evenbeat.timeline.extra import require_numpy
from evenbeat.triggers import Trigger

if TYPE_CHECKING:
    from evenbeat.timeline.load import Load, Positions

_Key: TypeAlias = tuple[str, str]
"""Tenant and name."""

_MINUTE, _HOUR = 60_000, 3_600_000
_PAGE = 500
# How many of the busiest minutes are examined. Minutes with the same schedules are one peak.
_BUSIEST = 60
_QUIET_MINUTES, _QUIET_WINDOWS = 15, 5


def firing_schedules(store: Store, tenant: str | None) -> Iterator[ScheduleRecord]:
    """Return the rows of a tenant, or of all tenants, that may fire."""
    return every_schedule(store, ScheduleQuery(tenant=tenant, states=("active", "paused"), limit=_PAGE))


def forecast_of(
    rows: Iterable[ScheduleRecord],
    now: Instant,
    hours: int,
    *,
    since: Moment | None = None,
    by: ForecastStep = "minute",
    with_tenant: bool = False,
) -> Forecast:
    """Return the forecast of these schedules, as ``Scheduler.forecast`` does. Time and memory are bounded.

    10,000 schedules for 24 hours take 60 to 140 ms (bench/forecast.py). Reading their rows from SQLite takes
    about as long again.
    """
    require_numpy("the forecast")
    from evenbeat.timeline.load import Expected, Load

    check_one_of("by", by, get_args(ForecastStep))
    _check_hours(hours, by)
    start = _read_since(since, now)
    if start + hours * _HOUR > LAST:
        raise InvalidValue(
            f"since {shown(str(since))} leaves no {hours} hours before the year 10000",
            field="since",
            value=since,
            hint="give an earlier time",
        )
    # The rows are not kept: their payloads may be large.
    expected: list[Expected] = []
    without_spread: list[_Key | None] = []
    for row in rows:
        if (times := _times(row)) is not None:
            without_spread.append((row.tenant, row.name) if row.spread == 0 else None)
            name = f"{row.tenant}/{row.name}" if with_tenant else row.name
            expected.append(Expected(name, *times, spread_delay(row), row.moved))
    return _Report(Load(expected, start, start + hours * _HOUR), without_spread).forecast(by)


def _check_hours(hours: int, by: ForecastStep) -> None:
    longest = LONGEST_BY_MINUTE if by == "minute" else LONGEST_BY_HOUR
    try:
        check_whole("hours", hours, 1, longest)
    except InvalidValue as error:
        more = f'; by="hour" allows up to {LONGEST_BY_HOUR}' if by == "minute" else ""
        hint = f'by="{by}" allows up to {longest}{more}'
        raise InvalidValue(error.problem, field="hours", value=hours, hint=hint) from None


def _read_since(since: Moment | None, now: Instant) -> Instant:
    start = now if since is None else read_moment(since, "since", now)
    # The clocks of a client and the store differ a little.
    if start < now - _MINUTE:
        raise InvalidValue(
            f"since {shown(str(since))} is in the past",
            field="since",
            value=since,
            hint="a forecast starts now or later",
        )
    return max(start, now)


def _times(row: ScheduleRecord) -> tuple[Trigger, Instant] | None:
    """Return the trigger of a schedule and its next tick that will fire; None if it will not fire.

    One that can't be read does not fire: ``schedules list`` and ``doctor`` name it.
    """
    first = row.next_tick
    goes_on = row.state == "active" or (row.state == "paused" and row.paused_until is not None)
    if first is None or not goes_on or row.damage:
        return None
    try:
        trigger = trigger_of(row if row.moved is None else replace(row, moved=None))
    except InvalidTrigger:
        return None
    if row.paused_until is not None and row.paused_until > first:
        # If the trigger ends during the pause, use an instant far beyond any forecast.
        first = trigger.next_ms(row.paused_until - 1) or row.paused_until + 100 * 366 * 24 * _HOUR
    return trigger, first


class _Report:
    """Turns a load into the values that users get."""

    def __init__(self, load: Load, without_spread: list[_Key | None]) -> None:
        """``without_spread`` has the key of each schedule of the load; None if it has a spread."""
        self._load = load
        self._without_spread = without_spread
        self._numbers: dict[int, int | None] = {}

    def forecast(self, by: ForecastStep) -> Forecast:
        from evenbeat.timeline.spreading import propose_spreads

        load = self._load
        start, counts = load.start, load.per_minute()
        if by == "hour":
            start, counts = _by_hour(start, counts)
        peaks = load.peaks(_BUSIEST)
        total = load.total()
        return Forecast(
            start=from_ms(start),
            end=from_ms(load.end),
            by=by,
            schedules=len(self._load.schedules),
            counts=tuple(counts),
            total=total,
            mean=total * (_MINUTE if by == "minute" else _HOUR) / (load.end - load.start),
            peaks=tuple(
                ForecastPeak(
                    at=from_ms(min(peak.minutes)),
                    runs=peak.runs,
                    minutes=tuple(from_ms(minute) for minute in sorted(peak.minutes)),
                    schedules=self._names(peak.members),
                    more=max(0, len(peak.members) - MOST_NAMES),
                )
                for peak in peaks
            ),
            quiet=tuple(self._quiet()),
            proposals=tuple(
                SpreadProposal(
                    at=from_ms(found.minute),
                    spread=timedelta(milliseconds=found.spread),
                    schedules=self._names(found.members),
                    more=max(0, len(found.members) - MOST_NAMES),
                    peak_before=found.before,
                    peak_after=found.after,
                    start=from_ms(found.start),
                    before=tuple(found.minutes_before.tolist()),
                    after=tuple(found.minutes_after.tolist()),
                )
                for found in propose_spreads(load, peaks, self._number, MOST_PROPOSALS)
            ),
            notes=tuple(self._notes()),
        )

    def _names(self, positions: Positions) -> tuple[str, ...]:
        return tuple(self._load.schedules[position].id for position in positions[:MOST_NAMES].tolist())

    def _number(self, position: int) -> int | None:
        if position not in self._numbers:
            key = self._without_spread[position]
            self._numbers[position] = None if key is None else spread_number(*key)
        return self._numbers[position]

    def _quiet(self) -> Iterator[QuietWindow]:
        from evenbeat.timeline.quiet import quiet_ranges

        for found in quiet_ranges(self._load.counts, _QUIET_MINUTES, _QUIET_WINDOWS):
            yield QuietWindow(
                start=from_ms(self._load.start + found.first * _MINUTE),
                end=from_ms(self._load.start + found.end * _MINUTE),
                runs=found.runs,
                most=found.most,
            )

    def _notes(self) -> Iterator[str]:
        if self._load.estimated:
            many = count(self._load.estimated, "schedule")
            yield f"{many} were counted by their mean rates: their ticks are too many to count each"
        if self._load.undelayed:
            many = count(self._load.undelayed, "schedule")
            yield f"{many} were partly counted without their spread: their ticks are too many to count each"


def _by_hour(start: Instant, counts: list[int]) -> tuple[Instant, list[int]]:
    """Return the whole hour in which the counts per minute begin, and the sum of each hour from there on."""
    first = start // _HOUR * _HOUR
    lead = (start - first) // _MINUTE
    sums = [sum(counts[max(0, at) : at + 60]) for at in range(-lead, len(counts), 60)]
    return first, sums

"""What users get back about times to come: the forecast of the load, and the explanation of a trigger."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

ForecastStep: TypeAlias = Literal["minute", "hour"]
TriggerKind: TypeAlias = Literal["cron", "every", "at", "success"]

MOST_TICKS = 1_000
"""The most ticks that a preview shows."""
MOST_NAMES = 50
"""The most names of schedules that one entry of a forecast lists."""
MOST_PROPOSALS = 20
LONGEST_BY_MINUTE = 7 * 24
"""Hours."""
LONGEST_BY_HOUR = 31 * 24


class ForecastPeak(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes among the busiest in which the same schedules start."""

    at: datetime
    """The first of these minutes."""
    runs: int
    """How many runs start in the fullest of them."""
    minutes: tuple[datetime, ...]
    """All of them, in order; only the 60 busiest minutes of the forecast are considered."""
    schedules: tuple[str, ...]
    """The names of the schedules, at most 50; ``tenant/name`` in a forecast of all tenants."""
    more: int
    """How many schedules are not listed."""


class QuietWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A range with few runs, for maintenance."""

    start: datetime
    end: datetime
    runs: int
    """How many runs start in it."""
    most: int
    """How many start in its fullest minute."""


class SpreadProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A spread for schedules that start together. Each proposal is computed as if it were the only one."""

    at: datetime
    """The minute in which they start together."""
    spread: timedelta
    """The option ``spread`` that these schedules would get."""
    schedules: tuple[str, ...]
    """Their names, at most 50."""
    more: int
    """How many schedules are not listed."""
    peak_before: int
    """How many runs start in that minute, also those of other schedules."""
    peak_after: int
    """How many runs would start in the fullest minute until the spread has passed."""
    start: datetime
    """The start of the first count of ``before`` and ``after``: 5 minutes before ``at``, or the start of the
    forecast if that is later."""
    before: tuple[int, ...]
    """How many runs start in each minute from ``start`` until 5 minutes after the spread, also those of other
    schedules; at most 71 minutes."""
    after: tuple[int, ...]
    """The same with the proposed spread. The fullest minute from ``at`` until the spread has passed has
    ``peak_after`` runs."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The coming runs by the minute or the hour. Retries, runs by hand and delays by overlap are left out."""

    start: datetime
    """The start of the first count. Ticks before now are not counted."""
    end: datetime
    by: ForecastStep
    schedules: int
    """How many schedules will fire, in this range or later."""
    counts: tuple[int, ...]
    """How many runs start in each minute or hour, from ``start`` on."""
    total: int
    mean: float
    """Runs per minute or hour."""
    peaks: tuple[ForecastPeak, ...]
    """The busiest minutes, the fullest first."""
    quiet: tuple[QuietWindow, ...]
    """At most 5 ranges of at least 15 minutes, the longest first. Each of their minutes has at most ``most``
    runs, and no smaller number has such a range."""
    proposals: tuple[SpreadProposal, ...]
    """At most 20 spreads that would lower a peak, the highest peak first."""
    notes: tuple[str, ...]
    """How the counts are less than exact; empty if they are exact."""


class TriggerTick(msgspec.Struct, frozen=True, kw_only=True):
    """A coming tick of a trigger."""

    at: datetime
    """In the zone of the trigger, with its offset at that time."""
    away: timedelta
    """The time from ``since``."""
    note: str | None
    """The effect of a clock change on this tick."""


class TriggerClockChange(msgspec.Struct, frozen=True, kw_only=True):
    """A coming change of the clock in the zone of a trigger."""

    at: datetime
    clock_from: str
    """What the clock shows before the change, like ``02:00``."""
    clock_to: str
    shift: timedelta
    """How much the clock goes forward; negative if it goes back."""
    effect: str
    """The effect on the trigger, in words."""


class TriggerExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger in words, with its next ticks."""

    kind: TriggerKind
    trigger: str
    """The canonical text, as a schedule that is created at ``since`` would keep it."""
    written: str
    """The canonical text with its open parts: ``H``, and a period without a start."""
    words: str
    zone: str
    """The zone of the trigger, or the one that was asked for if the trigger has none."""
    since: datetime
    until: datetime | None
    """The end of the trigger, if it has one."""
    ticks: tuple[TriggerTick, ...]
    """The ticks after ``since``, as many as were asked for and exist."""
    clock_changes: tuple[TriggerClockChange, ...]
    """The next two changes of the clock in the zone of a cron, before it ends."""
    notes: tuple[str, ...]
    """Why there are fewer ticks than were asked for, and which parts are still open."""

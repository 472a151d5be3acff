"""The coming load: how many runs start in each coming minute, and of which schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.timeline.numpy_columns import Owners
from evenbeat.timeline.one_by_one import ShiftedTrigger
from evenbeat.timeline.plan import Plan
from evenbeat.triggers import At, Calendared, Cron, Every, Trigger

Counts: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.intp]
Narrow: TypeAlias = npt.NDArray[np.integer[Any]]

_MINUTE = 60_000
# (schedule, minute) pairs of spread crons that are counted one by one: 60 MB while that lasts.
_UNROLLED = 1_000_000
# The work of counting intervals of many different periods: about 0.1 s.
_WORK, _PERIODS = 2_000_000, 200


class Expected(NamedTuple):
    """A schedule as it will fire."""

    id: str
    trigger: Trigger
    first: Instant | None = None
    """Its next tick, which may differ from the trigger's ticks; earlier ticks of the trigger don't count."""
    delay: int = 0
    """Its share of the spread, in milliseconds."""
    moved: Instant | None = None
    """The trigger's own tick that was moved to ``first``; ticks up to this one don't count."""


class Peak(NamedTuple):
    """Minutes among the busiest in which the same schedules start."""

    runs: int
    """How many runs start in the fullest of them."""
    minutes: list[Instant]
    """The fullest first."""
    members: Positions
    """The positions of the schedules: those with few runs in the fullest minute first. A schedule that fires
    every few seconds is in each minute, and is not what makes a peak."""
    once: Positions
    """Those of which exactly one run starts in the fullest minute."""


class Load:
    """Runs by the minute in [start, end), both in whole minutes.

    Time and memory are bounded, however often the schedules tick: ticks are counted without being unrolled.
    Only crons with a spread are counted minute by minute.
    """

    def __init__(self, schedules: Iterable[Expected], start: Instant, end: Instant) -> None:
        self.start = -(-start // _MINUTE) * _MINUTE
        self.end = max(self.start, -(-end // _MINUTE) * _MINUTE)
        self.schedules = list(schedules)
        plain: list[tuple[int, Trigger]] = []
        delayed: list[tuple[int, Trigger]] = []
        next_ticks = _NextTicks()
        for position, schedule in enumerate(self.schedules):
            for trigger in _as_it_fires(schedule, self.start, next_ticks):
                shifted = _delayed(trigger, schedule.delay)
                if shifted is None:
                    delayed.append((position, trigger))
                else:
                    plain.append((position, shifted))
        self._plain = Plan(plain)
        self._positions = np.array(self._plain.ids, np.intp)
        first, last = self.start // _MINUTE, self.end // _MINUTE
        work = max(_WORK, _PERIODS * (last - first))
        self.counts, self.estimated = self._plain.per_minute(first, last, work)
        """``estimated``: how many intervals were counted by their mean rates: their periods are too many."""
        self._delayed = _DelayedCrons(
            Plan(delayed), [schedule.delay for schedule in self.schedules], self.start, self.end
        )
        self.undelayed = len(self._delayed) if self._delayed.cut < self.end else 0
        """How many crons with a spread were counted without it in a part of the time, as their ticks are too
        many."""
        self._delayed.add_to(self.counts)

    def total(self) -> int:
        return int(self.counts.sum())

    def per_minute(self) -> list[int]:
        counts: list[int] = self.counts.tolist()
        return counts

    def busiest(self, limit: int) -> list[Instant]:
        """Return the minutes with the most runs, the fullest first, the earlier first among equals."""
        order = np.argsort(-self.counts, kind="stable")[:limit]
        return [self.start + int(minute) * _MINUTE for minute in order if self.counts[minute]]

    def whose(self, minute: Instant) -> Counter[str]:
        """Return how many runs of each schedule start in that minute."""
        runs = self.by_schedule(minute)
        return Counter({self.schedules[at].id: int(runs[at]) for at in np.flatnonzero(runs).tolist()})

    def by_schedule(self, minute: Instant) -> Counts:
        """Return how many runs start in that minute, by the position of the schedule."""
        runs = np.zeros(len(self.schedules), np.int64)
        np.add.at(runs, self._positions, self._plain.by_schedule(minute, minute + _MINUTE))
        self._delayed.add_by_schedule(runs, minute)
        return runs

    def peaks(self, limit: int) -> list[Peak]:
        """Return the ``limit`` busiest minutes, those with the same schedules together, the fullest first."""
        minutes = self.busiest(limit)
        # In the order of time: a plan keeps the days that match from one call to the next.
        runs = {minute: self.by_schedule(minute) for minute in sorted(minutes)}
        found: dict[bytes, Peak] = {}
        for minute in minutes:
            members = np.flatnonzero(runs[minute])
            once = np.flatnonzero(runs[minute] == 1)
            total = int(self.counts[(minute - self.start) // _MINUTE])
            few_first = members[np.argsort(runs[minute][members], kind="stable")]
            found.setdefault(members.tobytes(), Peak(total, [], few_first, once)).minutes.append(minute)
        return list(found.values())


class _NextTicks(dict[tuple[Trigger, Instant], Instant | None]):
    """The first tick of a trigger after an instant, found once for all schedules with an equal trigger."""

    def __missing__(self, key: tuple[Trigger, Instant]) -> Instant | None:
        trigger, after = key
        found = self[key] = trigger.next_ms(after)
        return found


def _as_it_fires(schedule: Expected, start: Instant, next_ticks: _NextTicks) -> list[Trigger]:
    """Return triggers with the ticks of the schedule that fire at or after ``start``, without its delay."""
    trigger, first = schedule.trigger, schedule.first
    begin = start - schedule.delay
    resumed = first if schedule.moved is None or first is None else max(first, schedule.moved)
    if first is None or resumed is None or resumed < begin:
        return [trigger]
    if schedule.moved is None and next_ticks[trigger, begin - 1] == first:
        return [trigger]
    found: list[Trigger] = [At(first)] if first >= begin else []
    following = trigger.next_ms(resumed)
    if following is None:
        return found
    if isinstance(trigger, (Cron, Every)):
        return [*found, replace(trigger, start=following)]
    return [*found, ShiftedTrigger(trigger, following) if isinstance(trigger, Calendared) else trigger]


def _delayed(trigger: Trigger, delay: int) -> Trigger | None:
    """Return a trigger whose ticks are later by ``delay``; None for a cron, of which there is none."""
    if delay == 0:
        return trigger
    if isinstance(trigger, At):
        return At(min(LAST, trigger.instant + delay))
    if isinstance(trigger, Every):
        until = None if trigger.until is None else min(LAST, trigger.until + delay)
        return Every(trigger.period, (trigger.start or 0) + delay, until)
    if isinstance(trigger, ShiftedTrigger):
        return ShiftedTrigger(trigger.trigger, trigger.since, delay)
    if isinstance(trigger, Calendared):
        return ShiftedTrigger(trigger, FIRST, delay)
    return None


class _DelayedCrons:
    """The minutes in which crons with a spread fire, as sorted (minute, schedule, runs) columns.

    ``cut`` is the instant from which on they are counted without their delay, as they are too many.
    """

    def __init__(self, plan: Plan[int], delays: list[int], start: Instant, end: Instant) -> None:
        self._plan = plan
        self._start, self._end = start, end
        self._positions = np.array(plan.ids, np.intp)
        self._delays = np.array(delays, np.int64)[self._positions]
        # The seconds of a minute from which on a delayed tick falls into the next minute.
        rest = self._delays % _MINUTE
        self._late = plan.ticks_a_minute(-(-(_MINUTE - rest) // 1000))
        self._early = plan.ticks_a_minute(np.zeros_like(rest)) - self._late
        self.cut = end
        since = start - int(self._delays.max(initial=0)) // _MINUTE * _MINUTE - _MINUTE
        self._minutes, self._owners, self._runs = self._unrolled(since if len(plan) else end)

    def __len__(self) -> int:
        return len(self._plan)

    def add_to(self, counts: Counts) -> None:
        counts += np.bincount(self._minutes, self._runs, len(counts)).astype(np.int64)
        if self.cut < self._end:
            first = (self.cut - self._start) // _MINUTE
            counts[first:] += self._plan.per_minute(self.cut // _MINUTE, self._end // _MINUTE).counts

    def add_by_schedule(self, runs: Counts, minute: Instant) -> None:
        at = (minute - self._start) // _MINUTE
        # Of the same type: otherwise numpy would convert the whole column.
        wanted = np.array([at, at + 1], self._minutes.dtype)
        inside = slice(*np.searchsorted(self._minutes, wanted))
        np.add.at(runs, self._positions[self._owners[inside]], self._runs[inside])
        if minute >= self.cut:
            np.add.at(runs, self._positions, self._plan.by_schedule(minute, minute + _MINUTE))

    def _unrolled(self, since: Instant) -> tuple[Narrow, Owners, Narrow]:
        parts = []
        size = 0
        for part in self._plan.cron_minutes(since, self._end):
            size += part.size
            if size > _UNROLLED:
                # Ticks before the start fire late, if at all: they are left out.
                self.cut = max(self._start, part.first * _MINUTE)
                break
            owners, ticks = part.pairs()
            minutes = ticks + self._delays[owners] // _MINUTE - self._start // _MINUTE
            parts.append(self._inside(minutes, owners, self._early[owners]))
            if self._late.any():
                parts.append(self._inside(minutes + 1, owners, self._late[owners]))
        times, owners = self._plan.irregular(since, self.cut)
        minutes = (times + self._delays[owners] - self._start) // _MINUTE
        parts.append(self._inside(minutes, owners, np.ones(len(times), np.int64)))
        minutes, owners, runs = (np.concatenate(column) for column in zip(*parts, strict=True))
        # Numbers of 16 bits, which 45 days of minutes fit into, get a radix sort: a million in 10 ms.
        order = np.argsort(minutes, kind="stable")
        return minutes[order], owners[order], runs[order]

    def _inside(self, minutes: Counts, owners: Owners, runs: Counts) -> tuple[Narrow, Owners, Narrow]:
        """Return the runs within the range, in narrow columns: 7 bytes each."""
        last = (self._end - self._start) // _MINUTE
        inside = (minutes >= 0) & (minutes < last) & (runs > 0)
        narrow = np.uint16 if last < 1 << 16 else np.int64
        return minutes[inside].astype(narrow), owners[inside], runs[inside].astype(np.int8)

"""Calendared: a trigger of which calendars remove ticks, or move them to another day. Pure.

The ticks are those of the bare trigger that its calendars admit: inside all of ``only``, and inside none of
``skip``. With ``move``, a tick that they refuse moves to the same time on the wall clock of the next, or the
previous, day on which they admit it; two ticks that land on the same instant are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import tzinfo
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from evenbeat.core.instants import FIRST, Instant, from_ms
from evenbeat.errors import InvalidTrigger
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.calendar_copies import CalendarCopies
from evenbeat.triggers.time_sets import BUILT_IN, DAY, Admission, TimeSet, second_of
from evenbeat.triggers.zones import Zone, zone

if TYPE_CHECKING:
    from evenbeat.triggers.cron import Cron
    from evenbeat.triggers.every import Every

Step: TypeAlias = Callable[[Instant], Instant | None]
Move: TypeAlias = Literal["skip", "next", "previous"]
MOVES: tuple[Move, ...] = ("skip", "next", "previous")

MOST_DAYS_MOVED = 31
"""A tick whose next free day is further away is removed."""
MOST_TIMES = 24
"""A trigger with more times a day can't move its ticks."""

_REACH = (MOST_DAYS_MOVED + 2) * DAY * 1000
# As for a cron: 29 February on a given weekday, across 2100.
_HORIZON = 41 * 366 * DAY * 1000
# A trigger whose ticks are all removed is given up after so many stretches, or moves: about 0.2 s.
_MOST_STRETCHES, _MOST_MOVES = 40_000, 4_000
# So few ticks are counted one by one.
_FEW = 32


class Removed(msgspec.Struct, frozen=True, array_like=True):
    """Ticks of the bare trigger that calendars removed: a range, and where they moved to."""

    first: Instant
    last: Instant
    count: int
    moved_to: Instant | None = None


class Calendared(Trigger, frozen=True, cache_hash=True):
    """A cron or an interval with calendars. ``cron(…, skip=…)`` and ``every(…, only=…)`` make it.

    Without the contents of its calendars (``with_calendars``) it has no ticks, and says so by an error; the
    built-in calendars need none.
    """

    bare: Cron | Every
    skip: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    move: Move = "skip"
    copies: CalendarCopies | None = None
    """What the named calendars contain; None if some of it is not known."""

    @property
    def tzinfo(self) -> tzinfo:
        return self.bare.tzinfo

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its calendars, sorted."""
        return tuple(sorted({*self.skip, *self.only}))

    @property
    def copies_text(self) -> str:
        """What its calendars contain, as a schedule's row keeps it."""
        return self._copies().text

    @property
    def start(self) -> Instant | None:
        return self.bare.start

    @property
    def until(self) -> Instant | None:
        return self.bare.until

    def with_calendars(self, contents: Mapping[str, TimeSet]) -> Calendared:
        """Return the trigger with the contents of its calendars, by name; built-in ones need not be given."""
        known = {**contents, **BUILT_IN}
        missing = [name for name in self.names if name not in known]
        if missing:
            raise self._unresolved(missing[0])
        return self.resolved(CalendarCopies.of({name: known[name] for name in self.names}))

    def resolved(self, copies: CalendarCopies) -> Calendared:
        """Return the trigger with these copies of its calendars."""
        for name in self.names:
            if name not in copies.sets:
                raise self._unresolved(name)
        return Calendared(self.bare, self.skip, self.only, self.move, copies)

    def next_ms(self, after: Instant) -> Instant | None:
        if self.move != "skip":
            return self._next_moved(after)
        admission, bare = self._admission(), self.bare
        first = tick = bare.next_ms(after)
        for _ in range(_MOST_STRETCHES):
            if tick is None or first is None or tick - first > _HORIZON:
                return None
            admitted, until = admission.stretch(tick // 1000)
            if admitted:
                return tick
            tick = bare.next_ms(until * 1000 - 1)
        return None

    def prev_ms(self, before: Instant) -> Instant | None:
        if self.move != "skip":
            return self._prev_moved(before)
        admission, bare = self._admission(), self.bare
        first = tick = bare.prev_ms(before)
        for _ in range(_MOST_STRETCHES):
            if tick is None or first is None or first - tick > _HORIZON:
                return None
            if admission.admits(tick // 1000):
                return tick
            tick = bare.prev_ms(admission.since(tick // 1000, max(FIRST, first - _HORIZON) // 1000) * 1000)
        return None

    def count_ms(self, start: Instant, end: Instant) -> int:
        if self.move != "skip":
            return sum(1 for _ in self.between_ms(start, end))
        admission, bare = self._admission(), self.bare
        number = bare.count_ms(start, end)
        if number <= _FEW:
            return sum(admission.admits(tick // 1000) for tick in bare.between_ms(start, end))
        total = 0
        cursor = bare.next_ms(start - 1)
        while cursor is not None and cursor < end:
            admitted, until = admission.stretch(cursor // 1000)
            if admitted:
                total += bare.count_ms(cursor, min(end, until * 1000))
            cursor = bare.next_ms(until * 1000 - 1)
        return total

    def removed_ms(self, start: Instant, end: Instant) -> list[Removed]:
        """Return the ticks of the bare trigger in [start, end) that are not ticks of this one.

        Without ``move`` they are one range; otherwise one for each instant that they moved to.
        """
        if self.move != "skip":
            gone = [tick for tick in self.bare.between_ms(start, end) if not self._admits(tick)]
            pairs = ((tick, self._moved(tick)) for tick in gone)
            groups = ((to, [tick for tick, _ in group]) for to, group in groupby(pairs, lambda pair: pair[1]))
            return [Removed(ticks[0], ticks[-1], len(ticks), to) for to, ticks in groups]
        admission, bare = self._admission(), self.bare
        count = bare.count_ms(start, end) - self.count_ms(start, end)
        if count == 0:
            return []
        first, last = bare.next_ms(start - 1), bare.prev_ms(end)
        while first is not None and (stretch := admission.stretch(first // 1000)).inside:
            first = bare.next_ms(stretch.until * 1000 - 1)
        while last is not None and admission.admits(last // 1000):
            last = bare.prev_ms(admission.since(last // 1000, start // 1000) * 1000)
        assert first is not None
        assert last is not None
        return [Removed(first, last, count)]

    def removes(self, tick: Instant) -> bool:
        """Return whether the bare trigger has a tick at this instant that the calendars refuse."""
        return self.bare.next_ms(tick - 1) == tick and not self._admits(tick)

    def moved_to(self, tick: Instant) -> Instant | None:
        """Return where a tick that the calendars refuse moves to; None if it is removed."""
        return None if self.move == "skip" else self._moved(tick)

    def refusing(self, tick: Instant) -> tuple[str, ...]:
        """Return the names of the calendars that refuse an instant."""
        copies = self._copies()
        second = tick // 1000
        skipping = [name for name in self.skip if copies.placed(name, self._zone).stretch(second).inside]
        lacking = [name for name in self.only if not copies.placed(name, self._zone).stretch(second).inside]
        return (*skipping, *lacking)

    def explain(self) -> str:
        words, separator, rest = self.bare.explain().partition("; ")
        return f"{words}{self.words()}{separator}{rest}"

    def words(self) -> str:
        """Return what the calendars do, in words that follow those of the bare trigger."""
        words = f", only in {_listed(self.only)}" if self.only else ""
        words += f", not in {_listed(self.skip)}" if self.skip else ""
        return words if self.move == "skip" else f"{words}, moved to the {self.move} free day instead"

    def note(self, tick: Instant) -> str | None:
        """Return the effect of a calendar, or of a clock change, on this tick, in words; None without one."""
        source = self._source(tick) if self.move != "skip" else None
        if source is not None:
            day = from_ms(source, self.tzinfo).date().isoformat()
            return f"moved from {day}: {', '.join(self.refusing(source))}"
        return self.bare.note(tick) if hasattr(self.bare, "note") else None

    def bind(self, name: str, since: Instant) -> Calendared:
        bound = self.bare.bind(name, since)
        if bound is self.bare:
            return self
        return Calendared(bound, self.skip, self.only, self.move, self.copies)

    def __str__(self) -> str:
        options = [
            f"skip={','.join(self.skip)}" if self.skip else "",
            f"only={','.join(self.only)}" if self.only else "",
            "" if self.move == "skip" else f"move={self.move}",
        ]
        return " ".join([str(self.bare), *filter(None, options)])

    # -- contents ------------------------------------------------------------------------------------------

    @property
    def _zone(self) -> Zone:
        return getattr(self.bare, "zone", None) or zone("UTC")

    def _copies(self) -> CalendarCopies:
        if self.copies is None:
            raise self._unresolved(next(name for name in self.names if name not in BUILT_IN))
        return self.copies

    def _admission(self) -> Admission:
        copies = self.copies
        return (self._copies() if copies is None else copies).admission(self.only, self.skip, self._zone)

    def _admits(self, tick: Instant) -> bool:
        return self._admission().admits(tick // 1000)

    def _unresolved(self, name: str) -> InvalidTrigger:
        field = "skip" if name in self.skip else "only"
        return InvalidTrigger(
            str(self),
            f" names the calendar {name}, whose days are not known here",
            field=field,
            value=name,
            hint="set the calendar first, or give its days: trigger.with_calendars({…})",
        )

    # -- moving --------------------------------------------------------------------------------------------

    def _moved(self, tick: Instant) -> Instant | None:
        """Return where a refused tick moves to: the same time on another day that is admitted."""
        bare: Any = self.bare  # a cron: ``move`` is refused for others
        admission, own = self._admission(), bare.zone
        if self.move == "next" and admission.stretch(tick // 1000).until * 1000 > tick + _REACH:
            return None
        label = bare.label_of(tick)
        step = DAY if self.move == "next" else -DAY
        days = 1
        while days <= MOST_DAYS_MOVED:
            second = second_of(own, label + days * step, bare.repeat)
            admitted, until = admission.stretch(second)
            if admitted:
                return second * 1000
            # Over whole days that are refused; a day less, since the clock may be changed by up to a day.
            days += max(1, (until - second) // DAY - 1) if self.move == "next" else 1
        return None

    def _image(self, tick: Instant) -> Instant | None:
        return tick if self._admits(tick) else self._moved(tick)

    def _next_moved(self, after: Instant) -> Instant | None:
        """Return the first instant after ``after`` that a tick keeps, or moves to."""
        best = None
        if self.move == "next":
            best = min(
                (image for image in self._images(self.bare.prev_ms, after + 1) if image > after), default=None
            )
        settled: set[int] = set()
        first = tick = self.bare.next_ms(after)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or tick - first > _HORIZON or len(settled) == self._times:
                break
            if best is not None and tick >= best + (0 if self.move == "next" else _REACH):
                break
            image = self._image(tick)
            if image is not None and image > after:
                best = image if best is None else min(best, image)
            if image == tick:
                settled.add(self._time_of(tick))
                if self.move == "next":
                    break
            tick = self.bare.next_ms(tick)
        return best

    def _prev_moved(self, before: Instant) -> Instant | None:
        """Return the last instant before ``before`` that a tick keeps, or moves to."""
        best = None
        if self.move == "previous":
            images = self._images(self.bare.next_ms, before - 1)
            best = max((image for image in images if image < before), default=None)
        settled: set[int] = set()
        first = tick = self.bare.prev_ms(before)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or first - tick > _HORIZON or len(settled) == self._times:
                break
            if best is not None and tick <= best - (0 if self.move == "previous" else _REACH):
                break
            image = self._image(tick)
            if image is not None and image < before:
                best = image if best is None else max(best, image)
            if image == tick:
                settled.add(self._time_of(tick))
                if self.move == "previous":
                    break
            tick = self.bare.prev_ms(tick)
        return best

    def _images(self, step: Step, edge: Instant) -> Iterator[Instant]:
        """Yield where refused ticks on one side of ``edge`` moved to, as far as they can have moved past it.

        An admitted tick ends the search for its time of day: no tick of that time behind it moves past it.
        """
        settled: set[int] = set()
        tick = step(edge)
        while tick is not None and abs(tick - edge) <= _REACH and len(settled) < self._times:
            if self._admits(tick):
                settled.add(self._time_of(tick))
            elif (image := self._moved(tick)) is not None:
                yield image
            tick = step(tick)

    def _source(self, tick: Instant) -> Instant | None:
        """Return a tick of the bare trigger that moved to ``tick``; None if it is one itself."""
        if self.bare.next_ms(tick - 1) == tick:
            return None
        edge = tick - _REACH if self.move == "next" else tick
        nearby = self.bare.between_ms(edge, edge + _REACH)
        return next((each for each in nearby if not self._admits(each) and self._moved(each) == tick), None)

    @property
    def _times(self) -> int:
        bare: Any = self.bare
        return int(bare.expression.times_a_day)

    def _time_of(self, tick: Instant) -> int:
        bare: Any = self.bare
        return int(bare.label_of(tick) % DAY)


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""Calendared: a trigger of which calendars remove ticks, or move them to another day. Pure.

The ticks are those of the bare trigger that its calendars admit: inside all of ``only``, and inside none of
``skip``. With ``move``, a tick that they refuse moves to the same time on the wall clock of the next, or the
previous, day on which they admit it; two ticks that land on the same instant are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

import msgspec

from evenbeat.core.instants import FIRST, Instant, from_ms
from evenbeat.errors import InvalidTrigger
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.calendar_copies import CalendarCopies
from evenbeat.triggers.calendar_moves import HORIZON, REACH, Move, MovedTicks
from evenbeat.triggers.time_sets import BUILT_IN, Admission, TimeSet
from evenbeat.triggers.zones import Zone, zone

if TYPE_CHECKING:
    from evenbeat.triggers.cron import Cron
    from evenbeat.triggers.every import Every

# A trigger whose ticks are all removed is given up after so many stretches: about 0.2 s.
_MOST_STRETCHES = 40_000
# So few ticks are counted one by one.
_FEW = 32
# Removed ticks are listed in so many ranges; the last one has those of all later stretches.
_MOST_RANGES = 1_000


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
    since: Instant | None = None
    """The instant since when ticks may move: no earlier tick moves, and no tick moves to before it. None
    without such a bound."""

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
            return self._moves().next_ms(after)
        admission, bare = self._admission(), self.bare
        first = tick = bare.next_ms(after)
        for _ in range(_MOST_STRETCHES):
            if tick is None or first is None or tick - first > HORIZON:
                return None
            admitted, until = admission.stretch(tick // 1000)
            if admitted:
                return tick
            tick = bare.next_ms(until * 1000 - 1)
        return None

    def prev_ms(self, before: Instant) -> Instant | None:
        if self.move != "skip":
            return self._moves().prev_ms(before)
        admission, bare = self._admission(), self.bare
        first = tick = bare.prev_ms(before)
        for _ in range(_MOST_STRETCHES):
            if tick is None or first is None or first - tick > HORIZON:
                return None
            if admission.admits(tick // 1000):
                return tick
            tick = bare.prev_ms(admission.since(tick // 1000, max(FIRST, first - HORIZON) // 1000) * 1000)
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
        """Return the ticks of the bare trigger in [start, end) that do not run at their own time.

        Ticks that follow each other and move to the same instant, or to none, are one range.
        """
        if self.move == "skip":
            return self._removed_stretches(start, end)
        moves = self._moves()
        fates = ((tick, moves.fate(tick).image) for tick in self.bare.between_ms(start, end))
        return _ranges((tick, image, image != tick) for tick, image in fates)

    def settled_ms(self, start: Instant, end: Instant, since: Instant) -> list[Removed]:
        """Return the ticks of the bare trigger after ``since`` about which it becomes certain in [start, end)
        that they do not run at their own time.

        That is when they run at another time, or when they are removed.
        """
        if self.move == "skip":
            return self._removed_stretches(max(start, since + 1), end)
        return _ranges(self._settled(start, end, since))

    def waiting_ms(self, at: Instant, since: Instant) -> list[Removed]:
        """Return the ticks of the bare trigger in (since, at] that have moved to instants after ``at``."""
        if self.move != "next":
            return []
        moves = self._moves()
        ticks = self.bare.between_ms(max(since + 1, at - REACH), at + 1)
        fates = ((tick, moves.fate(tick).image) for tick in ticks)
        return _ranges((tick, image, image is not None and image > at) for tick, image in fates)

    def _settled(
        self, start: Instant, end: Instant, since: Instant
    ) -> Iterator[tuple[Instant, Instant | None, bool]]:
        moves = self._moves()
        for tick in self.bare.between_ms(max(since + 1, start - REACH), end + REACH):
            settled_at, image = moves.fate(tick)
            yield tick, image, image != tick and start <= settled_at < end

    def _removed_stretches(self, start: Instant, end: Instant) -> list[Removed]:
        admission, bare = self._admission(), self.bare
        found: list[Removed] = []
        goes_on = False
        cursor = bare.next_ms(start - 1)
        while cursor is not None and cursor < end:
            admitted, until = admission.stretch(cursor // 1000)
            edge = min(end, until * 1000)
            if not admitted:
                last = bare.prev_ms(edge)
                assert last is not None
                gone = Removed(cursor, last, bare.count_ms(cursor, edge))
                if found and (goes_on or len(found) == _MOST_RANGES):
                    before = found.pop()
                    gone = Removed(before.first, last, before.count + gone.count)
                found.append(gone)
            goes_on = not admitted
            cursor = bare.next_ms(edge - 1)
        return found

    def removes(self, tick: Instant) -> bool:
        """Return whether the bare trigger has a tick at this instant that the calendars refuse."""
        return self.bare.next_ms(tick - 1) == tick and not self._admission().admits(tick // 1000)

    def moved_to(self, tick: Instant) -> Instant | None:
        """Return where a tick that the calendars refuse moves to; None if it is removed."""
        return None if self.move == "skip" else self._moves().fate(tick).image

    def refusing(self, tick: Instant) -> tuple[str, ...]:
        """Return the names of the calendars that refuse an instant."""
        return self._refusal(tick // 1000)[0]

    def refusals(self, gone: Removed) -> Iterator[tuple[Removed, tuple[str, ...]]]:
        """Yield the parts of a range of removed ticks, each with the calendars that refuse all its ticks."""
        cursor: Instant | None = gone.first
        while cursor is not None and cursor <= gone.last:
            names, until = self._refusal(cursor // 1000)
            edge = min(gone.last + 1, until * 1000)
            last = self.bare.prev_ms(edge)
            assert last is not None
            yield Removed(cursor, last, self.bare.count_ms(cursor, edge), gone.moved_to), names
            cursor = self.bare.next_ms(last)

    def _refusal(self, second: int) -> tuple[tuple[str, ...], int]:
        """Return the names of the calendars that refuse a second, and until when that certainly holds."""
        copies = self._copies()
        ends = [until for until, _ in copies.phases if second < until][:1]
        copies = copies.at(second)
        names: list[str] = []
        for given, refused in ((self.skip, True), (self.only, False)):
            for name in given:
                inside, until = copies.placed(name, self._zone).stretch(second)
                ends.append(until)
                if inside is refused:
                    names.append(name)
        return tuple(names), min(ends)

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
        source = self._moves().source(tick) if self.move != "skip" else None
        if source is not None:
            day = from_ms(source, self.tzinfo).date().isoformat()
            return f"moved from {day}: {', '.join(self.refusing(source))}"
        return self.bare.note(tick) if hasattr(self.bare, "note") else None

    def bind(self, name: str, since: Instant) -> Calendared:
        bound = self.bare.bind(name, since)
        if self.move != "skip":
            given = None if self.copies is None else self.copies.history.given
            since = since if given is None else given
            return Calendared(bound, self.skip, self.only, self.move, self.copies, since)
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

    def _moves(self) -> MovedTicks:
        bare: Any = self.bare  # a cron: ``move`` is refused for others
        return MovedTicks(bare, self.move, self._admission(), self.since)

    def _unresolved(self, name: str) -> InvalidTrigger:
        field = "skip" if name in self.skip else "only"
        return InvalidTrigger(
            str(self),
            f" names the calendar {name}, whose days are not known here",
            field=field,
            value=name,
            hint="set the calendar first, or give its days: trigger.with_calendars({…})",
        )


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _ranges(ticks: Iterator[tuple[Instant, Instant | None, bool]]) -> list[Removed]:
    """Return ticks, each with where it moved to and whether it belongs to the answer, as ranges."""
    found: list[Removed] = []
    goes_on = False
    for tick, image, belongs in ticks:
        if belongs and goes_on and found[-1].moved_to == image:
            found[-1] = Removed(found[-1].first, tick, found[-1].count + 1, image)
        elif belongs:
            found.append(Removed(tick, tick, 1, image))
        goes_on = belongs
    return found

"""Copies of calendars: what the calendars of a trigger contain, as a schedule's row keeps it. Pure.

When a calendar changes, a row may also keep what it contained before: the ticks until then are those of the
earlier content. So no change removes a tick that was due, adds one to the past, or runs one twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.errors import InvalidValue
from evenbeat.triggers.time_sets import BUILT_IN, Admission, PhasedAdmission, TimeSet, ZonedSet
from evenbeat.triggers.zones import Zone, zone

# Each zone and choice of calendars takes some KB; a copy rarely has more than one.
_MOST_PLACED = 64
# Not a name of a calendar.
_HISTORY = ""


class Phase(msgspec.Struct, frozen=True, array_like=True):
    """What calendars contained before a change."""

    until: int
    """The second from which on it does not apply any more."""
    sets: dict[str, TimeSet]


class History(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row keeps about earlier contents of its calendars."""

    given: Instant | None = None
    """The schedule's anchor before the first change of its calendars: since then the bare trigger applies."""
    earlier: tuple[Phase, ...] = ()
    """The contents before the present one, the oldest first, as far as ticks depend on them."""


NO_HISTORY = History()
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_set = msgspec.json.Decoder(TimeSet).decode
_decode_history = msgspec.json.Decoder(History).decode


class CalendarCopies:
    """The contents of some calendars, by name, and their history. Equal texts are equal copies."""

    __slots__ = ("_admissions", "_placed", "history", "phases", "sets", "text")

    def __init__(self, text: str, sets: Mapping[str, TimeSet], history: History = NO_HISTORY) -> None:
        self.text = text
        self.sets = sets
        self.history = history
        self.phases = tuple((each.until, CalendarCopies.of(each.sets)) for each in history.earlier)
        """The earlier contents, each with the second until which it applied."""
        self._admissions: dict[tuple[tuple[str, ...], tuple[str, ...], Zone], Admission] = {}
        self._placed: dict[tuple[str, Zone], ZonedSet] = {}

    @classmethod
    def of(cls, sets: Mapping[str, TimeSet], history: History = NO_HISTORY) -> CalendarCopies:
        """Return the copies of these contents."""
        body: dict[str, TimeSet | History] = dict(sorted(sets.items()))
        if history != NO_HISTORY:
            body[_HISTORY] = history
        return read_copies(msgspec.json.encode(body).decode())

    @property
    def present(self) -> CalendarCopies:
        """The copies without their history."""
        return self if self.history == NO_HISTORY else CalendarCopies.of(self.sets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalendarCopies) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def at(self, second: int) -> CalendarCopies:
        """Return the contents that apply to a second."""
        return next((copies for until, copies in self.phases if second < until), self)

    def placed(self, name: str, own: Zone) -> ZonedSet:
        """Return a calendar on the clock of its own zone, or of the trigger's if it has none."""
        found = self._placed.get((name, own))
        if found is None:
            times = self.sets[name]
            found = self._placed[name, own] = ZonedSet(times, zone(times.tz) if times.tz else own)
        return found

    def admission(self, only: tuple[str, ...], skip: tuple[str, ...], own: Zone) -> Admission:
        """Return the times that a trigger with these calendars may tick at: each by what applies to it."""
        key = (only, skip, own)
        found = self._admissions.get(key)
        if found is None:
            if len(self._admissions) >= _MOST_PLACED:
                self._admissions.clear()
                self._placed.clear()
            found = Admission(
                tuple(self.placed(name, own) for name in only), tuple(self.placed(name, own) for name in skip)
            )
            if self.phases:
                earlier = [(until, copies.admission(only, skip, own)) for until, copies in self.phases]
                found = PhasedAdmission(tuple(earlier), found)
            self._admissions[key] = found
        return found


# All schedules with the same calendars share one copy, and what was compiled for it.
@lru_cache(maxsize=256)
def read_copies(text: str) -> CalendarCopies:
    """Return the copies that a row keeps; refuse a text that is not one."""
    try:
        parts = _decode(text)
        history = _decode_history(parts.pop(_HISTORY)) if _HISTORY in parts else NO_HISTORY
        return CalendarCopies(text, {name: _decode_set(part) for name, part in parts.items()}, history)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidValue(
            f"the copy of the calendars can't be read: {error}",
            field="calendars",
            value=text[:200],
            hint="update the schedule: that copies its calendars again",
        ) from None


def with_earlier(
    copies: CalendarCopies, before: CalendarCopies, *, until: int, since: int, given: Instant | None
) -> CalendarCopies:
    """Return the copies, with the contents ``before`` applying until the second ``until``.

    Contents that ended at the second ``since`` or before are left out.
    """
    ends: Sequence[tuple[int, CalendarCopies]] = (*before.phases, (until, before))
    earlier: list[Phase] = []
    for end, each in ends:
        end = min(end, until)
        if end > since and (not earlier or end > earlier[-1].until):
            earlier.append(Phase(end, dict(each.sets)))
    return CalendarCopies.of(copies.sets, History(given, tuple(earlier)))


def built_in_copies(names: tuple[str, ...]) -> CalendarCopies | None:
    """Return the copies of built-in calendars; None if one of the names is not built in."""
    if any(name not in BUILT_IN for name in names):
        return None
    return CalendarCopies.of({name: BUILT_IN[name] for name in names})

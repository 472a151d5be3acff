"""Copies of calendars: what the calendars of a trigger contain, as a schedule's row keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from evenbeat.errors import InvalidValue
from evenbeat.triggers.time_sets import BUILT_IN, Admission, TimeSet, ZonedSet
from evenbeat.triggers.zones import Zone, zone

_decode = msgspec.json.Decoder(dict[str, TimeSet]).decode
# Each zone and choice of calendars takes some KB; a copy rarely has more than one.
_MOST_PLACED = 64


class CalendarCopies:
    """The contents of some calendars, by name. Equal texts are equal copies."""

    __slots__ = ("_admissions", "_placed", "sets", "text")

    def __init__(self, text: str, sets: Mapping[str, TimeSet]) -> None:
        self.text = text
        self.sets = sets
        self._admissions: dict[tuple[tuple[str, ...], tuple[str, ...], Zone], Admission] = {}
        self._placed: dict[tuple[str, Zone], ZonedSet] = {}

    @classmethod
    def of(cls, sets: Mapping[str, TimeSet]) -> CalendarCopies:
        """Return the copies of these contents."""
        text = msgspec.json.encode(dict(sorted(sets.items()))).decode()
        return read_copies(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalendarCopies) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def placed(self, name: str, own: Zone) -> ZonedSet:
        """Return a calendar on the clock of its own zone, or of the trigger's if it has none."""
        found = self._placed.get((name, own))
        if found is None:
            times = self.sets[name]
            found = self._placed[name, own] = ZonedSet(times, zone(times.tz) if times.tz else own)
        return found

    def admission(self, only: tuple[str, ...], skip: tuple[str, ...], own: Zone) -> Admission:
        """Return the times that a trigger with these calendars may tick at."""
        key = (only, skip, own)
        found = self._admissions.get(key)
        if found is None:
            if len(self._admissions) >= _MOST_PLACED:
                self._admissions.clear()
                self._placed.clear()
            found = Admission(
                tuple(self.placed(name, own) for name in only), tuple(self.placed(name, own) for name in skip)
            )
            self._admissions[key] = found
        return found


# All schedules with the same calendars share one copy, and what was compiled for it.
@lru_cache(maxsize=256)
def read_copies(text: str) -> CalendarCopies:
    """Return the copies that a row keeps; refuse a text that is not one."""
    try:
        return CalendarCopies(text, _decode(text))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidValue(
            f"the copy of the calendars can't be read: {error}",
            field="calendars",
            value=text[:200],
            hint="update the schedule: that copies its calendars again",
        ) from None


def built_in_copies(names: tuple[str, ...]) -> CalendarCopies | None:
    """Return the copies of built-in calendars; None if one of the names is not built in."""
    if any(name not in BUILT_IN for name in names):
        return None
    return CalendarCopies.of({name: BUILT_IN[name] for name in names})

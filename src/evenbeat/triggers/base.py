"""The interface of every trigger: the ticks after, before and within instants, and its words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

import msgspec

from evenbeat.core.instants import Instant, from_ms, to_ms, to_ms_up
from evenbeat.errors import InvalidValue, shown


class Trigger(msgspec.Struct, frozen=True):
    """The *when* of a schedule: immutable, hashable, and pure: time is always an argument.

    ``…_ms`` methods count in instants (integer milliseconds UTC); their twins take and give aware
    datetimes, in the trigger's own zone. ``str(trigger)`` is the canonical text that
    ``parse_trigger`` reads back.
    """

    @abstractmethod
    def next_ms(self, after: Instant) -> Instant | None:
        """Return the first tick strictly after ``after``, or None if there is none."""

    @abstractmethod
    def prev_ms(self, before: Instant) -> Instant | None:
        """Return the last tick strictly before ``before``, or None if there is none."""

    @abstractmethod
    def count_ms(self, start: Instant, end: Instant) -> int:
        """Return how many ticks there are in [start, end). Years of seconds are counted in microseconds."""

    @abstractmethod
    def explain(self) -> str:
        """Return the trigger in plain English."""

    @abstractmethod
    def bind(self, name: str, since: Instant) -> Trigger:
        """Return the trigger as a schedule called ``name`` and created at ``since`` keeps it.

        Open parts are fixed: ``H`` becomes the value hashed from the name, an interval without a start
        counts from ``since``. A trigger without open parts returns itself.
        """

    @property
    def tzinfo(self) -> tzinfo:
        """The zone in which the trigger's datetimes are given."""
        return UTC

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def between_ms(self, start: Instant, end: Instant) -> Iterator[Instant]:
        """Yield the ticks in [start, end), in order, computed one by one."""
        tick = self.next_ms(start - 1)
        while tick is not None and tick < end:
            yield tick
            tick = self.next_ms(tick)

    def next(self, after: datetime) -> datetime | None:
        """Return the first tick strictly after ``after``, or None if there is none."""
        # Rounding down to the millisecond is exact here: ticks are whole milliseconds.
        tick = self.next_ms(to_ms(after, "after"))
        return None if tick is None else from_ms(tick, self.tzinfo)

    def prev(self, before: datetime) -> datetime | None:
        """Return the last tick strictly before ``before``, or None if there is none."""
        # Rounded up: a tick at .000 lies before a moment at .0001.
        tick = self.prev_ms(to_ms_up(before, "before"))
        return None if tick is None else from_ms(tick, self.tzinfo)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the ticks in [start, end), in order, computed one by one."""
        tz = self.tzinfo
        ticks = self.between_ms(to_ms_up(start, "start"), to_ms_up(end, "end"))
        return (from_ms(tick, tz) for tick in ticks)


def check_text(text: object) -> None:
    """Refuse a value that is not a text."""
    if not isinstance(text, str):
        raise InvalidValue(
            f"trigger {shown(text)} is not a text",
            field="trigger",
            value=text,
            hint='write it like "0 9 * * mon-fri" or "every 10m"; str(trigger) is the text of a trigger',
        )

"""Many cron triggers as columns of bitsets, evaluated hour by hour.

Time is cut into segments of at most an hour, in whole minutes, in which no wall clock involved
changes its hour or its offset. Within one, the minutes at which a trigger ticks are its own minutes,
shifted: one 64-bit integer per trigger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.triggers import Cron
from evenbeat.triggers.days import ALL_DAYS, ALL_WEEKDAYS, EPOCH_ORDINAL, bits

Bits: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]

_DAY = 86_400
_MINUTE = 60_000
_NEVER = -(1 << 62)


class Segment(NamedTuple):
    """A stretch of ``minutes`` minutes from the minute ``first`` (since 1970) on; bit i of ``ticking`` is
    minute i."""

    first: int
    minutes: int
    ticking: Bits
    """One integer for each trigger of the table."""


class Piece(NamedTuple):
    """A stretch [start, end) in seconds in which a wall clock is ``offset`` from UTC and all its labels
    count."""

    start: int
    end: int
    offset: int


class CronTable:
    """A table with a row for each of the triggers, which are distinct."""

    def __init__(self, triggers: Sequence[Cron]) -> None:
        self._triggers = triggers
        by_clock: dict[tuple[object, ...], list[int]] = {}
        for row, trigger in enumerate(triggers):
            by_clock.setdefault((trigger.zone, trigger.gap, trigger.repeat), []).append(row)
        self._groups = [_Group([triggers[row] for row in rows], rows) for rows in by_clock.values()]
        self._starts = np.array([FIRST if t.start is None else t.start for t in triggers], np.int64)
        self._untils = np.array([LAST if t.until is None else t.until for t in triggers], np.int64)
        # The minutes [low, high) that lie wholly between start and until, and those that lie there in part.
        self._lows = -(-self._starts // _MINUTE)
        self._highs = (self._untils + 1) // _MINUTE
        self._first_parts = np.where(self._starts % _MINUTE != 0, self._lows - 1, _NEVER)
        self._last_parts = np.where((self._untils + 1) % _MINUTE != 0, self._highs, _NEVER)
        seconds = [trigger.expression.seconds for trigger in triggers]
        self.seconds: Bits = np.array(seconds, np.uint64)
        self.ticks_a_minute = np.array([mask.bit_count() for mask in seconds], np.int64)
        minutes = np.array([trigger.expression.minutes.bit_count() for trigger in triggers], np.int64)
        self.ticks_an_hour = minutes * self.ticks_a_minute
        """By row, in an hour that matches at all."""
        self.has_seconds: Flags = np.array([mask != 1 for mask in seconds], np.bool_)
        self._second_lists = {mask: np.array(bits(mask), np.int64) for mask in set(seconds)}

    def __len__(self) -> int:
        return len(self._triggers)

    def seconds_of(self, rows: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the matching seconds of each row, one after the other, and how many each has."""
        lists = [self._second_lists[self._triggers[row].expression.seconds] for row in rows.tolist()]
        lengths = np.array([len(seconds) for seconds in lists], np.int64)
        return np.concatenate([np.empty(0, np.int64), *lists]), lengths

    def segments(self, start: Instant, end: Instant) -> Iterator[Segment]:
        """Yield the segments of the whole minutes around [start, end), in order, without the irregular
        rows."""
        first, last = start // 60_000 * 60, -(-end // 60_000) * 60
        groups = [
            (group, pieces)
            for group in self._groups
            if (pieces := group.regular_pieces(first, last)) is not None
        ]
        # UTC's own hours, too: a segment also ends where all clocks are between pieces.
        cuts = {first, last, *range(first - first % 3600 + 3600, last, 3600)}
        for _, pieces in groups:
            for piece in pieces:
                hour = piece.start - (piece.start + piece.offset) % 3600 + 3600
                cuts.update((piece.start, piece.end), range(hour, piece.end, 3600))
        whole = (self._lows <= first // 60) & (self._highs >= last // 60)
        some = np.flatnonzero(~whole & (self._lows < last // 60) & (self._highs > first // 60))
        edges = sorted(cuts)
        ticking = np.zeros(len(self), np.uint64)
        for begin, stop in pairwise(edges):
            for group, pieces in groups:
                ticking[group.rows] = group.ticking(pieces, begin)
            minute, minutes = begin // 60, (stop - begin) // 60
            mask = np.uint64((1 << minutes) - 1)
            found = np.where(whole, ticking & mask, np.uint64(0))
            if len(some):
                found[some] = ticking[some] & self._in_force(some, minute, minutes)
            yield Segment(minute, minutes, found)

    def irregular(self, start: Instant, end: Instant) -> Iterator[tuple[Instant, int]]:
        """Yield the (tick, row) pairs in [start, end) that the segments leave out, in any order.

        These are the ticks of minutes in which a row starts or ends, of clocks that are not in step with
        UTC's minutes (none has been since 1972), and the single tick that stands for the labels of a gap.
        """
        first, last = start // 60_000 * 60, -(-end // 60_000) * 60
        one_by_one = np.zeros(len(self), np.bool_)
        for group in self._groups:
            if group.regular_pieces(first, last) is None:
                one_by_one[group.rows] = True
                continue
            for instant, row in group.shifted(first, last):
                in_force = self._lows[row] <= instant // _MINUTE < self._highs[row]
                if in_force and start <= instant < end:
                    yield instant, row
        for row in np.flatnonzero(one_by_one).tolist():
            for tick in self._triggers[row].between_ms(start, end):
                yield tick, row
        for minute, row in self._parts(first // 60, last // 60, ~one_by_one):
            begin, stop = max(start, minute * _MINUTE), min(end, (minute + 1) * _MINUTE)
            for tick in self._triggers[row].between_ms(begin, stop):
                yield tick, row

    def _in_force(self, rows: Rows, first: int, minutes: int) -> Bits:
        """Return the minutes from ``first`` on that lie wholly between start and until, by row, as bits."""
        low = np.clip(self._lows[rows] - first, 0, minutes).astype(np.uint64)
        high = np.maximum(np.clip(self._highs[rows] - first, 0, minutes).astype(np.uint64), low)
        one = np.uint64(1)
        return (one << high) - (one << low)

    def _parts(self, first: int, last: int, chosen: Flags) -> Iterator[tuple[int, int]]:
        """Yield (minute, row) for the minutes in [first, last) in which a row starts or ends."""
        for parts, others in ((self._first_parts, None), (self._last_parts, self._first_parts)):
            inside = chosen & (parts >= first) & (parts < last)
            if others is not None:
                inside &= parts != others
            for row in np.flatnonzero(inside).tolist():
                yield int(parts[row]), row


class _Group:
    """The triggers that share a zone and a rule for its changes."""

    def __init__(self, triggers: Sequence[Cron], rows: Sequence[int]) -> None:
        self.rows: Rows = np.array(rows, np.int64)
        self._triggers = triggers
        self._zone, self._gap, self._repeat = triggers[0].zone, triggers[0].gap, triggers[0].repeat
        expressions = [trigger.expression for trigger in triggers]
        days = [expression.days for expression in expressions]
        self._minutes: Bits = np.array([e.minutes for e in expressions], np.uint64)
        self._hours = np.array([e.hours for e in expressions], np.uint32)
        self._dom = np.array([d.dom & ALL_DAYS for d in days], np.uint32)
        self._months = np.array([d.months for d in days], np.uint16)
        self._dow = np.array([d.dow & ALL_WEEKDAYS for d in days], np.uint8)
        self._both: Flags = np.array([d.both for d in days], np.bool_)
        # L, W and # depend on the shape of the month: these few rows are evaluated one by one.
        self._special = [i for i, d in enumerate(days) if d.dom > ALL_DAYS or d.dow > ALL_WEEKDAYS]
        self._day = -(1 << 62)
        self._on_day: Flags = np.zeros(len(triggers), np.bool_)

    def regular_pieces(self, first: int, last: int) -> list[Piece] | None:
        """Return the pieces of [first, last); None if any is out of step with UTC's minutes."""
        pieces = []
        second = first
        while second < last:
            window = self._zone.window(second)
            begin, end = window.counted(self._repeat)
            piece = Piece(max(begin, first), min(end, last), window.offset)
            if piece.start < piece.end:
                if piece.start % 60 or piece.end % 60 or piece.offset % 60:
                    return None
                pieces.append(piece)
            second = window.hi
        return pieces

    def ticking(self, pieces: list[Piece], begin: int) -> Bits:
        """Return the minutes from ``begin`` to the end of the hour on the wall at which each row ticks."""
        piece = next((piece for piece in pieces if piece.start <= begin < piece.end), None)
        if piece is None:
            return np.zeros(len(self.rows), np.uint64)
        day, second = divmod(begin + piece.offset, _DAY)
        if day != self._day:
            self._on_day, self._day = self._matching(day), day
        hour, minute = second // 3600, second % 3600 // 60
        ticking = self._on_day & (self._hours >> np.uint32(hour) & np.uint32(1)).astype(np.bool_)
        return np.where(ticking, self._minutes >> np.uint64(minute), np.uint64(0))

    def shifted(self, first: int, last: int) -> Iterator[tuple[Instant, int]]:
        """Yield (tick, row) for each gap and each row with a label inside it and none right after it."""
        second = first
        while second < last and self._gap == "shift":
            lo, second, offset, before, _ = self._zone.window(second)
            if offset > before and lo >= first:
                for row, trigger in zip(self.rows.tolist(), self._triggers, strict=True):
                    label = trigger.expression.at_or_after(lo + before)
                    after = trigger.expression.at_or_after(lo + offset)
                    if label is not None and label < lo + offset != after:
                        yield lo * 1000, row

    def _matching(self, day: int) -> Flags:
        at = date.fromordinal(day + EPOCH_ORDINAL)
        by_month = self._months >> np.uint16(at.month) & np.uint16(1)
        by_date = self._dom >> np.uint32(at.day) & np.uint32(1)
        by_week = self._dow >> np.uint8(at.isoweekday() % 7) & np.uint8(1)
        by_day = np.where(self._both, by_date & by_week, by_date | by_week)
        matching: Flags = (by_month & by_day).astype(np.bool_)
        for at_row in self._special:
            matching[at_row] = bool(self._triggers[at_row].expression.days.rest_of_month(day) & 1)
        return matching

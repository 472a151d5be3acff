"""Where the ticks of a cron move to that its calendars refuse. Pure.

A tick is settled once: when it runs at its own time or at the one that it moved to, or when no day is left
for it. What calendars contain may change before that. Then the new content decides about the time that is
left: a tick that waits for a free day runs on the first one that the new content leaves, and a tick that has
run ahead of its time does not run again.

A trigger that applies since an instant has no ticks before it: none moves from there to a later day, and none
runs ahead on a day that had passed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from evenbeat.core.instants import FIRST, Instant
from evenbeat.triggers.time_sets import DAY, Admission, PhasedAdmission, second_of

if TYPE_CHECKING:
    from evenbeat.triggers.cron import Cron

Step: TypeAlias = Callable[[Instant], Instant | None]
Move: TypeAlias = Literal["skip", "next", "previous"]
MOVES: tuple[Move, ...] = ("skip", "next", "previous")

MOST_DAYS_MOVED = 31
"""A tick whose next free day is further away is removed."""
MOST_TIMES = 24
"""A trigger with more times a day can't move its ticks."""

REACH = (MOST_DAYS_MOVED + 2) * DAY * 1000
"""No tick moves further than this."""
# As for a cron: 29 February on a given weekday, across 2100.
HORIZON = 41 * 366 * DAY * 1000
# A trigger whose ticks are all removed is given up after so many moves: about 0.2 s.
_MOST_MOVES = 4_000


class Fate(NamedTuple):
    """What becomes of a tick of the bare trigger."""

    settled_at: Instant
    """When that is certain, whatever the calendars contain later."""
    image: Instant | None
    """When it runs; None if it is removed."""


class MovedTicks:
    """The ticks of a cron whose refused ticks move to the next, or the previous, free day."""

    def __init__(self, bare: Cron, move: Move, admission: Admission, since: Instant | None = None) -> None:
        self._bare = bare
        self._since = FIRST - 1 if since is None else since
        self._is_next = move == "next"
        phases = admission.earlier if isinstance(admission, PhasedAdmission) else ()
        present = admission.present if isinstance(admission, PhasedAdmission) else admission
        self._ends = [end for end, _ in phases]
        self._admissions = [*(each for _, each in phases), present]
        # Ticks that are this late do not depend on earlier contents.
        self._edge = phases[-1][0] * 1000 + REACH if phases else None

    def fate(self, tick: Instant) -> Fate:
        """Return what becomes of a tick of the bare trigger."""
        if tick <= self._since:
            return Fate(tick, None)
        if not self._ends:
            image = self._plain(tick)
            return Fate(tick if image is None else image, image)
        return self._fate_forward(tick) if self._is_next else self._fate_back(tick)

    def next_ms(self, after: Instant) -> Instant | None:
        """Return the first instant after ``after`` that a tick keeps, or moves to."""
        if self._edge is None or after > self._edge:
            return self._next_plain(after)
        best: Instant | None = None
        first = tick = self._tick_after(after - REACH if self._is_next else after)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or tick - first > HORIZON:
                break
            if best is not None and tick >= best + (0 if self._is_next else REACH):
                break
            image = self.fate(tick).image
            if image is not None and image > after:
                best = image if best is None else min(best, image)
            tick = self._tick_after(tick)
        return best

    def prev_ms(self, before: Instant) -> Instant | None:
        """Return the last instant before ``before`` that a tick keeps, or moves to."""
        if self._edge is None:
            return self._prev_plain(before)
        if before > self._edge + REACH:
            found = self._prev_plain(before)
            if found is not None and found > self._edge:
                return found
        best: Instant | None = None
        first = tick = self._tick_before(before if self._is_next else before + REACH)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or first - tick > HORIZON:
                break
            if best is not None and tick <= best - (REACH if self._is_next else 0):
                break
            image = self.fate(tick).image
            if image is not None and image < before:
                best = image if best is None else max(best, image)
            tick = self._tick_before(tick)
        return best

    def source(self, tick: Instant) -> Instant | None:
        """Return a tick of the bare trigger that moved to ``tick``; None if it is one itself."""
        if self._bare.next_ms(tick - 1) == tick:
            return None
        edge = tick - REACH if self._is_next else tick
        nearby = self._bare.between_ms(edge, edge + REACH)
        return next((each for each in nearby if self.fate(each).image == tick), None)

    def _tick_after(self, instant: Instant) -> Instant | None:
        return self._bare.next_ms(max(instant, self._since))

    def _tick_before(self, instant: Instant) -> Instant | None:
        tick = self._bare.prev_ms(instant)
        return tick if tick is not None and tick > self._since else None

    def _fate_forward(self, tick: Instant) -> Fate:
        index = next((each for each, end in enumerate(self._ends) if tick // 1000 < end), len(self._ends))
        if self._admissions[index].admits(tick // 1000):
            return Fate(tick, tick)
        image = self._free_day(self._admissions[index], tick)
        if image is None:
            return Fate(tick, None)
        while index < len(self._ends) and image // 1000 >= self._ends[index]:
            # The content changes before its day comes.
            edge = self._ends[index]
            index += 1
            image = self._free_day(self._admissions[index], tick, edge)
            if image is None:
                return Fate(edge * 1000, None)
        return Fate(image, image)

    def _fate_back(self, tick: Instant) -> Fate:
        begin = self._since + 1
        for end, admission in zip((*self._ends, None), self._admissions, strict=True):
            image = tick if admission.admits(tick // 1000) else self._free_day(admission, tick)
            # A day that had passed when the trigger was set, or the content changed, can't be used any more.
            if image is not None and image >= begin and (end is None or image < end * 1000):
                return Fate(image, image)
            if end is not None and tick // 1000 < end:
                break
            begin = max(begin, (end or 0) * 1000)
        return Fate(tick, None)

    def _free_day(self, admission: Admission, tick: Instant, since: int | None = None) -> Instant | None:
        """Return the same time on the first day that is admitted, not before the second ``since``."""
        start = tick // 1000 if since is None else max(tick // 1000, since)
        if self._is_next:
            admitted, until = admission.stretch(start)
            if not admitted and until * 1000 > tick + REACH:
                return None
        label = self._bare.label_of(tick)
        step = DAY if self._is_next else -DAY
        days = 1
        while days <= MOST_DAYS_MOVED:
            second = second_of(self._bare.zone, label + days * step, self._bare.repeat)
            if since is not None and second < since:
                days += 1
                continue
            admitted, until = admission.stretch(second)
            if admitted:
                return second * 1000
            # Over whole days that are refused; a day less, since the clock may be changed by up to a day.
            days += max(1, (until - second) // DAY - 1) if self._is_next else 1
        return None

    # -- one content ---------------------------------------------------------------------------------------

    def _plain(self, tick: Instant) -> Instant | None:
        """Return where a tick runs by the present content alone."""
        admission = self._admissions[-1]
        image = tick if admission.admits(tick // 1000) else self._free_day(admission, tick)
        return image if image is not None and image > self._since else None

    def _next_plain(self, after: Instant) -> Instant | None:
        best = None
        if self._is_next:
            images = self._images(self._tick_before, after + 1)
            best = min((image for image in images if image > after), default=None)
        settled: set[int] = set()
        first = tick = self._tick_after(after)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or tick - first > HORIZON or len(settled) == self._times:
                break
            if best is not None and tick >= best + (0 if self._is_next else REACH):
                break
            image = self._plain(tick)
            if image is not None and image > after:
                best = image if best is None else min(best, image)
            if image == tick:
                settled.add(self._time_of(tick))
                if self._is_next:
                    break
            tick = self._tick_after(tick)
        return best

    def _prev_plain(self, before: Instant) -> Instant | None:
        best = None
        if not self._is_next:
            images = self._images(self._tick_after, before - 1)
            best = max((image for image in images if image < before), default=None)
        settled: set[int] = set()
        first = tick = self._tick_before(before)
        for _ in range(_MOST_MOVES):
            if tick is None or first is None or first - tick > HORIZON or len(settled) == self._times:
                break
            if best is not None and tick <= best - (REACH if self._is_next else 0):
                break
            image = self._plain(tick)
            if image is not None and image < before:
                best = image if best is None else max(best, image)
            if image == tick:
                settled.add(self._time_of(tick))
                if not self._is_next:
                    break
            tick = self._tick_before(tick)
        return best

    def _images(self, step: Step, edge: Instant) -> Iterator[Instant]:
        """Yield where refused ticks on one side of ``edge`` moved to, as far as they can have moved past it.

        An admitted tick ends the search for its time of day: no tick of that time behind it moves past it.
        """
        settled: set[int] = set()
        tick = step(edge)
        while tick is not None and abs(tick - edge) <= REACH and len(settled) < self._times:
            image = self._plain(tick)
            if image == tick:
                settled.add(self._time_of(tick))
            elif image is not None:
                yield image
            tick = step(tick)

    @property
    def _times(self) -> int:
        return self._bare.expression.times_a_day

    def _time_of(self, tick: Instant) -> int:
        return self._bare.label_of(tick) % DAY

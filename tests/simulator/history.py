"""The ticks to expect, computed from the users' changes, independently of the code of the rules.

The history of a schedule is a list of segments, each with the ticks of one trigger. Each tick of each
segment must be recorded once, as a run or within one range of the ledger, and no other tick may be
recorded.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import islice

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, Skipped
from evenbeat.triggers import At, Trigger, parse_trigger
from tests.simulator.backends import Key
from tests.simulator.fault_proxy import Intent
from tests.simulator.violation import Violation

_MOST_TICKS = 100_000
_LATER = 86_400_000


class Segment:
    """Ticks of one generation: ``first`` if it is set, then the trigger's in [start, end)."""

    def __init__(
        self, generation: int, trigger: Trigger, start: Instant, first: Instant | None = None
    ) -> None:
        self.generation = generation
        self.trigger = trigger
        self.start = start
        self.first = first
        self.end: Instant | None = None
        self.is_ahead = False
        """Whether the ticks before its end may still have to come."""
        self.off: list[list[int]] = []
        """The spans of its calendar, in seconds."""
        self.created: Instant = 0

    def ticks(self, end: Instant) -> list[Instant]:
        end = self._until(end)
        found = [tick for tick in self._bare(end) if not self._is_off(tick)]
        return [self.first, *found] if self.first is not None and self.first < end else found

    def removed(self, end: Instant) -> list[Instant]:
        """The ticks of the bare trigger that its calendar removes."""
        return [tick for tick in self._bare(self._until(end)) if self._is_off(tick)]

    def _until(self, end: Instant) -> Instant:
        if self.end is None:
            return end
        return min(self.end, end) if self.is_ahead else self.end

    def _bare(self, end: Instant) -> list[Instant]:
        return list(islice(self.trigger.between_ms(self.start, end), _MOST_TICKS))

    def _is_off(self, tick: Instant) -> bool:
        return any(start * 1000 <= tick < end * 1000 for start, end in self.off)


class History:
    """The segments of one schedule, and all records of its ticks."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.segments: list[Segment] = []
        self.fired: set[tuple[int, Instant]] = set()
        self.skipped: list[Skipped] = []

    def apply(self, intent: Intent, before: ScheduleRecord | None, after: ScheduleRecord) -> None:
        """Note that a user's change was accepted."""
        now, name = intent.now, self.key[1]
        if intent.kind == "create":
            assert intent.trigger is not None
            self._open(after.generation, _bare(intent.trigger, name, now), now, after)
        elif intent.kind == "recalendar" or (before is not None and before.trigger == intent.trigger):
            assert before is not None
            self._recalendar(now, before, after)
        elif intent.kind == "retrigger":
            assert intent.trigger is not None
            self._close(_dealt_with(before, now))
            self._open(after.generation, _bare(intent.trigger, name, now), now, after)
        elif intent.kind == "reschedule":
            self._reschedule(intent, before, after)
        elif intent.kind == "delete":
            self._close(_dealt_with(before, now))

    def _recalendar(self, now: Instant, before: ScheduleRecord, after: ScheduleRecord) -> None:
        """Note another content of the calendar. The phase stays: the bare trigger is that of the segment
        before."""
        trigger = self.segments[-1].trigger
        kept = self._kept(now, before, after)
        if kept is None:
            self._close(_dealt_with(before, now))
            # With a clock that is behind, the ticks still begin where those of the trigger do.
            self._open(after.generation, trigger, max(now, after.anchor), after)
        else:
            # Until the end of the second of that tick, the old content applies.
            edge = (max(now, kept) // 1000 + 1) * 1000
            self._close(edge, is_ahead=True)
            self._open(after.generation, trigger, edge - 1, after)

    def _kept(self, now: Instant, before: ScheduleRecord, after: ScheduleRecord) -> Instant | None:
        """Return the next tick if it stays whatever the new content is: it waits, or the user's clock is
        behind and ticks after the user's now are dealt with already."""
        if after.next_tick is not None and after.next_tick <= now:
            return after.next_tick
        coming = before.next_tick
        if coming is None or coming <= now:
            return None
        last = self.segments[-1]
        mine = [segment for segment in self.segments if segment.trigger is last.trigger]
        passed = (tick for segment in mine for tick in segment.ticks(coming))
        return coming if any(max(now, before.anchor) < tick < coming for tick in passed) else None

    def _open(self, generation: int, trigger: Trigger, now: Instant, row: ScheduleRecord) -> None:
        if isinstance(trigger, At):
            # A single instant is due also if it lies in the past.
            self.segments.append(Segment(generation, trigger, trigger.instant + 1, trigger.instant))
        else:
            self.segments.append(Segment(generation, trigger, now + 1))
            self.segments[-1].off = _spans(row)
            self.segments[-1].created = row.created_at

    def _close(self, end: Instant, *, is_ahead: bool = False) -> None:
        last = self.segments[-1]
        if last.end is None:
            last.end = end
        for segment in self.segments:
            if segment.is_ahead and segment.end is not None and segment.generation == last.generation:
                segment.end = min(segment.end, end)
                segment.is_ahead = is_ahead
        last.is_ahead = is_ahead

    def _reschedule(self, intent: Intent, before: ScheduleRecord | None, after: ScheduleRecord) -> None:
        assert before is not None
        tick = intent.tick
        assert tick is not None
        last = self.segments[-1]
        if after.generation == last.generation:
            # Moved forward: everything up to there is accounted for.
            self._close(tick)
        elif is_paused(before, intent.now):
            # The new generation starts at or before the watermark: the pause's ticks come with it.
            self._close(_dealt_with(before, intent.now) if before.next_tick is None else before.next_tick)
        else:
            self._close(_dealt_with(before, intent.now))
        # The one tick of a single instant is the one that was moved.
        trigger = At(tick) if isinstance(last.trigger, At) else last.trigger
        resumes = _resumes(last, tick, moved_back=after.generation != last.generation)
        self.segments.append(Segment(after.generation, trigger, resumes, tick))

    def check(self, row: ScheduleRecord | None, now: Instant) -> None:
        """Check that every tick is recorded once, and no other. ``row`` is the schedule's present row."""
        if row is None:
            if self.segments:
                raise Violation(f"the row of {self.key[1]} is gone", self.key[1])
            return
        end = now + _LATER if row.next_tick is None else row.next_tick
        for generation in {segment.generation for segment in self.segments}:
            expected: list[Instant] = []
            for segment in self.segments:
                if segment.generation == generation:
                    expected += segment.ticks(end)
            self._check_generation(generation, sorted(expected))
            self._check_removed(generation, end)
        known = {segment.generation for segment in self.segments}
        for other in {generation for generation, _ in self.fired} - known:
            raise Violation(f"{self.key[1]} has runs of an unknown generation {other}", self.key[1])

    def _check_generation(self, generation: int, expected: list[Instant]) -> None:
        label = f"{self.key[0]}/{self.key[1]}/{generation}"
        twice = [tick for tick, count in Counter(expected).items() if count > 1]
        if twice:
            raise Violation(f"tick {label}/{twice[0]} comes twice in one generation", self.key[1])
        found = Counter(tick for fired_in, tick in self.fired if fired_in == generation)
        for row in self.skipped:
            if row.generation != generation or row.reason == "calendar":
                continue
            low, high = bisect_left(expected, row.first), bisect_right(expected, row.last)
            if row.count != high - low:
                raise Violation(
                    f"the ledger of {label} counts {row.count} {row.reason} in {row.first}..{row.last}, "
                    f"there were {high - low}",
                    self.key[1],
                )
            found.update(expected[low:high])
        for tick in expected:
            if found[tick] != 1:
                what = "is lost" if found[tick] == 0 else f"is accounted for {found[tick]} times"
                raise Violation(f"tick {label}/{tick} {what}", self.key[1])
        unexpected = found.keys() - set(expected)
        if unexpected:
            raise Violation(f"{label}/{min(unexpected)} fired, but is not a tick", self.key[1])

    def _check_removed(self, generation: int, end: Instant) -> None:
        """Check that rows of the ledger about calendars have removed ticks alone, each at most once, and all
        of those between two ticks of a segment that fired."""
        mine = [segment for segment in self.segments if segment.generation == generation]
        times = Counter(tick for segment in mine for tick in segment.removed(end))
        removed = sorted(times)
        seen: Counter[Instant] = Counter()
        for row in self.skipped:
            if row.generation != generation or row.reason != "calendar":
                continue
            inside = removed[bisect_left(removed, row.first) : bisect_right(removed, row.last)]
            if len(inside) < row.count or row.first not in times or row.last not in times:
                raise Violation(
                    f"the ledger of {self.key[1]} counts {row.count} ticks that a calendar removed in "
                    f"{row.first}..{row.last}, there were {len(inside)}",
                    self.key[1],
                )
            seen.update(inside)
        # A clock that was set back begins a segment before the end of the last one.
        twice = [tick for tick, count in seen.items() if count > 1 == times[tick] and len(mine) == 1]
        if twice:
            raise Violation(f"the removed tick {twice[0]} of {self.key[1]} is recorded twice", self.key[1])
        fired = {tick for number, tick in self.fired if number == generation}
        for segment in mine:
            own = sorted(fired.intersection(segment.ticks(end)))
            for tick in segment.removed(end):
                # A schedule has no ticks before its creation, also if the clock was set back since.
                if own and own[0] < tick < own[-1] and not seen[tick] and tick > segment.created:
                    raise Violation(f"the removed tick {tick} of {self.key[1]} is not recorded", self.key[1])


def _bare(trigger: str, name: str, now: Instant) -> Trigger:
    """Return a trigger without its calendar, as a schedule that is created now has it."""
    return parse_trigger(trigger.replace(" skip=off", "")).bind(name, now)


def _spans(row: ScheduleRecord) -> list[list[int]]:
    """Return the spans of a row's calendar."""
    return json.loads(row.calendars)["off"].get("spans", []) if row.calendars else []


def _resumes(last: Segment, tick: Instant, *, moved_back: bool) -> Instant:
    """Return from when the trigger's own ticks fire again. A tick that was moved does not fire at its own
    time."""
    assert last.end is not None
    if not moved_back:
        # A tick that had been moved before still stands for the one that it stood for.
        return max(tick + 1, last.start)
    if last.first is not None and last.first >= last.end:
        own: Instant | None = max(last.first, last.start - 1)
    else:
        own = last.trigger.next_ms(max(last.end, last.start) - 1)
    return tick + 1 if own is None else max(tick, own) + 1


def is_paused(schedule: ScheduleRecord, now: Instant) -> bool:
    """Return the row as it is at ``now``: a pause with an end is over then, even if no node has read the
    row."""
    return schedule.state == "paused" and (schedule.paused_until is None or schedule.paused_until > now)


def _dealt_with(before: ScheduleRecord | None, now: Instant) -> Instant:
    """Return until when a change at ``now`` must have recorded the ticks of the row before it."""
    if before is None or before.next_tick is None:
        # Finished: all there were. What "now" says does not matter, it may be behind.
        return now + _LATER
    return max(now + 1, before.next_tick)

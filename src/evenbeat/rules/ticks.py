"""The ticks of a schedule: its trigger with everything fixed, and when the coming tick fires. Pure."""

from __future__ import annotations

from datetime import tzinfo
from functools import lru_cache
from hashlib import blake2b

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.triggers import At, Calendared, Trigger, parse_trigger
from evenbeat.triggers.calendar_copies import read_copies


def trigger_of(schedule: ScheduleRecord) -> Trigger:
    """Return the schedule's trigger, bound to its name and start, and with a tick that a user has moved."""
    trigger = own_trigger(schedule)
    if isinstance(trigger, At) and schedule.next_tick not in (None, trigger.instant):
        return At(schedule.next_tick)  # a user has moved its only tick
    if schedule.moved is not None and schedule.next_tick is not None:
        return MovedTick(trigger, schedule.next_tick, schedule.moved)
    return trigger


def tick_run_id(schedule: ScheduleRecord, generation: int, tick: Instant) -> str:
    """Return the id of the run of a tick: every node computes the same, and no other tick has it."""
    return f"{schedule.tenant}/{schedule.name}/{generation}/{tick}"


def own_trigger(schedule: ScheduleRecord) -> Trigger:
    """Return the schedule's trigger, bound to its name and start, without a tick that a user has moved."""
    return _stored(schedule).bind(schedule.name, schedule.anchor)


def _stored(schedule: ScheduleRecord) -> Trigger:
    if not schedule.calendars:
        return parse_trigger(schedule.trigger)
    return with_copies(schedule.trigger, schedule.calendars)


# Rows repeat the same triggers and calendars, and the copy of a country's holidays takes 50 us to read.
@lru_cache(maxsize=1 << 12)
def with_copies(text: str, copies: str) -> Trigger:
    """Return the trigger of a text with the copies of its calendars that a row keeps."""
    trigger = parse_trigger(text)
    if not copies or not isinstance(trigger, Calendared):
        return trigger
    try:
        return trigger.resolved(read_copies(copies))
    except InvalidTrigger:
        raise
    except InvalidValue as error:
        raise InvalidTrigger(
            text, f": {error.problem}", field="calendars", value=error.value, hint=error.hint
        ) from None


def readable_trigger(schedule: ScheduleRecord) -> Trigger | None:
    """Return the trigger as it is stored; None if it can't be read on this machine."""
    try:
        return None if schedule.damage else _stored(schedule)
    except InvalidTrigger:
        return None


class MovedTick(Trigger, frozen=True):
    """A trigger of which a user has moved one tick to an earlier time.

    ``tick`` replaces ``instead_of``; ticks of the trigger between the two are left out, too.
    """

    trigger: Trigger
    tick: Instant
    instead_of: Instant

    def next_ms(self, after: Instant) -> Instant | None:
        if after >= self.tick:
            return self.trigger.next_ms(max(after, self.instead_of))
        before = self.trigger.next_ms(after)
        return self.tick if before is None else min(before, self.tick)

    def prev_ms(self, before: Instant) -> Instant | None:
        found = self.trigger.prev_ms(before)
        if found is not None and found > self.instead_of:
            return found
        return self.tick if before > self.tick else self.trigger.prev_ms(before)

    def count_ms(self, start: Instant, end: Instant) -> int:
        early = self.trigger.count_ms(start, max(start, min(end, self.tick)))
        late = self.trigger.count_ms(min(end, max(start, self.instead_of + 1)), end)
        return early + (1 if start <= self.tick < end else 0) + late

    def explain(self) -> str:
        return self.trigger.explain()

    def __str__(self) -> str:
        return str(self.trigger)

    def bind(self, name: str, since: Instant) -> Trigger:
        return self

    @property
    def tzinfo(self) -> tzinfo:
        return self.trigger.tzinfo


def upcoming_tick(schedule: ScheduleRecord) -> Instant | None:
    """Return the next tick that will fire; during a pause with an end, the first tick after it."""
    tick, until = schedule.next_tick, schedule.paused_until
    if schedule.state != "paused" or tick is None or until is None or tick >= until:
        return tick
    return trigger_of(schedule).next_ms(until - 1)


def next_start(schedule: ScheduleRecord) -> Instant | None:
    """Return when the coming tick fires: the tick and the schedule's share of the spread."""
    tick = upcoming_tick(schedule)
    return None if tick is None else tick + spread_delay(schedule)


def spread_delay(schedule: ScheduleRecord) -> int:
    """Return by how much later the schedule's ticks fire: 0 to ``spread`` ms, the same each time."""
    return 0 if schedule.spread == 0 else spread_number(schedule.tenant, schedule.name) % schedule.spread


def spread_number(tenant: str, name: str) -> int:
    """Return the number whose remainder by the spread is the delay: a hash of tenant and name."""
    digest = blake2b(f"{tenant}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")

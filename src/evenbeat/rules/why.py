"""Why a tick did, or did not, become a run: ordered checks of a schedule's records. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.core.explanations import Verdict
from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord, ScheduleRecord, Skipped
from evenbeat.rules.accounts import trigger_since
from evenbeat.rules.firing import is_waiting
from evenbeat.rules.ticks import own_trigger, spread_delay
from evenbeat.rules.waiting import Waiting
from evenbeat.triggers import Cron, Trigger

MINUTE = 60_000
ClockEffect: TypeAlias = Literal["skipped", "repeated"]
"""``skipped``: the wall-clock time does not exist on that day. ``repeated``: it comes twice, and the trigger
ticks at the other one."""
OutageKind: TypeAlias = Literal["no_node", "store_away"]
"""``no_node``: no node was alive. ``store_away``: the nodes could not reach the store."""


class Asked(NamedTuple):
    """The time that a question is about: from ``at`` to before ``until``."""

    at: Instant
    until: Instant
    label: datetime | None = None
    """The wall-clock time in the trigger's zone, without an offset, if it was asked for by that."""


class Place(NamedTuple):
    """The tick that a question is about, and the ticks beside it."""

    tick: Instant | None = None
    before: Instant | None = None
    after: Instant | None = None
    clock: ClockEffect | None = None


class Outage(NamedTuple):
    """Minutes in which no node could fire ticks."""

    kind: OutageKind
    start: Instant
    end: Instant


class MinuteNodes(NamedTuple):
    """The nodes that fired ticks, or would have, in one minute."""

    alive: frozenset[str] = frozenset()
    cut_off: frozenset[str] = frozenset()
    """Those that could not report to the store until later."""

    @property
    def outage(self) -> OutageKind | None:
        if not self.alive:
            return "no_node"
        return "store_away" if self.alive <= self.cut_off else None


class NodeMinutes(NamedTuple):
    """The nodes of each minute of a period."""

    start: Instant = 0
    minutes: tuple[MinuteNodes, ...] = ()
    """Empty if it is not known."""

    def outage(self, instant: Instant) -> Outage | None:
        """Return the outage around an instant; None if there was none, or if that is not known."""
        index = (instant - self.start) // MINUTE
        kinds = [minute.outage for minute in self.minutes]
        if not 0 <= index < len(kinds) or (kind := kinds[index]) is None:
            return None
        low = high = index
        while low > 0 and kinds[low - 1] == kind:
            low -= 1
        while high + 1 < len(kinds) and kinds[high + 1] == kind:
            high += 1
        return Outage(kind, self.start + low * MINUTE, self.start + (high + 1) * MINUTE)


class TickFacts(NamedTuple):
    """What the store says about a schedule and one of its ticks."""

    now: Instant
    schedule: ScheduleRecord
    place: Place
    asked: Asked | None = None
    """None: the question is about the present."""
    row: Skipped | None = None
    """The row of the ledger that covers the tick."""
    run: RunRecord | None = None
    """The run of the tick."""
    waiting: Waiting | None = None
    """Why that run waits."""
    moved: RunRecord | Skipped | None = None
    """The record of the earlier time to which a user moved the tick."""
    active: tuple[RunRecord, ...] = ()
    """The active runs of the schedule, if its policies depend on them."""
    tickers: tuple[str, ...] = ()
    """The live nodes that fire schedules."""
    quarantined: str | None = None
    """Why nodes do not plan the schedule any more."""
    deferred: str | None = None
    """Why a node could not plan the schedule."""
    purged: Instant | None = None
    """The instant before which history may be deleted."""
    minutes: NodeMinutes = NodeMinutes()

    @property
    def has_record(self) -> bool:
        return self.row is not None or self.run is not None


class Finding(NamedTuple):
    """The answer of the first check that applies."""

    verdict: Verdict
    run: RunRecord | None = None
    """The run that explains it: of the tick, or the one that it waits for."""
    moved_to: Instant | None = None
    """With ``rescheduled``: the time to which a user moved the tick."""
    row: Skipped | None = None
    """The row of the ledger that explains it."""
    outage: Outage | None = None
    """No node fired the tick in time because of this."""


def why_tick(facts: TickFacts) -> Finding:
    """Return why the tick did, or did not, become a run."""
    for check in _CHECKS:
        finding = check(facts)
        if finding is not None:
            return finding
    return Finding("missing")


def why_run(run: RunRecord, waiting: Waiting | None) -> Finding:
    """Return why the run is in its state. ``waiting`` says why a queued one waits."""
    if run.state == "queued":
        return Finding("next" if waiting is None else waiting.reason, run)
    return Finding(run.state, run)


def locate(schedule: ScheduleRecord, asked: Asked) -> Place:
    """Return the tick that the question is about: in that time, or started then because of the spread."""
    trigger = own_trigger(schedule)
    tick = trigger.next_ms(asked.at - 1)
    tick = tick if tick is not None and tick < asked.until else None
    clock: ClockEffect | None = None
    if isinstance(trigger, Cron):
        tick, clock = _by_clock(trigger, asked, tick)
    moved = schedule.next_tick
    if tick is None and moved is not None and asked.at <= moved < asked.until:
        tick = moved
    delay = spread_delay(schedule)
    if tick is None and clock is None and delay:
        started = trigger.next_ms(asked.at - delay - 1)
        tick = started if started is not None and started < asked.until - delay else None
    return beside(schedule, trigger, asked.at if tick is None else tick)._replace(tick=tick, clock=clock)


def present_tick(schedule: ScheduleRecord, now: Instant) -> Place:
    """Return the tick that explains the present: the due one, else the last one, else the first to come."""
    coming = schedule.next_tick
    trigger = own_trigger(schedule)
    if coming is not None and coming + spread_delay(schedule) <= now:
        return beside(schedule, trigger, coming)._replace(tick=coming)
    edge = now + 1 if coming is None else min(coming, now + 1)
    last = trigger.prev_ms(edge)
    if last is not None and last > trigger_since(schedule):
        return beside(schedule, trigger, last)._replace(tick=last)
    if coming is None and last is not None:
        return Place(last)  # a single instant, which was in the past when the schedule was created
    return Place(coming)


def beside(schedule: ScheduleRecord, trigger: Trigger, instant: Instant) -> Place:
    """Return the ticks before and after an instant. The trigger has none before it was given."""
    before = trigger.prev_ms(instant)
    if before is not None and before <= trigger_since(schedule):
        before = None
    return Place(None, before, trigger.next_ms(instant))


def _by_clock(cron: Cron, asked: Asked, tick: Instant | None) -> tuple[Instant | None, ClockEffect | None]:
    """Return the tick that is meant, and the effect of a change of the clock on it."""
    second = asked.at // 1000
    lo, hi, offset, before, after = cron.zone.window(second)
    width = max(1, (asked.until - asked.at) // 1000)
    if asked.label is not None and offset > before and second == lo:
        label = _seconds(asked.label)
        if lo + before <= label < lo + offset:
            matches = _matches(cron, label, width)
            return (lo * 1000 if matches and cron.gap == "shift" else None), "skipped"
    if tick is not None or not _matches(cron, second + offset, width):
        return tick, None
    # The expression matches, and there is no tick: the clock shows this time twice.
    other = None
    if after < offset and second >= hi - (offset - after):
        other = (second + offset - after) * 1000
    elif offset < before and second < lo + before - offset:
        other = (second + offset - before) * 1000
    if other is None:
        return None, None
    found = cron.next_ms(other - 1)
    is_meant = asked.label is not None and found is not None and found < other + width * 1000
    return (found if is_meant else None), (None if is_meant else "repeated")


def _matches(cron: Cron, label: int, width: int) -> bool:
    found = cron.expression.at_or_after(label)
    return found is not None and found < label + width


def _seconds(label: datetime) -> int:
    """Return a wall-clock time as the seconds that it would have in UTC."""
    return int((label - datetime(1970, 1, 1)).total_seconds())


# -- checks, in order ----------------------------------------------------------------------------------------


def _existed(facts: TickFacts) -> Finding | None:
    schedule, asked = facts.schedule, facts.asked
    if schedule.damage:
        return Finding("unreadable")
    if (
        asked is None
        and schedule.state == "finished"
        and (facts.run is None or facts.run.state == "succeeded")
    ):
        return Finding("finished", facts.run)
    if asked is None:
        return Finding("deleted") if schedule.state == "deleted" else None
    if facts.has_record:
        return None
    if schedule.state == "deleted" and asked.at > schedule.updated_at:
        return Finding("deleted")
    is_counted = facts.place.tick is not None and facts.place.tick == schedule.next_tick
    if asked.until <= schedule.created_at and not is_counted:
        return Finding("not_yet_created")
    if asked.until <= trigger_since(schedule) and not is_counted:
        return Finding("trigger_unknown")
    return None


def _was_paused(facts: TickFacts) -> Finding | None:
    schedule = facts.schedule
    if schedule.state != "paused" or (facts.asked is not None and facts.has_record):
        return None
    at = facts.now if facts.asked is None else facts.asked.at
    since = schedule.updated_at if schedule.paused_at is None else schedule.paused_at
    is_within = since <= max(at, facts.place.tick or at) or facts.asked is None
    ends = schedule.paused_until
    return Finding("paused") if is_within and (ends is None or at < ends) else None


def _matches_trigger(facts: TickFacts) -> Finding | None:
    if facts.place.clock == "skipped":
        return Finding("clock_skipped", facts.run)
    if facts.place.tick is not None:
        return None
    if facts.place.clock == "repeated":
        return Finding("clock_repeated")
    return Finding("finished" if facts.asked is None else "no_tick")


def _recorded(facts: TickFacts) -> Finding | None:
    if facts.row is None:
        return None
    assert facts.place.tick is not None
    missed = facts.row.reason in ("coalesced", "late", "limit")
    outage = facts.minutes.outage(facts.place.tick) if missed else None
    return Finding(facts.row.reason, row=facts.row, outage=outage)


def _became_a_run(facts: TickFacts) -> Finding | None:
    return None if facts.run is None else why_run(facts.run, facts.waiting)


def _was_moved(facts: TickFacts) -> Finding | None:
    schedule, tick = facts.schedule, facts.place.tick
    assert tick is not None
    if isinstance(facts.moved, RunRecord):
        return Finding("rescheduled", facts.moved, moved_to=facts.moved.tick)
    if facts.moved is not None:
        return Finding("rescheduled", moved_to=facts.moved.first)
    if schedule.moved is not None and schedule.next_tick is not None:
        if schedule.next_tick < tick <= schedule.moved:
            return Finding("rescheduled", moved_to=schedule.next_tick)
    return None


def _is_to_come(facts: TickFacts) -> Finding | None:
    schedule, tick = facts.schedule, facts.place.tick
    assert tick is not None
    if schedule.next_tick is None:
        return None
    return Finding("not_due") if tick + spread_delay(schedule) > facts.now else None


def _is_due(facts: TickFacts) -> Finding | None:
    schedule, tick = facts.schedule, facts.place.tick
    assert tick is not None
    if schedule.next_tick is None or tick < schedule.next_tick:
        return None
    if schedule.format > FORMAT:
        return Finding("too_new")
    if facts.quarantined is not None or (schedule.state == "active" and schedule.wake_at is None):
        return Finding("quarantined")
    if facts.deferred is not None:
        return Finding("deferred")
    if _is_held_up(facts) and (is_waiting(schedule) or facts.tickers):
        return Finding("waits_for_run", facts.active[-1])
    if not facts.tickers:
        return Finding("no_ticker", outage=facts.minutes.outage(tick))
    return Finding("due")


def _is_held_up(facts: TickFacts) -> bool:
    """Return whether active runs leave no room for another one."""
    schedule = facts.schedule
    if schedule.overlap in ("queue", "queue_all", "cancel_running"):
        return bool(facts.active)
    return schedule.max_concurrent is not None and len(facts.active) >= schedule.max_concurrent


def _is_purged(facts: TickFacts) -> Finding | None:
    tick = facts.place.tick
    return Finding("purged") if facts.purged is not None and (tick or 0) < facts.purged else None


_CHECKS: tuple[Callable[[TickFacts], Finding | None], ...] = (
    _existed,
    _was_paused,
    _matches_trigger,
    _recorded,
    _became_a_run,
    _was_moved,
    _is_to_come,
    _is_due,
    _is_purged,
)

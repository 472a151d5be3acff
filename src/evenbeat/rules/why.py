"""Why a tick did, or did not, become a run: ordered checks of a schedule's records. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.core.audits import AuditAction
from evenbeat.core.dependencies import parse_after
from evenbeat.core.explanations import Verdict
from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord, ScheduleRecord, Skipped
from evenbeat.rules.accounts import trigger_since
from evenbeat.rules.asked_ticks import MINUTE, Asked, Place
from evenbeat.rules.dependencies import is_on_success, unmet
from evenbeat.rules.firing import catching_up, is_waiting
from evenbeat.rules.ticks import spread_delay
from evenbeat.rules.waiting import Waiting

# A change and its entry in the audit are written at the same instant, up to the reply of a server.
_APART = 1_000
OutageKind: TypeAlias = Literal["no_node", "store_away"]
"""``no_node``: no node was alive. ``store_away``: the nodes could not reach the store."""


class Outage(NamedTuple):
    """Minutes in which no node could fire ticks."""

    kind: OutageKind
    start: Instant | None
    """None if it began before the minutes that are known."""
    end: Instant | None
    """None if it ended after the minutes that are known."""


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
        if low == 0 and high == len(kinds) - 1:
            return None  # perhaps no node writes such records
        start = None if low == 0 else self.start + low * MINUTE
        end = None if high == len(kinds) - 1 else self.start + (high + 1) * MINUTE
        return Outage(kind, start, end)


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
    by_hand: RunRecord | None = None
    """A run that a user started at that time, or last, and that failed."""
    active: tuple[RunRecord, ...] = ()
    """The active runs of the schedule, if its policies depend on them."""
    tickers: tuple[str, ...] = ()
    """The live nodes that fire schedules."""
    last_successes: Mapping[str, Instant | None] = MappingProxyType({})
    """When the predecessors of the schedule last succeeded, by name."""
    gone: tuple[str, ...] = ()
    """Those of its predecessors that do not exist any more."""
    quarantined: str | None = None
    """Why nodes do not plan the schedule any more."""
    deferred: str | None = None
    """Why a node could not plan the schedule."""
    calendars: tuple[str, ...] = ()
    """The names of the calendars of its trigger."""
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


class ChangeBehind(NamedTuple):
    """The change by hand that led to a finding, as the audit records it."""

    subject: str
    """The name of the schedule, or the id of the run."""
    actions: tuple[AuditAction, ...]
    """The first of these that the audit has."""
    until: Instant
    """The latest such change at this instant or before it."""
    since: Instant | None = None
    """Not before this instant."""


def change_behind(facts: TickFacts, finding: Finding) -> ChangeBehind | None:
    """Return the change by hand that led to a finding about a tick; None if none did."""
    schedule, row = facts.schedule, finding.row
    name = schedule.name
    if finding.verdict == "paused" and row is not None:
        # A schedule may be paused when it is created.
        return ChangeBehind(name, ("pause", "add", "declare"), row.recorded_at, schedule.created_at)
    if finding.verdict == "deleted":
        at = schedule.updated_at if row is None else row.recorded_at
        return ChangeBehind(name, ("delete",), at, at - _APART)
    if finding.verdict == "rescheduled" and row is not None:
        return ChangeBehind(name, ("reschedule",), row.recorded_at, row.recorded_at - _APART)
    if finding.verdict == "rescheduled" and finding.moved_to is not None:
        return ChangeBehind(name, ("reschedule",), finding.moved_to)
    if finding.verdict == "changed" and row is not None:
        return ChangeBehind(
            name, ("update", "declare", "reset", "reschedule"), row.recorded_at, row.recorded_at - _APART
        )
    if finding.verdict == "trigger_unknown":
        since = trigger_since(schedule)
        return ChangeBehind(name, ("update", "declare", "reset"), since, since - _APART)
    return None if finding.run is None else change_behind_run(finding.run)


def change_behind_run(run: RunRecord) -> ChangeBehind | None:
    """Return the change by hand that led to the state of a run; None if none did."""
    if run.state != "cancelled" or run.finished_at is None:
        return None
    return ChangeBehind(run.id, ("cancel", "repair"), run.finished_at)


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
    if facts.place.removed is not None:
        return Finding("calendar")
    if facts.place.clock == "repeated":
        return Finding("clock_repeated")
    if facts.asked is None and is_on_success(facts.schedule):
        return Finding("waits_for_success")
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
    if schedule.after and unmet(parse_after(schedule.after), facts.last_successes, facts.now):
        return Finding("waits_for_success")
    held = catching_up(schedule)
    if held is not None and (facts.tickers or held.next_at > facts.now):
        return Finding("catching_up")
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

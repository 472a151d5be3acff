"""What a due schedule becomes: fires, coalesces, skips, waits, or goes back to sleep. Pure and total."""

from __future__ import annotations

from datetime import tzinfo
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Reason, RunRecord, RunState, ScheduleRecord, Skipped
from evenbeat.errors import InvalidTrigger, UnknownZone
from evenbeat.triggers import At, Trigger, parse_trigger

# One step fires no more ticks of one schedule than this, so that a backlog can't starve the others.
TICKS_A_STEP = 100
# Nor so many that their payloads together are larger than this.
BYTES_A_STEP = 4_000_000
# A tick that waits for a run to end is planned again when that run ends, and at the latest after this long.
WAIT_CHECK = 30_000
# A run whose end is being recorded while its schedule gets an overlap policy may miss that the schedule waits
# for it. For a minute after a change (no transaction lasts longer) waiting ticks are planned every second.
CHANGED_LATELY = 60_000
CHANGED_CHECK = 1_000
# A schedule that this node can't plan now is left alone for this long: another node may be able to plan it.
DEFERRED = 60_000
_LONGEST_REASON = 1_000
# What says nothing about the row: no memory, no file descriptors, no such time zone on this machine.
_NOT_THE_ROWS_FAULT = (OSError, MemoryError, ImportError, UnknownZone)


class Active(NamedTuple):
    """A run of a schedule that is not over."""

    run: str
    state: RunState
    cancel_requested: bool = False


class Planned(NamedTuple):
    """What becomes of a schedule, to be written in one step or not at all."""

    schedule: ScheduleRecord
    runs: tuple[RunRecord, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    cancels: tuple[str, ...] = ()
    """Active runs that are asked to stop."""
    deferred: str = ""
    """Why this node could not plan the schedule; it is planned again later, there or elsewhere."""
    unfinished: bool = False
    """Part of a long backlog: write this, then decide again from the row as it is then."""


def needs_active(schedule: ScheduleRecord) -> bool:
    """Whether ``plan`` must be told of the schedule's active runs."""
    return schedule.overlap != "allow" or schedule.max_concurrent is not None


def trigger_of(schedule: ScheduleRecord) -> Trigger:
    """The schedule's trigger with everything that floats fixed."""
    trigger = parse_trigger(schedule.trigger).bind(schedule.name, schedule.anchor)
    if isinstance(trigger, At) and schedule.next_tick not in (None, trigger.instant):
        return At(schedule.next_tick)  # its one tick was moved
    if schedule.moved is not None and schedule.next_tick is not None:
        return Moved(trigger, schedule.next_tick, schedule.moved)
    return trigger


def readable_trigger(schedule: ScheduleRecord) -> Trigger | None:
    """The trigger as it is stored; None if it can't be read here."""
    try:
        return None if schedule.damage else parse_trigger(schedule.trigger)
    except InvalidTrigger:
        return None


class Moved(Trigger, frozen=True):
    """A trigger one of whose ticks was moved to an earlier time: ``tick`` comes, those after it up to and
    including ``instead_of`` do not."""

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


def coming(schedule: ScheduleRecord) -> Instant | None:
    """The next tick that is to fire: while it is paused with an end, the first from then on."""
    tick, until = schedule.next_tick, schedule.paused_until
    if schedule.state != "paused" or tick is None or until is None or tick >= until:
        return tick
    return trigger_of(schedule).next_ms(until - 1)


def next_start(schedule: ScheduleRecord) -> Instant | None:
    """When the coming tick fires: with the schedule's share of its spread."""
    tick = coming(schedule)
    return None if tick is None else tick + delay_of(schedule)


def plan(schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = ()) -> Planned:
    """What a schedule that woke up becomes: fires, coalesces, skips, waits, or goes back to sleep.

    Either the next tick or the wake-up moves forward, so no row is ever looked at in a circle.
    """
    if schedule.state == "paused":
        return _wake_from_pause(schedule, now)
    if schedule.state != "active" or schedule.next_tick is None:
        return Planned(replace(schedule, wake_at=None))
    wake_at = schedule.next_tick + delay_of(schedule)
    if wake_at > now:
        return Planned(replace(schedule, wake_at=wake_at))
    if active:
        if schedule.overlap == "skip":
            return skip_until(schedule, now - delay_of(schedule) + 1, "overlap", now)
        if _room(schedule, active) <= 0:
            return _wait(schedule, now, active)
    return _fire_due(schedule, now, _room(schedule, active))


def plan_or_defer(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = (), put_off: int = DEFERRED
) -> Planned:
    """Plan a schedule, or put it off by ``put_off`` ms where this node lacks what it takes.

    Raises only if the row itself is at fault: nodes that are out of file descriptors or memory, or that have
    older time-zone data, must not put a healthy schedule to sleep.
    """
    try:
        return plan(schedule, now, active)
    except _NOT_THE_ROWS_FAULT as error:
        # A path in the error may hold what no database takes.
        reason = (str(error) or repr(error))[:_LONGEST_REASON].encode(errors="replace").decode()
        return Planned(replace(schedule, wake_at=now + put_off), deferred=reason)


def waits(schedule: ScheduleRecord) -> bool:
    """Whether a schedule may be waiting with its next tick, so that the end of a run should wake it.

    No clock is asked: one that is read before the locks are taken calls a tick "not due yet" for which the
    schedule has begun to wait since. A schedule that is spread and does not wait is woken in vain.
    """
    if schedule.state != "active" or schedule.wake_at is None or schedule.next_tick is None:
        return False
    return needs_active(schedule) and schedule.wake_at > schedule.next_tick


def is_waiting(schedule: ScheduleRecord) -> bool:
    """Whether the next tick was found due and waits for a run to end; or this node could not plan it, of
    which there is a note."""
    if schedule.state != "active" or schedule.wake_at is None or schedule.next_tick is None:
        return False
    may_wait = needs_active(schedule) and schedule.overlap != "skip"
    return may_wait and schedule.wake_at > schedule.next_tick + delay_of(schedule)


def may_be_stuck(schedule: ScheduleRecord) -> bool:
    """Whether somebody may have put the schedule to sleep, or off, because it could not be fired."""
    if schedule.damage:
        return True
    if schedule.state != "active" or schedule.next_tick is None:
        return False
    return schedule.wake_at is None or schedule.wake_at > schedule.next_tick + delay_of(schedule)


def _fire_due(schedule: ScheduleRecord, now: Instant, room: int) -> Planned:
    """Fire what is due, by the catch-up policy; ``room`` bounds the runs."""
    tick = schedule.next_tick
    assert tick is not None
    trigger = trigger_of(schedule)
    due_until = now - delay_of(schedule)
    following = trigger.next_ms(tick)
    kind = schedule.catch_up.kind
    # "queue" waits with one run, whatever catch-up says, "queue_all" with each.
    if schedule.overlap == "queue":
        kind = "latest"
    elif schedule.overlap == "queue_all":
        kind = "all"
    if kind == "skip":
        return _fire_on_time(schedule, now, trigger, due_until, room)
    if following is None or following > due_until:
        # One tick is due: all but always.
        return _advanced(schedule, now, following, (_run(schedule, tick, now),))
    if kind == "latest":
        return _fire_latest(schedule, now, trigger, due_until)
    return _fire_newest(schedule, now, trigger, tick, due_until, room)


def _fire_latest(schedule: ScheduleRecord, now: Instant, trigger: Trigger, due_until: Instant) -> Planned:
    first, last = _due(schedule, trigger, due_until)
    missed = trigger.count_ms(first + 1, last) + 1
    run = _run(schedule, last, now, coalesced=missed)
    before = trigger.prev_ms(last)
    skipped = skipped_ticks(
        schedule, first, first if before is None else max(first, before), missed, "coalesced", now
    )
    return _advanced(schedule, now, trigger.next_ms(last), (run,), (replace(skipped, run=run.id),))


def _fire_newest(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, first: Instant, due_until: Instant, room: int
) -> Planned:
    """Fire the ticks from ``first`` on, but only as many as the catch-up limit allows: the newest."""
    count = trigger.count_ms(first + 1, due_until + 1) + 1
    limit = schedule.catch_up.limit
    if count <= limit:
        return _fire_each(schedule, now, trigger, first, due_until, room)
    start = trigger.prev_ms(due_until + 1)
    assert start is not None
    for _ in range(limit - 1):
        earlier = trigger.prev_ms(start)
        assert earlier is not None
        start = earlier
    before = trigger.prev_ms(start)
    dropped = skipped_ticks(
        schedule, first, first if before is None else max(first, before), count - limit, "limit", now
    )
    planned = _fire_each(schedule, now, trigger, start, due_until, room)
    return planned._replace(skipped=(dropped, *planned.skipped))


def _fire_on_time(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, due_until: Instant, room: int
) -> Planned:
    first, _ = _due(schedule, trigger, due_until)
    earliest = due_until - schedule.catch_up.grace
    if first >= earliest:
        return _fire_newest(schedule, now, trigger, first, due_until, room)
    last = trigger.prev_ms(earliest)
    last = first if last is None else max(first, last)
    late = skipped_ticks(schedule, first, last, trigger.count_ms(first + 1, last + 1) + 1, "late", now)
    following = trigger.next_ms(last)
    if following is None or following > due_until:
        return _advanced(schedule, now, following, (), (late,))
    planned = _fire_newest(schedule, now, trigger, following, due_until, room)
    return planned._replace(skipped=(late, *planned.skipped))


def _fire_each(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, first: Instant, due_until: Instant, room: int
) -> Planned:
    runs: list[RunRecord] = []
    tick: Instant | None = first
    most = min(room, max(1, min(TICKS_A_STEP, BYTES_A_STEP // max(1, len(schedule.payload)))))
    while tick is not None and tick <= due_until and len(runs) < most:
        runs.append(_run(schedule, tick, now))
        tick = trigger.next_ms(tick)
    return _advanced(schedule, now, tick, tuple(runs))


def _wait(schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
    cancels: tuple[str, ...] = ()
    if schedule.overlap == "cancel_running":
        # One that was asked and waits for a retry is named again: nobody has it in hand who could end it.
        cancels = tuple(run.run for run in active if run.state == "queued" or not run.cancel_requested)
    changed_lately = now - schedule.updated_at < CHANGED_LATELY
    wake_at = now + (CHANGED_CHECK if changed_lately else WAIT_CHECK)
    return Planned(replace(schedule, wake_at=wake_at), cancels=cancels)


def _wake_from_pause(schedule: ScheduleRecord, now: Instant) -> Planned:
    until = schedule.paused_until
    if until is None or until > now:
        return Planned(replace(schedule, wake_at=until))
    return skip_until(awake(schedule), until, "paused", now)


def awake(schedule: ScheduleRecord) -> ScheduleRecord:
    """The schedule without its pause."""
    return replace(schedule, state="active", pause_note="", paused_until=None, paused_by="", paused_at=None)


def skip_until(schedule: ScheduleRecord, until: Instant, reason: Reason, now: Instant) -> Planned:
    """Record the ticks before ``until`` as skipped; the first tick from then on is the next."""
    tick = schedule.next_tick
    if tick is None or tick >= until:
        return _advanced(schedule, now, tick)
    trigger = trigger_of(schedule)
    last = trigger.prev_ms(until)
    last = tick if last is None else max(tick, last)
    skipped = skipped_ticks(schedule, tick, last, trigger.count_ms(tick + 1, last + 1) + 1, reason, now)
    return _advanced(schedule, now, trigger.next_ms(last), (), (skipped,))


def _due(schedule: ScheduleRecord, trigger: Trigger, due_until: Instant) -> tuple[Instant, Instant]:
    """The first and the last tick that are due. The first may lie off the trigger's own (reschedule)."""
    first = schedule.next_tick
    assert first is not None
    last = trigger.prev_ms(due_until + 1)
    return first, first if last is None else max(first, last)


def _advanced(
    schedule: ScheduleRecord,
    now: Instant,
    tick: Instant | None,
    runs: tuple[RunRecord, ...] = (),
    skipped: tuple[Skipped, ...] = (),
) -> Planned:
    """The schedule with ``tick`` as its next, or finished if there is none."""
    last_fire = now if runs else schedule.last_fire
    if tick is None:
        moved = replace(
            schedule,
            next_tick=None,
            moved=None,
            wake_at=None,
            last_fire=last_fire,
            state="finished",
            fire_seq=schedule.fire_seq + 1,
        )
    else:
        # A backlog goes on in the next step: at once.
        wake_at = max(tick + delay_of(schedule), now)
        kept = schedule.moved if tick == schedule.next_tick else None
        moved = replace(
            schedule,
            next_tick=tick,
            moved=kept,
            wake_at=wake_at,
            last_fire=last_fire,
            fire_seq=schedule.fire_seq + 1,
        )
    return Planned(moved, runs, skipped)


def _room(schedule: ScheduleRecord, active: tuple[Active, ...]) -> int:
    """How many runs may be added now."""
    room = TICKS_A_STEP
    if schedule.max_concurrent is not None:
        room = min(room, schedule.max_concurrent - len(active))
    if schedule.overlap in ("skip", "queue", "queue_all", "cancel_running"):
        room = min(room, 1 - len(active))
    return room


def delay_of(schedule: ScheduleRecord) -> int:
    """By how much this schedule's ticks are spread: 0 to ``spread``, the same each time."""
    if schedule.spread == 0:
        return 0
    digest = blake2b(f"{schedule.tenant}/{schedule.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % schedule.spread


def _run(schedule: ScheduleRecord, tick: Instant, now: Instant, coalesced: int = 0) -> RunRecord:
    return RunRecord(
        # The identity of a tick: the same whoever computes it, and never used twice.
        id=f"{schedule.tenant}/{schedule.name}/{schedule.generation}/{tick}",
        tenant=schedule.tenant,
        schedule=schedule.name,
        generation=schedule.generation,
        tick=tick,
        cause="tick",
        coalesced=coalesced,
        task=schedule.task,
        kind=schedule.kind,
        payload=schedule.payload,
        queue=schedule.queue,
        priority=schedule.priority,
        execution=schedule.execution,
        scheduled_at=tick + delay_of(schedule),
        run_at=tick + delay_of(schedule),
        created_at=now,
    )


def skipped_ticks(
    schedule: ScheduleRecord, first: Instant, last: Instant, count: int, reason: Reason, now: Instant
) -> Skipped:
    """A row of the ledger."""
    return Skipped(
        tenant=schedule.tenant,
        schedule=schedule.name,
        generation=schedule.generation,
        first=first,
        last=last,
        count=count,
        reason=reason,
        recorded_at=now,
    )

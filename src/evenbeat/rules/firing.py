"""Plan a due schedule: fire, coalesce, skip, or wait. Pure, and total: every row gets a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.dependencies import parse_after
from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUpKind, Reason, Record, RunRecord, RunState, ScheduleRecord, Skipped
from evenbeat.errors import UnknownZone
from evenbeat.rules.calendars import passed_rows
from evenbeat.rules.dependencies import (
    NO_FACTS,
    PENDING,
    Facts,
    Pending,
    choose,
    is_met,
    is_on_success,
    success_run,
)
from evenbeat.rules.ticks import spread_delay, tick_run_id, trigger_of
from evenbeat.triggers import Trigger

# One step fires no more ticks of one schedule than this, so that a backlog can't starve the others.
TICKS_A_STEP = 100
# Nor more ticks than have this many bytes of payloads together.
BYTES_A_STEP = 4_000_000
# A tick that waits for a run is planned again when that run ends, and at the latest after this many ms.
WAIT_CHECK = 30_000
# A transaction that records the end of a run while the schedule gets an overlap policy does not see that the
# schedule waits for the run. For a minute after a change (no transaction lasts longer), waiting ticks are
# planned every second.
CHANGED_LATELY = 60_000
CHANGED_CHECK = 1_000
# A schedule that this node can't plan now is deferred by this many ms: another node may be able to plan it.
DEFERRED = 60_000
# A schedule that has been due for this many ms may be one that nodes can't fire.
STUCK_AFTER = 5_000
# A fast catch-up rate fires the ticks of this many ms in one step, instead of one tick in each of many steps.
RATE_STEP = 1_000
# A last fire that is further in the future than this, in ms, is not another node's: the clock was set back.
CLOCKS_APART = 60_000
_LONGEST_REASON = 1_000
# Errors of this machine, not of the row: no memory, no file descriptors, an unknown time zone.
_MACHINE_ERRORS = (OSError, MemoryError, ImportError, UnknownZone)


class Active(NamedTuple):
    """A run of a schedule that has not ended."""

    run: str
    state: RunState
    cancel_requested: bool = False


class Planned(NamedTuple):
    """The new row of a schedule with the runs, ledger rows and records to add: written in one step, or not at
    all."""

    schedule: ScheduleRecord
    runs: tuple[RunRecord, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    cancels: tuple[str, ...] = ()
    """Ids of active runs to cancel."""
    deferred: str = ""
    """Why this node could not plan the schedule; this node or another one plans it later."""
    unfinished: bool = False
    """Whether this is a part of a long backlog: write it, read the row again, and plan the rest."""
    records: tuple[Record, ...] = ()
    """Records to add; one that exists stays as it is. A plan without records costs no store a command."""
    spent: tuple[tuple[str, str, str], ...] = ()
    """(kind, tenant, key) of records to delete: the successes of another schedule that it fires or skips."""


def needs_active(schedule: ScheduleRecord) -> bool:
    """Return whether ``plan`` needs the schedule's active runs."""
    return schedule.overlap != "allow" or schedule.max_concurrent is not None


def plan(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = (), facts: Facts = NO_FACTS
) -> Planned:
    """Plan a schedule that woke up: fire, coalesce, skip, or wait.

    Either ``next_tick`` or ``wake_at`` moves forward, so that no row is planned over and over. ``facts`` are
    about other schedules, where ``needs_facts`` says so; without them, a tick waits.
    """
    if is_on_success(schedule):
        return _fire_successes(schedule, now, active, facts)
    if schedule.state == "paused":
        return _end_pause(schedule, now)
    if schedule.state != "active" or schedule.next_tick is None:
        return Planned(replace(schedule, wake_at=None))
    wake_at = schedule.next_tick + spread_delay(schedule)
    if wake_at > now:
        return Planned(replace(schedule, wake_at=wake_at))
    if schedule.after and (held := _held_by_predecessors(schedule, now, facts)) is not None:
        return held
    if active:
        if schedule.overlap == "skip":
            return skip_until(schedule, now - spread_delay(schedule) + 1, "overlap", now)
        if _room(schedule, active) <= 0:
            return _wait(schedule, now, active)
    return _fire_due(schedule, now, _room(schedule, active))


def plan_or_defer(
    schedule: ScheduleRecord,
    now: Instant,
    active: tuple[Active, ...] = (),
    defer_by: int = DEFERRED,
    complete: Callable[[Planned], Planned] = lambda planned: planned,
    facts: Facts = NO_FACTS,
) -> Planned:
    """Plan a schedule, or defer it by ``defer_by`` ms if this machine lacks something that the plan needs.

    ``complete`` adds to the plan what only the node knows.

    Raises only if the row itself is bad: a node that is out of file descriptors or memory, or that has older
    time-zone data, must not quarantine a healthy schedule.
    """
    try:
        return complete(plan(schedule, now, active, facts))
    except _MACHINE_ERRORS as error:
        # A path in the error may contain characters that no database accepts.
        reason = (str(error) or repr(error))[:_LONGEST_REASON].encode(errors="replace").decode()
        return Planned(replace(schedule, wake_at=now + defer_by), deferred=reason)


def wakes_on_run_end(schedule: ScheduleRecord) -> bool:
    """Return whether the end of a run should wake a schedule, whose next tick may wait for that run.

    This does not depend on the time: by a clock that is read before the locks are taken, a tick may be in the
    future that has begun to wait since. A spread schedule that does not wait is woken without need.
    """
    if schedule.state != "active" or schedule.wake_at is None or schedule.next_tick is None:
        return False
    return needs_active(schedule) and schedule.wake_at > schedule.next_tick


def is_waiting(schedule: ScheduleRecord) -> bool:
    """Return whether the next tick is due and waits for a run to end or for other schedules to succeed, or
    is deferred (then there is a note)."""
    if schedule.state != "active" or schedule.wake_at is None or schedule.next_tick is None:
        return False
    may_wait = needs_active(schedule) and schedule.overlap != "skip" and not _is_held_by_rate(schedule)
    may_wait = may_wait or schedule.after != ""
    return may_wait and schedule.wake_at > schedule.next_tick + spread_delay(schedule)


class CatchingUp(NamedTuple):
    """The overdue ticks of a schedule that its catch-up rate holds back."""

    ticks_left: int
    """How many ticks were overdue, and did not fire, when it last fired."""
    next_at: Instant
    """When the next of them may fire."""


def catching_up(schedule: ScheduleRecord) -> CatchingUp | None:
    """Return what the catch-up rate holds back; None if it holds back nothing."""
    tick, fired = schedule.next_tick, schedule.last_fire
    if not _is_held_by_rate(schedule) or tick is None or fired is None:
        return None
    trigger = trigger_of(schedule)
    left = trigger.count_ms(tick + 1, fired - spread_delay(schedule) + 1) + 1
    assert schedule.wake_at is not None
    return CatchingUp(left, schedule.wake_at)


def _is_held_by_rate(schedule: ScheduleRecord) -> bool:
    rate = _rate(schedule)
    if rate is None or schedule.state != "active" or schedule.next_tick is None or schedule.last_fire is None:
        return False
    was_overdue = schedule.next_tick + spread_delay(schedule) <= schedule.last_fire
    return was_overdue and schedule.wake_at == schedule.last_fire + _rate_pause(rate)


def may_be_stuck(schedule: ScheduleRecord, now: Instant) -> bool:
    """Return whether the schedule may be quarantined or deferred because it could not be fired."""
    if schedule.damage:
        return True
    if schedule.state != "active" or schedule.next_tick is None or _is_held_by_rate(schedule):
        return False
    if schedule.wake_at is None or schedule.wake_at > schedule.next_tick + spread_delay(schedule):
        return True
    # The database may refuse every write of the row, and so the wake-up, too.
    return schedule.wake_at <= now - STUCK_AFTER


def _fire_due(schedule: ScheduleRecord, now: Instant, room: int) -> Planned:
    """Fire the due ticks, by the catch-up policy; add at most ``room`` runs."""
    tick = schedule.next_tick
    assert tick is not None
    trigger = trigger_of(schedule)
    due_until = now - spread_delay(schedule)
    kind = _catch_up_kind(schedule)
    max_age = schedule.catch_up.grace if kind == "skip" else schedule.catch_up.max_age
    if schedule.after and max_age is not None:
        max_age += parse_after(schedule.after).wait  # a tick that waited for its predecessors is not late
    if max_age is not None and tick < due_until - max_age:
        return _fire_rest(schedule, now, trigger, due_until - max_age, room)
    return _fire_by(schedule, now, trigger, kind, room)


def _fire_by(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, kind: CatchUpKind, room: int
) -> Planned:
    """Fire the due ticks, none of which is too late to run."""
    tick = schedule.next_tick
    assert tick is not None
    due_until = now - spread_delay(schedule)
    rate = _rate(schedule)
    if rate is not None:
        opens = _opens_at(schedule, rate, now)
        if opens > now:
            return Planned(replace(schedule, wake_at=opens))
        room = min(room, _rate_batch(rate))
    following = trigger.next_ms(tick)
    if following is None or following > due_until:
        # One tick is due: the usual case.
        return _advanced(schedule, now, following, (_tick_run(schedule, tick, now),))
    if kind == "latest":
        return _fire_latest(schedule, now, trigger, due_until)
    return _fire_newest(schedule, now, trigger, tick, due_until, room)


def _fire_rest(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, earliest: Instant, room: int
) -> Planned:
    """Record the due ticks before ``earliest`` as late, and fire the others."""
    first = schedule.next_tick
    assert first is not None
    last = trigger.prev_ms(earliest)
    last = first if last is None else max(first, last)
    late = skipped_ticks(schedule, first, last, trigger.count_ms(first + 1, last + 1) + 1, "late", now)
    following = trigger.next_ms(last)
    skipped = _advanced(schedule, now, following, (), (late,))
    if following is None or following > now - spread_delay(schedule):
        return skipped
    rest = _fire_by(
        replace(schedule, next_tick=following, moved=None), now, trigger, _catch_up_kind(schedule), room
    )
    if not rest.runs:  # held by the catch-up rate
        return skipped._replace(schedule=replace(skipped.schedule, wake_at=rest.schedule.wake_at))
    return rest._replace(skipped=skipped.skipped + rest.skipped)


def _catch_up_kind(schedule: ScheduleRecord) -> CatchUpKind:
    """Return the catch-up policy in force: "queue" keeps one waiting tick, "queue_all" keeps each."""
    if schedule.overlap == "queue":
        return "latest"
    return "all" if schedule.overlap == "queue_all" else schedule.catch_up.kind


def _rate(schedule: ScheduleRecord) -> Rate | None:
    """Return the catch-up rate, if the policy in force can fire more than one tick."""
    rate = schedule.catch_up.rate
    return None if rate is None or _catch_up_kind(schedule) == "latest" else rate


def _rate_batch(rate: Rate) -> int:
    """Return how many overdue ticks fire in one step: what the rate allows in RATE_STEP, or one."""
    return max(1, min(TICKS_A_STEP, rate.count * RATE_STEP // rate.period))


def _rate_pause(rate: Rate) -> int:
    """Return how long a step that fired overdue ticks holds back those that are left."""
    return -(-_rate_batch(rate) * rate.period // rate.count)


def _opens_at(schedule: ScheduleRecord, rate: Rate, now: Instant) -> Instant:
    """Return when the catch-up rate lets the next tick fire.

    It holds back only ticks that were overdue at the last fire, so that a tick that is on time never waits.
    A clock that was set back must not stop a schedule: a last fire far in the future counts for nothing.
    """
    tick, fired = schedule.next_tick, schedule.last_fire
    assert tick is not None
    if fired is None or fired > now + CLOCKS_APART or tick + spread_delay(schedule) > fired:
        return now
    return max(now, fired + _rate_pause(rate))


def _fire_latest(schedule: ScheduleRecord, now: Instant, trigger: Trigger, due_until: Instant) -> Planned:
    """Fire the latest due tick, and record the others as coalesced."""
    first, last = _due(schedule, trigger, due_until)
    missed = trigger.count_ms(first + 1, last) + 1
    run = _tick_run(schedule, last, now, coalesced=missed)
    before = trigger.prev_ms(last)
    skipped = skipped_ticks(
        schedule, first, first if before is None else max(first, before), missed, "coalesced", now
    )
    return _advanced(schedule, now, trigger.next_ms(last), (run,), (replace(skipped, run=run.id),))


def _fire_newest(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, first: Instant, due_until: Instant, room: int
) -> Planned:
    """Fire the due ticks from ``first`` on; if the catch-up limit allows fewer, fire the newest of them."""
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


def _fire_each(
    schedule: ScheduleRecord, now: Instant, trigger: Trigger, first: Instant, due_until: Instant, room: int
) -> Planned:
    """Fire the due ticks from ``first`` on, one by one; the next step continues where there are too many."""
    runs: list[RunRecord] = []
    tick: Instant | None = first
    most = min(room, max(1, min(TICKS_A_STEP, BYTES_A_STEP // max(1, len(schedule.payload)))))
    while tick is not None and tick <= due_until and len(runs) < most:
        runs.append(_tick_run(schedule, tick, now))
        tick = trigger.next_ms(tick)
    return _advanced(schedule, now, tick, tuple(runs))


def _wait(schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
    """Keep the due tick waiting for an active run, which "cancel_running" cancels."""
    cancels: tuple[str, ...] = ()
    if schedule.overlap == "cancel_running":
        # A run that waits for a retry is cancelled again: no worker holds it and could end it.
        cancels = tuple(run.run for run in active if run.state == "queued" or not run.cancel_requested)
    changed_lately = now - schedule.updated_at < CHANGED_LATELY
    wake_at = now + (CHANGED_CHECK if changed_lately else WAIT_CHECK)
    return Planned(replace(schedule, wake_at=wake_at), cancels=cancels)


def _held_by_predecessors(schedule: ScheduleRecord, now: Instant, facts: Facts) -> Planned | None:
    """Keep due ticks waiting for the success of other schedules, and skip those that have waited long enough;
    None if they may fire."""
    after = parse_after(schedule.after)
    if is_met(after, facts, now):
        return None
    tick = schedule.next_tick
    assert tick is not None
    deadline = tick + spread_delay(schedule) + after.wait
    if now < deadline or facts is NO_FACTS:
        return Planned(replace(schedule, wake_at=max(now + 1, min(now + WAIT_CHECK, deadline))))
    if after.otherwise == "run":
        return None
    return skip_until(schedule, now - spread_delay(schedule) - after.wait + 1, "dependency", now)


def _fire_successes(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...], facts: Facts
) -> Planned:
    """Plan a schedule that fires on each success of another one: a run for each pending success."""
    before = schedule
    if schedule.state == "paused" and schedule.paused_until is not None and schedule.paused_until <= now:
        schedule = without_pause(schedule)
    most = max(1, min(TICKS_A_STEP, BYTES_A_STEP // max(1, len(schedule.payload))))
    chosen = choose(schedule, facts.pending, _room(schedule, active), most)
    runs = [success_run(schedule, each.success, now) for each in chosen.fires]
    skipped = [skipped_successes(schedule, some, reason, now) for reason, some in chosen.drops]
    if chosen.coalesced:
        runs = [replace(runs[0], coalesced=len(chosen.coalesced))]
        together = skipped_successes(schedule, chosen.coalesced, "coalesced", now)
        skipped.append(replace(together, run=runs[0].id))
    done = [*chosen.fires, *chosen.coalesced, *(each for _, some in chosen.drops for each in some)]
    # The next step continues with the rest at once.
    goes_on = facts is NO_FACTS or facts.has_more or len(chosen.left) > 0
    moved = replace(
        schedule,
        next_tick=None,
        wake_at=now if goes_on else schedule.paused_until if schedule.state == "paused" else None,
        last_fire=now if runs else schedule.last_fire,
    )
    cancels: tuple[str, ...] = ()
    if chosen.left and not runs:
        # Like a tick that waits for a run: the end of the run wakes it.
        waiting = _wait(replace(moved, next_tick=chosen.left[0].success.at), now, active)
        moved, cancels = waiting.schedule, waiting.cancels
    if done or replace(before, wake_at=moved.wake_at) != moved:
        moved = replace(moved, fire_seq=before.fire_seq + 1)
    spent = tuple((PENDING, schedule.tenant, each.key) for each in done)
    return Planned(moved, tuple(runs), tuple(skipped), cancels, spent=spent)


def skipped_successes(
    schedule: ScheduleRecord, some: tuple[Pending, ...], reason: Reason, now: Instant
) -> Skipped:
    """Create a row of the ledger for successes, by the ticks of their runs where they have any."""
    ticks = [each.success.at if each.success.tick is None else each.success.tick for each in some]
    return skipped_ticks(schedule, min(ticks), max(ticks), len(some), reason, now)


def _end_pause(schedule: ScheduleRecord, now: Instant) -> Planned:
    """End a pause whose end has come, and record its ticks as skipped; otherwise sleep until its end."""
    until = schedule.paused_until
    if until is None or until > now:
        return Planned(replace(schedule, wake_at=until))
    return skip_until(without_pause(schedule), until, "paused", now)


def without_pause(schedule: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule as active, without its pause."""
    return replace(schedule, state="active", pause_note="", paused_until=None, paused_by="", paused_at=None)


def skip_until(schedule: ScheduleRecord, until: Instant, reason: Reason, now: Instant) -> Planned:
    """Record the ticks before ``until`` as skipped; the first tick from then on is the next."""
    tick = schedule.next_tick
    if is_on_success(schedule):
        return Planned(replace(schedule, next_tick=None, wake_at=now, fire_seq=schedule.fire_seq + 1))
    if tick is None or tick >= until:
        return _advanced(schedule, now, tick)
    trigger = trigger_of(schedule)
    last = trigger.prev_ms(until)
    last = tick if last is None else max(tick, last)
    skipped = skipped_ticks(schedule, tick, last, trigger.count_ms(tick + 1, last + 1) + 1, reason, now)
    return _advanced(schedule, now, trigger.next_ms(last), (), (skipped,))


def _due(schedule: ScheduleRecord, trigger: Trigger, due_until: Instant) -> tuple[Instant, Instant]:
    """Return the first and the last due tick. A rescheduled first tick is not one of the trigger's own."""
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
    """Return the plan with ``tick`` as the next tick; without one, the schedule is finished."""
    last_fire = now if runs else schedule.last_fire
    if schedule.calendars:
        skipped += passed_rows(schedule, runs, skipped, now)
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
        # The next step continues a backlog at once, or when the catch-up rate allows.
        wake_at = max(tick + spread_delay(schedule), now)
        if runs and wake_at == now and (rate := _rate(schedule)) is not None:
            wake_at += _rate_pause(rate)
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
    """Return how many runs the overlap policy and ``max_concurrent`` allow to add now."""
    room = TICKS_A_STEP
    if schedule.max_concurrent is not None:
        room = min(room, schedule.max_concurrent - len(active))
    if schedule.overlap in ("skip", "queue", "queue_all", "cancel_running"):
        room = min(room, 1 - len(active))
    return room


def _tick_run(schedule: ScheduleRecord, tick: Instant, now: Instant, coalesced: int = 0) -> RunRecord:
    """Create the run of a tick."""
    return RunRecord(
        id=tick_run_id(schedule, schedule.generation, tick),
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
        scheduled_at=tick + spread_delay(schedule),
        run_at=tick + spread_delay(schedule),
        created_at=now,
    )


def skipped_ticks(
    schedule: ScheduleRecord, first: Instant, last: Instant, count: int, reason: Reason, now: Instant
) -> Skipped:
    """Create a row of the ledger."""
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

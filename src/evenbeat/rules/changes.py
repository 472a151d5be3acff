"""What a user's wish makes of a schedule: made, changed, paused, moved, triggered, deleted.

Ticks that are overdue when a change arrives are dealt with in the same step, by the rules that were
in force when they came due: no change can lose a tick, and none runs by rules that came later. A pause and
a delete are meant to stop a schedule: they record such ticks as skipped. A backlog that is too long for one
step is written in parts: the answer is then ``unfinished``, and the last part carries the change.

A row whose trigger can't be read here (damaged, or in a time zone that this machine does not know) can be
changed and deleted, too. Nobody can count what it has missed: the ledger then names its next tick alone.

``now`` is the store's own time (``store.now()``), or one that is behind it, never ahead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.checks import check_schedule, check_texts
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import FIRST, LAST, Instant, write_instant
from evenbeat.core.json_text import encode, from_json, read_definition
from evenbeat.core.records import FORMAT, Reason, RunRecord, ScheduleRecord
from evenbeat.errors import DamagedSchedule, InvalidValue, ScheduleExists, ScheduleNotFound, ScheduleTooNew
from evenbeat.rules.firing import (
    BYTES_A_STEP,
    Active,
    Planned,
    awake,
    plan,
    readable_trigger,
    skip_until,
    skipped_ticks,
    trigger_of,
)
from evenbeat.triggers import At, Every, parse_trigger

# A change that finds a backlog writes about so many of its runs in one step.
RUNS_A_CHANGE = 500

# What a user says, as against where the schedule stands.
DEFINITION = (
    "task",
    "trigger",
    "kind",
    "payload",
    "queue",
    "priority",
    "description",
    "catch_up",
    "overlap",
    "max_concurrent",
    "spread",
    "execution",
    "managed_by",
)


def create(
    wanted: ScheduleRecord, now: Instant, previous: ScheduleRecord | None = None, start: Instant | None = None
) -> Planned:
    """A new schedule, paused if ``wanted`` is. ``previous`` is the row of that name: an error unless it was
    deleted.

    The first tick is the next one after ``now``, not before ``start``, which also is the phase of an interval
    that has none of its own; a single instant in the past is due at once.
    """
    if previous is not None:
        if previous.state != "deleted":
            raise ScheduleExists(wanted.tenant, wanted.name)
        _check_format(previous)
    is_paused = wanted.state == "paused"
    made = replace(
        _checked(wanted),
        state="paused" if is_paused else "active",
        paused_at=now if is_paused else None,
        anchor=now if start is None else _anchor(wanted, now, start),
        created_at=now,
        updated_at=now,
        # Numbers go on where a deleted namesake stopped: its runs keep their identities.
        generation=1 if previous is None else previous.generation + 1,
        revision=1 if previous is None else previous.revision + 1,
        fire_seq=0 if previous is None else previous.fire_seq + 1,
    )
    return Planned(_from_now(made, now if start is None else max(now, start - 1)))


def declare(
    wanted: ScheduleRecord,
    now: Instant,
    previous: ScheduleRecord | None,
    active: tuple[Active, ...] = (),
    start: Instant | None = None,
) -> Planned | None:
    """Make it so: created, or changed if the declaration is another one than before. None: nothing to do.

    What somebody edited by hand since then stays as it is, as a pause does, until the declaration itself
    changes. A trigger that means the same keeps the next tick. ``start`` counts when it is created.
    """
    wanted = _checked(wanted)
    wanted = replace(wanted, declared=definition(wanted))
    if previous is None or previous.state == "deleted":
        return create(wanted, now, previous, start)
    if previous.format > FORMAT:
        return None  # a newer node's: it is not ours to change
    if previous.declared == wanted.declared and not previous.damage and not _is_asleep(previous):
        return None
    return _change(previous, wanted, now, active)


def definition(schedule: ScheduleRecord) -> str:
    """What a declaration says of a schedule, as JSON text. ``managed_by`` only says who declared it."""
    said = {name: getattr(schedule, name) for name in DEFINITION if name != "managed_by"}
    return encode(said | {"payload": from_json(schedule.payload)})


class Edit(NamedTuple):
    """An option of a schedule that was edited by hand since it was declared."""

    present: Any
    declared: Any


def edits(schedule: ScheduleRecord) -> dict[str, Edit]:
    """What was edited by hand since the schedule was declared, by the names of the options."""
    if not schedule.declared:
        return {}
    declared = _options(read_definition(schedule.declared))
    present = _options({name: getattr(schedule, name) for name in DEFINITION if name != "managed_by"})
    return {
        name: Edit(present.get(name), value) for name, value in declared.items() if value != present.get(name)
    }


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a definition as users say them: flat, values instead of JSON, and durations in words."""
    execution, catch_up = fields["execution"], fields["catch_up"]
    flat = {**fields, **{name: getattr(execution, name) for name in execution.__struct_fields__}}
    flat |= {"catch_up": catch_up.kind, "grace": catch_up.grace, "catch_up_limit": catch_up.limit}
    flat["payload"] = from_json(fields["payload"])
    del flat["execution"]
    for name in ("spread", "grace", "backoff", "max_backoff", "timeout"):
        if flat[name] is not None:
            flat[name] = write_duration(flat[name])
    return flat


def reset(schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = ()) -> Planned | None:
    """The schedule as it was declared last; None if it is so."""
    if not schedule.declared:
        raise InvalidValue(
            f"schedule {schedule.name} was never declared",
            field="name",
            value=schedule.name,
            hint="update it instead: nobody has said what it should be",
        )
    return change(schedule, read_definition(schedule.declared), now, active)


def change(
    schedule: ScheduleRecord, wishes: dict[str, Any], now: Instant, active: tuple[Active, ...] = ()
) -> Planned | None:
    """The schedule with other values for some of its definition; None if they are what it has."""
    unknown = set(wishes) - set(DEFINITION)
    if unknown:
        raise InvalidValue(
            f"{min(unknown)} can't be changed",
            field=min(unknown),
            value=wishes[min(unknown)],
            hint=f"there are {', '.join(DEFINITION)}",
        )
    _check_there(schedule)
    return _change(schedule, _checked(replace(schedule, **wishes)), now, active)


def _change(
    schedule: ScheduleRecord, wanted: ScheduleRecord, now: Instant, active: tuple[Active, ...]
) -> Planned | None:
    """``wanted`` has the definition that the schedule is to get."""
    said = {name: getattr(wanted, name) for name in (*DEFINITION, "declared")}
    before = readable_trigger(schedule)
    # An active row without a next tick has lost it: the trigger is counted anew.
    is_lost = schedule.state == "active" and schedule.next_tick is None
    same_trigger = parse_trigger(wanted.trigger) == before and not is_lost
    if same_trigger:
        said["trigger"] = schedule.trigger
    # Saying again what a row in quarantine should be wakes it up.
    if replace(schedule, **said, damage="") == schedule and not _is_asleep(schedule):
        return None
    settled = _settle_overdue(schedule, now, active, keep_waiting=same_trigger)
    if settled.unfinished:
        return settled
    changed = replace(settled.schedule, **said, damage="")
    if not same_trigger:
        if changed.state == "paused" and before is not None:
            # The old trigger's ticks of the pause so far: nobody could record them later.
            passed = skip_until(settled.schedule, now + 1, "paused", now)
            settled = settled._replace(skipped=settled.skipped + passed.skipped)
            changed = replace(changed, next_tick=passed.schedule.next_tick)
        watermark = changed.next_tick
        # Also a finished schedule lives again with a new trigger.
        changed = _from_now(replace(changed, anchor=now), now)
        if watermark is None or (changed.next_tick or watermark) < watermark:
            # Back behind what was passed over or has run: the new trigger may name those ticks again.
            changed = replace(changed, generation=changed.generation + 1)
    elif changed.state == "active":
        # Whatever it slept for may have changed: plan looks at it when the tick comes, and decides anew.
        changed = replace(changed, wake_at=changed.next_tick)
    return settled._replace(schedule=_revised(changed, now))


def pause(
    schedule: ScheduleRecord, now: Instant, note: str = "", until: Instant | None = None, by: str = ""
) -> Planned:
    """No ticks from now on, until it is resumed or ``until`` comes. What is overdue is recorded as skipped:
    a pause may be an emergency stop, and must not start anything."""
    _check_whole(schedule)
    check_texts(note=note, by=by)
    # What a machine that can't read the trigger would have to record comes with the end of the pause.
    readable = readable_trigger(schedule) is not None
    settled = _skip_overdue(schedule, now, "paused", even_paused=False) if readable else Planned(schedule)
    if settled.schedule.state == "finished":
        return settled._replace(schedule=_revised(settled.schedule, now))
    paused = replace(
        settled.schedule,
        state="paused",
        # Whoever pauses it once more and says nothing means the same.
        pause_note=note or settled.schedule.pause_note,
        paused_until=until,
        paused_by=by,
        paused_at=now,
        wake_at=until,
    )
    return settled._replace(schedule=_revised(paused, now))


def resume(schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = ()) -> Planned | None:
    """Ticks again: the first after now. Those that fell into the pause are recorded as skipped.

    None if it is not paused: there is nothing to write.
    """
    _check_whole(schedule)
    if schedule.state != "paused":
        return None
    settled = _settle_overdue(schedule, now, active, keep_waiting=True)
    if settled.unfinished:
        return settled
    if settled.schedule.state != "paused":  # the pause had ended by itself
        ended = settled.schedule
        if ended.state == "active" and ended.next_tick is not None and ended.next_tick <= now:
            # It waits for a run that may end before this is written, and would wake nobody: plan looks again.
            ended = replace(ended, wake_at=ended.next_tick)
        return settled._replace(schedule=_revised(ended, now))
    planned = skip_until(awake(schedule), now + 1, "paused", now)
    return planned._replace(schedule=_revised(planned.schedule, now))


def reschedule(
    schedule: ScheduleRecord, tick: Instant, now: Instant, active: tuple[Active, ...] = ()
) -> Planned:
    """The next tick comes at ``tick``; those after it as the trigger says.

    Ticks that are passed over are recorded. One that is moved to an earlier time does not come at its own
    any more. Moving back makes a new generation: ticks whose runs exist already can come again.
    """
    _check_whole(schedule)
    if not FIRST <= tick <= LAST:
        hint = f"between {write_instant(FIRST)} and {write_instant(LAST)}"
        raise InvalidValue(f"tick {tick} is outside the calendar", field="tick", value=tick, hint=hint)
    settled = _settle_overdue(schedule, now, active, keep_waiting=False)
    if settled.unfinished:
        return settled
    current = settled.schedule
    moved_back = current.next_tick is None or tick < current.next_tick
    # The tick of the trigger that this one stands for, also if it was moved before.
    own = current.next_tick if current.moved is None else current.moved
    # Passing over the last tick does not end a pause.
    state = "active" if current.state == "finished" else current.state
    if current.next_tick is not None and tick > current.next_tick:
        passed = skip_until(current, tick, "rescheduled", now)
        current = passed.schedule
        settled = settled._replace(skipped=settled.skipped + passed.skipped)
    moved = replace(
        current,
        state=state,
        next_tick=tick,
        moved=own if own is not None and tick < own and not _is_single(current) else None,
        wake_at=current.paused_until if state == "paused" else tick,
        generation=current.generation + (1 if moved_back else 0),
        fire_seq=current.fire_seq + 1,
    )
    return settled._replace(schedule=_revised(moved, now))


def delete(schedule: ScheduleRecord, now: Instant) -> Planned:
    """A tombstone: it keeps the numbers, so that nothing of a later namesake is taken for this one's."""
    _check_there(schedule)
    gone = _skip_overdue(schedule, now, "deleted", even_paused=True)
    tombstone = replace(
        gone.schedule,
        state="deleted",
        next_tick=None,
        moved=None,
        wake_at=None,
        payload="null",
        description="",
        pause_note="",
        paused_by="",
        declared="",
        damage="",
    )
    return gone._replace(schedule=_revised(tombstone, now))


def run_now(
    schedule: ScheduleRecord,
    run_id: str,
    now: Instant,
    active: tuple[Active, ...] = (),
    payload: str | None = None,
) -> Planned | None:
    """A run at once, beside the ticks; None if the overlap policy has no room for it.

    It counts as a fire, so that it can't slip past a tick that is being planned.
    """
    _check_whole(schedule)
    busy = len(active) > 0 and schedule.overlap != "allow"
    full = schedule.max_concurrent is not None and len(active) >= schedule.max_concurrent
    if busy or full:
        return None
    run = RunRecord(
        id=run_id,
        tenant=schedule.tenant,
        schedule=schedule.name,
        generation=schedule.generation,
        cause="run_now",
        task=schedule.task,
        kind=schedule.kind,
        payload=schedule.payload if payload is None else payload,
        queue=schedule.queue,
        priority=schedule.priority,
        execution=schedule.execution,
        scheduled_at=now,
        run_at=now,
        created_at=now,
    )
    return Planned(replace(schedule, last_fire=now, fire_seq=schedule.fire_seq + 1), (run,))


def _settle_overdue(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...], *, keep_waiting: bool
) -> Planned:
    """Deal with what is overdue by the old rules: fired, or, where it can't be yet, "skipped: changed".

    Stops, unfinished, where one step has added as many runs as a store should write at once.
    """
    if readable_trigger(schedule) is None:
        return _skip_overdue(schedule, now, "changed", even_paused=False)
    planned = _ended_pause(schedule, now)
    while (current := planned.schedule).state == "active" and (current.next_tick or now + 1) <= now:
        size = sum(len(run.payload) for run in planned.runs)
        if len(planned.runs) >= RUNS_A_CHANGE or size >= BYTES_A_STEP:
            return planned._replace(unfinished=True)
        # A tick that came before the change counts, also if it was to be spread until after it.
        step = plan(replace(current, spread=0), now, active)
        step = step._replace(schedule=replace(step.schedule, spread=schedule.spread))
        if step.schedule.next_tick == current.next_tick:
            if keep_waiting:
                return _joined(planned, step)
            return _joined(planned, _skip_overdue(current, now, "changed", even_paused=False))
        planned = _joined(planned, step)
        active += tuple(Active(run.id, run.state) for run in step.runs)
    return planned


def _ended_pause(schedule: ScheduleRecord, now: Instant) -> Planned:
    """A pause that is over by now, though nobody has looked: its ticks recorded, the schedule active."""
    if schedule.state == "paused" and schedule.paused_until is not None and schedule.paused_until <= now:
        return plan(schedule, now)
    return Planned(schedule)


def _skip_overdue(schedule: ScheduleRecord, now: Instant, reason: Reason, *, even_paused: bool) -> Planned:
    if readable_trigger(schedule) is None:
        tick = schedule.next_tick
        if schedule.state != "active" or tick is None or tick > now:
            return Planned(schedule)
        return Planned(schedule, (), (skipped_ticks(schedule, tick, tick, 1, reason, now),))
    planned = _ended_pause(schedule, now)
    is_counted = planned.schedule.state == "active" or (even_paused and planned.schedule.state == "paused")
    if not is_counted or (planned.schedule.next_tick or now + 1) > now:
        return planned
    return _joined(planned, skip_until(planned.schedule, now + 1, reason, now))


def _is_asleep(schedule: ScheduleRecord) -> bool:
    """Whether it is in quarantine: active, and nobody looks at it until it is written anew."""
    return schedule.state == "active" and schedule.wake_at is None


def _is_single(schedule: ScheduleRecord) -> bool:
    return isinstance(parse_trigger(schedule.trigger), At)


def _check_there(schedule: ScheduleRecord) -> None:
    if schedule.state == "deleted":
        raise ScheduleNotFound(schedule.tenant, schedule.name)
    _check_format(schedule)


def _check_whole(schedule: ScheduleRecord) -> None:
    """Refuse what would write the defaults of a damaged row, or run by them, without a word."""
    _check_there(schedule)
    if schedule.damage:
        raise DamagedSchedule(schedule.tenant, schedule.name, schedule.damage)


def _check_format(schedule: ScheduleRecord) -> None:
    if schedule.format > FORMAT:
        raise ScheduleTooNew(schedule.tenant, schedule.name, schedule.format, FORMAT)


def _joined(first: Planned, then: Planned) -> Planned:
    return Planned(
        then.schedule, first.runs + then.runs, first.skipped + then.skipped, then.cancels, then.deferred
    )


def _checked(wanted: ScheduleRecord) -> ScheduleRecord:
    """Nothing that no store should hold, and the trigger in its canonical words."""
    return replace(check_schedule(wanted), trigger=str(parse_trigger(wanted.trigger)))


def _anchor(wanted: ScheduleRecord, now: Instant, start: Instant) -> Instant:
    trigger = parse_trigger(wanted.trigger)
    # An interval begins one period after its anchor.
    return start - trigger.period if isinstance(trigger, Every) and trigger.start is None else now


def _from_now(schedule: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """With the first tick after now, or finished if there is none."""
    schedule = replace(schedule, moved=None)
    trigger = trigger_of(replace(schedule, next_tick=None))
    tick = trigger.instant if isinstance(trigger, At) else trigger.next_ms(now)
    if schedule.state == "paused":
        return replace(schedule, next_tick=tick, fire_seq=schedule.fire_seq + 1)
    state = "finished" if tick is None else "active"
    return replace(schedule, next_tick=tick, wake_at=tick, state=state, fire_seq=schedule.fire_seq + 1)


def _revised(schedule: ScheduleRecord, now: Instant) -> ScheduleRecord:
    return replace(schedule, revision=schedule.revision + 1, updated_at=now)

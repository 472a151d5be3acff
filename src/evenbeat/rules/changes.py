"""Changes of a schedule by a user: create, declare, change, pause, resume, reschedule, run now, delete. Pure.

Ticks that are overdue when a change arrives are fired or skipped in the same step, by the policies that were
in force when they came due: no change loses a tick, and no tick runs by policies that came later. A pause and
a delete are meant to stop a schedule: they record such ticks as skipped. A backlog that is too long for one
step is written in parts: the plan is then ``unfinished``, and the last part carries the change.

A row whose trigger can't be read on this machine (damaged, or in an unknown time zone) can be changed and
deleted, too. The ticks that it has missed can't be counted: the ledger then names only its next tick.

``now`` is the store's own time (``store.now()``), or an earlier one, never a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from evenbeat.core.checks import check_schedule, check_texts
from evenbeat.core.dependencies import read_after
from evenbeat.core.instants import FIRST, LAST, Instant, write_instant
from evenbeat.core.json_text import read_definition
from evenbeat.core.records import FORMAT, RunRecord, ScheduleRecord, ScheduleState
from evenbeat.errors import (
    DamagedSchedule,
    InvalidValue,
    ScheduleExists,
    ScheduleNotFound,
    ScheduleTooNew,
    shown,
)
from evenbeat.rules.calendars import (
    bare_trigger,
    check_ticks,
    contents,
    is_finished_by_calendar,
    keeps_pause,
    readable_contents,
    recalendared,
    removed_until,
)
from evenbeat.rules.definitions import DEFINITION, definition
from evenbeat.rules.dependencies import is_on_success, replanned
from evenbeat.rules.firing import Active, Planned, skip_until, without_pause
from evenbeat.rules.inheritance import inheritance_of, write_inheritance
from evenbeat.rules.overdue import fire_overdue, skip_overdue
from evenbeat.rules.templates import inherit
from evenbeat.rules.ticks import readable_trigger, trigger_of, with_copies
from evenbeat.triggers import At, Calendared, Every, parse_trigger


def create(
    wanted: ScheduleRecord, now: Instant, previous: ScheduleRecord | None = None, start: Instant | None = None
) -> Planned:
    """Create a schedule, paused if ``wanted`` is. Raise if ``previous``, the row of that name, is not
    deleted.

    The first tick is the first one after ``now`` and not before ``start``, which is also the phase of an
    interval that has none of its own. A single instant in the past is due at once.
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
        # The numbers continue those of a deleted schedule of this name: its runs keep their identities.
        generation=1 if previous is None else previous.generation + 1,
        revision=1 if previous is None else previous.revision + 1,
        fire_seq=0 if previous is None else previous.fire_seq + 1,
        followers="" if previous is None else previous.followers,
    )
    made = _with_first_tick(made, now if start is None else max(now, start - 1))
    if made.calendars:
        check_ticks(made, made.next_tick)
    # Successes of the deleted schedule that have not fired yet are recorded as skipped.
    return Planned(made if previous is None else replanned(made, now))


def declare(
    wanted: ScheduleRecord,
    now: Instant,
    previous: ScheduleRecord | None,
    active: tuple[Active, ...] = (),
    start: Instant | None = None,
) -> Planned | None:
    """Create the schedule, or change it to match a declaration that has changed; None if nothing is to do.

    Edits by hand stay, as a pause does, until the declaration itself changes. A trigger of the same meaning
    keeps the next tick. ``start`` is used only when the schedule is created.
    """
    wanted = _checked(wanted)
    wanted = replace(wanted, declared=definition(wanted))
    if previous is None or previous.state == "deleted":
        return create(wanted, now, previous, start)
    if previous.format > FORMAT:
        return None  # a newer version wrote the row
    if previous.declared == wanted.declared and not previous.damage and not _is_quarantined(previous):
        return None
    return _change(previous, wanted, now, active)


def reset(
    schedule: ScheduleRecord,
    now: Instant,
    active: tuple[Active, ...] = (),
    template: Mapping[str, Any] | None = None,
    calendars: str | None = None,
) -> Planned | None:
    """Change the schedule back to its last declaration; None if nothing differs.

    ``template`` has the options of the template that the declaration names, ``calendars`` the copies for the
    trigger of ``declared_fields``.
    """
    return change(schedule, declared_fields(schedule, template), now, active, calendars)


def declared_fields(schedule: ScheduleRecord, template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields of the last declaration, with what it inherits from its template."""
    if not schedule.declared:
        raise InvalidValue(
            f"schedule {schedule.name} was never declared",
            field="name",
            value=schedule.name,
            hint="update it instead: there is no declaration to go back to",
        )
    fields = read_definition(schedule.declared)
    inheritance = inheritance_of(fields["template"])
    if inheritance is not None:
        if not fields["trigger"]:  # it is inherited, too
            fields["trigger"] = schedule.trigger
            fields["template"] = write_inheritance(replace(inheritance, base={"trigger": None}))
        whole = inherit(replace(schedule, **fields), inheritance.name, template or {})
        fields = {each: getattr(whole, each) for each in fields}
    return fields


def change(
    schedule: ScheduleRecord,
    fields: dict[str, Any],
    now: Instant,
    active: tuple[Active, ...] = (),
    calendars: str | None = None,
) -> Planned | None:
    """Change some fields of the definition; None if they have these values already.

    ``calendars`` are the copies of those that a new trigger names; None keeps the row's.
    """
    unknown = set(fields) - set(DEFINITION)
    if unknown:
        raise InvalidValue(
            f"{min(unknown)} can't be changed",
            field=min(unknown),
            value=fields[min(unknown)],
            hint=f"there are {', '.join(DEFINITION)}",
        )
    _check_exists(schedule)
    copies = {} if calendars is None else {"calendars": calendars}
    return _change(schedule, _checked(replace(schedule, **fields, **copies)), now, active)


def _change(
    schedule: ScheduleRecord, wanted: ScheduleRecord, now: Instant, active: tuple[Active, ...]
) -> Planned | None:
    """Give the schedule the definition of ``wanted``; None if it has it already."""
    if schedule.calendars and readable_trigger(schedule) is not None:
        if contents(wanted.calendars) == readable_contents(schedule.calendars):
            wanted = replace(wanted, calendars=schedule.calendars)
    fields = {name: getattr(wanted, name) for name in (*DEFINITION, "declared", "calendars")}
    before = readable_trigger(schedule)
    # An active row without a next tick has lost it: the first tick of the trigger is computed again.
    is_lost = schedule.state == "active" and schedule.next_tick is None and not is_on_success(schedule)
    same_trigger = with_copies(wanted.trigger, wanted.calendars) == before and not is_lost
    # Other calendars of the same trigger: the phase and due ticks stay.
    same_rule = same_trigger or (before is not None and not is_lost and _is_same_rule(schedule, wanted))
    if same_trigger:
        fields["trigger"] = schedule.trigger
    # Writing a quarantined row again wakes it up, even with the same values.
    if replace(schedule, **fields, damage="") == schedule and not _is_quarantined(schedule):
        return None
    planned = fire_overdue(_idle(schedule), now, active, keep_waiting=same_rule)
    if planned.unfinished:
        return planned
    changed = replace(planned.schedule, **fields, damage="")
    if not same_trigger:
        if changed.state == "paused" and before is not None and not (same_rule and keeps_pause(schedule)):
            # Record the old trigger's ticks of the pause so far: later, that trigger is gone.
            passed = skip_until(planned.schedule, now + 1, "paused", now)
            coming = {"next_tick": passed.schedule.next_tick, "moved": passed.schedule.moved}
            planned = planned._replace(
                schedule=replace(planned.schedule, **coming), skipped=planned.skipped + passed.skipped
            )
            changed = replace(changed, **coming)
        watermark = changed.next_tick
        if same_rule:
            changed, removed = recalendared(planned.schedule, changed, now)
        else:
            # The old calendars' removed ticks so far: later, they are not known.
            removed = removed_until(planned.schedule, now) if schedule.calendars and before else ()
            # A new trigger makes a finished schedule active again, too.
            changed = replace(changed, anchor=now, calendars=contents(changed.calendars))
            changed = _with_first_tick(changed, now)
            if changed.calendars:
                check_ticks(changed, changed.next_tick)
        planned = planned._replace(skipped=planned.skipped + removed)
        if watermark is None or (changed.next_tick or watermark) < watermark or is_on_success(changed):
            # The new trigger may have ticks before the watermark, which must get new identities. Successes
            # that were recorded for an earlier trigger must not fire.
            changed = replace(changed, generation=changed.generation + 1)
    elif changed.state == "active":
        # The reason why it waits may be gone: ``plan`` decides again when the tick is due.
        changed = replace(changed, wake_at=changed.next_tick)
    return planned._replace(schedule=_revised(changed, now))


def _is_same_rule(schedule: ScheduleRecord, wanted: ScheduleRecord) -> bool:
    """Return whether two schedules differ in nothing but the contents of their calendars."""
    if not schedule.calendars or not wanted.calendars:
        return False
    return parse_trigger(wanted.trigger) == parse_trigger(schedule.trigger)


def copy_calendars(
    schedule: ScheduleRecord, copies: str, now: Instant, active: tuple[Active, ...] = ()
) -> Planned | None:
    """Give the schedule new copies of its calendars; None if it has these already."""
    _check_readable(schedule)
    return _change(schedule, replace(schedule, calendars=copies), now, active)


def pause(
    schedule: ScheduleRecord, now: Instant, note: str = "", until: Instant | None = None, by: str = ""
) -> Planned:
    """Pause the schedule until it is resumed or ``until`` comes, and record overdue ticks as skipped.

    A pause may be an emergency stop, and must not start any run. A finished schedule stays so, unless a
    changed calendar may give it ticks again.
    """
    _check_readable(schedule)
    check_texts(note=note, by=by)
    schedule = _idle(schedule)
    # A machine that can't read the trigger leaves overdue ticks to be recorded at the end of the pause.
    readable = readable_trigger(schedule) is not None
    planned = skip_overdue(schedule, now, "paused", even_paused=False) if readable else Planned(schedule)
    if planned.schedule.state == "finished" and not is_finished_by_calendar(planned.schedule, now):
        return planned._replace(schedule=_revised(planned.schedule, now))
    paused = replace(
        planned.schedule,
        state="paused",
        # Pausing again without a note keeps the note.
        pause_note=note or planned.schedule.pause_note,
        paused_until=until,
        paused_by=by,
        paused_at=now,
        wake_at=until,
    )
    return planned._replace(schedule=_revised(paused, now))


def resume(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...] = (), *, catch_up: bool = False
) -> Planned | None:
    """Resume a paused schedule with its first tick after now, and record the ticks of the pause as skipped.

    With ``catch_up``, the catch-up and overlap policies decide what becomes of the ticks of the pause, as
    after a time without nodes. A pause whose end has passed is over: its own ticks are skipped either way.

    None if it is not paused. If a backlog is long, nodes fire the rest of it.
    """
    _check_readable(schedule)
    if schedule.state != "paused":
        return None
    is_over = schedule.paused_until is not None and schedule.paused_until <= now
    if catch_up and not is_over and (schedule.next_tick or now + 1) <= now:
        # The watermark stayed at the first tick of the pause: as an active row, they are all overdue.
        schedule = replace(without_pause(schedule), wake_at=schedule.next_tick)
    schedule = _idle(schedule)
    # Not unfinished: the pause is over, and a second part would find nothing to resume.
    planned = fire_overdue(schedule, now, active, keep_waiting=True)._replace(unfinished=False)
    if planned.schedule.state != "paused":  # the end of the pause has passed
        ended = planned.schedule
        if ended.state == "active" and ended.next_tick is not None and ended.next_tick <= now:
            # It waits for a run, which may end before this is written without waking it: plan it again.
            ended = replace(ended, wake_at=ended.next_tick)
        return planned._replace(schedule=_revised(ended, now))
    planned = skip_until(without_pause(schedule), now + 1, "paused", now)
    return planned._replace(schedule=_revised(planned.schedule, now))


def reschedule(
    schedule: ScheduleRecord, tick: Instant, now: Instant, active: tuple[Active, ...] = ()
) -> Planned:
    """Move the next tick to ``tick``; the trigger determines the ticks after it.

    Ticks that are passed over are recorded as skipped. A tick that is moved to an earlier time does not fire
    at its own time any more. Moving back starts a new generation: ticks that have runs already can fire
    again. A finished schedule starts again, with the ticks of its trigger after ``tick``.
    """
    _check_readable(schedule)
    if not FIRST <= tick <= LAST:
        hint = f"between {write_instant(FIRST)} and {write_instant(LAST)}"
        raise InvalidValue(f"tick {tick} is outside the calendar", field="tick", value=tick, hint=hint)
    if is_on_success(schedule):
        raise InvalidValue(
            f"schedule {schedule.name} has no tick to move: it fires {schedule.trigger}",
            field="tick",
            value=write_instant(tick),
            hint="run it now instead, or give it another trigger",
        )
    planned = fire_overdue(schedule, now, active, keep_waiting=False)
    if planned.unfinished:
        return planned
    current = planned.schedule
    moved_back = current.next_tick is None or tick < current.next_tick
    # The trigger's own tick that the moved one replaces, also if it was moved before.
    own = current.next_tick if current.moved is None else current.moved
    # A pause stays, even if the last tick is passed over.
    state = "active" if current.state == "finished" else current.state
    if current.next_tick is not None and tick > current.next_tick:
        passed = skip_until(current, tick, "rescheduled", now)
        current, skipped = passed.schedule, passed.skipped
        if own is not None and tick < own:
            # Its own time is still to come: the fire will record the ticks that calendars remove before it.
            skipped = tuple(row for row in skipped if row.reason != "calendar")
        planned = planned._replace(skipped=planned.skipped + skipped)
    moved = replace(
        current,
        state=state,
        next_tick=tick,
        moved=own if own is not None and tick < own and not _is_single(current) else None,
        wake_at=current.paused_until if state == "paused" else tick,
        generation=current.generation + (1 if moved_back else 0),
        fire_seq=current.fire_seq + 1,
    )
    return planned._replace(schedule=_revised(moved, now))


def delete(schedule: ScheduleRecord, now: Instant) -> Planned:
    """Turn the row into a tombstone, whose numbers keep the runs of a later schedule of this name apart."""
    _check_exists(schedule)
    schedule = _idle(schedule)
    gone = skip_overdue(schedule, now, "deleted", even_paused=True)
    if schedule.calendars and readable_trigger(schedule) is not None:
        gone = gone._replace(skipped=gone.skipped + removed_until(gone.schedule, now))
    tombstone = replace(
        gone.schedule,
        state="deleted",
        next_tick=None,
        moved=None,
        wake_at=None,
        payload="null",
        description="",
        tags="",
        template="",
        pause_note="",
        paused_by="",
        declared="",
        damage="",
    )
    return gone._replace(schedule=_revised(tombstone, now))


def add_follower(schedule: ScheduleRecord, name: str, now: Instant) -> Planned | None:
    """Add a schedule to those that a success of this one wakes; None if it is one of them already."""
    _check_readable(schedule)
    followers = schedule.followers.split()
    if name in followers:
        return None
    changed = replace(_awake(schedule), followers=" ".join(sorted((*followers, name))))
    return Planned(_revised(changed, now))


def touch(schedule: ScheduleRecord, now: Instant) -> Planned:
    """Count the version of the row up and change nothing else: a write that was planned before is refused."""
    _check_readable(schedule)
    return Planned(replanned(replace(_awake(schedule), fire_seq=schedule.fire_seq + 1), now))


def _awake(schedule: ScheduleRecord) -> ScheduleRecord:
    """Return a schedule that is planned again if it waits: the end of a run may wake it before the write."""
    schedule = _idle(schedule)
    wake_at = schedule.wake_at
    if schedule.state == "active" and wake_at is not None and schedule.next_tick is not None:
        wake_at = min(wake_at, schedule.next_tick)
    return replace(schedule, wake_at=wake_at)


def run_now(
    schedule: ScheduleRecord,
    run_id: str,
    now: Instant,
    active: tuple[Active, ...] = (),
    payload: str | None = None,
    trace: str | None = None,
) -> Planned | None:
    """Add a run at once, beside the ticks; None if the schedule's policies do not allow it.

    It counts as a fire: a tick that another node is planning at the same moment conflicts with it.
    """
    _check_readable(schedule)
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
        trace=trace,
    )
    fired = replace(schedule, last_fire=now, fire_seq=schedule.fire_seq + 1)
    return Planned(replanned(fired, now), (run,))


def _is_quarantined(schedule: ScheduleRecord) -> bool:
    """Return whether the row is quarantined: active, and not planned until it is written again."""
    return schedule.state == "active" and schedule.wake_at is None and not is_on_success(schedule)


def _idle(schedule: ScheduleRecord) -> ScheduleRecord:
    """Return a schedule that fires on success without the success that waits: its record waits, too."""
    return replace(schedule, next_tick=None) if is_on_success(schedule) else schedule


def _is_single(schedule: ScheduleRecord) -> bool:
    return isinstance(parse_trigger(schedule.trigger), At)


def _check_exists(schedule: ScheduleRecord) -> None:
    if schedule.state == "deleted":
        raise ScheduleNotFound(schedule.tenant, schedule.name)
    _check_format(schedule)


def _check_readable(schedule: ScheduleRecord) -> None:
    """Refuse a damaged row: the change would write or use the defaults of its unreadable fields."""
    _check_exists(schedule)
    if schedule.damage:
        raise DamagedSchedule(schedule.tenant, schedule.name, schedule.damage)


def _check_format(schedule: ScheduleRecord) -> None:
    if schedule.format > FORMAT:
        raise ScheduleTooNew(schedule.tenant, schedule.name, schedule.format, FORMAT)


def _checked(wanted: ScheduleRecord) -> ScheduleRecord:
    """Check the fields, and return the schedule with the canonical texts of its trigger and dependency, and
    with copies of its calendars only if it names some."""
    trigger = parse_trigger(check_schedule(wanted).trigger)
    copies = wanted.calendars
    if not isinstance(trigger, Calendared):
        copies = ""
    elif not copies and trigger.copies is not None:
        copies = trigger.copies.text  # all are built in
    elif not copies:
        trigger.next_ms(0)  # refuses a calendar that is not known
    checked = replace(wanted, trigger=str(trigger), after=read_after(wanted.after), calendars=copies)
    if checked.after and is_on_success(checked):
        raise InvalidValue(
            f"after {shown(checked.after)} has no effect on a schedule that fires {checked.trigger}",
            field="after",
            value=checked.after,
            hint="leave it out, or give the schedule a trigger with ticks",
        )
    return checked


def _anchor(wanted: ScheduleRecord, now: Instant, start: Instant) -> Instant:
    """Return from when the trigger of a new schedule counts that starts at ``start``."""
    trigger = bare_trigger(parse_trigger(wanted.trigger))
    if isinstance(trigger, Every) and trigger.start is None:
        return start - trigger.period  # an interval begins one period after its anchor
    return max(now, start - 1)


def _with_first_tick(schedule: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """Return the schedule with its first tick after now, or finished if there is none."""
    schedule = replace(schedule, moved=None)
    trigger = trigger_of(replace(schedule, next_tick=None))
    tick = trigger.instant if isinstance(trigger, At) else trigger.next_ms(now)
    if schedule.state == "paused":
        return replace(schedule, next_tick=tick, fire_seq=schedule.fire_seq + 1)
    state: ScheduleState = "finished" if tick is None and not is_on_success(schedule) else "active"
    return replace(schedule, next_tick=tick, wake_at=tick, state=state, fire_seq=schedule.fire_seq + 1)


def _revised(schedule: ScheduleRecord, now: Instant) -> ScheduleRecord:
    return replanned(replace(schedule, revision=schedule.revision + 1, updated_at=now), now)

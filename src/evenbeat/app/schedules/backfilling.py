"""Backfill a schedule: add a run for each tick of a past range."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from evenbeat.app.acting import current_actor
from evenbeat.app.backfill_plans import PastTicks
from evenbeat.app.backfills import make_backfill, same_backfill
from evenbeat.app.schedules.calls import ScheduleCalls
from evenbeat.core.awaitable import twin
from evenbeat.core.backfills import MOST_CONCURRENT, MOST_TICKS, Backfill, BackfillOrder
from evenbeat.core.checks import check_flag, check_label, check_one_of, check_whole, read_priority
from evenbeat.core.durations import is_duration
from evenbeat.core.instants import Instant, Moment, read_moment, write_instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import DamagedSchedule, InvalidValue, shown
from evenbeat.observe.backfills import dry_run_view
from evenbeat.rules.backfills import StoredBackfill, default_id, past_trigger, write_skips
from evenbeat.rules.calendars import contents
from evenbeat.rules.ticks import own_trigger
from evenbeat.triggers import At, OnSuccess

_ORDERS = ("oldest", "newest")
LONGEST_ID = 64


class BackfillCalls(ScheduleCalls):
    """Adds the runs of past ranges."""

    def backfill(
        self,
        name: str,
        start: Moment,
        end: Moment,
        *,
        max_concurrent: int = 1,
        order: BackfillOrder = "oldest",
        priority: int | str = "low",
        payload: Mapping[str, Any] | None = None,
        missing_only: bool = False,
        dry_run: bool = False,
        id: str | None = None,
        tenant: str | None = None,
    ) -> Backfill:
        """Add a run for each tick from ``start`` to before ``end``, which are past; nodes add them a few at a
        time, at most ``max_concurrent`` of them outstanding.

        Ticks follow the present trigger, also before the schedule existed. With ``missing_only``, a tick that
        has a succeeded run gets none. The same ticks again add nothing, and return the same backfill, with
        ``existed_since``, whatever the other options; give an ``id`` of your own to run a range again.
        ``dry_run`` only says what it would do, in ``plan``.

        A duration counts back from now; a text without an offset is a time in the trigger's zone.
        ``InvalidValue`` for a range without ticks, with more than 100,000, or with an end to come.
        """
        owner = self._session.tenant_of(tenant)
        row = self._rows.existing(name, owner)
        if row.damage:
            raise DamagedSchedule(row.tenant, row.name, row.damage)
        _refuse_followers(row, start)
        check_whole("max_concurrent", max_concurrent, 1, MOST_CONCURRENT)
        check_one_of("order", order, _ORDERS)
        check_flag("missing_only", missing_only)
        check_flag("dry_run", dry_run)
        text = None if payload is None else self._session.call(row.task, payload)[1]
        wanted = replace(
            backfill_of(row, start, end, self._session.store().now()),
            order=order,
            max_concurrent=max_concurrent,
            priority=read_priority(priority),
            payload=text,
            missing_only=missing_only,
        )
        key = default_id(row, wanted) if id is None else _checked_id(id)
        if dry_run or missing_only:
            past = PastTicks(self._session.store(), row, wanted)
            present = same_backfill(self._session.store(), owner, key, wanted) if dry_run else None
            skipped = past.succeeded if missing_only else frozenset[Instant]()
            if present is not None:
                skipped = frozenset(past.ticks)
            wanted = replace(
                wanted, total=wanted.ticks - len(skipped), skips=write_skips(past.ticks, skipped)
            )
            if dry_run:
                return dry_run_view(owner, key, wanted, past.plan(order, skipped), present)
        return make_backfill(self._session, owner, key, wanted)

    abackfill = twin(backfill)


def backfill_of(row: ScheduleRecord, start: Moment, end: Moment, now: Instant) -> StoredBackfill:
    """Return a backfill of a range, with its ticks; refuse a range that has none, or too many."""
    first, last = _range(row, start, end, now)
    calendars = contents(row.calendars)  # what they contain now, also for earlier ticks
    trigger = past_trigger(row.name, row.trigger, row.anchor, first, calendars)
    number = trigger.count_ms(first, last)
    _check_number(row, number, (first, last), start, now)
    first_tick, last_tick = trigger.next_ms(first - 1), trigger.prev_ms(last)
    assert first_tick is not None
    assert last_tick is not None
    return StoredBackfill(
        schedule=row.name,
        schedule_since=row.created_at,
        generation=row.generation,
        trigger=row.trigger,
        anchor=row.anchor,
        calendars=calendars,
        start=first,
        end=last,
        first=first_tick,
        last=last_tick,
        ticks=number,
        total=number,
        created_at=now,
        created_by=current_actor().name,
    )


def _range(row: ScheduleRecord, start: Moment, end: Moment, now: Instant) -> tuple[Instant, Instant]:
    zone = own_trigger(row).tzinfo
    first = read_moment(start, "start", now, zone, ago=True)
    last = read_moment(end, "end", now, zone, ago=True)
    if last > now:
        raise InvalidValue(
            f"end {shown(end)} is in the future",
            field="end",
            value=end,
            hint="give a time that is past: the ticks to come fire by themselves",
        )
    if last <= first:
        raise InvalidValue(
            f"start and end are not in order: {shown(start)} is not before {shown(end)}",
            field="end",
            value=end,
            hint=_ORDER_OF_DURATIONS if _is_duration(start) or _is_duration(end) else _ORDER_OF_DATES,
        )
    return first, last


_ORDER_OF_DURATIONS = "a duration counts back from now: 7d is before 1d"
_ORDER_OF_DATES = "give the earlier time first"


def _is_duration(moment: Moment) -> bool:
    return isinstance(moment, timedelta) or (isinstance(moment, str) and is_duration(moment.strip()))


def _refuse_followers(row: ScheduleRecord, start: Moment) -> None:
    """Refuse a schedule without ticks."""
    trigger = own_trigger(row)
    if isinstance(trigger, OnSuccess):
        raise InvalidValue(
            f"schedule {row.name} has no ticks to backfill: it fires {row.trigger}",
            field="start",
            value=start,
            hint=f"backfill {trigger.schedule}: each success of it starts a run of {row.name}",
        )


def _check_number(
    row: ScheduleRecord, number: int, span_of: tuple[Instant, Instant], start: Moment, now: Instant
) -> None:
    span = f"from {write_instant(span_of[0])} to {write_instant(span_of[1])}"
    if number == 0:
        trigger = own_trigger(row)
        hint = f"its trigger is {row.trigger}: give a longer range"
        if isinstance(trigger, At):
            hint = f"its only tick is at {write_instant(trigger.instant)}: give a range that has it"
            if trigger.instant > now:
                hint = f"its only tick, at {write_instant(trigger.instant)}, fires by itself"
        raise InvalidValue(f"schedule {row.name} has no tick {span}", field="start", value=start, hint=hint)
    if number > MOST_TICKS:
        raise InvalidValue(
            f"schedule {row.name} has {number:,} ticks {span}, more than {MOST_TICKS:,}",
            field="start",
            value=start,
            hint="shorten the range, and make several backfills",
        )


def _checked_id(id: str) -> str:
    try:
        check_label(id, "id")
    except InvalidValue:
        is_label = False
    else:
        is_label = len(id) <= LONGEST_ID
    if not is_label:
        raise InvalidValue(
            f"id {shown(id)} is not 1 to {LONGEST_ID} letters, digits, _ or -", field="id", value=id
        )
    return id

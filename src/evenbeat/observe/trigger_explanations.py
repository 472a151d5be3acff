"""Explain the text of a trigger: its canonical form, its words, its next ticks, and clock changes ahead.

Pure: the caller gives the time. The work is bounded, whatever the text: at most 1,000 ticks of 100 years are
found. Most of the work is to read the rules of a time zone; the tests bound how often, for hostile texts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from evenbeat.core.checks import check_whole
from evenbeat.core.forecasts import (
    MOST_TICKS,
    TriggerClockChange,
    TriggerExplanation,
    TriggerKind,
    TriggerTick,
)
from evenbeat.core.instants import LAST, Instant, from_ms, read_instant
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.observe.phrases import date_time, span, timespec
from evenbeat.triggers import At, Calendared, Cron, Every, OnSuccess, Trigger, parse_trigger
from evenbeat.triggers.base import check_text
from evenbeat.triggers.clock_changes import coming_changes, effect
from evenbeat.triggers.expression import LONGEST_TEXT, too_long
from evenbeat.triggers.words import explain_bounds, explain_period
from evenbeat.triggers.zones import Zone, read_zone

_CHANGES = 2
_YEARS_AHEAD = 100
_AHEAD = _YEARS_AHEAD * 366 * 86_400_000


Resolve: TypeAlias = Callable[[Calendared], Calendared]
"""Returns a trigger with what its calendars contain."""


class WrittenTrigger(NamedTuple):
    """A trigger as a schedule that was created at ``since`` would have it, and how to show it."""

    trigger: Cron | Every | At | Calendared | OnSuccess
    written: Cron | Every | At | Calendared | OnSuccess
    """The trigger as the user wrote it: ``H`` and the start of a period are still open."""
    zone: Zone
    """The zone to show dates in."""
    since: Instant


def trigger_words(text: str, name: str) -> str:
    """Return the trigger of the schedule ``name`` in words; if it can't be read, the reason."""
    try:
        trigger = parse_trigger(text)
    except InvalidTrigger as error:
        return str(error)
    # H becomes the value of this schedule. Other triggers stay as they are: the start that an interval gets
    # is different for each schedule.
    return _words(trigger.bind(name, 0) if isinstance(_bare(trigger), Cron) else trigger)


# The words of a cron take up to 50 us to find, and 0.6 us to find again. A page has 50 triggers, and 100,000
# schedules rarely have more than some hundred different ones; those with H have one for each of its values.
@lru_cache(maxsize=1 << 14)
def _words(trigger: Trigger) -> str:
    if isinstance(trigger, Every) and trigger.start is None and trigger.period:
        # It counts from the creation of the schedule, which the trigger does not know.
        return explain_period(trigger.period) + explain_bounds(None, trigger.until)
    if isinstance(trigger, Calendared) and isinstance(trigger.bare, Every):
        return _words(trigger.bare) + trigger.words()
    return trigger.explain()


def check_count(count: int) -> None:
    """Refuse a number of ticks that is not 1 to 1,000."""
    try:
        check_whole("count", count, 1, MOST_TICKS)
    except InvalidValue as error:
        hint = "ask for the rest with the last tick as since"
        raise InvalidValue(error.problem, field="count", value=count, hint=hint) from None


def coming_ticks(trigger: Trigger, first: Instant | None, count: int) -> list[Instant]:
    """Return the tick ``first`` and those after it: at most ``count``, and within 100 years."""
    found: list[Instant] = []
    tick = first
    while tick is not None and first is not None and tick - first <= _AHEAD and len(found) < count:
        found.append(tick)
        tick = trigger.next_ms(tick)
    return found


def _bare(trigger: Cron | Every | At | Calendared | OnSuccess) -> Cron | Every | At | OnSuccess:
    return trigger.bare if isinstance(trigger, Calendared) else trigger


def read_written(
    text: str,
    *,
    tz: str | None,
    since: datetime | str | None,
    name: str | None,
    now: Instant,
    resolve: Resolve | None = None,
) -> WrittenTrigger:
    """Return the trigger of a text; ``InvalidTrigger``, with the position, if it is not valid.

    ``tz`` is the zone of a cron without one of its own; for other triggers, the zone of the dates.
    ``resolve`` reads the calendars that it names.
    """
    check_text(text)
    if len(text) > LONGEST_TEXT:
        raise too_long(text)
    asked = None if tz is None else read_zone(tz)
    own = next((word.partition("=")[2] for word in text.split() if word.startswith("tz=")), None)
    rule = [word.lower() for word in text.split() if "=" not in word]
    if asked is not None and own is None and rule[:1] not in (["every"], ["@every"], ["on"]):
        # As part of the text, the zone also applies to a start or a date without an offset.
        written = parse_trigger(f"{text} tz={asked.key}")
    else:
        written = parse_trigger(text)
    bare = _bare(written)
    if isinstance(written, Calendared) and resolve is not None:
        written = resolve(written)
    if isinstance(bare, Cron):
        if asked is not None and bare.zone is not asked:
            raise InvalidValue(
                f"tz {asked.key} contradicts tz={own} in the expression",
                field="tz",
                value=tz,
                hint="give the zone once",
            )
        zone = bare.zone
    else:
        zone = asked or read_zone(own or "UTC")
    start = now if since is None else read_instant(since, "since", zone.info)
    # Without a name, H stays H.
    is_open = isinstance(bare, Cron) and name is None
    trigger = written if is_open else written.bind(name or "", start)
    return WrittenTrigger(trigger, written, zone, start)


def explain_trigger(
    text: str,
    count: int,
    *,
    now: Instant,
    tz: str | None = None,
    since: datetime | str | None = None,
    name: str | None = None,
    resolve: Resolve | None = None,
) -> TriggerExplanation:
    """Return the trigger of a text in words, with its next ``count`` ticks after ``since``, or after now."""
    check_count(count)
    asked = read_written(text, tz=tz, since=since, name=name, now=now, resolve=resolve)
    trigger, zone = asked.trigger, asked.zone
    bare = _bare(trigger)
    instants = coming_ticks(trigger, trigger.next_ms(asked.since), count)
    notes = _open_parts(asked.written, name)
    if len(instants) < count:
        notes.append(_why_no_more(asked, instants[-1] if instants else None))
    until = None if isinstance(trigger, (At, OnSuccess)) else trigger.until
    return TriggerExplanation(
        kind=_kind(bare),
        trigger=str(trigger),
        written=str(asked.written),
        words=trigger.explain(),
        zone=zone.key,
        since=from_ms(asked.since, zone.info),
        until=None if until is None else from_ms(until, zone.info),
        ticks=tuple(
            TriggerTick(
                at=from_ms(tick, zone.info),
                away=timedelta(milliseconds=tick - asked.since),
                note=trigger.note(tick) if isinstance(trigger, (Cron, Calendared)) else None,
            )
            for tick in instants
        ),
        clock_changes=tuple(_clock_changes(asked)),
        notes=tuple(notes),
    )


def _kind(trigger: Cron | Every | At | OnSuccess) -> TriggerKind:
    if isinstance(trigger, OnSuccess):
        return "success"
    return "cron" if isinstance(trigger, Cron) else "every" if isinstance(trigger, Every) else "at"


def _clock_changes(asked: WrittenTrigger) -> list[TriggerClockChange]:
    trigger = _bare(asked.trigger)
    if not isinstance(trigger, Cron):
        return []
    begin = asked.since if trigger.start is None else max(asked.since, trigger.start)
    return [
        TriggerClockChange(
            at=from_ms(change.instant, asked.zone.info),
            clock_from=change.clock_from,
            clock_to=change.clock_to,
            shift=timedelta(seconds=change.after - change.before),
            effect=effect(trigger, change),
        )
        for change in coming_changes(asked.zone, begin, _CHANGES)
        if trigger.until is None or change.instant <= trigger.until
    ]


def _open_parts(given: Cron | Every | At | Calendared | OnSuccess, name: str | None) -> list[str]:
    written = _bare(given)
    if isinstance(written, Cron) and written.expression.hashed and name is None:
        return ["H depends on the schedule's name: give the name to see its real ticks"]
    if isinstance(written, Every) and written.start is None:
        return ["it has no start: the first tick is one period later, as for a new schedule"]
    return []


def _why_no_more(asked: WrittenTrigger, last: Instant | None) -> str:
    """Return why no ticks after ``last`` are shown."""
    trigger, since = asked.trigger, asked.since
    if isinstance(trigger, OnSuccess):
        return f"no ticks of its own: each success of {trigger.schedule} starts a run"
    if last is not None and trigger.next_ms(last) is not None:
        return f"more ticks follow: only those of {_YEARS_AHEAD} years are shown"
    if isinstance(trigger, Calendared) and trigger.bare.next_ms(last or since) is not None:
        return f"no more ticks: the calendars ({', '.join(trigger.names)}) leave none"
    if isinstance(trigger, At) or (isinstance(trigger, Every) and trigger.period == 0):
        if last is not None:
            return "no more ticks: it runs once"
        only = trigger.prev_ms(LAST)
        assert only is not None
        after = _shown(since, asked.zone)
        return (
            f"no tick after {after}: the only one was {span(since - only)} before;"
            " a new schedule would run it at once"
            if only < since
            else f"no tick after {after}: the only one is at that very moment"
        )
    if trigger.until is None:
        return "no more ticks: the calendar ends with the year 9999"
    until = _shown(trigger.until, asked.zone)
    if last is not None:
        return f"no more ticks: it ends at {until}"
    if trigger.until <= since:
        return f"no ticks: it ended at {until}"
    return f"no ticks: it ends at {until}, before the first one"


def _shown(instant: Instant, zone: Zone) -> str:
    return date_time(from_ms(instant, zone.info), timespec([instant]))

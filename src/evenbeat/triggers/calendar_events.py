"""The events of an iCalendar file (RFC 5545): the days and spans that they cover. Pure.

Only what decides that is read: DTSTART, DTEND, DURATION, RRULE, RDATE and EXDATE of VEVENT parts. Time zones
are IANA or Windows names; definitions of zones in the file are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from evenbeat.triggers.recurrences import Steps, occurrences, read_recurrence
from evenbeat.triggers.time_sets import EPOCH_ORDINAL, Span
from evenbeat.triggers.windows_zones import WINDOWS_ZONES
from evenbeat.triggers.zones import find_zone, read_zone

LONGEST_EVENT = timedelta(days=3_660)
STEPS_A_ZONE = 2_000

_WANTED = frozenset(("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE"))
_FOLD = re.compile(r"\r?\n[ \t]")
_NAME = re.compile(r"[A-Za-z0-9-]+")
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=("[^"]*"|[^";:]*)')
_MOMENT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?", re.ASCII)
_DURATION = re.compile(
    r"([+-]?)P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?", re.ASCII
)


class Line(NamedTuple):
    """A property of an event."""

    value: str
    zone: str = ""
    """Its parameter TZID."""


Event = dict[str, list[Line]]


def read_events(text: str, zone: str, first: date, last: date, steps: Steps) -> Iterator[int | Span]:
    """Yield the days and spans of the events in a file, those that repeat from ``first`` to ``last``.

    ``ValueError`` says what can't be read. Times without a zone are in ``zone``. ``steps`` counts all work on
    the file: lines, what a line lists, zones, and the days and times of repetitions.
    """
    zones = _Zones(steps)
    for event in _parts(text, steps):
        yield from _times(event, read_zone(zone).info, zones, (first, last), steps)


def _parts(text: str, steps: Steps) -> Iterator[Event]:
    """Yield the VEVENT parts of a file. Parts within them (alarms) are left out."""
    open_parts: list[str] = []
    event: Event = {}
    for line in _FOLD.sub("", text).splitlines():
        steps.take(1)
        found = _NAME.match(line)
        if found is None:
            if line.strip():
                raise ValueError(f"the line {line[:40]!r} has no name")
            continue
        name = found[0].upper()
        if name in ("BEGIN", "END"):
            part = line[found.end() :].removeprefix(":").strip().upper()
            if name == "BEGIN":
                open_parts.append(part)
                event = {} if part == "VEVENT" else event
                continue
            if not open_parts or open_parts.pop() != part:
                raise ValueError(f"END:{part[:40]} ends no part")
            if part == "VEVENT":
                yield event
        elif name in _WANTED and open_parts and open_parts[-1] == "VEVENT":
            # Parameters, the parts of a rule, and the values of lists.
            steps.take(line.count(";") + line.count(","))
            event.setdefault(name, []).append(_line(line, found.end()))
        elif ":" not in line:
            raise ValueError(f"the line {line[:40]!r} has no colon")
    if open_parts:
        raise ValueError(f"the part {open_parts[-1][:40]} has no end")


def _line(line: str, at: int) -> Line:
    zone = ""
    while found := _PARAMETER.match(line, at):
        at = found.end()
        if found[1].upper() == "TZID":
            zone = found[2].strip('"')
    if line[at : at + 1] != ":":
        raise ValueError(f"the line {line[:40]!r} has no value")
    return Line(line[at + 1 :].strip(), zone)


class _Zones(dict[str, tzinfo]):
    """The zones of a file by their names. Finding one counts as many steps."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def __missing__(self, tzid: str) -> tzinfo:
        self._steps.take(STEPS_A_ZONE)
        self[tzid] = found = _zone(tzid)
        return found


def _zone(tzid: str) -> tzinfo:
    """Return a zone by its IANA name, which may follow a prefix, or by the name that Windows has for it."""
    known = WINDOWS_ZONES.get(tzid, tzid)
    parts = known.strip("/").split("/")
    for name in dict.fromkeys(("/".join(parts), "/".join(parts[-2:]), "/".join(parts[-3:]))):
        if (found := find_zone(name)) is not None:
            return found.info
    raise ValueError(f"TZID {tzid[:60]!r} is not an IANA or Windows time zone")


class _Moment(NamedTuple):
    """A date, or a wall-clock time with its zone; a time without one is in that of the calendar."""

    at: datetime
    is_day: bool
    info: tzinfo | None


def _moment(line: Line, zones: _Zones) -> _Moment:
    text = line.value
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a date or a time such as 20261225 or 20261225T093000Z")
    year, month, day, *rest = found.groups()
    if rest[0] is None:
        return _Moment(datetime(int(year), int(month), int(day)), True, None)
    hour, minute, second = (int(each) for each in rest[:3])
    at = datetime(int(year), int(month), int(day), hour, minute, min(second, 59))
    return _Moment(at, False, UTC if rest[3] else zones[line.zone] if line.zone else None)


def _times(
    event: Event, usual: tzinfo, zones: _Zones, of: tuple[date, date], steps: Steps
) -> Iterator[int | Span]:
    """Yield the days, or spans, of one event and its repetitions."""
    if "DTSTART" not in event:
        raise ValueError("an event has no DTSTART")
    first, last = of
    start = _moment(event["DTSTART"][0], zones)
    begin, is_day, info = start.at, start.is_day, start.info or usual

    def local(moment: _Moment) -> datetime:
        """Return a moment in the form of the event's start: in its zone, a date at its time."""
        if moment.is_day:
            return datetime.combine(moment.at, begin.time())
        if moment.info is None or is_day:
            return moment.at
        return moment.at.replace(tzinfo=moment.info).astimezone(info).replace(tzinfo=None)

    length = _length(event)
    if "DTEND" in event:
        end = _moment(event["DTEND"][0], zones)
        length = (end.at if is_day else local(end)) - begin
    elif length is None:
        length = timedelta(days=1) if is_day else timedelta(0)
    if length > LONGEST_EVENT:
        raise ValueError(f"an event lasts {length.days:,} days, more than {LONGEST_EVENT.days:,}")
    starts = set() if "RRULE" in event or begin.date() > last else {begin}
    for line in event.get("RRULE", ()):
        rule = read_recurrence(line.value)
        until = None
        if rule.until:
            given = _moment(Line(rule.until), zones)
            until = datetime.combine(given.at, time.max) if given.is_day else local(given)
        if begin.date() <= last:
            starts.update(occurrences(rule, begin, until, first, last, steps))
    for key in ("RDATE", "EXDATE"):
        listed = {
            local(_moment(Line(text, line.zone), zones))
            for line in event.get(key, ())
            for text in line.value.split(",")
        }
        starts = (
            starts | {each for each in listed if each.date() <= last} if key == "RDATE" else starts - listed
        )
    for each in sorted(starts):
        if is_day:
            day = each.toordinal() - EPOCH_ORDINAL
            yield from range(day, day + max(1, length.days))
        else:
            second = int(each.replace(tzinfo=info).timestamp())
            yield (second, second + max(1, int(length.total_seconds())))


def _length(event: Event) -> timedelta | None:
    """Return the DURATION of an event; None if it has none."""
    if "DURATION" not in event:
        return None
    text = event["DURATION"][0].value.upper()
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"DURATION:{text[:40]} is not a duration such as P1D or PT2H30M")
    weeks, days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
    length = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    return -length if found[1] == "-" else length

"""The times of a calendar from what a user gives: days, weekly windows, a country's holidays, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from difflib import get_close_matches
from typing import Any, NamedTuple

from evenbeat.core.calendars import LONGEST_ICS, YEARS_AHEAD
from evenbeat.errors import InvalidValue, shown
from evenbeat.triggers.calendar_events import read_events
from evenbeat.triggers.calendar_texts import MOST_DAYS, read_days, read_weekly
from evenbeat.triggers.recurrences import Steps, TooManySteps
from evenbeat.triggers.time_sets import EPOCH_ORDINAL, Span, TimeSet, merged
from evenbeat.triggers.zones import read_zone

_EXTRA = 'install the extra: pip install "evenbeat[calendars]"'


class Sources(NamedTuple):
    """What a user gives for a calendar."""

    days: object = ()
    weekly: object = ()
    without: object = ()
    tz: str | None = None
    country: str | None = None
    subdivision: str | None = None
    ics: str | bytes | None = None


class Compiled(NamedTuple):
    """The times that follow from the sources."""

    times: TimeSet
    events: int
    covers_until: int | None


def compile_calendar(given: Sources, today: date) -> Compiled:
    """Return the times of the sources; refuse what can't be read, naming the field."""
    zone = "" if given.tz is None else read_zone(given.tz).key
    single = read_days(given.days, "days")
    without = read_days(given.without, "without")
    days, spans = set(single.days), list[Span]()
    last = date(today.year + YEARS_AHEAD, 12, 31)
    ends = False
    if given.country is not None:
        days |= set(_holidays(given.country, given.subdivision, today.year - 1, last.year))
        ends = True
    elif given.subdivision is not None:
        raise InvalidValue(
            f"subdivision {shown(given.subdivision)} is given without a country",
            field="subdivision",
            value=given.subdivision,
            hint='give country="US", too',
        )
    events = 0
    if given.ics is not None:
        for found in _events(given.ics, zone, date(today.year - 1, 1, 1), last):
            if isinstance(found, int):
                days.add(found)
            else:
                spans.append(found)
            events += 1
            if events > MOST_DAYS:
                raise InvalidValue(
                    f"ics has more than {MOST_DAYS:,} days and events in {YEARS_AHEAD} years",
                    field="ics",
                    value=events,
                    hint="give a smaller file",
                )
        ends = True
    times = TimeSet(
        tz=zone,
        days=tuple(sorted(days)),
        yearly=single.yearly,
        weekly=read_weekly(given.weekly),
        spans=merged(spans),
        without=without.days,
        without_yearly=without.yearly,
    )
    if not (times.days or times.yearly or times.weekly or times.spans):
        if given.ics is not None:
            raise InvalidValue(
                f"ics has no event from {today.year - 1}-01-01 to {last}",
                field="ics",
                value=given.ics[:40],
                hint="give a file with VEVENT parts",
            )
        raise InvalidValue(
            "days, weekly, country and ics give no day",
            field="days",
            value=given.days,
            hint='give days=["2026-12-25"], weekly=["mon-fri 09:00-17:00"], country="US" or an iCalendar '
            "file (ics)",
        )
    return Compiled(times, events, last.toordinal() - EPOCH_ORDINAL if ends else None)


def _holidays(country: object, subdivision: object, first: int, last: int) -> Iterator[int]:
    """Yield the holidays of a country, or of a part of it."""
    try:
        import holidays
    except ImportError:
        raise InvalidValue(
            f"country {shown(country)} needs the holidays package",
            field="country",
            value=country,
            hint=_EXTRA,
        ) from None
    known = holidays.list_supported_countries()
    if not isinstance(country, str) or country not in known:
        raise InvalidValue(
            f"country {shown(country)} is not known",
            field="country",
            value=country,
            hint='give its two letters, such as "US" or "DE"',
        )
    if subdivision is not None and subdivision not in known[country]:
        raise InvalidValue(
            f"subdivision {shown(subdivision)} is not a part of {country}",
            field="subdivision",
            value=subdivision,
            hint=_parts_hint(str(subdivision), known[country], holidays.country_holidays(country)),
        )
    found: Any = holidays.country_holidays(country, subdiv=subdivision, years=range(first, last + 1))
    for day in found:
        yield day.toordinal() - EPOCH_ORDINAL


def _parts_hint(given: str, parts: Sequence[str], country: Any) -> str:
    """Return a hint that names all parts of a country, and the one that was probably meant."""
    if not parts:
        return "leave it out: the holidays of this country do not differ by its parts"
    codes = {part.casefold(): part for part in parts}
    codes |= {name.casefold(): code for name, code in getattr(country, "subdivisions_aliases", {}).items()}
    near = get_close_matches(given.casefold(), codes, n=1)
    words = f"there are {', '.join(sorted(parts))}"
    return f"did you mean {codes[near[0]]}? {words}" if near else words


def _events(ics: str | bytes, zone: str, first: date, last: date) -> Iterator[int | Span]:
    """Yield the days and spans of the events in a file, those that repeat until ``last``."""
    if not isinstance(ics, (str, bytes)):
        raise InvalidValue(
            f"ics {shown(ics)} is not a text",
            field="ics",
            value=ics,
            hint='give the text: Path("x.ics").read_text()',
        )
    # By size, before anything reads it.
    if len(ics) > LONGEST_ICS:
        raise InvalidValue(
            f"ics has {len(ics):,} characters, more than {LONGEST_ICS:,}",
            field="ics",
            value=len(ics),
            hint="give a smaller file: past events and descriptions are not needed",
        )
    text = ics if isinstance(ics, str) else ics.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff").lstrip()
    if not text[:15].upper().startswith("BEGIN:VCALENDAR"):
        raise _unreadable("is not an iCalendar file", ics)
    try:
        yield from read_events(text, zone or "UTC", first, last, Steps())
    except TooManySteps as error:
        hint = "give fewer events, and a recent DTSTART to those that repeat, above all with COUNT"
        raise _unreadable(f"takes too long to read: {error}", ics, hint) from None
    except (ValueError, OverflowError) as error:
        raise _unreadable(f"can't be read as an iCalendar file: {str(error)[:200]}", ics) from None


def _unreadable(
    problem: str, ics: str | bytes, hint: str = "such a file begins with BEGIN:VCALENDAR and has VEVENT parts"
) -> InvalidValue:
    return InvalidValue(f"ics {problem}", field="ics", value=ics[:40], hint=hint)

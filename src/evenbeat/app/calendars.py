"""``app.calendars``: named sets of days and times that schedules skip, or run only in."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import date, timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from evenbeat.app.acting import current_actor
from evenbeat.app.audit import write_audited
from evenbeat.app.calendar_sources import Sources, compile_calendar
from evenbeat.app.calendar_users import (
    FIRST_NAMES,
    effects_of,
    schedules_using,
    stop_warnings,
    stopped_users,
    templates_using,
    users_of_each,
)
from evenbeat.app.session import AppSession
from evenbeat.core.awaitable import twin
from evenbeat.core.calendars import MOST_CALENDARS, Calendar, CalendarDay
from evenbeat.core.checks import check_name, check_whole
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.node.calendar_copies import replan_users
from evenbeat.record_errors import CalendarInUse, CalendarNotFound
from evenbeat.rules.auditing import Change
from evenbeat.rules.calendar_records import KIND, StoredCalendar, read_calendar
from evenbeat.stores.base import Store
from evenbeat.triggers.calendar_texts import write_day
from evenbeat.triggers.time_sets import BUILT_IN, DAY, EPOCH_ORDINAL, Span, days_within
from evenbeat.triggers.zones import read_zone

# Inside the class, ``list`` and ``set`` are methods.
CalendarList: TypeAlias = list[Calendar]
Days: TypeAlias = list[CalendarDay]

_TRIES = 20
# Texts of days and windows that the record keeps: with the times, less than what a store takes in one piece.
_LONGEST_BODY = 500_000
MOST_PREVIEWED = 3_660
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_BUILT_IN_WORDS = {"business-days": "Monday to Friday", "weekends": "Saturday and Sunday"}


class Calendars:
    """The calendars of a store; the ``a…`` twins are awaited. Each tenant has its own."""

    def __init__(self, session: AppSession) -> None:
        self._session = session

    def set(
        self,
        name: str,
        *,
        days: Iterable[str | date] = (),
        weekly: Iterable[str] = (),
        without: Iterable[str | date] = (),
        tz: str | None = None,
        country: str | None = None,
        subdivision: str | None = None,
        ics: str | bytes | None = None,
        tenant: str | None = None,
        dry_run: bool = False,
    ) -> Calendar:
        """Create the calendar, or replace what it contains: the schedules that use it are planned anew.

        ``days``: ``2026-12-25``, ``2026-12-24..2026-12-31``, every year ``12-25``. ``weekly``: ``mon-fri
        09:00-17:00``. ``country``, and ``subdivision``: its holidays, for ten years. ``ics``: the text of a
        file in the iCalendar format, of at most 1 MB. ``without`` takes days out again. ``tz`` is the zone
        of all this; without one, that of each schedule. ``dry_run`` writes nothing: ``effects`` has the next
        ticks of the schedules, before and after. ``warnings`` names schedules that have no tick any more.
        """
        check_name(name, "name")
        self._check_own(name)
        owner = self._session.tenant_of(tenant)
        store = self._session.store()
        now = store.now()
        given = Sources(_once(days), _once(weekly), _once(without), tz, country, subdivision, ics)
        compiled = compile_calendar(given, from_ms(now).date())
        stored = StoredCalendar(
            days=_texts(given.days),
            weekly=_texts(given.weekly),
            without=_texts(given.without),
            tz=tz,
            country=country,
            subdivision=subdivision,
            events=compiled.events,
            covers_until=compiled.covers_until,
            times=compiled.times,
            updated_at=now,
            updated_by=current_actor().name,
        )
        if dry_run:
            _body(name, stored)
            found = effects_of(store, owner, name, stored.times)
            shown_as = _view(owner, name, stored, self._used(owner, name, found.schedules))
            warnings = stop_warnings(owner, name, found.stopped, dry_run=True)
            return replace(shown_as, replanned=found.replanned, effects=found.sample, warnings=warnings)
        self._write(store, owner, name, stored)
        # The schedules follow. If this process dies first, nodes find those with an old copy.
        replanned = replan_users(store, owner, name)
        users = schedules_using(store, owner, name)
        warnings = stop_warnings(owner, name, stopped_users(store, owner, name), dry_run=False)
        shown_as = _view(owner, name, stored, self._used(owner, name, users))
        return replace(shown_as, replanned=replanned, warnings=warnings)

    def get(self, name: str, *, tenant: str | None = None) -> Calendar:
        """Return a calendar, with the schedules that use it; ``CalendarNotFound`` if there is none."""
        owner = self._session.tenant_of(tenant)
        stored = self._stored(owner, name)
        users = schedules_using(self._session.store(), owner, name)
        return replace(_view(owner, name, stored, self._used(owner, name, users)), schedules=users)

    def list(self, *, tenant: str | None = None) -> CalendarList:
        """Return the calendars by name, the built-in ones first; each has the first schedules that use it."""
        owner = self._session.tenant_of(tenant)
        store = self._session.store()
        known = {name: StoredCalendar(times=times) for name, times in BUILT_IN.items()}
        for record in sorted(store.find_records(KIND, owner), key=lambda each: each.key):
            stored = read_calendar(record)
            if stored is not None:
                known[record.key] = stored
        schedules, templates = users_of_each(store, owner), templates_using(store, owner)
        return [
            _view(
                owner,
                name,
                stored,
                Users(None if schedules is None else schedules.get(name, ()), templates.get(name, ())),
            )
            for name, stored in known.items()
        ]

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a calendar; ``CalendarInUse`` while schedules or templates use it, ``CalendarNotFound`` if
        there is none."""
        self._check_own(name)
        owner = self._session.tenant_of(tenant)
        store = self._session.store()
        for _ in range(_TRIES):
            record = store.get_record(KIND, owner, name)
            if record is None:
                raise self._not_found(owner, name)
            users = self._used(owner, name, schedules_using(store, owner, name))
            if users.schedules or users.templates:
                raise CalendarInUse(name, users.schedules or (), users.templates)
            change = Change("calendar", name, owner, "delete", _facts(read_calendar(record)), {})
            if write_audited(store, change, partial(store.delete_record, KIND, owner, name, record.version)):
                return
        raise _kept_changing(name)

    def preview(
        self,
        name: str,
        *,
        since: date | str | None = None,
        count: int = 366,
        tz: str | None = None,
        tenant: str | None = None,
    ) -> Days:
        """Return the days of a calendar among the ``count`` days from ``since``, today by default.

        ``tz`` is the zone of a calendar that has none of its own, UTC by default.
        """
        check_whole("count", count, 1, MOST_PREVIEWED)
        times = self._stored(self._session.tenant_of(tenant), name).times
        own = read_zone(times.tz or tz or "UTC")
        first = from_ms(self._session.store().now(), own.info).date() if since is None else _date(since)
        day = first.toordinal() - EPOCH_ORDINAL
        last = min(day + count - 1, date.max.toordinal() - EPOCH_ORDINAL - 2)
        return [_day_view(each, parts) for each, parts in days_within(times, own, day, last)]

    def _write(self, store: Store, owner: str, name: str, stored: StoredCalendar) -> None:
        body = _body(name, stored)
        for _ in range(_TRIES):
            present = store.get_record(KIND, owner, name)
            if (
                present is None
                and len(store.find_records(KIND, owner, limit=MOST_CALENDARS)) >= MOST_CALENDARS
            ):
                raise InvalidValue(
                    f"calendar {name} would be calendar {MOST_CALENDARS + 1:,} of tenant {owner}",
                    field="name",
                    value=name,
                    hint="delete those that no schedule uses",
                )
            # Never the version of a calendar that was deleted: a late write must not match.
            record = Record(kind=KIND, tenant=owner, key=name, body=body, version=secrets.randbits(53))
            before = None if present is None else read_calendar(present)
            change = Change("calendar", name, owner, "set", _facts(before), _facts(stored))
            expect = None if present is None else present.version
            if write_audited(store, change, partial(store.put_record, record, expect)):
                return
        raise _kept_changing(name)

    def _stored(self, owner: str, name: str) -> StoredCalendar:
        if name in BUILT_IN:
            return StoredCalendar(times=BUILT_IN[name])
        record = self._session.store().get_record(KIND, owner, name)
        stored = None if record is None else read_calendar(record)
        if stored is None:
            raise self._not_found(owner, name)
        return stored

    def _used(self, owner: str, name: str, schedules: tuple[str, ...]) -> Users:
        return Users(schedules, templates_using(self._session.store(), owner).get(name, ()))

    def _not_found(self, owner: str, name: str) -> CalendarNotFound:
        known = [record.key for record in self._session.store().find_records(KIND, owner)]
        near = get_close_matches(str(name), [*known, *BUILT_IN], n=1)
        return CalendarNotFound(owner, str(name), f"did you mean {near[0]}?" if near else None)

    def _check_own(self, name: str) -> None:
        if name in BUILT_IN:
            raise InvalidValue(
                f"calendar {name} is built in", field="name", value=name, hint="give yours another name"
            )

    aset = twin(set)
    aget = twin(get)
    alist = twin(list)
    adelete = twin(delete)
    apreview = twin(preview)


class Users(NamedTuple):
    """What uses a calendar."""

    schedules: tuple[str, ...] | None
    """None if they were not counted."""
    templates: tuple[str, ...]


def _body(name: str, stored: StoredCalendar) -> str:
    """Return the body of a calendar's record; refuse one that is too long."""
    body = encode(stored)
    if len(body) > _LONGEST_BODY:
        raise InvalidValue(
            f"calendar {name} takes {len(body):,} characters, more than {_LONGEST_BODY:,}",
            field="days",
            value=len(body),
            hint="write ranges, or give fewer days",
        )
    return body


def _once(given: Any) -> Any:
    """Return an iterable as a tuple; leave what is not one to the checks."""
    return given if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)


def _texts(given: Any) -> tuple[str, ...]:
    return tuple(each.isoformat() if isinstance(each, date) else str(each).strip() for each in given)


def _date(since: date | str) -> date:
    try:
        return since if isinstance(since, date) else date.fromisoformat(since)
    except (ValueError, TypeError):
        raise InvalidValue(
            f"since {shown(since)} is not a date",
            field="since",
            value=since,
            hint='write it like "2026-12-01"',
        ) from None


def _kept_changing(name: str) -> StoreUnavailable:
    return StoreUnavailable(f"calendar {shown(name)} kept changing while it was written; try again")


def _facts(stored: StoredCalendar | None) -> dict[str, Any]:
    """Return what the audit says about a calendar."""
    if stored is None:
        return {}
    facts: dict[str, Any] = {
        "days": list(stored.days),
        "weekly": list(stored.weekly),
        "without": list(stored.without),
        "tz": stored.tz,
        "country": stored.country,
        "subdivision": stored.subdivision,
        "events": stored.events,
    }
    return {name: value for name, value in facts.items() if value}


def _view(owner: str, name: str, stored: StoredCalendar, users: Users) -> Calendar:
    built_in = name in BUILT_IN
    return Calendar(
        name=name,
        tenant=owner,
        days=stored.days,
        weekly=stored.weekly,
        without=stored.without,
        tz=stored.tz,
        country=stored.country,
        subdivision=stored.subdivision,
        events=stored.events,
        covers_until=None if stored.covers_until is None else write_day(stored.covers_until),
        built_in=built_in,
        words=_BUILT_IN_WORDS[name] if built_in else _words(stored),
        updated_at=None if built_in else from_ms(stored.updated_at),
        updated_by=None if built_in else stored.updated_by,
        schedules=(users.schedules or ())[:FIRST_NAMES],
        schedule_count=None if users.schedules is None else len(users.schedules),
        templates=users.templates,
    )


def _words(stored: StoredCalendar) -> str:
    """Return a calendar in plain English."""
    parts = [*stored.weekly]
    if stored.country is not None:
        where = stored.country if stored.subdivision is None else f"{stored.country}-{stored.subdivision}"
        parts.append(f"holidays of {where}")
    if stored.events:
        # Each day and each repetition counts.
        many = stored.events > 1
        parts.append(f"{stored.events:,} days or times of events" if many else "1 day or time of an event")
    if stored.days:
        parts.append(
            ", ".join(stored.days) if len(stored.days) <= 3 else f"{len(stored.days):,} days or ranges"
        )
    words = "; ".join(parts)
    if stored.without:
        words += f", without {len(stored.without):,} day{'s' if len(stored.without) > 1 else ''}"
    return words if stored.tz is None else f"{words} ({stored.tz})"


def _day_view(day: int, parts: tuple[Span, ...]) -> CalendarDay:
    named = date(1970, 1, 1) + timedelta(days=day)
    times = () if parts == ((0, DAY),) else tuple(f"{_clock(start)}-{_clock(end)}" for start, end in parts)
    return CalendarDay(day=named.isoformat(), weekday=_WEEKDAYS[named.weekday()], times=times)


def _clock(second: int) -> str:
    text = f"{second // 3600:02}:{second // 60 % 60:02}"
    return f"{text}:{second % 60:02}" if second % 60 else text

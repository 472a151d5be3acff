"""``app.audit``: who changed which schedule, run, token or alert rule, when, and how it was before."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias, get_args

from evenbeat.app.acting import current_actor
from evenbeat.app.session import AppSession
from evenbeat.core.audits import ACTIONS, AuditAction, AuditEntry, AuditPage, SubjectKind
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_one_of
from evenbeat.core.ids import instant_of, new_key
from evenbeat.core.instants import Instant, Moment, read_period
from evenbeat.core.records import Record
from evenbeat.rules import auditing
from evenbeat.stores.base import Store, check_limit
from evenbeat.stores.newest_records import Range, newest_of_all_tenants
from evenbeat.stores.pages import unknown_cursor

# Inside the class, ``list`` is a method.
Entries: TypeAlias = list[AuditEntry]

# The most records of one query, and of one call of ``page``.
_BATCH = 500
_SCANNED = 5_000
# The span of time that is read at once of all tenants, at first.
_FIRST_SPAN = 3_600_000
_CURSOR = re.compile(r"[0-9a-f]{32}")


def audited(change: auditing.Change, now: Instant) -> tuple[Record, ...]:
    """Return the records of a change by the present actor, to be written in the same step as the change."""
    actor = current_actor()
    return auditing.records_of(change, actor.name, actor.via, new_key(now), now)


def write_entry(store: Store, change: auditing.Change, now: Instant) -> None:
    """Write the entry of a change that takes no records: call it right before the change.

    If the process dies in between, an entry names a change that did not take effect: better than a change of
    which nobody knows the origin.
    """
    for record in audited(change, now):
        store.put_record(record)


def write_audited(store: Store, change: auditing.Change, write: Callable[[], bool]) -> bool:
    """Write the entry of a change that takes no records, and then the change; return whether it took effect.
    If another change came first, remove the entry."""
    entries = audited(change, store.now())
    for entry in entries:
        store.put_record(entry)
    if write():
        store.hint()
        return True
    for entry in entries:
        store.delete_record(entry.kind, entry.tenant, entry.key, entry.version)
    return False


def history(session: AppSession, kind: SubjectKind, subject: str, tenant: str, limit: int) -> Entries:
    """Return the newest entries of one schedule or run."""
    check_limit(limit)
    store = session.store()
    source = _Source(tenant, auditing.prefix_of(kind, subject))
    entries = _entries(store, [source], _Period(store.now()), limit)
    # The id of a tick's run has slashes: that of another run may be its beginning.
    return list(islice((entry for entry in entries if entry.subject == subject), limit))


class Audit:
    """The audit of a scheduler: one entry for each change by hand; ``a…`` twins are awaited.

    Every change of a schedule has an entry, and so has each run that was cancelled or retried by hand, or
    enqueued by the command line or the API. Entries are kept for 365 days.
    """

    def __init__(self, session: AppSession) -> None:
        self._session = session

    def list(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        action: AuditAction | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return entries, the newest first.

        ``subject`` is the name of a schedule, or the id of a run. ``since`` and ``until`` select the time of
        the change; a duration counts back from now.
        """
        found: list[AuditEntry] = []
        cursor: str | None = None
        check_limit(limit)
        while len(found) < limit:
            page = self.page(
                subject=subject,
                actor=actor,
                action=action,
                since=since,
                until=until,
                tenant=tenant,
                all_tenants=all_tenants,
                limit=limit - len(found),
                cursor=cursor,
            )
            found += page.entries
            cursor = page.cursor
            if cursor is None:
                break
        return found

    def page(
        self,
        *,
        subject: str | None = None,
        actor: str | None = None,
        action: AuditAction | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return a part of ``list``; ``cursor``, of the page before, continues after it.

        One call reads a bounded number of entries: a page may have fewer entries than ``limit``, even none,
        and a cursor all the same.
        """
        check_limit(limit)
        if action is not None:
            check_one_of("action", action, ACTIONS)
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise unknown_cursor(cursor)
        store = self._session.store()
        owner = None if all_tenants else self._session.tenant_of(tenant)
        period = _read_period(store.now(), since, until, cursor)
        found: list[AuditEntry] = []
        # One entry more than asked for says whether there are others.
        for number, entry in enumerate(_entries(store, _sources(owner, subject), period, limit + 1)):
            if len(found) == limit or number == _SCANNED:
                return AuditPage(entries=tuple(found), cursor=cursor)
            cursor = entry.id
            if (
                (subject is None or entry.subject == subject)
                and (actor is None or entry.actor == actor)
                and (action is None or entry.action == action)
            ):
                found.append(entry)
        return AuditPage(entries=tuple(found), cursor=None)

    alist = twin(list)
    apage = twin(page)


class _Source(NamedTuple):
    """Entries to read: of one tenant or, with None, of all; of one subject, or of all."""

    tenant: str | None
    prefix: str
    """The beginning of the keys of one subject's entries; empty for all subjects."""

    @property
    def kind(self) -> str:
        return auditing.BY_SUBJECT if self.prefix else auditing.ENTRY


class _Period(NamedTuple):
    """The time of the entries to read."""

    now: Instant
    since: Instant | None = None
    until: Instant | None = None
    after: str | None = None
    """The id of the entry before the first one."""

    def start(self, prefix: str) -> str:
        """Return the first key to read."""
        start, _ = auditing.key_range(prefix, self.since, self.until)
        return start if self.after is None else max(start, _behind(prefix + self.after))

    @property
    def newest(self) -> Instant:
        """The latest instant to read; entries of a clock that is ahead are later."""
        newest = self.now if self.until is None else self.until - 1
        return newest if self.after is None else min(newest, instant_of(self.after))

    @property
    def oldest(self) -> Instant:
        """The earliest instant to read: earlier entries have expired."""
        return self.now - auditing.KEPT if self.since is None else self.since


def _read_period(now: Instant, since: Moment | None, until: Moment | None, cursor: str | None) -> _Period:
    return _Period(now, *read_period(since, until, now), cursor)


def _sources(tenant: str | None, subject: str | None) -> list[_Source]:
    """Return where the entries of a tenant are, or of all tenants; only those of one subject."""
    if subject is None:
        return [_Source(tenant, "")]
    return [_Source(tenant, auditing.prefix_of(kind, subject)) for kind in get_args(SubjectKind)]


def _entries(store: Store, sources: list[_Source], period: _Period, wanted: int) -> Iterator[AuditEntry]:
    """Yield the entries of all sources, the newest first. Reads as many at a time as are ``wanted``."""
    size = min(max(wanted, 1), _BATCH)
    streams = [
        _of_all_tenants(store, source, period)
        if source.tenant is None
        else _of_tenant(store, source, period, size)
        for source in sources
    ]
    return heapq.merge(*streams, key=lambda entry: entry.id)


def _of_tenant(store: Store, source: _Source, period: _Period, size: int) -> Iterator[AuditEntry]:
    start = period.start(source.prefix)
    _, end = auditing.key_range(source.prefix, period.since, period.until)
    while True:
        records = store.find_records(source.kind, source.tenant, start=start, end=end, limit=size)
        yield from _readable(records)
        if len(records) < size:
            return
        start = _behind(records[-1].key)


def _of_all_tenants(store: Store, source: _Source, period: _Period) -> Iterator[AuditEntry]:
    wanted = Range(period.start(source.prefix), period.newest, period.oldest)
    records = newest_of_all_tenants(
        store, source.kind, wanted, prefix=source.prefix, batch=_BATCH, first_span=_FIRST_SPAN
    )
    return _readable(records)


def _readable(records: Iterable[Record]) -> Iterator[AuditEntry]:
    """Yield entries. A record that a person edited by hand, or a newer version wrote, can't be shown."""
    return (entry for entry in map(auditing.read_entry, records) if entry is not None)


def _behind(key: str) -> str:
    """Return the first possible key behind this one."""
    return key + "0"

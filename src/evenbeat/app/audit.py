"""``app.audit``: who changed which schedule or run, when, and how it was before."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias, get_args

from evenbeat.app.acting import current_actor
from evenbeat.app.session import AppSession
from evenbeat.core.audits import ACTIONS, AuditAction, AuditEntry, AuditPage, SubjectKind
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_one_of
from evenbeat.core.ids import new_key
from evenbeat.core.instants import Instant, Moment, read_moment
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules import auditing
from evenbeat.stores.base import Store, check_limit

# Inside the class, ``list`` is a method.
Entries: TypeAlias = list[AuditEntry]

# The most records of one query, and of one call of ``page``.
_BATCH = 500
_SCANNED = 5_000
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


def history(session: AppSession, kind: SubjectKind, subject: str, tenant: str, limit: int) -> Entries:
    """Return the newest entries of one schedule or run."""
    check_limit(limit)
    source = _Source(tenant, auditing.prefix_of(kind, subject))
    # The id of a tick's run has slashes: that of another run may be its beginning.
    found = (entry for entry in _entries(session.store(), [source], limit) if entry.subject == subject)
    return list(islice(found, limit))


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
            raise InvalidValue(
                "cursor is not one that a page gave", field="cursor", value=cursor, hint="start without one"
            )
        store = self._session.store()
        start, end = _window(store.now(), since, until)
        owner = None if all_tenants else self._session.tenant_of(tenant)
        sources = _sources(store, owner, subject)
        found: list[AuditEntry] = []
        # One entry more than asked for says whether there are others.
        for number, entry in enumerate(_entries(store, sources, limit + 1, start, end, cursor)):
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
    """Entries that a store keeps in their order: all of a tenant, or those of one subject."""

    tenant: str
    prefix: str
    """The beginning of the keys: empty for all entries of the tenant."""

    @property
    def kind(self) -> str:
        return auditing.BY_SUBJECT if self.prefix else auditing.ENTRY


def _window(
    now: Instant, since: Moment | None, until: Moment | None
) -> tuple[Instant | None, Instant | None]:
    start = None if since is None else read_moment(since, "since", now, ago=True)
    end = None if until is None else read_moment(until, "until", now, ago=True)
    if start is not None and end is not None and end <= start:
        raise InvalidValue(
            f"until {shown(until)} is not after since {shown(since)}",
            field="until",
            value=until,
            hint="give a later end, or leave it out: until now",
        )
    return start, end


def _sources(store: Store, tenant: str | None, subject: str | None) -> Sequence[_Source]:
    """Return where the entries of a tenant are, or of all tenants; only those of one subject."""
    tenants = [tenant] if tenant is not None else [row.tenant for row in store.find_records(auditing.TENANT)]
    prefixes = [""]
    if subject is not None:
        prefixes = [auditing.prefix_of(kind, subject) for kind in get_args(SubjectKind)]
    return [_Source(tenant, prefix) for tenant in tenants for prefix in prefixes]


def _entries(
    store: Store,
    sources: Sequence[_Source],
    wanted: int,
    since: Instant | None = None,
    until: Instant | None = None,
    after: str | None = None,
) -> Iterator[AuditEntry]:
    """Yield the entries of all sources, the newest first; ``after`` is the id of the entry before them.

    Reads as many at a time as are ``wanted``, within bounds.
    """
    size = min(max(wanted, 1), _BATCH)
    streams = [_stream(store, source, size, since, until, after) for source in sources]
    return heapq.merge(*streams, key=lambda entry: entry.id)


def _stream(
    store: Store, source: _Source, size: int, since: Instant | None, until: Instant | None, after: str | None
) -> Iterator[AuditEntry]:
    start, end = auditing.key_range(source.prefix, since, until)
    if after is not None:
        start = max(start, _behind(source.prefix + after))
    while True:
        records = store.find_records(source.kind, source.tenant, start=start, end=end, limit=size)
        # A record that a person edited by hand, or a newer version wrote, can't be shown.
        yield from (entry for entry in map(auditing.read_entry, records) if entry is not None)
        if len(records) < size:
            return
        start = _behind(records[-1].key)


def _behind(key: str) -> str:
    """Return the first possible key behind this one."""
    return key + "0"

"""``app.backfills``: list, read and cancel backfills. ``app.schedules.backfill`` makes them."""

from __future__ import annotations

import secrets
from typing import TypeAlias

from msgspec.structs import replace

from evenbeat.app.audit import audited
from evenbeat.app.session import AppSession
from evenbeat.core.awaitable import twin
from evenbeat.core.backfills import Backfill
from evenbeat.core.checks import check_whole
from evenbeat.core.instants import write_instant
from evenbeat.core.json_text import from_json
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.node.backfills import advance, note_open
from evenbeat.observe.backfills import backfill_view
from evenbeat.record_errors import BackfillExists, BackfillNotFound
from evenbeat.rules.auditing import Change
from evenbeat.rules.backfills import (
    KIND,
    OPEN,
    StoredBackfill,
    backfill_record,
    cancelled,
    is_same_work,
    read_backfill,
)
from evenbeat.stores.base import Store

MOST_OPEN = 100
"""The most backfills of a tenant that are not over."""
MOST_LISTED = 500
_TRIES = 50

# Inside the class, ``list`` is a method.
BackfillList: TypeAlias = list[Backfill]


class Backfills:
    """The backfills of a store; the ``a…`` twins are awaited. ``tenant`` defaults to the scheduler's own."""

    def __init__(self, session: AppSession) -> None:
        self._session = session

    def list(
        self,
        *,
        schedule: str | None = None,
        limit: int = 100,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> BackfillList:
        """Return the backfills of a tenant, or of all tenants, the newest first, at most ``limit``.

        Only those of one schedule, if it is given. One that is over is kept for 90 days.
        """
        check_whole("limit", limit, 1, MOST_LISTED)
        owner = None if all_tenants else self._session.tenant_of(tenant)
        found = [
            backfill_view(record.tenant, record.key, stored)
            for record in self._session.store().find_records(KIND, owner)
            if (stored := read_backfill(record)) is not None
            and (schedule is None or stored.schedule == schedule)
        ]
        return sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)[:limit]

    def get(self, id: str, *, tenant: str | None = None) -> Backfill:
        """Return the backfill as it is now; ``BackfillNotFound`` if there is none."""
        owner = self._session.tenant_of(tenant)
        return backfill_view(owner, id, self._stored(owner, id)[0])

    def cancel(self, id: str, *, tenant: str | None = None) -> Backfill:
        """Add no further runs, cancel the queued ones, and ask running ones to stop.

        Does nothing to a backfill that is over. It is ``cancelling`` until its running runs have ended.
        """
        owner, store = self._session.tenant_of(tenant), self._session.store()
        for _ in range(_TRIES):
            stored, version = self._stored(owner, id)
            if stored.is_over or stored.state == "cancelled":
                break
            after = {"schedule": stored.schedule, "state": "cancelled"}
            entries = audited(Change("backfill", id, owner, "cancel", {}, after), store.now())
            for entry in entries:
                store.put_record(entry)
            record = backfill_record(owner, id, cancelled(stored), secrets.randbits(53))
            if store.put_record(record, version):
                break
            # Another change came first.
            for entry in entries:
                store.delete_record(entry.kind, entry.tenant, entry.key, entry.version)
        else:
            raise StoreUnavailable(f"backfill {id} kept changing while it was cancelled; try again")
        advance(store, owner, id, store.now())
        return self.get(id, tenant=owner)

    def _stored(self, tenant: str, id: str) -> tuple[StoredBackfill, int]:
        record = self._session.store().get_record(KIND, tenant, id)
        stored = None if record is None else read_backfill(record)
        if record is None or stored is None:
            raise BackfillNotFound(tenant, id)
        return stored, record.version

    alist = twin(list)
    aget = twin(get)
    acancel = twin(cancel)


def make_backfill(session: AppSession, tenant: str, key: str, wanted: StoredBackfill) -> Backfill:
    """Write a backfill and add its first runs; return the one that is there already, if it is the same.

    The note comes first: a backfill that is written is found by the nodes, also if this process dies.
    """
    store = session.store()
    present = same_backfill(store, tenant, key, wanted)
    if present is None:
        _refuse_too_many(session, tenant)
        note_open(store, tenant, key, wanted.created_at)
        entries = audited(_change(tenant, key, wanted), store.now())
        for entry in entries:
            store.put_record(entry)
        if not store.put_record(backfill_record(tenant, key, wanted, secrets.randbits(53))):
            for entry in entries:
                store.delete_record(entry.kind, entry.tenant, entry.key, entry.version)
            present = same_backfill(store, tenant, key, wanted)
        else:
            # Again: a node deletes a note of which it finds no backfill for an hour.
            note_open(store, tenant, key, wanted.created_at)
    stored = present or wanted
    if not stored.is_over:
        stored = advance(store, tenant, key, store.now()) or stored
    view = backfill_view(tenant, key, stored)
    return view if present is None else replace(view, existed_since=view.created_at)


def same_backfill(store: Store, tenant: str, key: str, wanted: StoredBackfill) -> StoredBackfill | None:
    """Return the backfill that has this id already; ``BackfillExists`` if it is about something else."""
    record = store.get_record(KIND, tenant, key)
    if record is None:
        return None
    stored = read_backfill(record)
    if stored is None or not is_same_work(stored, wanted):
        raise BackfillExists(tenant, key, None if stored is None else stored.schedule)
    return stored


def _refuse_too_many(session: AppSession, tenant: str) -> None:
    if len(session.store().find_records(OPEN, tenant, limit=MOST_OPEN)) >= MOST_OPEN:
        raise InvalidValue(
            f"tenant {tenant} has {MOST_OPEN} backfills that are not over",
            field="name",
            value=tenant,
            hint="wait until one is over, or cancel one",
        )


def _change(tenant: str, key: str, wanted: StoredBackfill) -> Change:
    """Return what the audit says about a new backfill."""
    after = {
        "backfill": key,
        "start": write_instant(wanted.start),
        "end": write_instant(wanted.end),
        "runs": wanted.total,
        "max_concurrent": wanted.max_concurrent,
    }
    if wanted.payload is not None:
        after["payload"] = from_json(wanted.payload)
    return Change("schedule", wanted.schedule, tenant, "backfill", {}, after)

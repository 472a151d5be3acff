"""Incidents and deliveries: what alert rules found, and what became of the announcements."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice, takewhile

from msgspec.structs import replace

from evenbeat.core.alerts import AnnouncementState, Delivery, DeliveryState, Incident
from evenbeat.core.ids import first_key_of, instant_of
from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import (
    ALL,
    DEFAULT_TENANT,
    INCIDENT,
    KEPT,
    LOG,
    PAST,
    PENDING,
    StoredDelivery,
    StoredIncident,
    read_body,
)
from evenbeat.rules.incidents import has_begun
from evenbeat.stores.base import Store
from evenbeat.stores.newest_records import Range, newest_of_all_tenants

_BATCH = 500
RETRIED, GIVEN_UP = 600_000, 86_400_000
"""How long an alert may be retried, and for how long it counts that one was given up, in milliseconds."""
MOST_OPEN = 10_000
"""How many open incidents one call reads."""


def open_incidents(store: Store, tenant: str | None, limit: int) -> list[Incident]:
    """Return the incidents that are open now, the latest first; of a tenant's subjects, or of all (None)."""
    records = store.find_records(INCIDENT, tenant, limit=MOST_OPEN)
    found = [
        incident
        for record in records
        if (incident := _incident(record, tenant)) is not None and incident.closed_at is None
    ]
    return sorted(found, key=lambda each: (-each.opened_at.timestamp(), each.id))[:limit]


def past_incidents(store: Store, tenant: str | None, limit: int) -> list[Incident]:
    """Return the incidents that have ended, those that ended last first."""
    found: list[Incident] = []
    for record in _newest(store, PAST, tenant, None, limit):
        incident = _incident(record, tenant)
        if incident is not None:
            found.append(incident)
        if len(found) >= limit:
            break
    return found


def deliveries(store: Store, tenant: str | None, limit: int, after: str | None) -> list[Delivery]:
    """Return deliveries, the newest first: those that are not sent yet among those that are over."""
    streams = (_newest(store, kind, tenant, after, limit) for kind in (LOG, PENDING))
    found: list[Delivery] = []
    for record in heapq.merge(*streams, key=lambda each: (each.key, each.kind)):
        # A sender writes the log, and then deletes the pending record.
        if found and found[-1].id == record.key:
            continue
        delivery = _delivery(record, tenant)
        if delivery is not None:
            found.append(delivery)
            if len(found) == limit:
                break
    return found


def with_delivery(store: Store, tenant: str | None, incidents: list[Incident]) -> list[Incident]:
    """Return the incidents with what became of their newest announcements. Reads a bounded number of
    deliveries."""
    if not any(incident.announced for incident in incidents):
        return incidents
    newest: dict[str, tuple[Instant, set[DeliveryState]]] = {}
    for each in deliveries(store, tenant, _BATCH, None):
        if each.incident is not None:
            # The deliveries of one announcement have the same time in their ids.
            at, states = newest.setdefault(each.incident, (instant_of(each.id), set()))
            if at == instant_of(each.id):
                states.add(each.state)
    return [
        replace(incident, delivery=_state_of(newest[incident.id][1])) if incident.id in newest else incident
        for incident in incidents
    ]


def undelivered(store: Store, tenant: str | None, now: Instant) -> list[Delivery]:
    """Return deliveries on channels of a tenant, or on all channels (None), that were given up in the last 24
    hours or have been retried for more than 10 minutes. Reads at most 500 of each kind."""
    retrying = store.find_records(PENDING, tenant, start=first_key_of(now - RETRIED), limit=_BATCH)
    logged = islice(_newest(store, LOG, tenant, None, _BATCH), _BATCH)
    # A delivery is given up a day after it began at the latest.
    over = takewhile(lambda record: instant_of(record.key) >= now - 2 * GIVEN_UP, logged)
    found: dict[str, Delivery] = {}
    for record in (*retrying, *over):
        each = _delivery(record, tenant)
        if each is None or (tenant is not None and each.owner != tenant):
            continue
        if _is_undelivered(each, now):
            found[each.id] = each
        else:
            # A sender writes the log, and then deletes the pending record.
            found.pop(each.id, None)
    return list(found.values())


def _is_undelivered(each: Delivery, now: Instant) -> bool:
    if each.error is None:
        return False
    if each.state == "pending":
        return to_ms(each.created_at) <= now - RETRIED
    return each.state == "failed" and to_ms(each.last_try_at or each.created_at) >= now - GIVEN_UP


def _state_of(states: Collection[DeliveryState]) -> AnnouncementState:
    if "failed" in states:
        return "given_up"
    return "waiting" if "pending" in states else "sent"


def delivery(store: Store, tenant: str | None, key: str) -> Delivery | None:
    """Return the delivery with that id; of a tenant, or of any (None)."""
    for kind in (PENDING, LOG):  # one that is sent in between is in the log by then
        for record in store.find_records(kind, tenant, start=key, end=key + "0", limit=1):
            return _delivery(record, tenant)
    return None


def delivery_view(record: Record, body: StoredDelivery) -> Delivery:
    message = body.message
    is_pending = body.state == "pending"
    return Delivery(
        id=record.key,
        incident=message.incident,
        rule=message.rule,
        owner=None if body.scope == ALL else message.tenant,
        tenant=message.tenant,
        channel=body.channel,
        announcement=message.announcement,
        title=message.title,
        state=body.state,
        tries=body.tries,
        created_at=from_ms(body.created_at),
        last_try_at=None if body.last_try_at is None else from_ms(body.last_try_at),
        next_try_at=from_ms(max(body.next_at, body.created_at)) if is_pending else None,
        error=body.error,
    )


def _incident(record: Record, tenant: str | None) -> Incident | None:
    body = read_body(record, StoredIncident)
    if body is None or not has_begun(body):
        return None
    # Subjects without a tenant are recorded with the default tenant, whose business they are not.
    if tenant == DEFAULT_TENANT and body.tenant is None:
        return None
    return Incident(
        id=body.id,
        rule=body.rule,
        owner=None if body.scope == ALL else body.tenant,
        tenant=body.tenant,
        condition=body.condition,
        subject_kind=body.subject_kind,
        subject=body.subject,
        run=body.run,
        tick=_moment(body.tick),
        opened_at=from_ms(body.opened_at),
        failures=body.failures,
        last_success=_moment(body.last_success),
        error=body.error,
        reason=body.reason,
        announced=body.announced,
        muted_by=body.muted_by,
        closed_at=_moment(body.closed_at),
    )


def _delivery(record: Record, tenant: str | None) -> Delivery | None:
    body = read_body(record, StoredDelivery)
    if body is None or (tenant == DEFAULT_TENANT and body.message.tenant is None):
        return None
    return delivery_view(record, body)


def _newest(store: Store, kind: str, tenant: str | None, after: str | None, limit: int) -> Iterator[Record]:
    """Yield the records of a kind, the newest first, behind the key ``after``."""
    start = "" if after is None else after + "0"
    if tenant is None:
        now = store.now()
        newest = now if after is None else instant_of(after)
        yield from newest_of_all_tenants(store, kind, Range(start, newest, now - 2 * KEPT))
        return
    size = min(max(limit, 1), _BATCH)
    while True:
        records = store.find_records(kind, tenant, start=start, limit=size)
        yield from records
        if len(records) < size:
            return
        start = records[-1].key + "0"


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else from_ms(instant)

"""Deliveries that wait: which ones a process reads, and the order in which it sends them.

A tenant with a dead receiver may have thousands that wait, and each try takes until its timeout. The tenants
behind it must not wait for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import NamedTuple, TypeAlias

from evenbeat.core.alerts import Announcement
from evenbeat.core.ids import instant_of
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import ALL, KEPT, PENDING, StoredDelivery, read_body
from evenbeat.stores.base import Store
from evenbeat.stores.newest_records import Range, newest_of_all_tenants

SIDE_BY_SIDE = 8
"""How many deliveries a process sends at once: to different channels, so that one receiver that does not
answer delays no other."""
MOST_OF_ONE = 4
"""How many of these may be to channels of one tenant, or to those of all tenants."""
MOST_READ = 5_000
"""How many deliveries are read at once."""
_SET_BACK = 60_000
"""A try that lies so many ms in the future: the clock was set back. Those of two processes differ by less."""
_ORDER: dict[Announcement, int] = {"opened": 0, "escalated": 1, "recovered": 2}

Lane: TypeAlias = tuple[str, str, str]
"""A channel: the tenant of the delivery's record, the scope, and the name. Deliveries to one are sent one
after the other."""


class Waiting(NamedTuple):
    """A delivery that waits, or that a sender has claimed."""

    record: Record
    delivery: StoredDelivery

    @property
    def lane(self) -> Lane:
        return self.record.tenant, self.delivery.scope, self.delivery.channel

    def is_due(self, now: Instant) -> bool:
        """Return whether it may be sent now. If its last try lies in the future, the clock was set back: it
        does not wait until the clock is there again."""
        delivery = self.delivery
        last = delivery.created_at if delivery.last_try_at is None else delivery.last_try_at
        return last > now + _SET_BACK or max(delivery.claimed_until, delivery.next_at) <= now


class Reader:
    """Reads the deliveries that wait, at most ``MOST_READ`` at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after: str | None = None
        """If there are too many: the key up to which the last call has read."""

    def read(self, now: Instant) -> list[Waiting]:
        """Return what waits, and delete what is damaged.

        If there are too many, this returns the newest of all tenants, and at each call another part of the
        others: the store would only ever return those of the first tenants.
        """
        records = self._store.find_records(PENDING, limit=MOST_READ)
        if len(records) == MOST_READ:
            records = self._read_part(now)
        found: dict[tuple[str, str], Waiting] = {}
        for record in records:
            delivery = read_body(record, StoredDelivery)
            if delivery is None:
                self._store.delete_record(PENDING, record.tenant, record.key, record.version)
            else:
                found[record.tenant, record.key] = Waiting(record, delivery)
        return list(found.values())

    def _read_part(self, now: Instant) -> list[Record]:
        most, oldest = MOST_READ // 2, now - 2 * KEPT
        newest = list(islice(newest_of_all_tenants(self._store, PENDING, Range("", now, oldest)), most))
        if not newest:
            return newest
        after = self._after or newest[-1].key
        rest = Range(after + "0", instant_of(after), oldest)
        others = list(islice(newest_of_all_tenants(self._store, PENDING, rest), most))
        self._after = others[-1].key if len(others) == most else None
        return newest + others


def sendable(waiting: Iterable[Waiting], now: Instant) -> list[Waiting]:
    """Return what may be sent now, the longest waiting first: without announcements of an incident on a
    channel behind one that is not due."""
    found: list[Waiting] = []
    held: set[tuple[object, ...]] = set()
    for each in sorted(waiting, key=_age):
        message = each.delivery.message
        subject = (*each.lane, message.incident or message.id)
        if subject in held or not each.is_due(now):
            held.add(subject)
        else:
            found.append(each)
    return found


def choose(due: Iterable[Waiting], busy: Collection[Lane], used: Collection[Lane]) -> Waiting | None:
    """Return the delivery to send next; None if none may be.

    ``busy`` are the channels to which this process sends now, ``used`` those that have had their turn. The
    tenant that has the fewest sends under way is first.
    """
    if len(busy) >= SIDE_BY_SIDE:
        return None
    sends = Counter(map(_owner, busy))
    able = (
        each
        for each in due
        if each.lane not in used and each.lane not in busy and sends[_owner(each.lane)] < MOST_OF_ONE
    )
    return min(able, key=lambda each: sends[_owner(each.lane)], default=None)


def _owner(lane: Lane) -> str | None:
    """Return the tenant of a channel; None: all tenants."""
    tenant, scope, _ = lane
    return None if scope == ALL else tenant


def _age(each: Waiting) -> tuple[Instant, datetime, int, str]:
    message = each.delivery.message
    return each.delivery.created_at, message.at, _ORDER.get(message.announcement, 0), message.id

"""The sender: sends deliveries that wait, each at least once.

A sender claims a delivery by compare-and-set, sends it, writes it to the log, and deletes it from those that
wait. One that dies in between lets its claim expire. Another sender then asks the log first: a delivery that
is there was sent. If it is not there, it is sent again, with the same id.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from evenbeat.alerts.channels.base import Channel, DeliveryFailed
from evenbeat.core.alerts import Announcement, ChannelKind
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.alert_records import (
    ALL,
    CHANNEL,
    KEPT,
    LOG,
    PENDING,
    StoredChannel,
    StoredDelivery,
    owner_of,
    read_body,
    scoped_key,
)
from evenbeat.stores.base import Store

CLAIMED_FOR = 60_000
SIDE_BY_SIDE = 4
"""How many deliveries a process sends at once: to different channels, so that one receiver that does not
answer delays no other."""
BACKOFF = (5_000, 30_000, 120_000, 600_000, 1_800_000)
"""Milliseconds until the next try, by the number of tries before; then an hour."""
_LONGEST_BACKOFF = 3_600_000
GIVE_UP_AFTER = 86_400_000
GIVE_UP_RUN_AFTER = 3_600_000
"""Of an announced run: a monitor that hears of a run much later draws the wrong conclusion."""
_MOST_READ = 5_000
_ORDER: dict[Announcement, int] = {"opened": 0, "escalated": 1, "recovered": 2}
_LONGEST_ERROR = 500

Lane: TypeAlias = tuple[str, str, str]
"""A channel: the tenant of the delivery's record, the scope, and the name. Deliveries to one are sent one
after the other."""
Sent: TypeAlias = Literal["sent", "retried", "failed"]
"""What a try led to: it was accepted, it will be tried again, or it was given up."""

_log = logging.getLogger("evenbeat.alerts.sender")


class Claimed(NamedTuple):
    """A delivery that this sender has claimed."""

    record: Record
    delivery: StoredDelivery

    @property
    def lane(self) -> Lane:
        return self.record.tenant, self.delivery.scope, self.delivery.channel


class AlertSender:
    """Sends what waits. ``step`` claims, ``start`` has somebody send: in a thread, or at once in a test."""

    def __init__(
        self,
        store: Store,
        open_channel: Callable[[StoredChannel], Channel],
        *,
        name: str,
        start: Callable[[Callable[[], None]], None] = lambda send: send(),
        on_sent: Callable[[ChannelKind, Sent], None] = lambda _kind, _outcome: None,
    ) -> None:
        self._store = store
        self._open_channel = open_channel
        self._name = name
        self._start = start
        self._on_sent = on_sent
        """Called after each try, for metrics."""
        self._busy: set[Lane] = set()
        """The channels to which this process sends now."""
        self._guard = threading.Lock()

    def step(self, now: Instant) -> bool:
        """Send deliveries that are due, one to each channel; return whether any delivery waits."""
        waiting = self._read()
        chosen: set[Lane] = set()
        for claimed in self._heads(waiting):
            delivery = claimed.delivery
            if claimed.lane in chosen or delivery.next_at > now or delivery.claimed_until > now:
                continue
            with self._guard:
                if claimed.lane in self._busy or len(self._busy) >= SIDE_BY_SIDE:
                    continue
                self._busy.add(claimed.lane)
            chosen.add(claimed.lane)
            try:
                mine = self._claim(claimed, now)
            except BaseException:
                self._release(claimed)
                raise
            if mine is None:
                self._release(claimed)
            else:
                self._start(lambda mine=mine: self._deliver(mine))  # type: ignore[misc]  # a default binds it
        return bool(waiting)

    # -- choosing ------------------------------------------------------------------------------------------

    def _read(self) -> list[Claimed]:
        found: list[Claimed] = []
        for record in self._store.find_records(PENDING, limit=_MOST_READ):
            delivery = read_body(record, StoredDelivery)
            if delivery is None:
                self._store.delete_record(PENDING, record.tenant, record.key, record.version)
            else:
                found.append(Claimed(record, delivery))
        return found

    def _heads(self, waiting: Iterable[Claimed]) -> list[Claimed]:
        """Return the first announcement of each incident on each channel, the longest waiting first."""
        heads: dict[tuple[object, ...], Claimed] = {}
        for each in sorted(waiting, key=_age):
            message = each.delivery.message
            heads.setdefault((*each.lane, message.incident or message.id), each)
        return list(heads.values())

    def _claim(self, claimed: Claimed, now: Instant) -> Claimed | None:
        """Claim a delivery; None if another sender has it, or has sent it."""
        delivery = replace(
            claimed.delivery,
            claimed_by=self._name,
            claimed_until=now + CLAIMED_FOR,
            tries=claimed.delivery.tries + 1,
            last_try_at=now,
        )
        mine = self._put(claimed.record, delivery)
        if mine is None:
            return None
        record = mine.record
        if self._store.get_record(LOG, record.tenant, record.key) is not None:
            self._store.delete_record(PENDING, record.tenant, record.key, record.version)
            return None
        return mine

    # -- sending -------------------------------------------------------------------------------------------

    def _deliver(self, mine: Claimed) -> None:
        """Send a claimed delivery, and record what became of it."""
        try:
            kind, failure = self._send(mine)
            now = self._store.now()
            if failure is None:
                self._finish(mine, replace(mine.delivery, state="sent", error=None), now)
                outcome: Sent = "sent"
            elif failure.is_final or _is_too_old(mine.delivery, now):
                self._finish(mine, replace(mine.delivery, state="failed", error=_cut(failure.reason)), now)
                outcome = "failed"
            else:
                self._put_off(mine, failure, now)
                outcome = "retried"
            self._report(mine, failure, outcome)
            if kind is not None:
                self._on_sent(kind, outcome)
        except StoreUnavailable as error:
            # The claim expires, and a sender tries again.
            _log.warning("a delivery can't be recorded: %s", error, extra=_fields(mine))
        finally:
            self._release(mine)

    def _send(self, mine: Claimed) -> tuple[ChannelKind | None, DeliveryFailed | None]:
        owner = None if mine.delivery.scope == ALL else mine.record.tenant
        record = self._store.get_record(CHANNEL, owner_of(owner), scoped_key(owner, mine.delivery.channel))
        stored = None if record is None else read_body(record, StoredChannel)
        if stored is None:
            return None, DeliveryFailed("the channel does not exist", is_final=True)
        try:
            self._open_channel(stored).send(mine.delivery.message)
        except DeliveryFailed as failure:
            return stored.kind, failure
        except Exception as error:
            _log.exception("a channel failed", extra=_fields(mine))
            # Its text may contain an address with a secret.
            return stored.kind, DeliveryFailed(f"{type(error).__name__} in the channel")
        return stored.kind, None

    def _finish(self, mine: Claimed, delivery: StoredDelivery, now: Instant) -> None:
        """Write a delivery to the log, and then remove it from those that wait."""
        record = mine.record
        done = replace(delivery, claimed_by=None, claimed_until=0, next_at=0)
        log = Record(kind=LOG, tenant=record.tenant, key=record.key, body=encode(done), expires=now + KEPT)
        self._store.put_record(log)
        self._store.delete_record(PENDING, record.tenant, record.key, record.version)

    def _put_off(self, mine: Claimed, failure: DeliveryFailed, now: Instant) -> None:
        before = mine.delivery.tries - 1
        wait = BACKOFF[before] if before < len(BACKOFF) else _LONGEST_BACKOFF
        later = replace(
            mine.delivery, claimed_by=None, claimed_until=0, next_at=now + wait, error=_cut(failure.reason)
        )
        self._put(mine.record, later)

    def _put(self, record: Record, delivery: StoredDelivery) -> Claimed | None:
        changed = replace(record, body=encode(delivery), version=secrets.randbits(53))
        return Claimed(changed, delivery) if self._store.put_record(changed, record.version) else None

    def _release(self, claimed: Claimed) -> None:
        with self._guard:
            self._busy.discard(claimed.lane)

    def _report(self, mine: Claimed, failure: DeliveryFailed | None, outcome: Sent) -> None:
        if failure is None:
            _log.info("an alert was sent", extra=_fields(mine))
        elif outcome == "failed":
            _log.error("an alert could not be sent and is given up: %s", failure.reason, extra=_fields(mine))
        else:
            _log.warning("an alert could not be sent, retrying: %s", failure.reason, extra=_fields(mine))


def _age(each: Claimed) -> tuple[Instant, datetime, int, str]:
    message = each.delivery.message
    return each.delivery.created_at, message.at, _ORDER.get(message.announcement, 0), message.id


def _is_too_old(delivery: StoredDelivery, now: Instant) -> bool:
    is_run = delivery.message.announcement == "run"
    return now - delivery.created_at >= (GIVE_UP_RUN_AFTER if is_run else GIVE_UP_AFTER)


def _cut(reason: str) -> str:
    return reason[:_LONGEST_ERROR].encode(errors="replace").decode()


def _fields(mine: Claimed) -> dict[str, object]:
    delivery = mine.delivery
    return {
        "component": "alerts",
        "delivery": mine.record.key,
        "channel": delivery.channel,
        "tenant": mine.record.tenant,
        "tries": delivery.tries,
    }

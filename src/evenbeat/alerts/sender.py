"""The sender: sends deliveries that wait, each at least once.

A sender claims a delivery by compare-and-set, sends it, writes it to the log, and deletes it from those that
wait. One that dies in between lets its claim expire. Another sender then asks the log first: a delivery that
is there was sent. If it is not there, it is sent again, with the same id.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from traceback import walk_tb
from typing import Literal, TypeAlias

from msgspec.structs import replace

from evenbeat.alerts.channels.base import Channel, DeliveryFailed
from evenbeat.alerts.waiting import Lane, Reader, Waiting, choose, sendable
from evenbeat.core.alerts import ChannelKind
from evenbeat.core.clocks import steady_clock
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
BACKOFF = (5_000, 30_000, 120_000, 600_000, 1_800_000)
"""Milliseconds until the next try, by the number of tries before; then an hour."""
_LONGEST_BACKOFF = 3_600_000
GIVE_UP_AFTER = 86_400_000
GIVE_UP_RUN_AFTER = 3_600_000
"""Of an announced run: a monitor that hears of a run much later draws the wrong conclusion."""
_MOST_NEXT = 50
_NEXT_SECONDS = 5.0
"""How many deliveries are sent to a channel one after the other, and for how long, without reading what waits
again."""
_LONGEST_ERROR = 500

Sent: TypeAlias = Literal["sent", "retried", "failed"]
"""What a try led to: it was accepted, it will be tried again, or it was given up."""

_log = logging.getLogger("evenbeat.alerts.sender")


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
        self._failing: set[Lane] = set()
        """The channels that did not take the last message from this process."""
        self._reader = Reader(store)
        self._guard = threading.Lock()

    def step(self, now: Instant) -> bool:
        """Send deliveries that are due; return whether any delivery waits."""
        waiting = self._reader.read(now)
        due = sendable(waiting, now)
        # Channels that did not take the last message come last: a try that fails may take long.
        due.sort(key=lambda each: each.lane in self._failing)
        used: set[Lane] = set()
        while (chosen := self._choose(due, used)) is not None:
            used.add(chosen.lane)
            try:
                mine = self._claim(chosen, now)
            except BaseException:
                self._release(chosen)
                raise
            if mine is None:
                self._release(chosen)
            else:
                same = (each for each in due if each.lane == chosen.lane and each is not chosen)
                self._start(partial(self._deliver_all, mine, tuple(islice(same, _MOST_NEXT))))
        return bool(waiting)

    def _choose(self, due: list[Waiting], used: set[Lane]) -> Waiting | None:
        """Choose the next delivery, and note that its channel is busy."""
        with self._guard:
            chosen = choose(due, self._busy, used)
            if chosen is not None:
                self._busy.add(chosen.lane)
        return chosen

    def _claim(self, claimed: Waiting, now: Instant) -> Waiting | None:
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

    def _deliver_all(self, mine: Waiting, others: Iterable[Waiting]) -> None:
        """Send a claimed delivery, and then others to its channel while all goes well.

        Reading what waits for each single one would keep the process from other work if thousands wait.
        """
        began = steady_clock()
        try:
            is_sent = self._deliver(mine)
            for each in others:
                if not is_sent or steady_clock() - began > _NEXT_SECONDS:
                    return
                next_one = self._claim(each, self._store.now())
                is_sent = next_one is not None and self._deliver(next_one)
        except StoreUnavailable as error:
            # The claim expires, and a sender tries again.
            _log.warning("a delivery can't be recorded: %s", error, extra=_fields(mine))
        except Exception as error:
            # Not its text, which may contain a secret. The thread must go on.
            _log.error("sending failed with %s", type(error).__name__, extra=_fields(mine))
        finally:
            self._release(mine)

    def _deliver(self, mine: Waiting) -> bool:
        """Send a claimed delivery, and record what became of it; return whether it was sent."""
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
        self._note(mine.lane, is_failing=failure is not None)
        self._report(mine, failure, outcome)
        if kind is not None:
            self._on_sent(kind, outcome)
        return failure is None

    def _send(self, mine: Waiting) -> tuple[ChannelKind | None, DeliveryFailed | None]:
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
            # Neither its text nor its traceback, whose last line is the text: it may contain a secret.
            reason = f"{type(error).__name__} in the channel, at {_place(error)}"
            return stored.kind, DeliveryFailed(reason)
        return stored.kind, None

    def _finish(self, mine: Waiting, delivery: StoredDelivery, now: Instant) -> None:
        """Write a delivery to the log, and then remove it from those that wait."""
        record = mine.record
        done = replace(delivery, claimed_by=None, claimed_until=0, next_at=0)
        log = Record(kind=LOG, tenant=record.tenant, key=record.key, body=encode(done), expires=now + KEPT)
        self._store.put_record(log)
        self._store.delete_record(PENDING, record.tenant, record.key, record.version)

    def _put_off(self, mine: Waiting, failure: DeliveryFailed, now: Instant) -> None:
        before = mine.delivery.tries - 1
        wait = BACKOFF[before] if before < len(BACKOFF) else _LONGEST_BACKOFF
        later = replace(
            mine.delivery, claimed_by=None, claimed_until=0, next_at=now + wait, error=_cut(failure.reason)
        )
        self._put(mine.record, later)

    def _put(self, record: Record, delivery: StoredDelivery) -> Waiting | None:
        changed = replace(record, body=encode(delivery), version=secrets.randbits(53))
        return Waiting(changed, delivery) if self._store.put_record(changed, record.version) else None

    def _note(self, lane: Lane, *, is_failing: bool) -> None:
        with self._guard:
            if is_failing:
                self._failing.add(lane)
            else:
                self._failing.discard(lane)

    def _release(self, claimed: Waiting) -> None:
        with self._guard:
            self._busy.discard(claimed.lane)

    def _report(self, mine: Waiting, failure: DeliveryFailed | None, outcome: Sent) -> None:
        if failure is None:
            _log.info("an alert was sent", extra=_fields(mine))
        elif outcome == "failed":
            _log.error("an alert could not be sent and is given up: %s", failure.reason, extra=_fields(mine))
        else:
            _log.warning("an alert could not be sent, retrying: %s", failure.reason, extra=_fields(mine))


def _is_too_old(delivery: StoredDelivery, now: Instant) -> bool:
    is_run = delivery.message.announcement == "run"
    return now - delivery.created_at >= (GIVE_UP_RUN_AFTER if is_run else GIVE_UP_AFTER)


def _place(error: Exception) -> str:
    """Return the module and the line that raised an error."""
    last = deque(walk_tb(error.__traceback__), maxlen=1)
    return ", ".join(f"{frame.f_globals.get('__name__', '?')}:{line}" for frame, line in last)


def _cut(reason: str) -> str:
    return reason[:_LONGEST_ERROR].encode(errors="replace").decode()


def _fields(mine: Waiting) -> dict[str, object]:
    delivery = mine.delivery
    return {
        "component": "alerts",
        "delivery": mine.record.key,
        "channel": delivery.channel,
        "tenant": mine.record.tenant,
        "tries": delivery.tries,
    }

"""Rules, channels, signals and receivers for tests of alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from evenbeat.alerts import texts
from evenbeat.alerts.channels.base import Channel, DeliveryFailed
from evenbeat.alerts.evaluation import Announcer
from evenbeat.alerts.sender import AlertSender
from evenbeat.alerts.watch import AlertWatch
from evenbeat.core.alerts import Message
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Execution, Record, RunRecord
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.rules import attempts
from evenbeat.rules.alert_records import (
    CHANNEL,
    INCIDENT,
    LOG,
    PAST,
    PENDING,
    RULE,
    SIGNAL,
    WINDOW,
    Signal,
    StoredChannel,
    StoredDelivery,
    StoredIncident,
    StoredRule,
    StoredWindow,
    owner_of,
    read_body,
    scoped_key,
    signal_key,
)
from evenbeat.rules.alert_rules import Rule
from evenbeat.rules.conditions import read_condition
from evenbeat.stores.base import Claim, Store

URL = "https://receiver.example/hook"


def rule(*on: str, name: str = "r", owner: str | None = "default", **fields: Any) -> Rule:
    body = StoredRule(on=on, **{"to": ("ops",), **fields})
    return Rule(owner, name, tuple(map(read_condition, on)), body)


def put_rule(
    store: Store,
    *on: str,
    name: str = "r",
    owner: str | None = "default",
    version: int = 1,
    url: str = URL,
    **fields: Any,
) -> None:
    """Write a rule, with its channels: webhooks to ``url``."""
    body = StoredRule(on=on, **{"to": ("ops",), **fields})
    record = Record(
        kind=RULE, tenant=owner_of(owner), key=scoped_key(owner, name), body=encode(body), version=version
    )
    assert store.put_record(record, None if version == 1 else version - 1)
    for channel in body.to:
        stored = StoredChannel(kind="webhook", url=url)
        key = scoped_key(owner, channel)
        store.put_record(Record(kind=CHANNEL, tenant=owner_of(owner), key=key, body=encode(stored)))


def put_window(store: Store, name: str, window: StoredWindow, owner: str | None = "default") -> None:
    key = scoped_key(owner, name)
    record = Record(kind=WINDOW, tenant=owner_of(owner), key=key, body=encode(window), expires=window.ends_at)
    assert store.put_record(record)


def failure(at: Instant, run: str, schedule: str | None = "s", **fields: Any) -> tuple[str, Signal]:
    """Return the key and the body of the signal of a failed run."""
    signal = Signal(
        kind="failed",
        at=at,
        run=run,
        schedule=schedule,
        **{"tenant": "default", "task": "work", "error": "boom", **fields},
    )
    return signal_key(at, run, 1), signal


def put_signal(store: Store, keyed: tuple[str, Signal]) -> None:
    key, signal = keyed
    store.put_record(Record(kind=SIGNAL, tenant=signal.tenant, key=key, body=encode(signal)))


def end_run(
    store: Store, run: RunRecord, error: str | None, *, is_signalled: bool = True, worker: str = "w"
) -> None:
    """Add, claim and end a run as a worker does, with the signal that the stored rules ask for."""
    store.add_runs([run])
    lease = 30_000
    claim = Claim(worker=worker, token=f"c-{run.id}", limit=1, now=store.now(), lease=lease)
    (held,) = store.claim_runs(claim).runs
    now = store.now()
    end = (
        attempts.succeeded(held, None, now, f"t-{run.id}")
        if error is None
        else attempts.failed(held, error, now, f"t-{run.id}")
    )
    if is_signalled:
        end = Signals(stored_rules(store)).with_end(held, end, now)
    assert store.settle_runs([end]) == [True]


def a_run(run_id: str, schedule: str | None = "s", **fields: Any) -> RunRecord:
    return RunRecord(
        id=run_id, schedule=schedule, **{"task": "work", "generation": 1, "execution": Execution(), **fields}
    )


class Receiver:
    """A channel that keeps what it gets, and fails on request."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failures: list[DeliveryFailed] = []
        """Raised by the next sends, one each."""

    def send(self, message: Message) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.messages.append(message)

    @property
    def kinds(self) -> list[str]:
        return [message.announcement for message in self.messages]

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.messages]

    def open(self, _stored: StoredChannel) -> Channel:
        return self


class Process:
    """The watch and the sender of one process, stepped by hand; the sender sends at once."""

    def __init__(
        self,
        store: Store,
        receiver: Receiver,
        name: str = "one",
        clock: Callable[[], float] = lambda: 0.0,
        **options: Any,
    ) -> None:
        self.store = store
        self.watch = AlertWatch(store, Announcer(texts, **options), name=name, clock=clock)
        self.sender = AlertSender(store, receiver.open, name=name)

    def turn(self, now: Instant | None = None) -> bool:
        """Take a turn if it is due, and send; return whether the turn was taken."""
        now = self.store.now() if now is None else now
        self.watch.use(stored_rules(self.store))
        stepped = self.watch.step(now)
        # Several are sent to one channel one after the other.
        for _ in range(10):
            self.sender.step(now)
        return stepped.took_turn


def incidents(store: Store) -> list[StoredIncident]:
    return _bodies(store.find_records(INCIDENT), StoredIncident)


def past(store: Store) -> list[StoredIncident]:
    return _bodies(store.find_records(PAST), StoredIncident)


def pending(store: Store) -> list[StoredDelivery]:
    return _bodies(store.find_records(PENDING), StoredDelivery)


def log(store: Store) -> list[StoredDelivery]:
    return _bodies(store.find_records(LOG), StoredDelivery)


def signals(store: Store) -> list[Signal]:
    return _bodies(store.find_records(SIGNAL), Signal)


def _bodies(records: Iterable[Record], kind: Any) -> list[Any]:
    return [read_body(record, kind) for record in records]

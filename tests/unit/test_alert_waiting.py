"""Deliveries that wait: no tenant keeps those of others from being sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from evenbeat.alerts import waiting
from evenbeat.alerts.sender import AlertSender
from evenbeat.alerts.waiting import MOST_OF_ONE, SIDE_BY_SIDE
from evenbeat.core.alerts import Message
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import CHANNEL, PENDING, StoredChannel, StoredDelivery, delivery_id
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.alerting import Receiver


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.receiver = Receiver()
        self.under_way: list[Callable[[], None]] = []
        self.sender = AlertSender(self.store, self.receiver.open, name="one", start=self.under_way.append)

    def put(self, tenant: str, channel: str, number: int = 0) -> None:
        """A delivery that waits, a second newer than the one before."""
        at = self.clock.advance("1s")
        key = delivery_id(f"{tenant}/{number}", "opened:1", channel, at)
        moment = datetime.fromtimestamp(at / 1000, UTC)
        message = Message(
            id=key, announcement="opened", title="t", lines=(), at=moment, link=None, tenant=tenant
        )
        body = StoredDelivery(message=message, channel=channel, scope="own", created_at=at)
        self.store.put_record(Record(kind=PENDING, tenant=tenant, key=key, body=encode(body)))
        stored = StoredChannel(kind="webhook", url="https://receiver.example/")
        self.store.put_record(Record(kind=CHANNEL, tenant=tenant, key=f"own/{channel}", body=encode(stored)))

    @property
    def tenants(self) -> list[str | None]:
        return [message.tenant for message in self.receiver.messages]

    def end_one_of(self, tenant: str) -> None:
        """Let the one send of a tenant end that is under way."""
        (found,) = [each for each in self.under_way if f"tenant='{tenant}'" in repr(each)]
        self.under_way.remove(found)
        found()

    def end_all(self) -> None:
        """Let everything end that is under way."""
        while self.under_way:
            self.under_way.pop(0)()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_tenant_whose_receivers_do_not_answer_leaves_room_for_others(bench: Bench) -> None:
    for number in range(20):
        bench.put("acme", f"dead-{number}")
    bench.put("zeta", "ops")
    bench.sender.step(bench.clock.now)
    assert len(bench.under_way) == MOST_OF_ONE + 1
    bench.end_one_of("zeta")
    assert bench.tenants == ["zeta"]


def test_the_tenant_with_the_fewest_sends_under_way_is_next(bench: Bench) -> None:
    for tenant in ("acme", "beta"):
        for number in range(20):
            bench.put(tenant, f"dead-{number}")
    bench.sender.step(bench.clock.now)
    assert len(bench.under_way) == SIDE_BY_SIDE
    bench.put("zeta", "ops")
    bench.under_way.pop(0)()  # one of the others ends
    bench.sender.step(bench.clock.now)
    bench.under_way.pop()()
    assert bench.tenants[-1] == "zeta"


def test_more_deliveries_than_are_read_at_once_are_all_sent_in_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_READ", 10)
    bench.put("zeta", "old")
    for number in range(40):
        bench.put("acme", "dead", number)
    bench.put("zeta", "new")
    bench.sender.step(bench.clock.now)
    assert len(bench.under_way) == 2
    bench.end_one_of("zeta")
    assert bench.tenants == ["zeta"]
    # The receiver of acme does not answer: its one send stays under way.
    for _ in range(20):
        bench.sender.step(bench.clock.now)
    bench.end_one_of("zeta")
    assert bench.tenants == ["zeta", "zeta"]
    for _ in range(20):
        bench.end_all()
        bench.sender.step(bench.clock.now)
    assert len(bench.receiver.messages) == 42


def test_many_deliveries_to_one_channel_are_sent_after_one_read(bench: Bench) -> None:
    for number in range(20):
        bench.put("acme", "ops", number)
    bench.sender.step(bench.clock.now)
    bench.end_all()
    assert len(bench.receiver.messages) == 20
    sent = [message.at for message in bench.receiver.messages]
    assert sent == sorted(sent)

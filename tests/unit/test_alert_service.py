"""The service: when it reads rules, takes turns and sends; and the processes that have one."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.alerts import service as services
from evenbeat.alerts.service import REST, AlertService
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.alert_records import RULE, SIGNAL
from evenbeat.stores.base import Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.web import web_app
from tests.alerting import Receiver, a_run, end_run, incidents, put_rule
from tests.faults.fleet import wait_until
from tests.store_calls import add_schedules
from tests.unit.receivers import Receiver as Server
from tests.unit.receivers import receiver


class Counted(MemoryStore):
    """A store that counts the calls that a server would get."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found) or name in ("now", "wait", "hint", "take"):
            return found
        super().__getattribute__("calls")[name] += 1
        return found

    def take(self) -> int:
        """How many calls there were since the last question."""
        number = self.calls.total()
        self.calls.clear()
        return number


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.store = Counted(self.clock)
        self.receiver = Receiver()
        monkeypatch.setattr(AlertService, "_open_channel", lambda _self, stored: self.receiver.open(stored))
        self.service = AlertService(self.store, name="one")
        self.service._sender._start = lambda send: send()  # at once, without a thread

    def step(self) -> int:
        """Step; return how many ms later to step again."""
        return self.service.step(self.clock.now) - self.clock.now


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_without_rules_it_sends_two_small_queries_in_five_minutes(bench: Bench) -> None:
    bench.step()
    bench.store.take()
    for _ in range(10):
        assert bench.step() == REST
        assert bench.store.take() == 0
    bench.clock.advance("5m")
    assert bench.step() == REST
    assert bench.store.calls == {"find_records": 2}


def test_hints_that_come_all_the_time_lead_to_a_read_in_five_seconds(bench: Bench) -> None:
    bench.step()
    bench.store.take()
    for _ in range(101):
        bench.service.hint()
        bench.step()
        bench.clock.advance("100ms")
    assert bench.store.take() == 2 * 2


def test_a_hint_at_rest_leads_to_a_read_at_once(bench: Bench) -> None:
    bench.step()
    bench.clock.advance("30s")
    put_rule(bench.store, "failed")
    assert not bench.service.signals
    bench.service.hint()
    bench.step()
    assert bench.service.signals


def test_with_rules_it_takes_turns_and_a_signal_of_its_own_makes_it_hurry(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    add_schedules(bench.store, "s", trigger="every 1h")
    assert bench.step() == 5_000
    bench.clock.advance("400ms")
    end_run(bench.store, a_run("x"), "boom")
    assert bench.step() == 4_600
    bench.service._note_signal()
    assert bench.step() == 600
    bench.clock.advance("600ms")
    bench.step()
    assert bench.receiver.kinds == ["opened"]


def test_deliveries_that_wait_are_sent_though_no_rule_is_left(bench: Bench) -> None:
    from evenbeat.alerts.channels.base import DeliveryFailed

    put_rule(bench.store, "failed")
    add_schedules(bench.store, "s", trigger="every 1h")
    end_run(bench.store, a_run("x"), "boom")
    bench.receiver.failures = [DeliveryFailed("503")]
    bench.step()
    assert bench.store.delete_record("alert_rule", "default", "own/r", 1)
    for _ in range(61):
        bench.clock.advance("5s")
        bench.step()
    assert bench.receiver.kinds == ["opened"]
    assert incidents(bench.store) == []
    bench.store.take()
    bench.step()
    assert bench.store.take() == 0


def test_a_service_that_is_not_started_can_be_stopped() -> None:
    service = AlertService(MemoryStore(), name="one")
    service.hint()
    service.stop()


# -- processes -----------------------------------------------------------------------------------------------


def first_message(server: Server) -> Any:
    wait_until(lambda: server.requests, "no alert arrived")
    (request,) = server.requests
    return json.loads(request.body)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that take turns every 50 ms, and send to loopback."""
    monkeypatch.setattr(services, "TURN_EVERY", 50)
    whole = AlertService.__init__

    def init(self: AlertService, store: Any, **options: Any) -> None:
        whole(self, store, **{**options, "every": 50, "allow_private": ["127.0.0.1"]})

    monkeypatch.setattr(AlertService, "__init__", init)


@pytest.mark.usefixtures("quick")
def test_a_node_announces_a_failing_job_at_a_real_receiver() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None:
        raise ValueError("boom")

    with receiver() as server:
        put_rule(app.store, "failed", url=server.url)
        app.start()
        try:
            app.enqueue("work")
            message = first_message(server)
            node = app.node
            assert node is not None
            wait_until(
                lambda: node.counting.sums().numbers.get("alerts/webhook/sent") == 1, "it was not counted"
            )
        finally:
            app.stop()
            app.close()
    assert "boom" in message["error"]


@pytest.mark.usefixtures("quick")
def test_the_web_process_alone_reports_a_schedule_that_nobody_fires() -> None:
    app = Scheduler("memory://")
    with receiver() as server:
        put_rule(app.store, "late:5s", url=server.url)
        row = ScheduleRecord(name="nightly", task="work", trigger="every 1h")
        hour_ago = app.store.now() - 2 * 3_600_000
        app.store.put_schedules([Write(changes.create(row, hour_ago), None)])
        web = web_app(app, needs_token=False)
        web.state.watch_alerts()
        try:
            message = first_message(server)
        finally:
            web.close()
            app.close()
    assert message["schedule"] == "nightly"


@pytest.mark.parametrize("is_in_between", [False, True])
def test_a_process_that_does_not_know_a_new_rule_loses_none_of_its_signals(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_in_between: bool
) -> None:
    put_rule(bench.store, "failed", name="old", schedule="other")
    bench.step()  # from now on, this process knows the first rule alone
    find = bench.store.find_records

    def add() -> None:
        put_rule(bench.store, "failed", name="new")
        end_run(bench.store, a_run("run-1", None), "ValueError: boom")

    def find_records(kind: str, *args: Any, **options: Any) -> Any:
        if kind == SIGNAL and is_in_between and not find(SIGNAL) and len(find(RULE)) == 1:
            add()  # after the turn has read the rules, and before it reads the signals
        return find(kind, *args, **options)

    monkeypatch.setattr(bench.store, "find_records", find_records)
    if not is_in_between:
        add()
    bench.clock.advance("5s")
    bench.step()
    assert bench.receiver.kinds == ["opened"]


def test_a_process_that_does_not_know_a_new_rule_leaves_its_incidents_open(bench: Bench) -> None:
    put_rule(bench.store, "failed", name="old", schedule="other")
    bench.step()
    put_rule(bench.store, "failed", name="new")
    end_run(bench.store, a_run("run-1", None), "ValueError: boom")
    other = AlertService(bench.store, name="two")
    other._sender._start = lambda send: send()
    bench.clock.advance("5s")
    other.step(bench.clock.now)
    bench.clock.advance("5s")
    bench.step()
    (incident,) = incidents(bench.store)
    assert (incident.rule, incident.closed_at) == ("new", None)

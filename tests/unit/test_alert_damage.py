"""Damaged records of alerts: hand-edited bodies stop neither the alerts of other tenants nor the reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.alerts.service import AlertService
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import (
    CHANNEL,
    INCIDENT,
    PAST,
    PENDING,
    RULE,
    SIGNAL,
    WINDOW,
    StoredIncident,
    incident_key,
)
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.alerting import Process, Receiver, failure, put_rule, put_signal

NEVER = 10**18
AT = 1_772_438_400_000
MESSAGE: dict[str, Any] = {
    "id": "d",
    "announcement": "opened",
    "title": "t",
    "lines": [],
    "at": "2026-03-02T08:00:00Z",
    "link": None,
    "tenant": "default",
}
FIELDS: dict[str, dict[str, Any]] = {
    RULE: {"on": ["failed"], "to": ["ops"]},
    CHANNEL: {"kind": "webhook", "url": "https://receiver.example/"},
    WINDOW: {"starts_at": AT, "ends_at": AT + 1},
    SIGNAL: {"kind": "failed", "at": AT, "tenant": "default", "schedule": "s", "run": "x"},
    INCIDENT: {
        "id": "i",
        "rule": "gone",
        "scope": "own",
        "condition": "failed",
        "subject_kind": "schedule",
        "subject": "s",
        "opened_at": AT,
        "changed_at": AT,
        "reason": "a run failed",
        "tenant": "default",
    },
    PENDING: {"message": MESSAGE, "channel": "ops", "scope": "own", "created_at": AT},
}
FIELDS[PAST] = {**FIELDS[INCIDENT], "closed_at": AT}
KEYS = {
    RULE: "own/r",
    CHANNEL: "own/ops",
    WINDOW: "own/w",
    SIGNAL: "0" * 28,
    INCIDENT: incident_key(StoredIncident(**FIELDS[INCIDENT]), "failed"),
    PENDING: "0" * 36,
    PAST: "f" * 44,
}


@pytest.mark.parametrize(
    ("kind", "key", "edited"),
    [
        (RULE, None, {"muted_until": NEVER}),
        (RULE, None, {"on": ["what", 1]}),
        (CHANNEL, None, {"kind": "pigeon"}),
        (WINDOW, None, {"ends_at": NEVER}),
        (SIGNAL, None, {"tenant": "zeta"}),
        (SIGNAL, None, {"took": NEVER}),
        (SIGNAL, None, {"at": -NEVER}),
        (INCIDENT, None, {"condition": "failing:x"}),
        (INCIDENT, None, {"opened_at": NEVER}),
        (INCIDENT, None, {"owed": [["opened", 1, NEVER]]}),
        (INCIDENT, "another", {"rule": "r", "owed": [["opened", 1, AT]]}),
        (PAST, None, {"condition": "failing:"}),
        (PAST, None, {"tick": -NEVER}),
        (PENDING, None, {"created_at": NEVER}),
        (PENDING, None, {"message": {**MESSAGE, "at": "2026-03-02T08:00:00"}}),
    ],
)
def test_a_damaged_record_stops_nothing_else(kind: str, key: str | None, edited: dict[str, Any]) -> None:
    clock = VirtualClock()
    store, receiver = MemoryStore(clock), Receiver()
    if kind != RULE:
        put_rule(store, "failed", "runs")
    put_rule(store, "failed", owner="zeta")
    body = json.dumps({**FIELDS[kind], **edited})
    store.put_record(Record(kind=kind, key=key or KEYS[kind], body=body))
    good = {**FIELDS[PENDING], "message": {**MESSAGE, "id": "e", "incident": "e"}}
    store.put_record(Record(kind=PENDING, key="1" * 36, body=json.dumps(good)))
    put_signal(store, failure(clock.now, "good", schedule=None, tenant="zeta"))
    process = Process(store, receiver)
    for _ in range(3):
        clock.advance("5s")
        process.turn()
    assert "good" in [message.run for message in receiver.messages]
    alerts = Scheduler(store).alerts
    alerts.rules.list()
    alerts.channels.list()
    alerts.windows.list()
    alerts.incidents()
    alerts.incidents(open=False)
    alerts.deliveries()


def test_what_is_written_is_sent_though_rules_cannot_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    store, receiver = MemoryStore(clock), Receiver()
    put_rule(store, "failed")
    store.put_record(Record(kind=PENDING, key=KEYS[PENDING], body=json.dumps(FIELDS[PENDING])))
    monkeypatch.setattr(AlertService, "_open_channel", lambda _self, stored: receiver.open(stored))
    service = AlertService(store, name="one")
    service._sender._start = lambda send: send()

    def fail(*_args: Any, **_options: Any) -> None:
        raise ValueError("boom")

    monkeypatch.setattr(service._watch, "step", fail)
    with pytest.raises(ValueError, match="boom"):
        service.step(clock.now)
    assert receiver.kinds == ["opened"]

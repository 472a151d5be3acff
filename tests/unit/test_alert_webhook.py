"""Webhooks: the document, its headers and its signature, at a real receiver."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.channels.http import HttpClient
from evenbeat.alerts.channels.webhook import Webhook
from evenbeat.core.alerts import Message
from tests.unit.receivers import MARK, MESSAGE, Request, receiver

LOCAL = HttpClient(frozenset(("127.0.0.1",)))


def received(message: Message, secret: str | None = MARK) -> tuple[Request, Any]:
    with receiver() as server:
        Webhook(LOCAL, f"{server.url}/hook", secret, now=lambda: 1_772_416_805_999).send(message)
    [request] = server.requests
    return request, json.loads(request.body)


def test_the_document_has_every_field_of_an_announcement() -> None:
    request, document = received(MESSAGE)
    assert request.path == "/hook"
    assert request.headers["Content-Type"] == "application/json"
    assert document == {
        "version": 1,
        "id": "abc123",
        "announcement": "opened",
        "title": "Failed: nightly",
        "lines": ["A run failed.", "Error: ValueError: no such table", "Schedule: nightly"],
        "at": "2026-03-02T02:00:04Z",
        "link": "https://jobs.example.com/#/runs/default/default%2Fnightly%2F1%2F1772416800000",
        "incident": "i1",
        "rule": "on-call",
        "condition": "failed",
        "tenant": "default",
        "subject_kind": "schedule",
        "subject": "nightly",
        "schedule": "nightly",
        "task": "report",
        "run": "default/nightly/1/1772416800000",
        "tick": "2026-03-02T02:00:00Z",
        "failures": 1,
        "last_success": None,
        "error": "ValueError: no such table",
        "why": None,
        "outcome": None,
        "duration": None,
        "trigger": None,
    }


def test_ids_are_text_and_durations_are_seconds() -> None:
    _, document = received(replace(MESSAGE, id="12", run="34", duration=timedelta(seconds=1.5)))
    assert (document["id"], document["run"], document["duration"]) == ("12", "34", 1.5)


def test_the_signature_covers_the_timestamp_and_the_body() -> None:
    request, _ = received(MESSAGE)
    assert request.headers["Evenbeat-Alert-Id"] == "abc123"
    assert request.headers["Evenbeat-Timestamp"] == "1772416805"
    expected = hmac.new(MARK.encode(), b"1772416805." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["Evenbeat-Signature"] == f"v1={expected}"
    assert MARK not in str(request)


def test_without_a_secret_there_is_no_signature() -> None:
    request, _ = received(MESSAGE, None)
    assert "Evenbeat-Signature" not in request.headers
    assert request.headers["Evenbeat-Alert-Id"] == "abc123"


def test_a_receiver_gets_the_same_id_at_each_try() -> None:
    with receiver(503, 200) as server:
        channel = Webhook(LOCAL, f"{server.url}/{MARK}", MARK)
        with pytest.raises(DeliveryFailed, match="answered 503") as failed:
            channel.send(MESSAGE)
        channel.send(MESSAGE)
    assert not failed.value.is_final
    assert MARK not in failed.value.reason
    assert MARK not in repr(channel)
    assert [request.headers["Evenbeat-Alert-Id"] for request in server.requests] == ["abc123", "abc123"]
    assert server.requests[0].body == server.requests[1].body


def test_hostile_texts_are_json_texts_and_nothing_else() -> None:
    hostile = '"}\n<script>{{7*7}}${x}%s\u2028\x00'
    _, document = received(replace(MESSAGE, title=hostile, error=hostile))
    assert (document["title"], document["error"]) == (hostile, hostile)


def test_the_check_of_the_documentation_accepts_what_is_sent_and_nothing_else() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/alert-channels.md").read_text()
    names: dict[str, Any] = {}
    [check] = re.findall(r"```python\n(import hashlib.*?)```", page, re.DOTALL)
    exec(check, names)  # noqa: S102  # our own page
    is_genuine = names["is_genuine"]
    request, document = received(MESSAGE)
    now = 1_772_416_806
    assert is_genuine(MARK, request.headers, request.body, now)
    assert not is_genuine("another", request.headers, request.body, now)
    assert not is_genuine(MARK, request.headers, request.body + b" ", now)
    assert not is_genuine(MARK, request.headers, request.body, now + 301)
    assert not is_genuine(MARK, request.headers | {"Evenbeat-Timestamp": "1772416806"}, request.body, now)
    assert not is_genuine(MARK, request.headers | {"Evenbeat-Signature": "v1=ä"}, request.body, now)
    assert not is_genuine(MARK, {}, request.body, now)
    shown = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
    assert list(shown) == list(document)

"""Values in answers: viewers see ``***`` instead of secrets, and no stored value makes an answer fail."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from evenbeat import Scheduler, every
from evenbeat.core.records import LogChunk, Record, RunRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
from tests.web.site import Site, assert_problem


@dataclass
class Login:
    user: str
    password: str


class Account(msgspec.Struct):
    login: Login
    api_key: str
    balance: Decimal


def add_run(app: Scheduler, run_id: str, task: str, **fields: Any) -> None:
    """Add a run as a node or an earlier version may have stored it."""
    now = app.store.now()
    given: dict[str, Any] = {"created_at": now, "run_at": now, "scheduled_at": now, **fields}
    app.store.add_runs([RunRecord(id=run_id, task=task, **given)])


def test_results_of_the_users_classes_are_masked_for_viewers(site: Site) -> None:
    @site.app.task
    def log_in() -> Login:
        return Login("ann", "hunter2")

    @site.app.task
    def open_account() -> Account:
        return Account(Login("ann", "hunter2"), "hunter2", Decimal("1.5"))

    login = {"user": "ann", "password": "hunter2"}
    account = {"login": login, "api_key": "hunter2", "balance": "1.5"}
    for run_id, task, result in (("a", "log_in", login), ("b", "open_account", account)):
        encoded = msgspec.json.encode(result).decode()
        add_run(site.app, run_id, task, result=encoded, state="succeeded", finished_at=site.app.store.now())
        assert site.get(f"runs/{run_id}", role="operator")["result"] == result
        assert "hunter2" not in site.request("GET", f"runs/{run_id}", role="viewer").text
    seen = site.get("runs", role="viewer")["items"]
    hidden = {"user": "ann", "password": "***"}
    expected = {"a": hidden, "b": {"login": hidden, "api_key": "***", "balance": "1.5"}}
    assert {run["id"]: run["result"] for run in seen} == expected


def nested(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("levels", [150, 450, 900, 5_000])
def test_a_value_that_is_nested_deeply_does_not_make_a_list_fail(site: Site, levels: int) -> None:
    now = site.app.store.now()
    deep = {
        "payload": nested(levels),
        "result": nested(levels),
        "error": "ValueError: no",
        "finished_at": now,
    }
    add_run(site.app, "deep", "work", state="failed", **deep)
    add_run(site.app, "plain", "work")
    for role in ("viewer", "operator"):
        assert len(site.get("runs", role=role)["items"]) == 2
        assert site.get("runs/deep", role=role)["payload"].startswith("(n")
        assert site.get("failures", role=role)["count"] == 1


@pytest.mark.parametrize("levels", [101, 450, 900, 5_000])
def test_a_body_that_is_nested_deeply_is_refused(site: Site, levels: int) -> None:
    json = {"Content-Type": "application/json"}
    for path, body in (
        ("preview", '{"x":' + nested(levels) + "}"),
        ("schedules", '{"name":"n","trigger":"every 1h","task":"other","payload":' + nested(levels) + "}"),
        ("runs", '{"task":"other","payload":' + nested(levels) + "}"),
    ):
        response = site.request("POST", path, content=body, headers=json)
        assert_problem(response, 400, "invalid-json", "body")
    assert site.get("schedules")["items"] == []


def test_secrets_in_texts_are_masked_for_viewers(site: Site) -> None:
    app = site.app
    line = "OperationalError: password=hunter2 for postgresql://ann:hunter2@db, sent Bearer hunter2"
    app.schedules.add("leaky", every("1h"), "other", {"note": line, "pwd": "hunter2"})
    run = app.schedules.run_now("leaky", {"note": line})
    now = app.store.now()
    (held,) = app.store.claim_runs(Claim(worker="w", token="t", limit=1, now=now, lease=30_000)).runs
    assert app.store.settle_runs([attempts.failed(held, line, now, "f")]) == [True]
    app.store.append_log([LogChunk(run=run.id, attempt=1, seq=1, text=line, at=now)])
    app.store.put_record(Record(kind="quarantine", tenant="default", key=run.id, body=line, version=1))
    for path in (
        "runs",
        f"runs/{run.id}",
        f"runs/{run.id}/logs",
        f"runs/{run.id}/why",
        "schedules",
        "schedules/leaky",
        "schedules/leaky/stats",
        "schedules/leaky/why",
        "failures",
        "quarantine",
    ):
        seen = site.request("GET", path, role="viewer").text
        assert "hunter2" not in seen, path
        whole = site.request("GET", path, role="operator").text
        assert "hunter2" in whole or path == "schedules/leaky/why", path


def test_what_users_wrote_about_a_schedule_is_masked_for_viewers(site: Site) -> None:
    app, text = site.app, "see password=hunter2"
    app.schedules.declare("noted", every("1h"), "other", description=text)
    app.schedules.update("noted", description=f"{text}, too")
    app.schedules.pause("noted", note=text)
    app.alerts.windows.add("night", until="1h", note=text)
    paths = ("schedules", "schedules?text=noted", "schedules/noted", "schedules/noted/why", "alerts/windows")
    for path in paths:
        assert "hunter2" in site.request("GET", path, role="operator").text, path
    for path in (*paths, "audit", "schedules/noted/history", "attention", "schedules/noted/resume"):
        seen = site.request("GET", path, role="viewer")
        assert seen.status_code == 200
        assert "hunter2" not in seen.text, path
    seen = site.get("schedules/noted", role="viewer")
    assert (seen["description"], seen["pause_note"]) == ("see password=***, too", "see password=***")
    assert seen["edited"] == {"description": "see password=***"}


def test_large_numbers_in_edits_and_in_the_audit_travel_as_text(site: Site) -> None:
    declared, edited = {"n": (1 << 60) + 1}, {"n": (1 << 60) + 3}
    site.app.schedules.declare("big", every("1h"), "other", declared)
    site.app.schedules.update("big", payload=edited)
    exact = '{"n":1152921504606846977}'
    assert site.get("schedules/big")["edited"] == {"payload": None, "payload_text": exact}
    for path in ("schedules/big/history", "audit?subject=big"):
        newest = site.get(path)["items"][0]
        assert newest["before"] == {"payload": None, "payload_text": exact}
        assert newest["after"] == {"payload": None, "payload_text": '{"n":1152921504606846979}'}


def test_numbers_that_become_text_are_masked_for_viewers(site: Site) -> None:
    payload = {"api_key": 1 << 60, "n": 1 << 60, "url": "https://ann:hunter2@example.com"}
    site.app.schedules.add("big", every("1h"), "other", payload)
    site.app.enqueue("other", payload, id="big")
    for path in ("schedules/big", "runs/big"):
        text = site.get(path, role="viewer")["payload_text"]
        assert text == '{"api_key":"***","n":1152921504606846976,"url":"https://ann:***@example.com"}'

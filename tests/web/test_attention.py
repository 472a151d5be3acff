"""``GET /attention``: what needs somebody, as the tokens of all tenants and of one tenant see it."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import every
from evenbeat.core.records import Record, RunRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Setting
from evenbeat.web.catalogue import Catalogue
from tests.web.site import Site


def fail_a_run(site: Site, name: str, error: str, tenant: str = "default") -> None:
    run_id = site.app.schedules.run_now(name, tenant=tenant).id
    now = site.app.store.now()
    claim = Claim(worker="w", token=run_id, limit=10, now=now, lease=30_000, tasks=None)
    (run,) = site.app.store.claim_runs(claim).runs
    assert site.app.store.settle_runs([attempts.failed(run, error, now, "t")]) == [True]


def refresh(site: Site) -> None:
    """Let the server read what has changed, as it does once a second."""
    site.get("attention")
    catalogue = site.web.state._catalogue
    assert isinstance(catalogue, Catalogue)
    catalogue.refresh(site.app.store)


def of_kind(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item for item in body["items"] if item["kind"] == kind]


def test_the_list_has_what_python_has(site: Site) -> None:
    site.app.schedules.add("a", every("1h"), "work")
    fail_a_run(site, "a", "KeyError: 'x'")
    refresh(site)
    body = site.get("attention", role="viewer")
    assert body.keys() == {"checked_at", "items", "more", "is_exact"}
    assert [item["kind"] for item in body["items"]] == ["failing", "no_ticker"]
    failing, ticker = body["items"]
    assert failing["sentence"] == "a is failing: its last run failed."
    assert failing["evidence"][0]["text"] == "KeyError: 'x'"
    assert failing["evidence"][0]["at"] == failing["since"]
    assert (failing["tenant"], failing["schedule"], failing["count"]) == ("default", "a", 1)
    assert ticker["sentence"] == "No node is running: no tick will fire."
    same = site.app.attention()
    assert [item.sentence for item in same.items] == [item["sentence"] for item in body["items"]]


def test_a_token_of_one_tenant_sees_its_own_items_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    unsafe = [Setting(name="fsync", value="off", level="fail")]
    monkeypatch.setattr(site.app.store, "server", lambda: unsafe)
    body = '{"tasks": ["secret-task"], "queues": ["default"]}'
    expires = site.app.store.now() + 60_000
    assert site.app.store.put_record(Record(kind="node", key="secret-node", body=body, expires=expires))
    for tenant in ("default", "acme"):
        site.app.schedules.add(f"of-{tenant}", every("1h"), "work", tenant=tenant)
        fail_a_run(site, f"of-{tenant}", "x", tenant)
    refresh(site)
    everything = site.get("attention?all_tenants=true")
    assert len(of_kind(everything, "store_unsafe")) == 1
    assert {item["tenant"] for item in of_kind(everything, "failing")} == {"default", "acme"}
    assert {item["tenant"] for item in of_kind(everything, "no_node")} == {"default", "acme"}
    assert of_kind(site.get("attention"), "store_unsafe"), "this token sees the server"
    own = site.request("GET", "attention", role="admin", tenant="acme")
    assert [item["kind"] for item in own.json()["items"]] == ["failing", "no_node"]
    assert {item["tenant"] for item in own.json()["items"]} == {"acme"}
    for hidden in ("secret", "fsync", "default"):
        assert hidden not in own.text
    refused = site.request("GET", "attention?all_tenants=true", role="admin", tenant="acme")
    assert refused.status_code == 403


def test_a_token_of_one_tenant_sees_no_slots(site: Site) -> None:
    store = site.app.store
    body = '{"tasks": {"work": "thread"}, "queues": ["default"], "slots": {"thread": 0}}'
    assert store.put_record(Record(kind="node", key="n", body=body, expires=store.now() + 60_000))
    old = store.now() - 1_000_000
    store.add_runs([RunRecord(id="r", task="work", tenant="acme", created_at=old, run_at=old)])
    (whole,) = of_kind(site.get("attention?tenant=acme"), "waiting")
    (own,) = of_kind(site.get("attention", tenant="acme"), "waiting")
    assert [fact["text"] for fact in whole["evidence"]] == [
        "the oldest waits since",
        "slots in use on the nodes that could take it: 0 of 0",
    ]
    assert own == whole | {"evidence": whole["evidence"][:1]}


def test_names_that_look_like_secrets_do_not_garble_the_sentences(site: Site) -> None:
    """The name of a queue, task or schedule may have a word such as secret. Viewers read what others read."""
    app, store = site.app, site.app.store
    body = '{"tasks": ["password.rotate"], "queues": ["default"]}'
    assert store.put_record(Record(kind="node", key="n", body=body, expires=store.now() + 60_000))
    app.schedules.add("token-a", every("1h"), "password.rotate", queue="secret-q")
    app.schedules.add("token-b", every("1h"), "token")
    app.schedules.add("secret-c", every("1h"), "api_key.check")
    fail_a_run(site, "secret-c", "ValueError: no")
    long_ago = store.now() - 200_000
    for number, task in enumerate(("password.rotate", "secret.copy")):
        run = RunRecord(id=f"r{number}", task=task, created_at=long_ago, run_at=long_ago, queue="secret-q")
        store.add_runs([run])
    refresh(site)
    whole = site.get("attention", role="operator")
    assert len(of_kind(whole, "no_node")) == 4
    assert site.get("attention", role="viewer")["items"] == whole["items"]
    for path in ("schedules/token-a/why", "schedules/secret-c/why", "runs/r0/why", "runs/r1/why"):
        assert site.get(path, role="viewer")["sentence"] == site.get(path, role="operator")["sentence"]


def test_secrets_in_errors_are_masked_for_viewers(site: Site) -> None:
    site.app.schedules.add("a", every("1h"), "work")
    fail_a_run(site, "a", "Refused: postgres://anna:hunter2@db/x")
    refresh(site)
    assert "hunter2" in site.request("GET", "attention", role="operator").text
    assert "hunter2" not in site.request("GET", "attention", role="viewer").text

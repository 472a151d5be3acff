"""Limits over all machines over HTTP: what is answered, what is refused, and what a tenant may see."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.core.tokens import Role
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.web.site import Site, assert_problem


@pytest.fixture
def site() -> Any:
    app = Scheduler(MemoryStore(VirtualClock()))

    @app.task
    def charge(customer: int = 0) -> None: ...

    found = Site(app)
    yield found
    found.close()


def names(answer: Any) -> list[str]:
    return [item["name"] for item in answer["items"]]


def test_a_limit_lives_through_all_its_verbs(site: Site) -> None:
    assert site.get("limits") == {"items": []}
    made = site.post("limits", {"task": "charge", "concurrency": 1, "rate": "100/m", "burst": 20})
    assert made == {
        "name": "task=charge",
        "task": "charge",
        "queue": None,
        "tenant": None,
        "key": None,
        "concurrency": 1,
        "rate": "100/m",
        "burst": 20,
        "words": "at most 1 run of charge at once, and 100 a minute",
        "running": 0,
        "waiting": 0,
        "oldest_waiting": None,
        "admits": 1,
        "admits_at": None,
        "values": [],
        "value_count": 0,
        "warnings": [],
    }
    for customer in (7, 7, 8):
        site.post("runs", {"task": "charge", "payload": {"customer": customer}}, status=201)
    keyed = site.post("limits", {"task": "charge", "key": "customer", "concurrency": 1})
    assert keyed["words"] == "at most 1 run of charge at once, for each customer"
    store = site.app.store
    claim = Claim(worker="w", token="t", limit=9, now=store.now(), lease=60_000)
    assert len(store.claim_runs(claim).runs) == 1
    whole, each = site.get("limits", role="viewer")["items"]
    assert (whole["running"], whole["waiting"], whole["admits"]) == (1, 2, 0)
    assert whole["oldest_waiting"] is not None
    assert (each["running"], each["waiting"], each["value_count"]) == (1, 1, 2)
    assert each["values"] == [
        {"value": "7", "running": 1, "waiting": 1},
        {"value": "8", "running": 0, "waiting": 0},
    ]
    assert names(site.get("limits?key=customer")) == ["task=charge key=customer"]
    assert names(site.get("limits?task=other")) == []
    removed = site.request("DELETE", "limits?task=charge")
    assert (removed.status_code, removed.content) == (204, b"")
    assert names(site.get("limits")) == ["task=charge key=customer"]
    missing = site.request("DELETE", "limits?task=charge")
    assert_problem(missing, 404, "limit-not-found")
    entries = site.get("audit")["items"]
    assert [(entry["action"], entry["subject"]) for entry in entries if entry["kind"] == "limit"] == [
        ("remove", "task=charge"),
        ("set", "task=charge key=customer"),
        ("set", "task=charge"),
    ]
    assert (entries[0]["actor"], entries[0]["via"]) == ("admin of None", "api")


def test_setting_a_limit_again_replaces_it(site: Site) -> None:
    site.post("limits", {"task": "charge", "concurrency": 1, "rate": "100/m"})
    made = site.post("limits", {"task": "charge", "concurrency": 2})
    assert (made["concurrency"], made["rate"]) == (2, None)
    assert len(site.get("limits")["items"]) == 1


def test_a_limit_of_a_task_that_nobody_has_is_set_with_a_warning(site: Site) -> None:
    (warning,) = site.post("limits", {"task": "chrge", "concurrency": 1})["warnings"]
    assert warning["hint"] == "did you mean charge?"
    (warning,) = site.post("limits", {"task": "chrge", "concurrency": 1}, tenant="acme")["warnings"]
    assert warning["hint"] is None, "a token of one tenant does not see the nodes"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"concurrency": 1}, 422, "task"),
        ({"task": "charge"}, 422, "concurrency"),
        ({"task": "charge", "rate": "0/m"}, 422, "rate"),
        ({"task": "charge", "rate": "100/0s"}, 422, "rate"),
        ({"task": "charge", "rate": "abc"}, 422, "rate"),
        ({"task": "charge", "concurrency": 1, "burst": 1}, 422, "burst"),
        ({"task": "charge", "concurrency": -1}, 400, "concurrency"),
        ({"task": "charge", "concurrency": 0}, 400, "concurrency"),
        ({"task": "charge", "concurrency": 2**63}, 400, "concurrency"),
        ({"task": "charge", "rate": 100}, 400, "rate"),
        ({"task": "charge", "rate": "1/s", "burst": 0}, 400, "burst"),
        ({"task": "two words", "concurrency": 1}, 400, "task"),
        ({"queue": "a:b", "concurrency": 1}, 400, "queue"),
        ({"key": "a.b", "concurrency": 1}, 400, "key"),
        ({"task": "charge", "concurency": 1}, 400, "concurency"),
    ],
)
def test_a_limit_that_would_not_do_is_refused(
    site: Site, body: dict[str, Any], status: int, field: str
) -> None:
    assert_problem(site.request("POST", "limits", json=body), status, "invalid-value", field)
    assert site.get("limits") == {"items": []}


def test_removing_needs_a_name(site: Site) -> None:
    assert_problem(site.request("DELETE", "limits"), 422, "invalid-value", "task")


def test_only_admins_change_limits(site: Site) -> None:
    roles: tuple[Role, ...] = ("viewer", "operator")
    for role in roles:
        refused = site.request("POST", "limits", json={"task": "charge", "concurrency": 1}, role=role)
        assert_problem(refused, 403, "role-too-low")
        refused = site.request("DELETE", "limits?task=charge", role=role)
        assert_problem(refused, 403, "role-too-low")
    assert site.get("limits", role="viewer") == {"items": []}


def test_a_token_of_one_tenant_sees_and_changes_only_limits_of_its_tenant(site: Site) -> None:
    site.post("limits", {"task": "charge", "concurrency": 9})
    site.post("limits", {"task": "charge", "tenant": "globex", "concurrency": 9})
    made = site.post("limits", {"task": "charge", "concurrency": 2}, tenant="acme")
    assert (made["name"], made["tenant"]) == ("task=charge tenant=acme", "acme")
    named = site.post("limits", {"task": "charge", "tenant": "acme", "concurrency": 3}, tenant="acme")
    assert (named["name"], named["concurrency"]) == (made["name"], 3)
    assert names(site.get("limits", tenant="acme")) == ["task=charge tenant=acme"]
    assert names(site.get("limits?tenant=acme", tenant="acme")) == ["task=charge tenant=acme"]
    assert len(site.get("limits")["items"]) == 3
    for method, path, body in (
        ("GET", "limits?tenant=globex", None),
        ("POST", "limits", {"task": "charge", "tenant": "globex", "concurrency": 1}),
        ("DELETE", "limits?task=charge&tenant=globex", None),
    ):
        refused = site.request(method, path, json=body, tenant="acme")
        assert_problem(refused, 403, "foreign-tenant", "tenant")
    # A limit of all tenants is not theirs: the same words name their own.
    assert site.request("DELETE", "limits?task=charge", tenant="acme").status_code == 204
    assert_problem(site.request("DELETE", "limits?task=charge", tenant="acme"), 404, "limit-not-found")
    assert names(site.get("limits")) == ["task=charge", "task=charge tenant=globex"]
    entries = site.get("audit", tenant="acme")["items"]
    assert {entry["subject"] for entry in entries if entry["kind"] == "limit"} == {"task=charge tenant=acme"}


def test_the_default_tenant_does_not_see_limits_of_the_store_in_the_audit(site: Site) -> None:
    site.post("limits", {"task": "charge", "concurrency": 9})
    site.request("DELETE", "limits?task=charge")
    site.post("limits", {"task": "charge", "tenant": "default", "concurrency": 9})
    seen = site.get("audit", role="viewer", tenant="default")["items"]
    subjects = [entry["subject"] for entry in seen if entry["kind"] == "limit"]
    assert subjects == ["task=charge tenant=default"]


def test_the_hint_of_a_missing_limit_names_no_limit_of_others(site: Site) -> None:
    site.post("limits", {"task": "charge", "tenant": "acme-secret-deal", "concurrency": 9})
    refused = site.request("DELETE", "limits?task=charge&tenant=acme", tenant="acme")
    assert "secret-deal" not in assert_problem(refused, 404, "limit-not-found")["detail"]

"""Tenants over HTTP: who may see, bound and purge them."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import every
from evenbeat.core.tokens import ROLES
from tests.web.site import Site, assert_problem

CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "tenants/acme/quota", {"schedules": 5}),
    ("DELETE", "tenants/acme/quota", None),
    ("POST", "tenants/acme/purge", {"dry_run": False}),
]


def fill(site: Site) -> None:
    for tenant in ("acme", "beta"):
        site.app.schedules.add("report", every("1h"), "work", tenant=tenant)
        site.app.enqueue_many(["work"] * 3, tenant=tenant)


def names(site: Site, **who: Any) -> list[str]:
    answer = site.request("GET", "tenants", **who)
    assert answer.status_code == 200
    return [tenant["name"] for tenant in answer.json()["items"]]


def test_tenants_are_listed_and_shown_with_counts(site: Site) -> None:
    fill(site)
    site.app.tenants.set_quota("acme", queued_runs=10)
    acme = site.get("tenants")["items"][0]
    assert acme == {
        "name": "acme",
        "schedules": 1,
        "active_schedules": 1,
        "paused_schedules": 0,
        "due": 3,
        "later": 0,
        "running": 0,
        "quota": {"schedules": None, "queued_runs": 10},
        "started": 0,
        "succeeded": 0,
        "failed": 0,
    }
    shown = site.get("tenants/acme")
    assert shown["ended"] == {"cancelled": 0, "failed": 0, "succeeded": 0}
    assert shown["next_fire"] == site.get("schedules/report?tenant=acme")["next_run"]
    assert shown["oldest_due"] is not None
    assert shown["limits"] == []
    assert acme == {name: shown[name] for name in acme}
    assert names(site) == ["acme", "beta"]
    assert_problem(site.request("GET", "tenants/nobody"), 404, "tenant-not-found")
    assert_problem(site.request("GET", "tenants/a.b"), 422, "invalid-value", "name")
    assert_problem(site.request("GET", "tenants?limit=0"), 400, "invalid-value", "limit")


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_one_tenant_sees_that_one_and_changes_none(site: Site, role: Any) -> None:
    fill(site)
    site.app.tenants.set_quota("acme", schedules=3)
    own = {"role": role, "tenant": "acme"}
    assert names(site, **own) == ["acme"]
    assert site.request("GET", "tenants/acme", **own).status_code == 200
    # Whether or not the other one exists.
    for other in ("beta", "nobody"):
        assert_problem(site.request("GET", f"tenants/{other}", **own), 403, "foreign-tenant", "tenant")
    for method, path, body in CHANGES:
        response = site.request(method, path, json=body, **own)
        assert response.status_code == 403, (method, path)
        assert site.request(method, path.replace("acme", "beta"), json=body, **own).status_code == 403
    assert names(site) == ["acme", "beta"]
    assert site.get("tenants/acme")["quota"] == {"schedules": 3, "queued_runs": None}


def test_only_admins_change_tenants(site: Site) -> None:
    fill(site)
    site.app.tenants.set_quota("acme", schedules=3)
    for role in ("viewer", "operator"):
        for method, path, body in CHANGES:
            assert_problem(site.request(method, path, json=body, role=role), 403, "role-too-low")
    assert site.get("tenants/acme")["schedules"] == 1
    assert site.get("tenants/acme")["quota"] == {"schedules": 3, "queued_runs": None}


def test_a_quota_is_set_holds_and_is_removed(site: Site) -> None:
    assert_problem(site.request("DELETE", "tenants/acme/quota"), 404, "quota-not-found")
    wanted = {"schedules": 1, "queued_runs": 2}
    assert site.post("tenants/acme/quota", wanted) == wanted
    schedule = {"name": "a", "trigger": "every 1h", "task": "work"}
    site.post("schedules?tenant=acme", schedule, status=201)
    refused = site.request("POST", "schedules?tenant=acme", json={**schedule, "name": "b"})
    assert_problem(refused, 409, "quota-exceeded", "tenant")
    assert "raise the quota" in refused.json()["detail"]
    site.post("runs?tenant=acme", {"task": "work"}, status=201)
    site.post("schedules/a/run?tenant=acme", {}, status=201)
    for path, body in (("runs", {"task": "work"}), ("schedules/a/run", {})):
        refused = site.request("POST", f"{path}?tenant=acme", json=body)
        assert_problem(refused, 409, "quota-exceeded", "tenant")
    site.post("runs", {"task": "work"}, status=201)
    removed = site.request("DELETE", "tenants/acme/quota")
    assert (removed.status_code, removed.content) == (204, b"")
    site.post("runs?tenant=acme", {"task": "work"}, status=201)
    entry = site.app.audit.list(tenant="acme", action="remove")[0]
    assert (entry.kind, entry.subject, entry.via) == ("tenant", "acme", "api")


@pytest.mark.parametrize("value", [-1, 2**63, 1.5, "many", True])
def test_a_wrong_quota_is_refused(site: Site, value: Any) -> None:
    for field in ("schedules", "queued_runs"):
        response = site.request("POST", "tenants/acme/quota", json={field: value})
        assert_problem(response, 400, "invalid-value", field)
    assert_problem(site.request("POST", "tenants/acme/quota", json={}), 422, "invalid-value", "schedules")
    assert names(site) == []


def test_a_purge_counts_first_and_deletes_a_part_at_a_time(site: Site) -> None:
    fill(site)
    site.app.enqueue_many(["work"] * 1_000, tenant="acme")
    counted = site.post("tenants/acme/purge")
    assert (counted["dry_run"], counted["schedules"], counted["cancelled"]) == (True, 1, 1_003)
    assert site.get("tenants/acme")["due"] == 1_003
    rounds, runs = 0, 0
    while True:
        done = site.post("tenants/acme/purge", {"dry_run": False, "limit": 500})
        rounds += 1
        runs += done["runs"]
        if done["is_complete"]:
            break
    assert rounds > 2
    assert runs == 1_003
    assert any("audit entries" in remaining for remaining in done["remains"])
    assert names(site) == ["beta"]
    assert site.get("tenants/beta")["due"] == 3
    assert site.post("tenants/acme/purge", {"dry_run": False})["is_complete"]
    for limit in (0, 10_001):
        response = site.request("POST", "tenants/acme/purge", json={"limit": limit})
        assert_problem(response, 400, "invalid-value", "limit")


def test_the_default_tenant_needs_a_word_of_its_own(site: Site) -> None:
    site.app.schedules.add("report", every("1h"), "work")
    for dry_run in (True, False):
        response = site.request("POST", "tenants/default/purge", json={"dry_run": dry_run})
        assert_problem(response, 422, "invalid-value", "name")
    assert site.get("tenants/default")["schedules"] == 1
    done = site.post("tenants/default/purge", {"dry_run": False, "even_default": True})
    assert (done["schedules"], done["is_complete"]) == (1, True)
    assert site.request("GET", "me").status_code == 200, "tokens stay"


def test_a_purge_ends_tokens_of_the_tenant_alone(site: Site) -> None:
    fill(site)
    assert site.request("GET", "tenants", role="viewer", tenant="acme").status_code == 200
    assert site.request("GET", "tenants", role="viewer", tenant="beta").status_code == 200
    assert site.post("tenants/acme/purge", {"dry_run": False})["tokens"] == 1
    assert sorted(token.tenant or "all" for token in site.app.tokens.list()) == ["all", "beta"]

"""Templates, bulk updates, name patterns and catching-up resumes over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.web.site import Site, assert_problem

NIGHTLY: dict[str, Any] = {"name": "nightly", "trigger": "0 3 * * *", "retries": 3, "timeout": "1h"}


def test_a_template_lives_through_all_its_verbs(site: Site) -> None:
    made = site.post("templates", NIGHTLY)
    assert made["template"]["options"] == {"trigger": "0 3 * * *", "retries": 3, "timeout": "1h"}
    schedule = site.post("schedules", {"name": "a", "task": "work", "template": "nightly"}, status=201)
    assert (schedule["trigger"], schedule["retries"], schedule["template"]) == ("0 3 * * *", 3, "nightly")
    assert schedule["inherited"] == ["trigger", "retries", "timeout"]
    dry = site.post("templates", {**NIGHTLY, "retries": 4, "dry_run": True})
    assert (dry["schedules"], dry["changed"], dry["sample"][0]["after"]) == (1, 1, {"retries": 4})
    assert site.get("schedules/a")["retries"] == 3
    assert site.post("templates", {**NIGHTLY, "retries": 4})["changed"] == 1
    assert site.get("schedules/a")["retries"] == 4
    assert site.get("templates/nightly")["revision"] == 2
    assert [each["name"] for each in site.get("templates")["items"]][:2] == ["nightly", "hourly"]
    assert [each["name"] for each in site.get("schedules?template=nightly")["items"]] == ["a"]
    assert site.get("schedules?template=other")["items"] == []
    problem = assert_problem(site.request("DELETE", "templates/nightly"), 409, "template-in-use")
    assert "is used by a" in problem["detail"]
    assert (
        site.request("PATCH", "schedules/a", json={"trigger": "every 5m"}).json()["inherited"][0] == "retries"
    )
    assert site.request("PATCH", "schedules/a", json={"trigger": "@nightly"}).json()["trigger"] == "0 3 * * *"
    assert site.post("preview", {"trigger": "@nightly"})["trigger"] == "0 3 * * *"
    changed = site.request("PATCH", "schedules/a", json={"retries": 9}).json()
    assert changed["inherited"] == ["trigger", "timeout"]
    back = site.request("PATCH", "schedules/a", json={"inherit": ["retries"]}).json()
    assert back["retries"] == 4
    assert site.request("PATCH", "schedules/a", json={"template": None}).json()["template"] is None
    assert site.request("DELETE", "templates/nightly").status_code == 204
    assert_problem(site.request("GET", "templates/nightly"), 404, "template-not-found")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": "x"}, 422, "options"),
        ({"name": "workdays", "retries": 1}, 422, "name"),
        ({"name": "x", "retries": -1}, 400, "retries"),
        ({"name": "x", "task": "work"}, 400, "task"),
        ({"name": "x", "grace": "5m"}, 422, "grace"),
        ({"name": "a b", "retries": 1}, 400, "name"),
        ({"name": "x", "trigger": "nonsense"}, 422, "trigger"),
    ],
)
def test_bad_templates_are_refused_by_name(site: Site, body: dict[str, Any], status: int, field: str) -> None:
    kind = "invalid-trigger" if field == "trigger" else "invalid-value"
    assert_problem(site.request("POST", "templates", json=body), status, kind, field)


def test_templates_need_their_role_and_tenant(site: Site, app: Scheduler) -> None:
    site.post("templates", NIGHTLY)
    for role in ("viewer", "operator"):
        assert site.request("GET", "templates", role=role).status_code == 200
        assert site.request("POST", "templates", role=role, json=NIGHTLY).status_code == 403
        assert site.request("DELETE", "templates/nightly", role=role).status_code == 403
    found = site.request("GET", "templates", tenant="acme").json()["items"]
    assert all(each["built_in"] for each in found)
    refused = site.request("GET", "templates/nightly?tenant=default", tenant="acme")
    assert refused.status_code == 403
    site.request("POST", "templates", tenant="acme", json={"name": "own", "retries": 1})
    assert app.templates.get("own", tenant="acme").options == {"retries": 1}


def test_all_that_match_are_updated(site: Site, app: Scheduler) -> None:
    for name in ("report-a", "report-b", "other"):
        app.schedules.add(name, "every 1h", "work")
    body: dict[str, Any] = {"action": "update", "filter": {"name": "report-*"}, "changes": {"retries": 3}}
    dry = site.post("bulk/schedules", body)
    assert (dry["matched"], dry["done"]) == (2, 0)
    done = site.post("bulk/schedules", {**body, "dry_run": False})
    assert [each["id"] for each in done["changed"]] == ["report-a", "report-b"]
    assert [each["name"] for each in site.get("schedules?name=report-*")["items"]] == ["report-a", "report-b"]
    refused = site.request("POST", "bulk/schedules", role="operator", json=body)
    assert refused.status_code == 403
    missing = {"action": "update", "filter": {}}
    assert_problem(site.request("POST", "bulk/schedules", json=missing), 422, "invalid-value", "changes")
    for field, value in (("changes", {"retries": 1}), ("catch_up", True)):
        wrong = {"action": "run", "filter": {}, field: value}
        assert_problem(site.request("POST", "bulk/schedules", json=wrong), 422, "invalid-value", field)
    assert_problem(site.request("GET", "schedules?name=a%20b"), 400, "invalid-value", "name")


def test_a_resume_catches_up() -> None:
    clock = VirtualClock()
    app = Scheduler(MemoryStore(clock))
    site = Site(app)
    for name in ("a", "b", "c"):
        app.schedules.add(name, "every 1m", "work", paused=True)
    clock.advance("1m")
    plain = site.get("schedules/a/resume")
    caught_up = site.get("schedules/a/resume?catch_up=true")
    assert (plain["runs"], caught_up["runs"]) == (0, 1)
    assert site.post("schedules/a/resume", {"catch_up": True})["state"] == "active"
    assert len(app.runs.list(schedule="a")) == 1
    assert site.post("schedules/b/resume")["state"] == "active"
    assert not app.runs.list(schedule="b")
    body = {"action": "resume", "filter": {"names": ["c"]}, "catch_up": True, "dry_run": False}
    assert site.post("bulk/schedules", body)["done"] == 1
    assert len(app.runs.list(schedule="c")) == 1
    site.close()


def test_a_repeated_create_with_a_template_succeeds_once(site: Site) -> None:
    site.post("templates", NIGHTLY)
    body = {"name": "a", "task": "work", "template": "nightly"}
    for _ in range(2):
        made = site.request("POST", "schedules", json=body, headers={"Idempotency-Key": "k1"})
        assert (made.status_code, made.json()["revision"]) == (201, 1)
    other = site.request("POST", "schedules", json=body, headers={"Idempotency-Key": "k2"})
    assert other.status_code == 409
    short = site.post("schedules", {"name": "b", "task": "work", "trigger": "@nightly"}, status=201)
    assert short["template"] == "nightly"
    unknown = {"name": "c", "task": "work", "template": "nigthly"}
    problem = assert_problem(site.request("POST", "schedules", json=unknown), 404, "template-not-found")
    assert "did you mean nightly?" in problem["detail"]

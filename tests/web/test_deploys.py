"""Plan, apply and move over HTTP: what is answered, what is refused, and what a tenant may see."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.core.tokens import Role
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.web.site import Site, assert_problem


@pytest.fixture
def site() -> Any:
    app = Scheduler(MemoryStore(VirtualClock()), source="shop")

    @app.task
    def work(n: int = 0, password: str = "") -> None: ...

    app.declare("hourly", "@hourly", work.bind(password="hunter2"))
    app.declare("theirs", "@hourly", work, tenant="acme")
    found = Site(app)
    yield found
    found.close()


def names(entries: Any) -> list[str]:
    return [entry["name"] for entry in entries]


def test_the_plan_of_the_servers_own_app_is_shown_and_applied(site: Site) -> None:
    plan = site.get("plan")
    (entry,) = plan["entries"]
    assert (entry["name"], entry["action"], entry["source"]) == ("hourly", "add", "shop")
    assert len(entry["ticks_after"]) == 5
    result = site.post("apply", {"plan": [entry["token"]]})
    assert (names(result["done"]), result["refused"], result["unchanged"]) == (["hourly"], [], 0)
    assert site.get("plan") == {**plan, "entries": [], "unchanged": 1}
    assert site.get("schedules/hourly")["source"] == "shop"
    assert names(site.get("plan?all_tenants=true")["entries"]) == ["theirs"]


def test_a_client_declares_a_schedule_by_its_template_alone(site: Site) -> None:
    wanted = {
        "invoices": {"task": "work", "template": "workdays"},
        "bills": {"task": "work", "trigger": "@workdays"},
    }
    assert names(site.post("plan", {"schedules": wanted})["entries"]) == ["bills", "invoices"]
    site.post("apply", {"schedules": wanted})
    assert {each["trigger"] for each in site.get("schedules")["items"]} == {"0 9 * * 1-5"}
    problem = site.request("POST", "plan", json={"schedules": {"a": {"task": "work"}}})
    assert "schedules.a has no trigger" in assert_problem(problem, 422, "invalid-value", "trigger")["detail"]


@pytest.mark.parametrize(
    ("wanted", "detail", "field", "hint"),
    [
        (
            {"b": {"task": "work", "trigger": "@daily", "retrys": 3}},
            "there is no field schedules.b.retrys",
            "schedules.b.retrys",
            "did you mean retries?",
        ),
        (
            {"b": {"task": "work", "trigger": "@daily", "color": 3}},
            "there is no field schedules.b.color",
            "schedules.b.color",
            "there are: trigger, task, payload, tenant, start_at",
        ),
        (
            {"b": {"task": "work", "trigger": "@daily", "retries": "3"}},
            'schedules.b.retries "3" is not a whole number of 0 to 1,000',
            "schedules.b.retries",
            "",
        ),
        (
            {"b": {"task": "work", "trigger": "@daily", "tags": ["x", "a b"]}},
            'schedules.b.tags[1] "a b" is not 1 to 128 letters',
            "schedules.b.tags[1]",
            "",
        ),
        ({"b": {"trigger": "@daily"}}, "the field schedules.b.task is missing", "schedules.b.task", ""),
        ({"b": 5}, "schedules.b 5 is not an object", "schedules.b", ""),
        ({"a b": {}}, 'the name "a b" in schedules is not 1 to 128 letters', "schedules", ""),
    ],
)
def test_a_wrong_declaration_is_refused_by_its_name(
    site: Site, wanted: Any, detail: str, field: str, hint: str
) -> None:
    schedules = {"a": {"task": "work", "trigger": "@daily"}, **wanted}
    answer = site.request("POST", "plan", json={"schedules": schedules})
    problem = assert_problem(answer, 400, "invalid-value", field)
    assert problem["detail"].startswith(detail)
    assert (problem.get("hint") or "").startswith(hint)


def test_a_change_that_the_plan_does_not_have_is_refused_and_shown(site: Site) -> None:
    result = site.post("apply", {"plan": []})
    (refused,) = result["refused"]
    assert (refused["name"], refused["entry"]["action"]) == ("hourly", "add")
    assert result["done"] == []


def test_a_client_plans_and_applies_schedules_of_its_own(site: Site) -> None:
    wanted = {"nightly": {"trigger": "0 3 * * *", "task": "work", "payload": {"n": 2}, "retries": 3}}
    plan = site.post("plan", {"schedules": wanted, "source": "ci"})
    assert names(plan["entries"]) == ["nightly"]
    done = site.post("apply", {"schedules": wanted, "source": "ci", "plan": [plan["entries"][0]["token"]]})
    assert names(done["done"]) == ["nightly"]
    made = site.get("schedules/nightly")
    assert (made["managed_by"], made["source"], made["retries"]) == ("file", "ci", 3)
    gone = site.post("apply", {"schedules": {}, "source": "ci", "prune": True})
    assert [(each["name"], each["action"]) for each in gone["done"]] == [("nightly", "remove")]


def test_a_schedule_that_was_made_by_hand_is_a_conflict(site: Site) -> None:
    site.post("schedules", {"name": "hourly", "trigger": "@daily", "task": "work"}, status=201)
    (entry,) = site.get("plan")["entries"]
    assert (entry["action"], entry["why"]) == ("conflict", "it was made by hand")
    assert site.post("apply", {})["left"][0]["action"] == "conflict"
    assert names(site.post("apply", {"adopt": True})["done"]) == ["hourly"]


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("operator", False), ("admin", True)])
def test_viewers_plan_and_only_admins_apply(site: Site, role: Role, may: bool) -> None:
    assert site.get("plan", role=role)["entries"]
    assert site.post("plan", {"schedules": {}}, role=role)["entries"] == []
    answer = site.request("POST", "apply", json={}, role=role)
    assert answer.status_code == (200 if may else 403)
    assert site.request("GET", "plan", role=None).status_code == 401


def test_viewers_see_masked_payloads(site: Site) -> None:
    def payload(role: Role) -> Any:
        (entry,) = site.get("plan", role=role)["entries"]
        return {each["field"]: each["after"] for each in entry["changes"]}["payload"]

    assert payload("admin") == {"password": "hunter2"}
    assert payload("viewer") == {"password": "***"}


def test_a_token_of_a_tenant_plans_and_applies_for_its_tenant_alone(site: Site) -> None:
    plan = site.get("plan", tenant="acme")
    assert names(plan["entries"]) == ["theirs"]
    site.post("apply", {}, tenant="acme")
    assert site.app.schedules.list() == []
    wanted = {"a": {"trigger": "@daily", "task": "work", "tenant": "default"}}
    refused = site.request("POST", "plan", json={"schedules": wanted}, tenant="acme")
    assert_problem(refused, 422, "invalid-value", "tenant")
    del wanted["a"]["tenant"]
    assert site.post("apply", {"schedules": wanted}, tenant="acme")["done"][0]["tenant"] == "acme"
    assert_problem(site.request("GET", "plan?tenant=default", tenant="acme"), 403, "foreign-tenant", "tenant")


def test_a_token_of_a_tenant_prunes_only_its_own(site: Site) -> None:
    site.post("apply?all_tenants=true", {})
    gone = site.post("apply", {"schedules": {}, "source": "shop", "prune": True}, tenant="acme")
    assert gone["done"] == []  # the code declared it, not a file
    for tenant in ("acme", None):
        body = {"schedules": {"f": {"trigger": "@daily", "task": "work"}}, "source": "ci"}
        site.post("apply", body, tenant=tenant)
    gone = site.post("apply", {"schedules": {}, "source": "ci", "prune": True}, tenant="acme")
    assert [each["tenant"] for each in gone["done"]] == ["acme"]
    assert site.get("schedules/f")["name"] == "f"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("plan", {"schedules": {"a": {"trigger": "0 0 30 2 *", "task": "work"}}}, "trigger"),
        ("plan", {"schedules": {"a": {"trigger": "@daily", "task": "work", "retries": 1001}}}, None),
        ("apply", {"schedules": {"a": {"task": "work", "trigger": "@daily", "grace": "1s"}}}, "grace"),
        ("apply", {"schedules": {}, "prune": True}, None),
        ("apply", {"plan": [7]}, None),
        ("runs/move", {"task": "work", "to": "work"}, "to"),
        ("runs/move", {"task": "work"}, None),
        ("runs/move", {"task": "work", "to": "new", "limit": 0}, None),
    ],
)
def test_wrong_values_are_refused(site: Site, path: str, body: Any, field: str | None) -> None:
    answer = site.request("POST", path, json=body)
    if path == "apply" and body.get("prune"):
        assert answer.status_code == 200  # the label is that of the server's app
        return
    assert answer.status_code in (400, 422), answer.text
    assert field is None or answer.json()["field"] == field


def test_queued_runs_are_counted_and_then_moved(site: Site) -> None:
    site.post("runs", {"task": "old", "payload": {"password": "hunter2"}}, status=201)
    site.post("schedules", {"name": "nightly", "trigger": "@daily", "task": "old"}, status=201)
    counted = site.post("runs/move", {"task": "old", "to": "work"}, role="operator")
    assert (counted["matched"], counted["done"], len(counted["sample"])) == (1, 0, 1)
    assert counted["schedules"] == [
        {"tenant": "default", "name": "nightly", "command": "evenbeat schedules update nightly --task work"}
    ]
    moved = site.post("runs/move", {"task": "old", "to": "work", "dry_run": False}, role="operator")
    assert (moved["done"], moved["warnings"]) == (1, [])
    assert [run["task"] for run in site.get("runs")["items"]] == ["work"]


def test_viewers_do_not_move_runs_and_tenants_move_only_their_own(site: Site) -> None:
    body = {"task": "old", "to": "wrok", "dry_run": False}
    assert site.request("POST", "runs/move", json=body, role="viewer").status_code == 403
    site.app.enqueue("old")
    site.app.enqueue("old", tenant="acme")
    moved = site.post("runs/move", body, tenant="acme")
    assert moved["done"] == 1
    assert moved["warnings"][0]["hint"] is None  # the names of tasks are not theirs to see
    assert site.app.runs.list()[0].task == "old"

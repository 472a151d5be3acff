"""Dependencies over HTTP: set, shown, refused, and kept within a tenant."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import MINUTE, claim, fire, succeed
from tests.web.site import Site, assert_problem


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def body(name: str, trigger: str = "every 1h", **options: Any) -> dict[str, Any]:
    return {"name": name, "trigger": trigger, "task": "work", **options}


def add(site: Site, wanted: dict[str, Any], **more: Any) -> Any:
    return site.post("schedules", wanted, status=201, **more)


def test_dependencies_are_set_shown_and_removed(site: Site, clock: VirtualClock) -> None:
    add(site, body("load", "* * * * *"))
    made = add(site, body("report", "on success of load"))
    assert (made["trigger"], made["words"], made["next_run"]) == (
        "on success of load",
        "after each success of load",
        None,
    )
    assert add(site, body("mail", after="load,report within 60m"))["after"] == ("load, report within 1h")
    clock.now += MINUTE
    fire(site.app)
    (run,) = claim(site.app)
    succeed(site.app, run)
    fire(site.app)
    shown = site.get("schedules/report/dependencies", role="viewer")
    assert shown["on_success_of"] == "load"
    (before,) = shown["predecessors"]
    assert (before["name"], before["state"], before["is_met"]) == ("load", "active", None)
    assert before["last_success"] is not None
    assert site.get("schedules/load/dependencies")["followers"] == ["mail", "report"]
    (started,) = site.get("runs?schedule=report")["items"]
    assert (started["predecessor"], started["tick"]) == (run.id, site.get(f"runs/{run.id}")["tick"])
    assert site.request("PATCH", "schedules/mail", json={"after": None}).json()["after"] is None
    assert site.get("schedules/load/dependencies")["followers"] == ["report"]
    assert site.get("schedules/report/ticks")["items"] == []
    assert site.get("schedules/report/account")["ran"] == 1
    assert site.post("preview", {"trigger": "on success of load"})["kind"] == "success"


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (body("b", "on success of nobody"), "trigger"),
        (body("b", "on success of b"), "trigger"),
        (body("b", after="a"), "after"),
        (body("b", after="a within 0s"), "within"),
        (body("b", after="b within 1h"), "after"),
        (body("b", after="a within 1h wait -1s"), "wait"),
    ],
)
def test_wrong_dependencies_are_refused_by_field(site: Site, wanted: dict[str, Any], field: str) -> None:
    add(site, body("a"))
    assert_problem(site.request("POST", "schedules", json=wanted), 422, "invalid-value", field)
    assert_problem(site.request("GET", "schedules/b/dependencies"), 404, "schedule-not-found")


def test_a_trigger_that_names_no_schedule_is_refused(site: Site) -> None:
    for trigger in ("on success of", "on success of a b"):
        refused = site.request("POST", "schedules", json=body("b", trigger))
        assert "on success of load" in assert_problem(refused, 422, "invalid-trigger", "trigger")["hint"]


def test_another_tenant_is_not_named(site: Site) -> None:
    site.post("schedules?tenant=acme", body("secret"), status=201)
    refused = site.request("POST", "schedules", json=body("b", "on success of secrets"))
    assert_problem(refused, 422, "invalid-value", "trigger")
    assert "did you mean" not in refused.text

"""Backfills over HTTP: what is answered, what is refused, and what a tenant may see."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler, cron
from evenbeat.core.tokens import Role
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.web.site import Site, assert_problem

RANGE = {"start": "2026-03-01T00:00:00Z", "end": "2026-03-01T03:00:00Z"}
PATH = "schedules/hourly/backfill"


@pytest.fixture
def site() -> Any:
    app = Scheduler(MemoryStore(VirtualClock()))

    @app.task
    def report(password: str = "") -> None: ...

    app.schedules.add("hourly", cron("0 * * * *"), "report")
    app.schedules.add("hourly", cron("0 * * * *"), "report", tenant="acme")
    found = Site(app)
    yield found
    found.close()


def test_a_backfill_lives_through_all_its_verbs(site: Site) -> None:
    assert site.get("backfills") == {"items": []}
    planned = site.post(PATH, {**RANGE, "dry_run": True})
    assert (planned["state"], planned["total"], planned["plan"]["states"]) == ("dry_run", 3, {"none": 3})
    assert [tick["tick"] for tick in planned["plan"]["ticks"]] == [
        "2026-03-01T00:00:00Z",
        "2026-03-01T01:00:00Z",
        "2026-03-01T02:00:00Z",
    ]
    assert site.get("backfills") == {"items": []}
    made = site.post(PATH, RANGE, role="operator")
    assert (made["state"], made["active"], made["left"], made["id"]) == ("running", 1, 2, planned["id"])
    assert (made["existed_since"], planned["existed_since"]) == (None, None)
    again, dry = site.post(PATH, RANGE), site.post(PATH, {**RANGE, "dry_run": True})
    assert (again["id"], again["existed_since"]) == (made["id"], made["created_at"])
    assert (dry["existed_since"], dry["total"]) == (made["created_at"], 0)
    assert site.get("backfills?schedule=hourly", role="viewer")["items"] == [
        site.get(f"backfills/{made['id']}", role="viewer")
    ]
    assert site.get("backfills?schedule=other") == {"items": []}
    over = site.post(f"backfills/{made['id']}/cancel", {}, role="operator")
    assert (over["state"], over["cancelled"], over["left"]) == ("cancelled", 1, 2)
    entries = [(entry["action"], entry["kind"]) for entry in site.get("audit")["items"]]
    assert ("cancel", "backfill") in entries
    assert ("backfill", "schedule") in entries


@pytest.mark.parametrize(
    ("more", "status", "field"),
    [
        ({"end": "2099-01-01T00:00:00Z"}, 422, "end"),
        ({"end": RANGE["start"]}, 422, "end"),
        ({"end": "2026-03-01T00:00:00.001Z", "start": "2026-02-28T23:59Z", "id": "a/b"}, 400, "id"),
        ({"start": "2026-03-01T00:01Z", "end": "2026-03-01T00:02Z"}, 422, "start"),
        ({"start": "1990-03-01T00:01Z"}, 422, "start"),
        ({"start": "-1"}, 422, "start"),
        ({"max_concurrent": 0}, 400, "max_concurrent"),
        ({"max_concurrent": -1}, 400, "max_concurrent"),
        ({"max_concurrent": 2**63}, 400, "max_concurrent"),
        ({"order": "random"}, 400, "order"),
        ({"priority": 10}, 400, "priority"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
def test_bad_values_are_refused_by_their_field(
    site: Site, more: dict[str, Any], status: int, field: str
) -> None:
    refused = site.request("POST", PATH, json={**RANGE, **more})
    assert refused.status_code == status, refused.text
    assert refused.json()["field"] == field
    assert site.get("backfills") == {"items": []}


def test_unknown_names_and_taken_ids_are_refused(site: Site) -> None:
    for refused in (site.request("GET", "backfills/nope"), site.request("POST", "backfills/nope/cancel")):
        problem = assert_problem(refused, 404, "backfill-not-found")
        assert "GET /api/v1/backfills" in problem["detail"]
    site.post(PATH, {**RANGE, "id": "mine"})
    taken = site.request("POST", PATH, json={**RANGE, "end": "2026-03-01T02:00:00Z", "id": "mine"})
    assert_problem(taken, 409, "backfill-exists")
    missing = site.request("POST", "schedules/nope/backfill", json=RANGE)
    assert_problem(missing, 404, "schedule-not-found")


@pytest.mark.parametrize("role", ["viewer"])
def test_a_viewer_changes_nothing(site: Site, role: Role) -> None:
    assert site.request("POST", PATH, json=RANGE, role=role).status_code == 403
    assert site.request("POST", PATH, json={**RANGE, "dry_run": True}, role=role).status_code == 403
    made = site.post(PATH, RANGE)
    assert site.request("POST", f"backfills/{made['id']}/cancel", role=role).status_code == 403


def test_a_token_of_one_tenant_sees_only_its_own(site: Site) -> None:
    made = site.post(PATH, RANGE)
    own = site.post(PATH, RANGE, tenant="acme")
    assert own["tenant"] == "acme"
    assert [each["id"] for each in site.get("backfills", tenant="acme")["items"]] == [own["id"]]
    assert site.request("GET", f"backfills/{made['id']}", tenant="acme").status_code == 404
    assert site.request("POST", f"backfills/{made['id']}/cancel", tenant="acme").status_code == 404
    other = site.request("GET", f"backfills/{made['id']}?tenant=default", tenant="acme")
    assert other.status_code == 403
    both = site.get("backfills?all_tenants=true")["items"]
    assert {each["tenant"] for each in both} == {"default", "acme"}


def test_the_payload_is_masked_for_viewers(site: Site) -> None:
    made = site.post(PATH, {**RANGE, "payload": {"password": "hunter2"}})
    assert made["payload"] == {"password": "hunter2"}
    seen = site.request("GET", f"backfills/{made['id']}", role="viewer").text
    assert "hunter2" not in seen

"""Retention, quarantine and repair over HTTP: what is answered, what is refused, and what a tenant may do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.core.records import Record
from evenbeat.core.tokens import ROLES, Role
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.web.site import Site, assert_problem

DAY = 86_400
LOWER: tuple[Role, ...] = ("viewer", "operator")


class DamagedSite(Site):
    """A site on SQLite, whose rows a test damages and mends."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.path = path
        self.store = SqliteStore(str(path), clock=self.clock)
        super().__init__(Scheduler(self.store))

    def swap(self, table: str, column: str, key: str, value: Any) -> Any:
        """Replace a value of a row; return the old one."""
        name = "id" if table == "runs" else "name"
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            select = f"SELECT {column} FROM evenbeat_{table} WHERE {name} = ?"
            ((before,),) = connection.execute(select, (key,)).fetchall()
            connection.execute(f"UPDATE evenbeat_{table} SET {column} = ? WHERE {name} = ?", (value, key))
        return before

    def damage_schedule(self, name: str, tenant: str = "default") -> Any:
        """Add a schedule, make it unreadable, and let a node set it aside; return the old value."""
        self.app.schedules.add(name, "every 1h", "work", payload={"password": "hunter2"}, tenant=tenant)
        before = self.swap("schedules", "catch_up", name, "{nonsense")
        self.clock.advance("2h")
        assert self.store.fire_due(self.clock.now, 10, plan).quarantined == ((tenant, name),)
        return before

    def damage_run(self, run: str) -> Any:
        """Enqueue a run, make it unreadable, and let a node set it to failed; return the old value."""
        self.app.enqueue("work", id=run)
        before = self.swap("runs", "execution", run, "{nonsense")
        claim = Claim(worker="w", token="t", limit=1, now=self.clock.now, lease=1000)
        assert self.store.claim_runs(claim).runs == ()
        return before

    def quarantined(self, **who: Any) -> list[str]:
        return [note["name"] for note in self.get("quarantine", **who)["items"]]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[DamagedSite]:
    made = DamagedSite(tmp_path / "evenbeat.db")
    yield made
    made.close()


def test_a_retention_rule_is_set_listed_replaced_and_removed(site: Site) -> None:
    assert site.get("retention") == {"items": []}
    made = site.post("retention", {"tenant": "acme", "state": "failed", "keep": "90d", "most": 10_000})
    assert made.pop("updated_at")
    assert made == {
        "tenant": "acme",
        "state": "failed",
        "keep": 90 * DAY,
        "most": 10_000,
        "words": site.app.retention.list()[0].words,
        "updated_by": "admin of None",
    }
    site.post("retention", {"keep": "30d"})
    again = site.post("retention", {"tenant": "acme", "state": "failed", "most": 5})
    assert (again["keep"], again["most"]) == (None, 5)
    listed = site.get("retention", role="viewer")["items"]
    assert [(rule["tenant"], rule["state"], rule["most"]) for rule in listed] == [
        (None, None, None),
        ("acme", "failed", 5),
    ]
    for missing in ("?tenant=acme", "?state=failed", "?tenant=acme&state=succeeded"):
        assert_problem(site.request("DELETE", f"retention{missing}"), 404, "retention-rule-not-found")
    removed = site.request("DELETE", "retention?tenant=acme&state=failed")
    assert (removed.status_code, removed.content) == (204, b"")
    assert site.request("DELETE", "retention").status_code == 204
    assert site.get("retention") == {"items": []}
    assert_problem(site.request("DELETE", "retention"), 404, "retention-rule-not-found")
    entries = [entry for entry in site.get("audit?all_tenants=true")["items"] if entry["kind"] == "retention"]
    assert [entry["action"] for entry in entries] == ["remove", "remove", "set", "set", "set"]
    assert {(entry["actor"], entry["via"]) for entry in entries} == {("admin of None", "api")}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "keep"),
        ({"tenant": "acme"}, 422, "keep"),
        ({"keep": "-1d"}, 422, "keep"),
        ({"keep": "0s"}, 422, "keep"),
        ({"keep": "59s"}, 422, "keep"),
        ({"keep": "9223372036854775808s"}, 422, "keep"),
        ({"keep": "soon"}, 422, "keep"),
        ({"keep": 2**63}, 400, "keep"),
        ({"most": -1}, 400, "most"),
        ({"most": 0}, 400, "most"),
        ({"most": 1_000_001}, 400, "most"),
        ({"most": 2**63}, 400, "most"),
        ({"most": 1.5}, 400, "most"),
        ({"most": "10"}, 400, "most"),
        ({"keep": "7d", "state": "lost"}, 400, "state"),
        ({"keep": "7d", "state": "running"}, 400, "state"),
        ({"keep": "7d", "tenant": "a b"}, 400, "tenant"),
        ({"keep": "7d", "keeps": "7d"}, 400, "keeps"),
    ],
)
def test_a_wrong_rule_is_refused(site: Site, body: dict[str, Any], status: int, field: str) -> None:
    assert_problem(site.request("POST", "retention", json=body), status, "invalid-value", field)
    assert site.get("retention") == {"items": []}


@pytest.mark.parametrize(("query", "field"), [("state=lost", "state"), ("tenant=a%20b", "tenant")])
def test_removing_a_rule_of_an_unknown_state_is_refused(site: Site, query: str, field: str) -> None:
    assert_problem(site.request("DELETE", f"retention?{query}"), 400, "invalid-value", field)


def test_only_admins_change_rules_and_repair(site: Site) -> None:
    site.post("retention", {"keep": "30d"})
    for role in LOWER:
        for method, path, body in (
            ("POST", "retention", {"keep": "1d"}),
            ("DELETE", "retention", None),
            ("POST", "repair", {}),
        ):
            assert_problem(site.request(method, path, json=body, role=role), 403, "role-too-low")
        assert [rule["keep"] for rule in site.get("retention", role=role)["items"]] == [30 * DAY]


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_one_tenant_neither_sees_nor_changes_rules(site: Site, role: Role) -> None:
    site.post("retention", {"tenant": "acme", "keep": "30d"})
    for method, path, body in (
        ("GET", "retention", None),
        ("POST", "retention", {"tenant": "acme", "keep": "1d"}),
        ("DELETE", "retention?tenant=acme", None),
        ("POST", "repair", {"dry_run": False}),
    ):
        response = site.request(method, path, json=body, role=role, tenant="acme")
        assert response.status_code == 403, (method, path)
        assert str(30 * DAY) not in response.text
    assert [rule["keep"] for rule in site.get("retention")["items"]] == [30 * DAY]


def test_the_default_tenant_does_not_see_rules_of_the_store_in_the_audit(site: Site) -> None:
    site.post("retention", {"keep": "30d"})
    site.request("DELETE", "retention")
    site.post("retention", {"tenant": "default", "most": 9})
    seen = site.get("audit", role="viewer", tenant="default")["items"]
    assert [entry["after"] for entry in seen if entry["kind"] == "retention"] == [
        {"tenant": "default", "most": 9}
    ]


def test_a_quarantined_schedule_is_shown_refused_mended_and_retried(damaged: DamagedSite) -> None:
    before = damaged.damage_schedule("nightly")
    (note,) = damaged.get("quarantine", role="viewer")["items"]
    assert (note["tenant"], note["name"]) == ("default", "nightly")
    shown = damaged.get("quarantine/nightly", role="operator")
    assert (shown["subject"], shown["fields"]["trigger"]) == ("schedule", "every 1h")
    assert shown["on_retry"] == f"It is refused: {shown['problem']}."
    assert "hunter2" in str(shown["fields"])
    assert "hunter2" not in str(damaged.get("quarantine/nightly", role="viewer"))
    refused = damaged.request("POST", "quarantine/nightly/retry", role="operator")
    assert shown["problem"] in assert_problem(refused, 409, "quarantine-refused")["detail"]
    assert damaged.quarantined() == ["nightly"]

    damaged.swap("schedules", "catch_up", "nightly", before)
    shown = damaged.get("quarantine/nightly")
    assert shown["problem"] is None
    assert damaged.post("quarantine/nightly/retry", role="operator") == {
        "action": "retry",
        "subject": "schedule",
        "tenant": "default",
        "name": "nightly",
        "words": shown["on_retry"],
    }
    assert damaged.quarantined() == []
    assert len(damaged.store.fire_due(damaged.clock.now, 10, plan).planned) == 1
    assert_problem(damaged.request("POST", "quarantine/nightly/retry"), 404, "quarantine-not-found")
    entry = damaged.get("audit?action=retry")["items"][0]
    assert (entry["actor"], entry["via"], entry["subject"]) == ("operator of None", "api", "nightly")


def test_a_quarantined_run_is_queued_again_once_it_can_be_read(damaged: DamagedSite) -> None:
    before = damaged.damage_run("r")
    assert damaged.get("quarantine/r")["subject"] == "run"
    assert_problem(damaged.request("POST", "quarantine/r/retry"), 409, "quarantine-refused")
    damaged.swap("runs", "execution", "r", before)
    assert damaged.post("quarantine/r/retry", role="operator")["subject"] == "run"
    assert damaged.get("runs/r")["state"] == "queued"
    assert damaged.quarantined() == []


def test_what_is_dropped_is_gone_and_a_run_stays_failed(damaged: DamagedSite) -> None:
    damaged.damage_schedule("nightly")
    before = damaged.damage_run("r")
    assert sorted(damaged.quarantined()) == ["nightly", "r"]
    for name, subject in (("nightly", "schedule"), ("r", "run")):
        on_drop = damaged.get(f"quarantine/{name}")["on_drop"]
        done = damaged.request("DELETE", f"quarantine/{name}", role="operator")
        assert done.status_code == 200
        assert {**done.json(), "tenant": ""} == {
            "action": "drop",
            "subject": subject,
            "tenant": "",
            "name": name,
            "words": on_drop,
        }
        assert_problem(damaged.request("DELETE", f"quarantine/{name}"), 404, "quarantine-not-found")
    assert damaged.quarantined() == []
    assert_problem(damaged.request("GET", "schedules/nightly"), 404, "schedule-not-found")
    damaged.swap("runs", "execution", "r", before)
    assert damaged.get("runs/r")["state"] == "failed"


def test_a_deferred_schedule_is_not_dropped(site: Site) -> None:
    site.app.schedules.add("nightly", "every 1h", "work")
    site.app.store.put_record(Record(kind="deferred", key="nightly", body="no such zone"))
    assert site.get("quarantine/nightly")["kind"] == "deferred"
    assert_problem(site.request("DELETE", "quarantine/nightly"), 409, "quarantine-refused")
    assert site.post("quarantine/nightly/retry")["action"] == "retry"
    assert site.get("schedules/nightly")["state"] == "active"


@pytest.mark.parametrize("name", ["nobody", "-1", "0", str(2**63)])
def test_what_is_not_in_quarantine_is_not_found(site: Site, name: str) -> None:
    for method, path in (("GET", ""), ("POST", "/retry"), ("DELETE", "")):
        response = site.request(method, f"quarantine/{name}{path}")
        assert name in assert_problem(response, 404, "quarantine-not-found")["detail"]


def test_viewers_change_nothing_in_quarantine(damaged: DamagedSite) -> None:
    damaged.damage_schedule("nightly")
    for method, path in (("POST", "quarantine/nightly/retry"), ("DELETE", "quarantine/nightly")):
        assert_problem(damaged.request(method, path, role="viewer"), 403, "role-too-low")
    assert damaged.quarantined() == ["nightly"]


def test_a_token_of_one_tenant_reaches_its_own_quarantine_alone(damaged: DamagedSite) -> None:
    damaged.damage_schedule("ours", tenant="acme")
    damaged.damage_schedule("theirs", tenant="globex")
    assert damaged.quarantined(tenant="acme") == ["ours"]
    assert damaged.get("quarantine/ours", tenant="acme")["tenant"] == "acme"
    for method, path in (("GET", ""), ("POST", "/retry"), ("DELETE", "")):
        hidden = damaged.request(method, f"quarantine/theirs{path}", tenant="acme")
        assert_problem(hidden, 404, "quarantine-not-found")
        foreign = damaged.request(method, f"quarantine/theirs{path}?tenant=globex", tenant="acme")
        assert_problem(foreign, 403, "foreign-tenant", "tenant")
    for query in ("tenant=globex", "all_tenants=true"):
        refused = damaged.request("GET", f"quarantine?{query}", tenant="acme")
        assert_problem(refused, 403, "foreign-tenant", "tenant")
    assert damaged.request("DELETE", "quarantine/ours", role="operator", tenant="acme").status_code == 200
    assert damaged.quarantined(tenant="acme") == []
    assert damaged.quarantined(tenant="globex") == ["theirs"]


def test_a_repair_lists_first_and_mends_when_it_is_told_to(damaged: DamagedSite) -> None:
    before = damaged.damage_schedule("nightly")
    damaged.swap("schedules", "catch_up", "nightly", before)
    found = damaged.post("repair")
    assert (found["dry_run"], found["mended"]) == (True, 0)
    assert "nightly" in str(found["findings"])
    assert damaged.quarantined() == ["nightly"]
    mended = damaged.post("repair", {"dry_run": False})
    assert mended["mended"] == len(found["findings"])
    assert damaged.quarantined() == []
    assert damaged.post("repair", {"dry_run": False})["findings"] == []
    refused = damaged.request("POST", "repair", json={"dry_run": "no"})
    assert_problem(refused, 400, "invalid-value", "dry_run")

"""Alerts over REST: verbs, roles, tenants, ETags, and that no answer has a secret."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from evenbeat import Scheduler
from evenbeat.core.alerts import Message
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import ALL, INCIDENT, LOG, OWN, StoredDelivery, StoredIncident
from tests.web.site import Site, assert_problem

HOOK = "https://hooks.example.com/marker-of-the-path?key=marker-of-the-query"
CHANNEL = {"name": "ops", "kind": "webhook", "url": HOOK, "secret": "marker-of-the-secret"}
RULE = {"name": "failures", "on": ["failed", "failing"], "to": ["ops"]}


def changed(site: Site, method: str, path: str, body: Any = None, etag: str = "*", **more: Any) -> Any:
    response = site.request(method, path, json=body, headers={"If-Match": etag}, **more)
    assert response.status_code in (200, 204), response.text
    return None if response.status_code == 204 else response.json()


def test_a_rule_lives_through_all_its_verbs(site: Site) -> None:
    site.post("alerts/channels", CHANNEL, status=201)
    made = site.request("POST", "alerts/rules", json=RULE)
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    assert (made.json()["on"], made.json()["tenant"]) == (["failed", "failing:3"], "default")
    muted = site.post("alerts/rules/failures/mute", {"until": "2h"}, role="operator")
    assert muted["muted_until"] is not None
    assert site.post("alerts/rules/failures/unmute", role="operator")["muted_until"] is None
    patched = changed(site, "PATCH", "alerts/rules/failures", {"schedule": "nightly"}, '"3"')
    assert (patched["schedule"], patched["revision"]) == ("nightly", 4)
    assert changed(site, "PATCH", "alerts/rules/failures", {"schedule": None})["schedule"] is None
    assert site.get("alerts/rules", role="viewer")["items"] == [site.get("alerts/rules/failures")]
    for stale in ('"1"', "W/1", '"x"'):
        for method, path, body in (
            ("PATCH", "alerts/rules/failures", {"recovery": False}),
            ("DELETE", "alerts/rules/failures", None),
            ("POST", "alerts/rules/failures/mute", {"until": "1h"}),
            ("POST", "alerts/rules/failures/unmute", {}),
            ("PATCH", "alerts/channels/ops", {"secret": None}),
            ("DELETE", "alerts/channels/ops", None),
        ):
            if (path, stale) == ("alerts/channels/ops", '"1"'):
                continue
            response = site.request(method, path, json=body, headers={"If-Match": stale})
            field = None if stale == '"1"' else "If-Match"
            assert_problem(response, 412, "alert-changed", field)
    response = site.request("DELETE", "alerts/channels/ops")
    assert "used by the rules failures" in assert_problem(response, 409, "channel-in-use")["detail"]
    changed(site, "DELETE", "alerts/rules/failures")
    changed(site, "DELETE", "alerts/channels/ops")
    assert_problem(site.request("GET", "alerts/rules/failures"), 404, "alert-not-found")
    entry = site.get("audit")["items"][0]
    assert (entry["kind"], entry["action"], entry["actor"]) == ("alert_channel", "delete", "admin of None")


def test_wrong_values_are_named(site: Site) -> None:
    site.post("alerts/channels", CHANNEL, status=201)
    site.post("alerts/rules", RULE, status=201)
    cases: list[tuple[str, Any, int, str, str]] = [
        ("alerts/rules", {**RULE, "name": "x", "on": ["broken"]}, 422, "invalid-value", "on"),
        ("alerts/rules", {**RULE, "name": "x", "on": []}, 400, "invalid-value", "on"),
        ("alerts/rules", {**RULE, "name": "x", "on": ["failed"] * 11}, 400, "invalid-value", "on"),
        ("alerts/rules", {**RULE, "name": "x", "to": ["opz"]}, 422, "invalid-value", "to"),
        ("alerts/rules", {**RULE, "name": "x", "on": ["queue"]}, 422, "invalid-value", "on"),
        ("alerts/rules", {**RULE, "name": "x", "too": ["ops"]}, 400, "invalid-value", "too"),
        ("alerts/rules", RULE, 409, "alert-exists", "name"),
        ("alerts/channels", {**CHANNEL, "name": "x", "kind": "pigeon"}, 400, "invalid-value", "kind"),
        ("alerts/channels", {**CHANNEL, "name": "x", "url": "ftp://marker"}, 422, "invalid-value", "url"),
        ("alerts/channels", CHANNEL, 409, "alert-exists", "name"),
        ("alerts/windows", {"name": "w", "until": "2020-01-01T00:00Z"}, 422, "invalid-value", "until"),
        ("alerts/windows", {"name": "w"}, 400, "invalid-value", "until"),
        ("alerts/rules/failures/mute", {}, 400, "invalid-value", "until"),
        ("alerts/rules/failures/mute", {"until": "900d"}, 422, "invalid-value", "until"),
    ]
    for path, body, status, kind, field in cases:
        problem = assert_problem(site.request("POST", path, json=body), status, kind, field)
        assert "marker" not in str(problem)
    assert_problem(site.request("GET", "alerts/deliveries?cursor=x"), 422, "invalid-value", "cursor")
    assert_problem(site.request("GET", "alerts/deliveries?limit=501"), 400, "invalid-value", "limit")
    assert_problem(site.request("GET", "alerts/deliveries/some-id"), 404, "alert-not-found")


def test_a_window_is_for_operators(site: Site) -> None:
    body = {"name": "disks", "until": "2h", "tag": "billing", "note": "new disks"}
    made = site.post("alerts/windows", body, status=201, role="operator")
    assert (made["tag"], made["note"], made["created_by"]) == ("billing", "new disks", "operator of None")
    assert site.get("alerts/windows", role="viewer")["items"] == [made]
    changed(site, "DELETE", "alerts/windows/disks", role="operator")
    assert site.get("alerts/windows")["items"] == []


def test_a_test_is_accepted_and_its_delivery_can_be_read(site: Site) -> None:
    site.post("alerts/channels", {**CHANNEL, "url": "env:EVENBEAT_SECRET_NOT_SET"}, status=201)
    made = site.post("alerts/channels/ops/test", status=202, role="operator")
    assert (made["announcement"], made["channel"], made["state"]) == ("test", "ops", "pending")
    assert site.get(f"alerts/deliveries/{made['id']}", role="viewer")["id"] == made["id"]
    page = site.get("alerts/deliveries?limit=1", role="viewer")
    assert ([each["id"] for each in page["items"]], page["cursor"]) == ([made["id"]], made["id"])
    assert site.get(f"alerts/deliveries?cursor={made['id']}") == {"items": [], "cursor": None}


def test_a_token_of_one_tenant_names_no_variables_that_tenants_share(site: Site) -> None:
    site.post("alerts/channels", CHANNEL, status=201, tenant="acme")
    for field, name in (("url", "env:EVENBEAT_SECRET_OPS"), ("secret", "env:EVENBEAT_SECRET_OPS")):
        made = {**CHANNEL, "name": "x", field: name}
        response = site.request("POST", "alerts/channels", json=made, tenant="acme")
        assert_problem(response, 422, "invalid-value", field)
        response = site.request(
            "PATCH", "alerts/channels/ops", json={field: name}, headers={"If-Match": "*"}, tenant="acme"
        )
        assert_problem(response, 422, "invalid-value", field)
    site.post("alerts/channels?tenant=acme", {**CHANNEL, "name": "x", "url": name}, status=201)


@pytest.fixture
def told(app: Scheduler) -> Scheduler:
    """Return an app with an incident and a delivery of each owner about each tenant."""
    store = app.store
    now = store.now()
    for owner in ({"tenant": "acme"}, {"tenant": "globex"}, {"all_tenants": True}, {"tenant": "default"}):
        app.alerts.channels.add("ops", "webhook", HOOK, secret="marker-of-the-secret", **owner)
        app.alerts.rules.add(f"rule-of-{owner.get('tenant')}", on="failed", to="ops", **owner)
        app.alerts.windows.add(f"window-of-{owner.get('tenant')}", until="2h", **owner)
    number = 0
    for scope in (OWN, ALL):
        for tenant in ("acme", "globex", "default", None):
            if scope == OWN and tenant is None:
                continue
            number += 1
            name = f"{scope}-of-{tenant}"
            incident = StoredIncident(
                id=name,
                rule="r",
                scope=scope,
                condition="failed",
                subject_kind="schedule",
                subject=f"subject-of-{tenant}",
                opened_at=now,
                changed_at=now,
                reason="a run failed",
                tenant=tenant,
                failures=1,
                error="ValueError: password=hunter2",
            )
            key = f"{first_key_of(now)}{number:024x}"
            message = Message(
                id=key, announcement="opened", title=name, lines=(), at=from_ms(now), link=None, tenant=tenant
            )
            body = StoredDelivery(
                message=message,
                channel="ops",
                scope=scope,
                created_at=now,
                state="failed",
                error="token=hunter2",
            )
            for kind, record, body_of in ((INCIDENT, name, incident), (LOG, key, body)):
                encoded = msgspec.json.encode(body_of).decode()
                store.put_record(Record(kind=kind, tenant=tenant or "default", key=record, body=encoded))
    return app


READS = ("rules", "channels", "windows", "incidents", "deliveries")


@pytest.mark.usefixtures("told")
def test_a_tenant_sees_its_own_alone(site: Site) -> None:
    for tenant, others in (("acme", ("globex", "default")), ("default", ("acme", "globex"))):
        for path in READS:
            text = site.request("GET", f"alerts/{path}", tenant=tenant).text
            assert site.get(f"alerts/{path}", tenant=tenant)["items"], path
            for other in (*others, "None"):
                assert f"of-{other}" not in text, (path, text)
            assert f"{ALL}-of" not in text, "what rules of all tenants found is not shown"
        audit = site.request("GET", "audit?limit=500", tenant=tenant).text
        assert f"rule-of-{tenant}" in audit
        assert "all_tenants" not in audit
    (found,) = site.get("alerts/deliveries", tenant="acme")["items"]
    everything = site.get("alerts/deliveries?all_tenants=true")["items"]
    assert len(everything) == 7
    for delivery in everything:
        response = site.request("GET", f"alerts/deliveries/{delivery['id']}", tenant="acme")
        assert response.status_code == (200 if delivery["id"] == found["id"] else 404)


@pytest.mark.usefixtures("told")
def test_an_operator_of_all_tenants_sees_everything(site: Site) -> None:
    for path, count in zip(READS, (4, 4, 4, 7, 7), strict=True):
        assert len(site.get(f"alerts/{path}?all_tenants=true")["items"]) == count, path
    shared = site.get("alerts/rules/rule-of-None?all_tenants=true")
    assert (shared["tenant"], shared["name"]) == (None, "rule-of-None")
    assert {each["id"] for each in site.get("alerts/incidents?tenant=acme")["items"]} == {
        f"{OWN}-of-acme",
        f"{ALL}-of-acme",
    }


@pytest.mark.usefixtures("told")
def test_no_answer_has_a_secret(site: Site) -> None:
    for role in ("viewer", "operator", "admin"):
        for path in (*READS, "channels/ops", "channels/ops?all_tenants=true"):
            more = "" if "?" in path or "/" in path else "?all_tenants=true"
            text = site.request("GET", f"alerts/{path}{more}", role=role).text
            assert "marker" not in text, path
            assert role != "viewer" or "hunter2" not in text, path
        assert "marker" not in site.request("GET", "audit?all_tenants=true", role=role).text
    assert "hunter2" in site.request("GET", "alerts/incidents", role="operator").text

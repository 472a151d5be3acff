"""The endpoints: what they take, what they answer, and how they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler, acting_as, every
from evenbeat.core.instants import write_instant
from evenbeat.core.records import Record
from evenbeat.node.progress import store_progress
from evenbeat.observe.run_logs import refusal
from evenbeat.observe.run_progress import ReportedProgress
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Claim, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.web.endpoint import TABLE
from evenbeat.web.idempotency import KIND
from tests.web.api_page import PAGE, made_page
from tests.web.site import Site, assert_problem


def test_the_reference_is_made_from_the_schema() -> None:
    page = PAGE.read_text()
    assert made_page(page) == page, "write it anew: python -m tests.web.api_page"


def test_a_schedule_lives_through_all_its_verbs(site: Site) -> None:
    # It starts late, so that no tick lies between now and the time to which the next one is moved.
    trigger = "0 3 * * * tz=Europe/Berlin start=2100-01-01T00:00:00Z"
    body: dict[str, Any] = {"name": "nightly", "trigger": trigger, "task": "work", "tags": ["b", "a"]}
    made = site.post(
        "schedules", {**body, "payload": {"team": "ops"}, "timeout": 90, "spread": "5m"}, status=201
    )
    assert (made["timeout"], made["spread"], made["tags"]) == (90, 300, ["a", "b"])
    assert (made["timezone"], made["payload"], made["revision"]) == ("Europe/Berlin", {"team": "ops"}, 1)
    changed = site.request("PATCH", "schedules/nightly", json={"priority": "high", "timeout": None})
    assert (changed.json()["priority"], changed.json()["timeout"]) == (8, None)
    assert changed.headers["etag"] == '"2"'
    paused = site.post("schedules/nightly/pause", {"note": "away", "until": "2h"})
    assert (paused["state"], paused["pause_note"], paused["paused_by"]) == ("paused", "away", "admin of None")
    assert site.post("schedules/nightly/resume")["state"] == "active"
    moved = site.post("schedules/nightly/reschedule", {"at": "1h"})
    assert moved["next_run"] != made["next_run"]
    run = site.post("schedules/nightly/run", {"payload": {"team": "dev"}}, status=201)
    assert (run["cause"], run["schedule"], run["payload"]) == ("run_now", "nightly", {"team": "dev"})
    assert site.get("schedules/nightly")["next_run"] == moved["next_run"], "the next tick stays"
    assert len(site.get("schedules/nightly/ticks?count=3")["items"]) == 3
    assert site.get("schedules/nightly/skipped")["items"] == []
    assert site.get("schedules/nightly/stats")["run_count"] == 0
    actions = [entry["action"] for entry in site.get("schedules/nightly/history")["items"]]
    assert actions == ["run_now", "reschedule", "resume", "pause", "update", "add"]
    site.post("schedules", {"name": "after", "trigger": "on success of nightly", "task": "work"}, status=201)
    counted = site.post("bulk/schedules", {"action": "delete", "filter": {"names": ["nightly"]}})
    deleted = site.request("DELETE", "schedules/nightly")
    assert (deleted.status_code, deleted.json()["name"]) == (200, "nightly")
    problem = "after waits for nightly, which does not succeed any more"
    assert [each["problem"] for each in deleted.json()["warnings"]] == [problem]
    assert counted["warnings"] == deleted.json()["warnings"]
    assert_problem(site.request("GET", "schedules/nightly"), 404, "schedule-not-found")
    entry = site.get("audit")["items"][0]
    assert (entry["action"], entry["actor"], entry["via"]) == ("delete", "admin of None", "api")


def test_a_change_of_what_somebody_else_changed_is_refused(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    read = site.request("GET", "schedules/nightly")
    site.app.schedules.update("nightly", priority=8)
    stale = {"If-Match": read.headers["etag"]}
    verbs: list[tuple[str, str, Any]] = [
        ("PATCH", "schedules/nightly", {"priority": 2}),
        ("DELETE", "schedules/nightly", None),
        ("POST", "schedules/nightly/pause", {}),
        ("POST", "schedules/nightly/resume", {}),
        ("POST", "schedules/nightly/reschedule", {"at": "1h"}),
        ("POST", "schedules/nightly/reset", {}),
    ]
    for method, path, body in verbs:
        response = site.request(method, path, json=body, headers=stale)
        assert_problem(response, 412, "schedule-changed")
    assert site.get("schedules/nightly")["priority"] == 8
    for wrong in ("W/1", '"x"', ""):
        response = site.request("PATCH", "schedules/nightly", json={}, headers={"If-Match": wrong})
        assert_problem(response, 412, "schedule-changed", "If-Match")
    fresh = {"If-Match": site.request("GET", "schedules/nightly").headers["etag"]}
    assert site.request("PATCH", "schedules/nightly", json={"priority": 2}, headers=fresh).status_code == 200
    anything = site.request("PATCH", "schedules/nightly", json={"priority": 3}, headers={"If-Match": "*"})
    assert anything.status_code == 200


def test_a_repeated_request_with_the_same_key_adds_nothing(site: Site) -> None:
    body = {"name": "nightly", "trigger": "every 1h", "task": "work"}
    key = {"Idempotency-Key": "deploy 1"}
    first = site.post("schedules", body, status=201, headers=key)
    for _ in range(3):
        assert site.post("schedules", body, status=201, headers=key) == first
    assert_problem(site.request("POST", "schedules", json=body), 409, "schedule-exists", "name")
    other = {"Idempotency-Key": "deploy 2"}
    assert_problem(
        site.request("POST", "schedules", json=body, headers=other), 409, "schedule-exists", "name"
    )
    changed = site.request("POST", "schedules", json={**body, "priority": 8}, headers=key)
    assert_problem(changed, 422, "key-used-twice", "Idempotency-Key")
    run = site.post("runs", {"task": "work"}, status=201, headers=key)
    assert site.post("runs", {"task": "work"}, status=201, headers=key)["id"] == run["id"]
    fired = site.post("schedules/nightly/run", status=201, headers=key)
    assert site.post("schedules/nightly/run", status=201, headers=key)["id"] == fired["id"]
    assert len({run["id"], fired["id"]}) == 2
    assert len(site.get("runs")["items"]) == 2
    # Another person with the same key means another request.
    theirs = site.post("runs", {"task": "work"}, status=201, headers=key, role="operator")
    assert theirs["id"] != run["id"]


def test_a_key_does_not_claim_the_schedule_of_somebody_else(site: Site) -> None:
    body = {"name": "nightly", "trigger": "every 3h", "task": "work"}
    key = {"Idempotency-Key": "deploy 1"}
    site.app.schedules.add("nightly", every("1h"), "work")
    assert_problem(site.request("POST", "schedules", json=body, headers=key), 409, "schedule-exists", "name")
    for trigger, task, payload in (
        (every("7m"), "work", None),
        (every("3h"), "other", None),
        (every("3h"), "work", {"team": "dev"}),
    ):
        site.app.schedules.delete("nightly")
        site.app.schedules.add("nightly", trigger, task, payload)
        refused = site.request("POST", "schedules", json=body, headers=key)
        assert_problem(refused, 409, "schedule-exists", "name")


@pytest.mark.parametrize("wanted", [{"trigger": "@workdays"}, {"template": "workdays"}])
def test_a_key_claims_the_schedule_of_a_template_that_its_lost_request_made(site: Site, wanted: Any) -> None:
    body = {"name": "invoices", "task": "work", **wanted}
    key = {"Idempotency-Key": "deploy 1"}
    site.app.schedules.add("invoices", every("1h"), "work")
    refused = site.request("POST", "schedules", json=body, headers=key)
    assert_problem(refused, 409, "schedule-exists", "name")
    site.app.schedules.delete("invoices")
    site.app.schedules.add("invoices", "@workdays", "work")
    assert site.post("schedules", body, status=201, headers=key)["template"] == "workdays"


def test_a_key_does_not_claim_a_schedule_that_was_there_before_its_request() -> None:
    clock = VirtualClock()
    site = Site(Scheduler(MemoryStore(clock)))
    body = {"name": "nightly", "trigger": "every 3h", "task": "work"}
    site.app.schedules.add("nightly", every("3h"), "work")
    clock.advance("1ms")
    refused = site.request("POST", "schedules", json=body, headers={"Idempotency-Key": "deploy 1"})
    assert_problem(refused, 409, "schedule-exists", "name")
    site.close()


def test_a_key_of_one_tenant_and_a_key_without_a_token_are_remembered(app: Scheduler) -> None:
    body = {"name": "nightly", "trigger": "every 3h", "task": "work", "payload": {"team": "dev"}}
    key = {"Idempotency-Key": "deploy 1"}
    site = Site(app)
    first = site.post("schedules", body, status=201, headers=key, tenant="acme")
    assert first["tenant"] == "acme"
    assert site.post("schedules", body, status=201, headers=key, tenant="acme") == first
    assert site.post("runs", {"task": "work"}, status=201, headers=key, tenant="acme")["tenant"] == "acme"
    site = Site(app, needs_token=False)
    first = site.post("schedules", body, status=201, headers=key, role=None)
    assert site.post("schedules", body, status=201, headers=key, role=None) == first
    # A run by hand without a payload has that of its schedule.
    run = site.post("schedules/nightly/run", {}, status=201, headers=key, role=None)
    assert site.post("schedules/nightly/run", {}, status=201, headers=key, role=None) == run
    site.close()


def test_a_deleted_schedule_is_returned_if_it_is_asked_for(site: Site) -> None:
    site.app.schedules.add("beat", "every 1h", "work")
    assert site.get("schedules/beat?deleted=true")["state"] == "active"
    site.app.schedules.delete("beat")
    assert_problem(site.request("GET", "schedules/beat"), 404, "schedule-not-found")
    found = site.get("schedules/beat?deleted=true", role="viewer")
    assert (found["name"], found["state"], found["next_run"]) == ("beat", "deleted", None)
    assert_problem(site.request("GET", "schedules/never?deleted=true"), 404, "schedule-not-found")


def test_a_repeated_create_does_not_bring_back_a_deleted_schedule(site: Site) -> None:
    body = {"name": "nightly", "trigger": "every 3h", "task": "work"}
    key = {"Idempotency-Key": "deploy 1"}
    site.post("schedules", body, status=201, headers=key)
    site.app.schedules.update("nightly", trigger=every("1h"))
    assert site.post("schedules", body, status=201, headers=key)["trigger"] == "every 1h", "as it is now"
    site.app.schedules.delete("nightly")
    repeated = site.request("POST", "schedules", json=body, headers=key)
    assert_problem(repeated, 409, "key-used-before", "Idempotency-Key")


def test_days_that_must_match_both_fields_are_kept_in_the_text(site: Site) -> None:
    body = {"name": "nightly", "trigger": "0 0 13 * fri days=both", "task": "work"}
    assert site.post("schedules", body, status=201)["trigger"] == "0 0 13 * 5 days=both"
    never = site.request("POST", "schedules", json={**body, "name": "b", "trigger": "0 0 30 2 5 days=both"})
    assert_problem(never, 422, "invalid-trigger", "trigger")


@pytest.mark.parametrize(
    ("trigger", "given"),
    [
        ("every 3h", {"payload": {"team": "dev"}}),
        ("0 9 * * mon-fri", {"payload": {}}),
        ("at 2999-01-01T00:00:00Z", {}),
    ],
)
def test_a_create_is_repeated_after_a_crash_before_its_end_was_noted(
    site: Site, monkeypatch: pytest.MonkeyPatch, trigger: str, given: dict[str, Any]
) -> None:
    body = {"name": "nightly", "trigger": trigger, "task": "work", **given}
    key = {"Idempotency-Key": "deploy 1"}
    with monkeypatch.context() as patch:
        patch.setattr("evenbeat.web.idempotency.Creation.finish", lambda *_: None)
        first = site.post("schedules", body, status=201, headers=key)
    assert site.post("schedules", body, status=201, headers=key) == first


def test_a_key_that_is_forgotten_between_two_queries_counts_as_new(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"name": "nightly", "trigger": "every 3h", "task": "work"}
    key = {"Idempotency-Key": "deploy 1"}
    site.post("schedules", body, status=201, headers=key)
    site.app.schedules.delete("nightly")
    get = site.app.store.get_record

    def expired(kind: str, tenant: str, name: str) -> Record | None:
        return None if kind == KIND else get(kind, tenant, name)

    monkeypatch.setattr(site.app.store, "get_record", expired)
    assert site.post("schedules", body, status=201, headers=key)["name"] == "nightly"


def test_how_long_a_key_is_remembered() -> None:
    """The key of a schedule for a day, the key of a run as long as the run is kept."""
    clock = VirtualClock()
    site = Site(Scheduler(MemoryStore(clock)))
    body = {"name": "nightly", "trigger": "every 1h", "task": "work"}
    key = {"Idempotency-Key": "deploy 1"}
    site.post("schedules", body, status=201, headers=key)
    run = site.post("runs", {"task": "work"}, status=201, headers=key)
    for after, status in (("23h59m", 201), ("2m", 409)):
        clock.advance(after)
        assert site.request("POST", "schedules", json=body, headers=key).status_code == status
        assert site.post("runs", {"task": "work"}, status=201, headers=key)["id"] == run["id"]
    site.close()


def test_a_key_of_a_run_does_not_stand_for_another_payload(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    key = {"Idempotency-Key": "deploy 1"}
    for path, body in (("runs", {"task": "work"}), ("schedules/nightly/run", {})):
        first = site.post(path, {**body, "payload": {"team": "dev"}}, status=201, headers=key)
        assert site.post(path, {**body, "payload": {"team": "dev"}}, status=201, headers=key) == first
        other = site.request("POST", path, json={**body, "payload": {"team": "ops"}}, headers=key)
        assert_problem(other, 422, "key-used-twice", "Idempotency-Key")
    other = site.request("POST", "runs", json={"task": "other"}, headers=key)
    assert_problem(other, 422, "key-used-twice", "Idempotency-Key")
    for wrong in ("x" * 256, ""):
        refused = site.request("POST", "runs", json={"task": "work"}, headers={"Idempotency-Key": wrong})
        assert_problem(refused, 400, "invalid-value", "Idempotency-Key")


def test_the_default_tenant_does_not_see_tokens_of_the_store_in_the_audit(site: Site) -> None:
    made = site.app.tokens.create("overseer", "admin")
    site.app.tokens.revoke(made.token.id)
    site.app.tokens.create("ours", "viewer", tenant="default")
    seen = site.request("GET", "audit", role="viewer", tenant="default").text
    assert "ours" in seen
    assert "overseer" not in seen
    assert "overseer" in site.request("GET", "audit", role="viewer").text


def test_runs_are_listed_page_by_page(site: Site) -> None:
    ids = {site.post("runs", {"task": "work"}, status=201)["id"] for _ in range(7)}
    seen: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = site.get("runs", params={"limit": 3, **({} if cursor is None else {"cursor": cursor})})
        seen += [run["id"] for run in page["items"]]
        cursor, pages = page["cursor"], pages + 1
    assert (set(seen), len(seen), pages) == (ids, 7, 3)
    assert_problem(site.request("GET", "runs", params={"cursor": "?"}), 422, "invalid-value", "cursor")


def test_a_run_is_cancelled_and_retried_and_explained(site: Site) -> None:
    run = site.post("runs", {"task": "work", "payload": {"team": "ops"}}, status=201)["id"]
    assert site.get(f"runs/{run}/why")["verdict"] == "no_worker"
    assert site.get(f"runs/{run}/why?tz=Asia/Kolkata")["verdict"] == "no_worker"
    assert_problem(site.request("GET", f"runs/{run}/why?tz=Mars"), 422, "unknown-zone", "tz")
    assert site.post(f"runs/{run}/cancel")["state"] == "cancelled"
    assert site.post(f"runs/{run}/retry")["state"] == "queued"
    assert_problem(site.request("POST", f"runs/{run}/retry"), 409, "run-refused")
    assert site.get(f"runs/{run}/logs")["items"] == []
    assert [entry["action"] for entry in site.get(f"runs/{run}/history")["items"]][:2] == ["retry", "cancel"]
    assert_problem(site.request("GET", "runs/none"), 404, "run-not-found")
    none = site.request("GET", "runs/default/none/1/2/logs")
    assert_problem(none, 404, "run-not-found")
    assert none.json()["hint"] == "GET /api/v1/runs lists the runs"


def test_a_schedule_of_a_task_that_no_node_has_is_created_with_a_warning(site: Site) -> None:
    body = {"name": "a", "trigger": "every 1h", "task": "wrok"}
    (warning,) = site.post("schedules", body, status=201)["warnings"]
    assert warning == {
        "problem": "the app does not have the task wrok: its runs wait until a node has it",
        "hint": "did you mean work?",
    }
    node = {"name": "n", "worker": True, "tasks": {"secret": "thread"}}
    record = Record(kind="node", key="n", body=json.dumps(node), expires=site.app.store.now() + 60_000)
    assert site.app.store.put_record(record)
    changed = site.request("PATCH", "schedules/a", json={"task": "secrt"}).json()
    assert [each["hint"] for each in changed["warnings"]] == ["did you mean secret?"]
    assert site.get("schedules/a")["warnings"] == []
    # A token of one tenant does not see the nodes, so it gets no names of their tasks.
    theirs = {**body, "name": "b", "task": "secrt"}
    (warning,) = site.post("schedules", theirs, status=201, tenant="acme")["warnings"]
    assert warning == {
        "problem": "no live node has the task secrt: its runs wait until a node has it",
        "hint": None,
    }
    for task in ("work", "secret"):
        assert site.post("schedules", {**body, "name": task, "task": task}, status=201)["warnings"] == []


def test_bulk_changes_count_first_and_then_answer_for_each(site: Site) -> None:
    for name in ("a1", "a2", "b1"):
        site.app.schedules.add(name, every("1h"), "work", tags=[name[0]])
    for chosen, matched in (({"text": "WORK"}, 3), ({"failing": True}, 0), ({"late": False}, 3)):
        # The list and the bulk change share one filter.
        query = "&".join(f"{name}={str(value).lower()}" for name, value in chosen.items())
        assert site.get(f"schedules?{query}")["matched"] == matched
        assert site.post("bulk/schedules", {"action": "pause", "filter": chosen})["matched"] == matched
    asked = {"action": "pause", "filter": {"tag": "a"}, "note": "away"}
    counted = site.post("bulk/schedules", asked)
    assert (counted["matched"], counted["done"], counted["changed"]) == (2, 0, [])
    assert [schedule["name"] for schedule in counted["sample"]] == ["a1", "a2"]
    done = site.post("bulk/schedules", {**asked, "dry_run": False})
    assert (done["matched"], done["done"], done["refused"]) == (2, 2, [])
    assert done["changed"] == [{"tenant": "default", "id": name} for name in ("a1", "a2")]
    states = {row["name"]: row["state"] for row in site.get("schedules")["items"]}
    assert states == {"a1": "paused", "a2": "paused", "b1": "active"}
    delete = {"action": "delete", "filter": {"tag": "a"}, "dry_run": False}
    refused = site.request("POST", "bulk/schedules", json=delete, role="operator")
    assert_problem(refused, 403, "role-too-low")
    assert site.post("bulk/schedules", delete)["done"] == 2
    runs = [site.post("runs", {"task": "work"}, status=201)["id"] for _ in range(3)]
    cancel = {"action": "cancel", "filter": {"task": "work"}, "dry_run": False}
    assert site.post("bulk/runs", cancel)["done"] == 3
    retry = {"action": "retry", "filter": {"ids": runs[:2]}, "state": "cancelled", "dry_run": False}
    retried = site.post("bulk/runs", retry)
    assert {item["id"] for item in retried["changed"]} == set(runs[:2])


def test_a_resume_is_shown_before_it_is_done(site: Site) -> None:
    site.app.schedules.add("a", "0 9 * * *", "work", paused=True)
    before = site.app.schedules.get("a")
    shown = site.get("schedules/a/resume", role="viewer")
    assert {name: shown[name] for name in ("missed", "runs", "coalesced", "skipped")} == {
        "missed": 0,
        "runs": 0,
        "coalesced": 0,
        "skipped": 0,
    }
    assert shown["sentence"].startswith("No tick was missed in the pause; it fires next at ")
    assert site.get("schedules/a/resume?tz=Asia/Kolkata")["sentence"].endswith(" 14:30 +05:30.")
    assert " +05:30 by " in site.get("schedules/a/why?tz=Asia/Kolkata")["sentence"]
    assert site.app.schedules.get("a") == before
    assert site.post("schedules/a/resume")["next_run"] == shown["next_run"]
    assert site.get("schedules/a/resume")["sentence"].startswith(
        "A resume does nothing: the schedule is active"
    )
    assert_problem(site.request("GET", "schedules/b/resume"), 404, "schedule-not-found")
    assert_problem(site.request("GET", "schedules/a/resume", tenant="acme"), 404, "schedule-not-found")


def test_a_running_run_has_its_progress(site: Site) -> None:
    store, run_id = site.app.store, site.app.enqueue("work", tenant="acme").id
    claim = Claim(worker="w", token="c", limit=1, now=store.now(), lease=60_000, tasks=None)
    (run,) = store.claim_runs(claim).runs
    assert site.get(f"runs/{run_id}", tenant="acme")["progress"] is None
    reported = ReportedProgress(run)
    reported.report(1, "postgres://anna:hunter2@db/x", 3)
    now = store.now()
    store_progress(store, reported, now)
    shown = site.get(f"runs/{run_id}", tenant="acme", role="operator")["progress"]
    assert shown == {"done": 1, "total": 3, "note": "postgres://anna:hunter2@db/x", "at": write_instant(now)}
    assert "hunter2" not in site.get(f"runs/{run_id}", tenant="acme", role="viewer")["progress"]["note"]
    (listed,) = site.get("runs", tenant="acme")["items"]
    assert listed["progress"] is None, "a list does not read it"


def test_a_unique_run_is_enqueued_once_and_says_when_it_expires(site: Site) -> None:
    body = {"task": "work", "payload": {"team": "team-42"}, "unique": "payload", "expires": "5m"}
    first = site.post("runs", body, status=201)
    assert site.post("runs", body, status=201)["id"] == first["id"]
    key = {"Idempotency-Key": "order 42"}
    repeated = site.request("POST", "runs", json={**body, "unique": "other"}, headers=key)
    assert repeated.status_code == 201
    other = site.request("POST", "runs", json={**body, "payload": {"team": "team-43"}, "unique": "other"})
    assert other.json()["id"] == repeated.json()["id"] != first["id"]
    again = {"Idempotency-Key": "order 43"}
    shared = site.request(
        "POST", "runs", json={**body, "payload": {"team": "team-44"}, "unique": "other"}, headers=again
    )
    assert shared.json()["id"] == repeated.json()["id"], "the run that has the key, whatever its payload"
    assert first["unique_key"].startswith("payload ")
    assert (first["expires"], first["expires_at"] > first["scheduled_at"]) == (300, True)
    site.post(f"runs/{first['id']}/cancel", {})
    second = site.post("runs", body, status=201)
    refused = site.request("POST", f"runs/{first['id']}/retry")
    assert refused.status_code == 409
    assert second["id"] in refused.text
    for wrong in ("", "x" * 201, 3, "a\nb"):
        assert site.request("POST", "runs", json={**body, "unique": wrong}).status_code in (400, 422)
    for wrong in (-1, 0, "0s", "late", 2**63):
        assert site.request("POST", "runs", json={**body, "expires": wrong}).status_code in (400, 422)


def test_a_run_says_when_a_late_result_was_refused(site: Site) -> None:
    store, run_id = site.app.store, site.app.enqueue("work").id
    claim = Claim(worker="w", token="c", limit=1, now=store.now(), lease=1, tasks=None)
    (run,) = store.claim_runs(claim).runs
    ended = replace(attempts.crashed(run, store.now(), "reaper"), lease_ended=False)
    assert store.settle_runs([ended]) == [True]
    assert [each["refused_at"] for each in site.get(f"runs/{run_id}")["attempts"]] == [None]
    store.append_log([refusal(run, 1_772_366_400_000)])
    (attempt,) = site.get(f"runs/{run_id}", role="viewer")["attempts"]
    assert (attempt["outcome"], attempt["refused_at"]) == ("lost", "2026-03-01T12:00:00Z")


def test_a_bulk_change_takes_names_of_one_tenant(site: Site) -> None:
    for tenant in ("default", "acme"):
        for name in ("a", "b", "c"):
            site.app.schedules.add(name, every("1h"), "work", tenant=tenant)
    pause = {"action": "pause", "filter": {"names": ["c", "a", "gone"]}, "dry_run": False}
    done = site.post("bulk/schedules", pause)
    assert done["changed"] == [{"tenant": "default", "id": name} for name in ("a", "c")]
    assert site.post("bulk/schedules", pause, tenant="acme", role="operator")["done"] == 2
    assert site.app.schedules.get("b", tenant="acme").state == "active"
    refused = site.request("POST", "bulk/schedules?all_tenants=true", json=pause)
    assert_problem(refused, 422, "invalid-value", "names")
    for names in (["x"] * 1001, "a"):
        body = {"action": "pause", "filter": {"names": names}}
        wrong = site.request("POST", "bulk/schedules", json=body)
        assert_problem(wrong, 400, "invalid-value", "filter.names")


def test_a_bulk_change_touches_no_other_tenant_temporal_cve_2026_5199(site: Site) -> None:
    for tenant in ("acme", "globex"):
        site.app.schedules.add("nightly", every("1h"), "work", tenant=tenant)
        site.app.enqueue("work", tenant=tenant)
    everything = {"filter": {}, "dry_run": False}
    done = site.post("bulk/schedules", {"action": "pause", **everything}, tenant="acme", role="operator")
    assert done["done"] == 1
    assert site.post("bulk/runs", {"action": "cancel", **everything}, tenant="acme")["done"] == 1
    assert site.app.schedules.get("nightly", tenant="globex").state == "active"
    assert [run.state for run in site.app.runs.list(tenant="globex")] == ["queued"]
    (theirs,) = [run.id for run in site.app.runs.list(tenant="globex")]
    by_id = {"action": "cancel", "filter": {"ids": [theirs]}, "dry_run": False}
    assert site.post("bulk/runs", by_id, tenant="acme")["matched"] == 0


def test_secrets_are_masked_for_viewers_alone(site: Site) -> None:
    payload = {
        "team": "ops",
        "db": {"Password": "hunter2", "url": "redis://u:hunter2@h/0"},
        "api_key": "hunter2",
    }
    site.app.schedules.add("nightly", every("1h"), "other", payload)
    run = site.app.schedules.run_now("nightly").id
    for path in (
        "schedules",
        "schedules/nightly",
        "runs",
        f"runs/{run}",
        "audit",
        "schedules/nightly/history",
    ):
        assert "hunter2" not in site.request("GET", path, role="viewer").text, path
    for path in ("schedules/nightly", f"runs/{run}"):
        assert "hunter2" in site.request("GET", path, role="operator").text, path


def test_numbers_that_would_lose_digits_travel_as_text(site: Site) -> None:
    site.app.schedules.add("big", every("1h"), "other", {"n": 2**53 + 1})
    site.app.schedules.add("small", every("1h"), "other", {"n": 2**53 - 1})
    big, small = site.get("schedules/big"), site.get("schedules/small")
    assert (big["payload"], big["payload_text"]) == (None, '{"n":9007199254740993}')
    assert (small["payload"], small["payload_text"]) == ({"n": 9007199254740991}, None)
    payload = '{"n":9007199254740993.0,"m":12345678901234567890}'
    raw = f'{{"name":"raw","trigger":"every 1h","task":"other","payload":{payload}}}'
    made = site.request("POST", "schedules", content=raw, headers={"Content-Type": "application/json"})
    assert made.json()["payload_text"] == '{"n":9007199254740992.0,"m":12345678901234567890}'


def test_refusals_name_the_field_the_value_and_what_to_do(site: Site) -> None:
    good = {"name": "a", "trigger": "every 1h", "task": "work"}
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"name": "a b"}, 400, "name"),
        ({"trigger": "61 * * * *"}, 422, "trigger"),
        ({"retries": -1}, 400, "retries"),
        ({"retries": 1.5}, 400, "retries"),
        ({"retries": "3"}, 400, "retries"),
        ({"timeout": "soon"}, 422, "timeout"),
        ({"payload": [1]}, 400, "payload"),
        ({"payload": {"unknown": 1}}, 422, "payload"),
        ({"overlap": "sometimes"}, 400, "overlap"),
        ({"colour": "red"}, 400, "colour"),
        ({"grace": "1m"}, 422, "grace"),
    ]
    for change, status, field in cases:
        response = site.request("POST", "schedules", json={**good, **change})
        problem = response.json()
        assert (response.status_code, problem.get("field")) == (status, field), problem
    missing = site.request("POST", "schedules", json={"name": "a"})
    assert missing.status_code == 400
    assert "task" in missing.json()["detail"]
    untimed = site.request("POST", "schedules", json={"name": "a", "task": "work"})
    assert (untimed.status_code, untimed.json()["field"]) == (422, "trigger")
    for raw in (b"{", b"\xff", b"[]", b"null", b'{"name":"\\ud800"}', b"[" * 100_000):
        response = site.request(
            "POST", "schedules", content=raw, headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 400, raw[:20]
    as_form = site.request("POST", "schedules", content=b"name=a", headers={"Content-Type": "text/plain"})
    assert_problem(as_form, 415, "unsupported-media-type", "Content-Type")
    large = site.request(
        "POST", "schedules", content=b" " * 2_000_001, headers={"Content-Type": "application/json"}
    )
    assert_problem(large, 413, "body-too-large")
    put = site.request("PUT", "schedules")
    assert_problem(put, 405, "method-not-allowed")
    assert put.headers["allow"] == "GET, HEAD, POST"
    assert site.request("GET", "schedules?limit=3&limit=4").status_code == 400


def test_another_tenant_sees_no_marker_anywhere_airflow_cve_2026_28563(site: Site) -> None:
    marker, hidden = "xyzzy-4711", "plugh-0815"
    app = site.app
    with acting_as(f"{hidden}-actor"):
        words: dict[str, Any] = {"tags": [hidden], "description": hidden, "queue": hidden}
        app.schedules.add(marker, every("1h"), f"{hidden}-task", {hidden: hidden}, tenant="acme", **words)
        run = app.schedules.run_now(marker, tenant="acme")
        app.runs.cancel(run.id, tenant="acme")
        app.schedules.pause(marker, hidden, tenant="acme")
        queued = app.enqueue(f"{hidden}-task", {hidden: hidden}, tenant="acme")
    app.tokens.create(hidden, "admin", tenant="acme")
    own = app.enqueue("work", tenant="globex").id
    bodies: dict[str, dict[str, Any]] = {
        "/bulk/schedules": {"action": "resume", "filter": {}, "dry_run": False},
        "/bulk/runs": {"action": "cancel", "filter": {}, "dry_run": False},
        "/preview": {"trigger": "H H * * *"},
        "/runs": {"task": "work"},
    }
    requests = {
        (
            each.method,
            each.path,
            each.url.replace("{name}", name).replace("{id}", run_id).replace("{flow}", name),
        )
        for each in TABLE
        if each.path != "/events"  # test_streams.py compares the streams of two tenants
        for name, run_id in ((marker, run.id), ("other", own))
    }
    assert len(requests) > 50
    for method, form, path in sorted(requests):
        body = None if method == "GET" else bodies.get(form, {})
        for params in ({}, {"tenant": "acme"}, {"all_tenants": "true"}):
            response = site.request(method, path, tenant="globex", params=params, json=body)
            # An answer may quote the name that the sender has written.
            assert hidden not in response.text, (method, path, params, response.text)
            assert marker not in response.text or marker in path, (method, path, params, response.text)
    assert app.schedules.get(marker, tenant="acme").pause_note == hidden
    assert app.runs.get(queued.id, tenant="acme").state == "queued"


@pytest.mark.parametrize("trigger", ["0 0 30 2 *", "* * * * * *", "0 0 29 2 1#5", "every 1ms", "H H * * *"])
def test_hostile_triggers_take_neither_time_nor_memory_oban_web_2_12_5(site: Site, trigger: str) -> None:
    import resource
    import time

    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    response = site.request("POST", "preview", json={"trigger": trigger, "count": 1000})
    assert response.status_code in (200, 422), response.text
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # Generous bounds of work, not of time: a bomb takes gigabytes and minutes.
    assert used < 200_000, "kB"
    assert time.process_time() - started < 20
    assert site.request("POST", "preview", json={"trigger": trigger, "count": 1001}).status_code == 400


def test_the_answers_about_the_store_as_a_whole(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work", tenant="acme")
    site.app.enqueue("work")
    assert site.get("nodes")["items"] == []
    (queue,) = site.get("queues")["items"]
    assert (queue["name"], queue["due"], queue["trend"]) == ("default", 1, "stands still")
    assert [tenant["name"] for tenant in site.get("tenants")["items"]] == ["acme", "default"]
    assert site.get("tenants", tenant="globex")["items"] == []
    assert site.get("quarantine")["items"] == []
    assert site.get("statistics")["by"] == "minute"
    assert site.get("failures")["groups"] == []
    assert site.get("forecast?hours=2&all_tenants=true")["total"] in (1, 2)
    assert site.get("me", tenant="acme") == {
        "name": "admin of acme",
        "role": "admin",
        "tenant": "acme",
        "default_tenant": "acme",
        "has_session": False,
        "csrf": None,
    }
    made = site.post("tokens", {"name": "ci", "role": "viewer", "expires": "1h"}, status=201)
    assert site.request("GET", "me", secret=made["secret"]).json()["name"] == "ci"
    assert "secret" not in site.get("tokens")["items"][0]
    assert site.request("DELETE", f"tokens/{made['token']['id']}").status_code == 204
    assert_problem(site.request("DELETE", f"tokens/{made['token']['id']}"), 404, "token-not-found")


def test_the_checks_of_the_store_are_for_admins_of_all_tenants(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    found = site.get("doctor")
    levels = {finding["check"]: finding["level"] for finding in found["items"]}
    assert (found["ok"], levels["clock"], levels["nodes"]) == (True, "ok", "warn"), found
    hints = {finding["check"]: finding["hint"] for finding in found["items"]}
    assert "evenbeat run" in hints["nodes"]
    assert_problem(site.request("GET", "doctor", role="operator"), 403, "role-too-low")
    assert_problem(site.request("GET", "doctor", tenant="acme"), 403, "foreign-tenant", "tenant")


def test_a_repair_is_for_admins_of_all_tenants_and_is_recorded(site: Site) -> None:
    assert site.post("repair")["findings"] == []
    site.app.schedules.add("nightly", every("1h"), "work")
    (row,) = site.app.store.find_schedules(ScheduleQuery(name="nightly")).items
    asleep = replace(row, wake_at=None, revision=row.revision + 1)
    site.app.store.put_schedules([Write(Planned(asleep), row.version)])
    assert_problem(site.request("POST", "repair", role="operator"), 403, "role-too-low")
    assert_problem(site.request("POST", "repair", tenant="acme"), 403, "foreign-tenant", "tenant")
    (found,) = site.post("repair")["findings"]
    assert (found["kind"], found["subject"], found["outcome"]) == ("asleep", "nightly", "found")
    assert site.get("audit?action=repair")["items"] == []
    report = site.post("repair", {"dry_run": False})
    assert (report["mended"], report["findings"][0]["outcome"]) == (1, "mended")
    assert site.post("repair", {"dry_run": False})["findings"] == []
    (entry,) = site.get("audit?action=repair")["items"]
    assert (entry["actor"], entry["via"], entry["subject"]) == ("admin of None", "api", "nightly")


def test_a_refusal_lists_the_choices_and_the_fields(site: Site) -> None:
    problem = assert_problem(site.request("GET", "runs?state=bad"), 400, "invalid-value", "state")
    assert problem["detail"].startswith('state "bad" is not one of cancelled, failed, queued')
    assert problem["value"] == "bad"
    body: dict[str, Any] = {"name": "n", "trigger": "every 1h", "task": "work", "timeoutt": 3}
    problem = assert_problem(site.request("POST", "schedules", json=body), 400, "invalid-value", "timeoutt")
    assert problem["hint"] == "did you mean timeout?"
    body = {"action": "pause", "filter": {"owner": 3}}
    problem = assert_problem(
        site.request("POST", "bulk/schedules", json=body), 400, "invalid-value", "filter.owner"
    )
    assert problem["hint"] == (
        "there are: text, name, state, task, tag, queue, managed_by, template, failing, late, names"
    )
    body = {"action": "pause", "filter": {"state": "off"}}
    problem = assert_problem(
        site.request("POST", "bulk/schedules", json=body), 400, "invalid-value", "filter.state"
    )
    assert problem["detail"] == 'filter.state "off" is not one of active, finished, paused'
    problem = assert_problem(site.request("POST", "schedules", json={}), 400, "invalid-value", "name")
    assert problem["detail"] == "the field name is missing"
    body = {"action": "resume", "filter": {}, "until": "2h"}
    problem = assert_problem(site.request("POST", "bulk/schedules", json=body), 422, "invalid-value", "until")
    assert problem["value"] == "2h"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "a b", '"a b" is not 1 to 128 letters, digits, _, -, . or : (not . or : first)'),
        ("task", "a b", '"a b" is not 1 to 200 visible characters'),
        ("payload", [1], "[1] is not an object or null"),
        ("retries", -3, "-3 is not a whole number of 0 to 1,000"),
        ("retries", None, "null is not a whole number of 0 to 1,000"),
        (
            "timeout",
            True,
            "true is not a number of 0 to 10,000,000,000 or a text of at most 50 characters or null",
        ),
        ("tags[0]", ["a b"], '"a b" is not 1 to 128 letters, digits, _, -, . or : (not . or : first)'),
        ("tags", "a", '"a" is not a list of at most 20 items'),
        ("paused", 1, "1 is not true or false"),
        ("payload", [1] * 100, f"[{'1,' * 39}1… is not an object or null"),
    ],
)
def test_a_refusal_says_in_words_what_is_expected(site: Site, field: str, value: Any, problem: str) -> None:
    body = {"name": "n", "trigger": "every 1h", "task": "work", field.removesuffix("[0]"): value}
    found = assert_problem(site.request("POST", "schedules", json=body), 400, "invalid-value", field)
    assert found["detail"] == f"{field} {problem}"


def test_the_list_of_tenants_has_a_limit(site: Site) -> None:
    for tenant in ("acme", "beta", "corp"):
        site.app.schedules.add("nightly", every("1h"), "work", tenant=tenant)
    assert [each["name"] for each in site.get("tenants?limit=2")["items"]] == ["acme", "beta"]
    assert [each["name"] for each in site.get("tenants?limit=2", tenant="corp")["items"]] == ["corp"]


def test_a_token_sees_its_tenant_behind_a_thousand_others(site: Site) -> None:
    site.app.schedules.add("nightly", every("1h"), "work", tenant="zeta")
    (row,) = site.app.store.find_schedules(ScheduleQuery(tenant="zeta")).items
    others = [changes.create(replace(row, tenant=f"t{at:04}"), site.app.store.now()) for at in range(1_000)]
    assert all(each.accepted for each in site.app.store.put_schedules([Write(new, None) for new in others]))
    assert "zeta" not in [each["name"] for each in site.get("tenants")["items"]]
    assert [each["name"] for each in site.get("tenants", tenant="zeta")["items"]] == ["zeta"]
    assert site.get("tenants", tenant="unknown")["items"] == []


def test_a_store_that_is_away_is_a_503_and_the_probe_says_so(caplog: pytest.LogCaptureFixture) -> None:
    from evenbeat.errors import StoreUnavailable

    store = MemoryStore(VirtualClock())
    app = Scheduler(store)
    site = Site(app, needs_token=False)
    assert site.request("GET", "/readyz", role=None).json() == {"ok": True, "problems": []}

    def fail(*_: object, **__: object) -> Any:
        raise StoreUnavailable("db.internal did not answer")

    store.get_record = store.find_schedules = store.find_runs = fail  # type: ignore[method-assign]
    response = site.request("GET", "runs", role=None)
    assert_problem(response, 503, "store-unavailable")
    assert response.headers["retry-after"] == "1"
    probe = site.request("GET", "/readyz", role=None)
    assert (probe.status_code, probe.json()) == (503, {"ok": False, "problems": ["the store is unavailable"]})
    assert site.request("GET", "/readyz", role=None).status_code == 503
    logged = [record for record in caplog.records if record.name == "evenbeat.web.health"]
    assert [record.getMessage() for record in logged] == [
        "the store does not answer probes: db.internal did not answer"
    ]
    assert site.request("GET", "/healthz", role=None).status_code == 200
    site.close()


def test_the_app_works_under_any_prefix(app: Scheduler) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    from evenbeat.web import web_app

    mounted = Starlette(routes=[Mount("/tools/jobs", app=web_app(app, needs_token=False))])
    with TestClient(mounted, base_url="http://localhost") as client:
        assert client.get("/tools/jobs/api/v1/me").json()["role"] == "admin"
        assert client.get("/tools/jobs/healthz").status_code == 200
        app.schedules.add("nightly", every("1h"), "work")
        assert client.get("/tools/jobs/api/v1/schedules/nightly").status_code == 200
        assert client.get("/api/v1/me").status_code == 404

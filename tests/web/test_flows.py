"""Flows over HTTP: what is answered, what is refused, and what a tenant may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.testing import virtual
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.changes import ChangeWatch
from tests.web.site import Site, assert_problem
from tests.web.test_changes import Listeners


class Shop:
    """A flow whose last step fails while ``is_down``, in virtual time."""

    def __init__(self) -> None:
        self.app = app = Scheduler("memory://")
        self.is_down = True

        @app.task
        def extract(day: str, password: str = "") -> list[int]:
            return [1, 2, 3]

        @app.task
        def clean(part: int) -> int:
            return part * 10

        @app.task
        def load(parts: list[int]) -> int:
            if self.is_down:
                raise ConnectionError("no answer from postgresql://etl:hunter2@db/shop")
            return sum(parts)

        @app.task
        def mail() -> None: ...

        @app.flow
        def nightly(day: str = "today", password: str = "") -> Any:
            raw = extract.step(day=day, password=password)
            loaded = load.step(clean.map(raw))
            mail.step(after=[loaded])
            return loaded

        @app.flow(name="reports/monthly&co")
        def monthly() -> None:
            mail.step()

        self.site = Site(app)


@pytest.fixture
def shop() -> Iterator[tuple[Shop, Any]]:
    made = Shop()
    with virtual(made.app) as time:
        yield made, time
    made.site.close()


def states(run: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in run["steps"]}


def test_a_flow_lives_through_all_its_verbs(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    site = made.site
    graph = site.get("flows/nightly", role="viewer")
    assert [(step["name"], step["after"], step["is_map"]) for step in graph["steps"]] == [
        ("extract", [], False),
        ("clean", ["extract"], True),
        ("load", ["clean"], False),
        ("mail", ["load"], False),
    ]
    listed = site.get("flows", role="viewer")
    assert listed == {
        "items": [
            {"name": "nightly", "steps": 4, "version": graph["version"], "recent": []},
            {
                "name": "reports/monthly&co",
                "steps": 1,
                "version": listed["items"][1]["version"],
                "recent": [],
            },
        ],
        "hint": None,
    }
    run = site.post("flows/nightly/run", {"payload": {"day": "monday"}}, status=201, role="operator")
    assert (run["kind"], run["state"], run["task"]) == ("flow", "queued", "nightly")
    queued = site.get(f"flow-runs/{run['id']}", role="viewer")
    assert (queued["state"], queued["steps"], queued["graph"]["version"]) == ("queued", [], graph["version"])
    time.travel("1m")
    failed = site.get(f"flow-runs/{run['id']}", role="viewer")
    assert failed["state"] == "failed"
    assert states(failed) == {
        "extract": "succeeded",
        "clean": "succeeded",
        "load": "failed",
        "mail": "not_run",
    }
    steps = {step["name"]: step for step in failed["steps"]}
    assert (steps["clean"]["elements"], steps["clean"]["run"]) == (3, None)
    assert steps["mail"]["reason"] == "load failed"
    assert steps["load"]["duration"] is not None
    assert site.get(f"runs/{steps['load']['run']}")["flow"] == {
        "id": run["id"],
        "step": "load",
        "index": None,
        "tick": None,
    }
    made.is_down = False
    resumed = site.post(f"flow-runs/{run['id']}/resume", role="operator")
    assert (resumed["state"], states(resumed)["load"], states(resumed)["mail"]) == (
        "queued",
        "queued",
        "waiting",
    )
    time.travel("1m")
    done = site.get(f"flow-runs/{run['id']}")
    assert (done["state"], done["result"], set(states(done).values())) == ("succeeded", 60, {"succeeded"})
    again = site.post(f"flow-runs/{run['id']}/retry", {"step": "load"}, role="operator")
    assert (again["state"], states(again)["clean"], states(again)["load"]) == (
        "queued",
        "succeeded",
        "queued",
    )
    cancelled = site.post(f"flow-runs/{run['id']}/cancel", role="operator")
    assert (cancelled["state"], states(cancelled)["load"]) == ("cancelled", "succeeded")
    (recent,) = site.get("flows?recent=5")["items"][0]["recent"]
    assert (recent["id"], recent["state"], recent["tenant"]) == (run["id"], "cancelled", "default")
    entries = [(each["action"], each["actor"], each["subject"]) for each in site.get("audit")["items"]]
    for action in ("enqueue", "retry", "cancel"):
        assert (action, "operator of None", run["id"]) in entries, entries


def test_a_map_names_the_runs_of_the_elements_that_failed() -> None:
    app = Scheduler("memory://")

    @app.task
    def divide(part: int) -> float:
        return 1 / part

    @app.flow
    def shares() -> None:
        divide.map([1, 0, 2, 0, 0, 0])

    site = Site(app)
    with virtual(app) as time:
        run = site.post("flows/shares/run", {}, status=201)
        time.travel("1m")
        (step,) = site.get(f"flow-runs/{run['id']}")["steps"]
        assert (step["elements"], step["elements_failed"]) == (6, 4)
        assert step["failed_runs"] == [f"{run['id']}~divide~{index}" for index in (1, 3, 4)]
        assert site.get(f"runs/{step['failed_runs'][1]}")["flow"]["index"] == 3
    site.close()


def test_a_name_with_slashes_is_found(shop: tuple[Shop, Any]) -> None:
    site = shop[0].site
    for name in ("reports/monthly&co", "reports%2Fmonthly%26co"):
        assert site.get(f"flows/{name}")["name"] == "reports/monthly&co"
        assert site.post(f"flows/{name}/run", {}, status=201)["task"] == "reports/monthly&co"


def test_what_does_not_exist_or_does_not_fit_is_refused(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    site = made.site
    problem = assert_problem(site.request("GET", "flows/nope"), 404, "flow-not-found")
    assert "GET /api/v1/flows" in problem["detail"]
    assert_problem(site.request("GET", "flows/mail"), 404, "flow-not-found")
    assert_problem(site.request("POST", "flows/mail/run", json={}), 422, "invalid-value", "flow")
    assert_problem(site.request("POST", "flows/nope/run", json={}), 404, "flow-not-found")
    assert_problem(
        site.request("POST", "flows/nightly/run", json={"retries": 3}), 422, "invalid-value", "retries"
    )
    wrong = site.request("POST", "flows/nightly/run", json={"payload": {"colour": "red"}})
    assert wrong.status_code == 422
    assert_problem(
        site.request("POST", "flows/nightly/run", json={"colour": 1}), 400, "invalid-value", "colour"
    )
    for method, path in (("GET", ""), ("POST", "/resume"), ("POST", "/cancel")):
        assert_problem(site.request(method, f"flow-runs/nope{path}"), 404, "run-not-found")
    run = site.post("flows/nightly/run", {}, status=201)
    early = site.request("POST", f"flow-runs/{run['id']}/resume")
    assert_problem(early, 409, "run-refused")
    time.travel("1m")
    refused = site.request("POST", f"flow-runs/{run['id']}/retry", json={"step": "nope"})
    assert_problem(refused, 422, "invalid-value", "step")
    for body in ({}, {"step": "a~b"}, {"step": "x" * 65}, {"step": 1}):
        assert_problem(
            site.request("POST", f"flow-runs/{run['id']}/retry", json=body), 400, "invalid-value", "step"
        )
    step = site.get(f"flow-runs/{run['id']}")["steps"][0]["run"]
    problem = assert_problem(site.request("GET", f"flow-runs/{step}"), 409, "run-refused")
    assert f"it is a step of {run['id']}" in problem["detail"]
    made.is_down = False
    site.post(f"flow-runs/{run['id']}/resume")
    time.travel("1m")
    assert_problem(site.request("POST", f"flow-runs/{run['id']}/resume"), 409, "run-refused")


def test_the_refusal_of_a_step_names_only_the_first_steps() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    @app.flow
    def wide() -> None:
        for number in range(1_000):
            work.step(step_name=f"s{number}")

    site = Site(app)
    with virtual(app) as time:
        run = site.post("flows/wide/run", {}, status=201)
        time.travel("1m")
        refused = site.request("POST", f"flow-runs/{run['id']}/retry", json={"step": "nope"})
    problem = assert_problem(refused, 422, "invalid-value", "step")
    assert problem["hint"].startswith("there are: s0, s1, ")
    assert problem["hint"].endswith("s19 and 980 more")
    site.close()


def test_a_repeated_start_with_its_key_adds_nothing(shop: tuple[Shop, Any]) -> None:
    site = shop[0].site
    key = {"Idempotency-Key": "once"}
    first = site.post("flows/nightly/run", {"payload": {"day": "monday"}}, status=201, headers=key)
    again = site.post("flows/nightly/run", {"payload": {"day": "monday"}}, status=201, headers=key)
    assert first["id"] == again["id"]
    other = site.request("POST", "flows/nightly/run", json={"payload": {"day": "friday"}}, headers=key)
    assert_problem(other, 422, "key-used-twice", "Idempotency-Key")
    assert len(site.get("runs?task=nightly")["items"]) == 1


def test_a_viewer_changes_nothing(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    site = made.site
    assert_problem(site.request("POST", "flows/nightly/run", json={}, role="viewer"), 403, "role-too-low")
    run = site.post("flows/nightly/run", {}, status=201)
    time.travel("1m")
    for verb, body in (("resume", None), ("retry", {"step": "load"}), ("cancel", None)):
        refused = site.request("POST", f"flow-runs/{run['id']}/{verb}", json=body, role="viewer")
        assert_problem(refused, 403, "role-too-low")
    assert site.get(f"flow-runs/{run['id']}")["state"] == "failed"


def test_a_token_of_one_tenant_sees_only_its_own(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    site = made.site
    site.post("flows/reports%2Fmonthly%26co/run", {}, status=201)
    foreign = site.post("flows/nightly/run", {}, status=201)
    # Its own tenant has no run of any flow: the names of the app's flows and tasks are not its business.
    assert site.get("flows", tenant="acme") == {"items": [], "hint": None}
    assert_problem(site.request("GET", "flows/nightly", tenant="acme"), 404, "flow-not-found")
    own = site.post("flows/nightly/run", {}, status=201, tenant="acme")
    time.travel("1m")
    assert [flow["name"] for flow in site.get("flows", tenant="acme")["items"]] == ["nightly"]
    assert site.get("flows/nightly", tenant="acme")["name"] == "nightly"
    assert site.get(f"flow-runs/{own['id']}", tenant="acme")["tenant"] == "acme"
    for method, verb, body in (
        ("GET", "", None),
        ("POST", "/resume", None),
        ("POST", "/retry", {"step": "load"}),
        ("POST", "/cancel", None),
    ):
        path = f"flow-runs/{foreign['id']}{verb}"
        assert_problem(site.request(method, path, json=body, tenant="acme"), 404, "run-not-found")
        named = site.request(method, f"{path}?tenant=default", json=body, tenant="acme")
        assert_problem(named, 403, "foreign-tenant", "tenant")
    assert site.get(f"flow-runs/{foreign['id']}")["state"] == "failed"
    both = site.get("flows?all_tenants=true&recent=5")["items"][0]["recent"]
    assert {run["tenant"] for run in both} == {"default", "acme"}


def test_secrets_are_masked_for_viewers(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    site = made.site
    run = site.post("flows/nightly/run", {"payload": {"password": "hunter2"}}, status=201)
    time.travel("1m")
    seen = site.request("GET", f"flow-runs/{run['id']}", role="viewer")
    assert "failed" in seen.text
    assert "hunter2" not in seen.text
    whole = site.get(f"flow-runs/{run['id']}")
    assert whole["payload"]["password"] == "hunter2"
    assert "hunter2" in whole["steps"][2]["error"]


def test_a_server_without_an_app_says_so_and_still_shows_and_starts_flows(shop: tuple[Shop, Any]) -> None:
    made, time = shop
    run = made.site.post("flows/nightly/run", {}, status=201)
    time.travel("1m")
    bare = Site(Scheduler(made.app.store))
    try:
        listed = bare.get("flows")
        assert listed["items"] == []
        assert "evenbeat web APP" in listed["hint"]
        assert_problem(bare.request("GET", "flows/nightly"), 404, "flow-not-found")
        # The graph of the run is in the store.
        found = bare.get(f"flow-runs/{run['id']}")
        assert [step["state"] for step in found["steps"]][:2] == ["succeeded", "succeeded"]
        made.is_down = False
        assert bare.post(f"flow-runs/{run['id']}/resume")["state"] == "queued"
        time.travel("1m")
        assert bare.get(f"flow-runs/{run['id']}")["state"] == "succeeded"
        assert bare.post("flows/nightly/run", {}, status=201)["task"] == "nightly"
    finally:
        bare.web.close()


def test_each_step_that_ends_is_a_change_of_its_flow() -> None:
    app = Scheduler("memory://")
    seen: list[tuple[str | None, str, str | None]] = []

    def poll() -> None:
        changes = watch.step().get(None, [])
        seen.extend((each.id, each.kind, each.flow) for each in changes if each.subject == "run")

    @app.task
    def first() -> None:
        poll()

    @app.task
    def second() -> None:
        poll()

    @app.flow
    def chain() -> None:
        second.step(after=[first.step()])

    with virtual(app) as time:
        watch = ChangeWatch(app.store, Catalogue(), Listeners())
        run = app.flows.run("chain")
        poll()
        time.travel("1s")
        poll()
    app.close()
    # It starts once, however many of its steps end.
    assert [kind for run_id, kind, _ in seen if run_id == run.id] == [
        "queued",
        "started",
        "updated",
        "succeeded",
    ]
    steps = {(run_id, flow) for run_id, _, flow in seen if run_id != run.id}
    assert steps == {(f"{run.id}~first", run.id), (f"{run.id}~second", run.id)}

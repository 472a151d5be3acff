"""Calendars over HTTP: what is answered, what is refused, and what a tenant may see."""

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
    app = Scheduler(MemoryStore(VirtualClock()))

    @app.task
    def work() -> None: ...

    found = Site(app)
    yield found
    found.close()


def names(answer: Any) -> list[str]:
    return [item["name"] for item in answer["items"]]


def test_a_calendar_lives_through_all_its_verbs(site: Site) -> None:
    assert names(site.get("calendars")) == ["business-days", "weekends"]
    made = site.post("calendars/off", {"days": ["2026-03-03"], "weekly": ["sun 10:00-12:00"]})
    assert (made["words"], made["replanned"]) == ("sun 10:00-12:00; 2026-03-03", 0)
    schedule = {"name": "beat", "trigger": "0 9 * * * skip=off", "task": "work"}
    assert site.request("POST", "schedules", json=schedule).status_code == 201
    assert site.get("calendars/off", role="viewer")["schedules"] == ["beat"]
    days = site.get("calendars/off/days?since=2026-03-01&count=5", role="viewer")["items"]
    assert [(day["day"], day["times"]) for day in days] == [
        ("2026-03-01", ["10:00-12:00"]),
        ("2026-03-03", []),
    ]
    assert site.post("calendars/off", {"days": ["2026-03-02"]})["replanned"] == 1
    assert_problem(site.request("DELETE", "calendars/off"), 409, "calendar-in-use")
    assert site.request("DELETE", "schedules/beat").status_code == 200
    assert site.request("DELETE", "calendars/off").status_code == 204
    assert_problem(site.request("GET", "calendars/off"), 404, "calendar-not-found")


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("bad", {}, "days"),
        ("bad", {"days": ["soon"]}, "days"),
        ("bad", {"weekly": ["mon 9-5"]}, "weekly"),
        ("bad", {"days": ["12-25"], "tz": "Mars"}, "tz"),
        ("bad", {"country": "Atlantis"}, "country"),
        ("weekends", {"days": ["12-25"]}, "name"),
    ],
)
def test_wrong_values_are_refused_by_name(site: Site, name: str, body: Any, field: str) -> None:
    response = site.request("POST", f"calendars/{name}", json=body)
    assert response.status_code == 422
    assert response.json()["field"] == field


def test_a_trigger_with_an_unknown_calendar_is_refused(site: Site) -> None:
    body = {"name": "beat", "trigger": "0 9 * * * skip=off", "task": "work"}
    assert_problem(site.request("POST", "schedules", json=body), 422, "invalid-trigger", "trigger")


def test_only_admins_change_calendars(site: Site) -> None:
    roles: tuple[Role, ...] = ("viewer", "operator")
    for role in roles:
        refused = site.request("POST", "calendars/off", json={"days": ["12-25"]}, role=role)
        assert_problem(refused, 403, "role-too-low")
        assert_problem(site.request("DELETE", "calendars/off", role=role), 403, "role-too-low")


def test_a_token_of_one_tenant_sees_only_its_calendars(site: Site) -> None:
    site.post("calendars/off", {"days": ["12-25"]})
    site.post("calendars/mine", {"days": ["12-25"]}, tenant="acme")
    assert "off" not in names(site.get("calendars", tenant="acme"))
    assert "mine" not in names(site.get("calendars"))
    assert_problem(site.request("GET", "calendars/off", tenant="acme"), 404, "calendar-not-found")
    refused = site.request("GET", "calendars/off?tenant=default", tenant="acme")
    assert_problem(refused, 403, "foreign-tenant", "tenant")
    preview = {"trigger": "0 9 * * * skip=mine", "count": 1}
    assert site.post("preview", preview, tenant="acme")["ticks"]
    theirs = site.request("POST", "preview", json={**preview, "tenant": "default"}, tenant="acme")
    assert_problem(theirs, 403, "foreign-tenant", "tenant")
    assert_problem(site.request("POST", "preview", json=preview), 422, "invalid-trigger", "trigger")


def test_a_dry_run_shows_the_next_ticks_and_changes_nothing(site: Site) -> None:
    site.post("calendars/off", {"days": ["2026-03-03"]})
    schedule = {"name": "beat", "trigger": "0 9 * * * skip=off", "task": "work"}
    assert site.request("POST", "schedules", json=schedule).status_code == 201
    shown = site.post("calendars/off", {"weekly": ["mon-sun 08:00-10:00"], "dry_run": True})
    assert (shown["replanned"], shown["schedule_count"]) == (1, 1)
    (effect,) = shown["effects"]
    assert (effect["schedule"], len(effect["before"]), effect["after"]) == ("beat", 3, [])
    assert shown["warnings"][0]["problem"].startswith("beat would have no tick any more")
    found = next(item for item in site.get("calendars")["items"] if item["name"] == "off")
    assert (found["days"], found["schedules"], found["schedule_count"]) == (["2026-03-03"], ["beat"], 1)


def test_a_schedule_answers_with_its_calendars(site: Site) -> None:
    schedule = {"name": "beat", "trigger": "0 9 * * * skip=weekends", "task": "work"}
    assert site.request("POST", "schedules", json=schedule).status_code == 201
    found = site.get("schedules/beat/calendars", role="viewer")
    assert (found["skip"], found["only"], found["removed"][0]["count"]) == (["weekends"], [], 2)
    assert_problem(site.request("GET", "schedules/none/calendars"), 404, "schedule-not-found")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            "FREQ=DAILY;COUNT=999999;BYDAY=" + ",".join(["SU"] * 200),
            "give fewer events, and a recent DTSTART",
        ),
        (
            "FREQ=DAILY;COUNT=999999;BYSETPOS=" + ",".join(str(n) for n in range(-366, 367) if n),
            "give fewer events, and a recent DTSTART",
        ),
        (
            "FREQ=DAILY;COUNT=999999;BYDAY=" + ",".join(["SU"] * 330_000),
            "BYDAY lists 330,000 values, more than 1,000: name each value once",
        ),
    ],
    ids=["equal weekdays", "positions", "as long as can be"],
)
def test_a_tenant_can_not_keep_the_server_busy_with_a_rule(site: Site, rule: str, words: str) -> None:
    lines = ("BEGIN:VCALENDAR", "BEGIN:VEVENT", "DTSTART:00010101", f"RRULE:{rule}", "END:VEVENT")
    body = {"ics": "\n".join((*lines, "END:VCALENDAR"))}
    refused = site.request("POST", "calendars/off", json=body, tenant="acme")
    problem = assert_problem(refused, 422, "invalid-value", "ics")
    assert words in f"{problem['detail']}; {problem.get('hint')}"
    assert names(site.get("calendars", tenant="acme")) == ["business-days", "weekends"]

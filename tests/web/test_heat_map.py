"""GET /schedules/{name}/cells."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import HOUR, claim, fire, succeed
from tests.web.site import Site, assert_problem


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def test_cells_have_past_and_coming_ticks(site: Site, clock: VirtualClock) -> None:
    site.app.schedules.add("beat", "0 * * * *", "work")
    clock.now += HOUR
    fire(site.app)
    (run,) = claim(site.app)
    succeed(site.app, run)
    found = site.get("schedules/beat/cells?since=2h&until=2h&tz=Asia/Kolkata", role="viewer")
    assert (found["zone"], found["by"], found["is_exact"]) == ("Asia/Kolkata", "hour", True)
    assert (found["since"], found["until"]) == ("2026-03-01T10:30:00Z", "2026-03-01T15:30:00Z")
    assert found["now"] == "2026-03-01T13:00:00Z"
    assert [
        (cell["at"][11:16], cell["fired"], cell["succeeded"], cell["planned"]) for cell in found["cells"]
    ] == [("10:30", 0, 0, 0), ("11:30", 0, 0, 0), ("12:30", 1, 1, 0), ("13:30", 0, 0, 1), ("14:30", 0, 0, 1)]
    assert found["cells"][0].keys() == {
        *("at", "end", "fired", "succeeded", "failed", "cancelled", "running", "skipped", "coalesced"),
        *("planned", "paused"),
    }
    whole = site.get("schedules/beat/cells")
    assert len(whole["cells"]) == 9 * 24
    days = site.get("schedules/beat/cells?by=day&tz=Europe/Berlin&until=2026-04-01T00:00:00Z")["cells"]
    assert [cell["planned"] for cell in days if cell["at"] == "2026-03-28T23:00:00Z"] == [23]


def test_cells_of_another_tenant_are_not_found(site: Site) -> None:
    site.app.schedules.add("beat", "0 * * * *", "work", tenant="blue")
    assert site.get("schedules/beat/cells?tenant=blue")["tenant"] == "blue"
    assert site.get("schedules/beat/cells", tenant="blue", role="viewer")["tenant"] == "blue"
    assert_problem(site.request("GET", "schedules/beat/cells"), 404, "schedule-not-found")
    assert_problem(site.request("GET", "schedules/beat/cells", tenant="red"), 404, "schedule-not-found")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=week", "by"),
        ("tz=Europe/Berlim", "tz"),
        ("since=41d", "since"),
        ("until=32d", "until"),
        ("until=2020-01-01T00:00:00Z", "until"),
    ],
)
def test_a_wrong_question_is_refused(site: Site, query: str, field: str) -> None:
    site.app.schedules.add("beat", "0 * * * *", "work")
    response = site.request("GET", f"schedules/beat/cells?{query}")
    assert response.json()["field"] == field
    assert response.status_code in (400, 422)

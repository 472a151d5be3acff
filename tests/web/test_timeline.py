"""GET /timeline."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import MINUTE, claim, fail, fire
from tests.web.site import Site


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def test_lanes_have_past_and_coming_ticks(site: Site, clock: VirtualClock) -> None:
    site.app.schedules.add("beat", "*/30 * * * *", "work")
    clock.now += 30 * MINUTE
    fire(site.app)
    (run,) = claim(site.app)
    fail(site.app, run, "no")
    found = site.get("timeline", role="viewer")
    assert (found["since"], found["until"]) == ("2026-03-01T11:30:00Z", "2026-03-01T13:30:00Z")
    assert (found["now"], found["step"], found["cursor"]) == ("2026-03-01T12:30:00Z", 60, None)
    (lane,) = found["lanes"]
    assert (lane["tenant"], lane["schedule"], lane["state"], lane["is_exact"]) == (
        "default",
        "beat",
        "active",
        True,
    )
    nothing = {"fired": 0, "failed": 0, "waiting": 0, "skipped": 0, "planned": 0, "paused": 0}
    assert lane["cells"] == [
        {**nothing, "at": "2026-03-01T12:30:00Z", "end": "2026-03-01T12:31:00Z", "fired": 1, "failed": 1},
        {**nothing, "at": "2026-03-01T13:00:00Z", "end": "2026-03-01T13:01:00Z", "planned": 1},
    ]
    assert site.get("timeline?since=1m&until=30m")["step"] == 10
    assert site.get("timeline?since=40d&until=31d")["step"] == 6 * 3600


def test_pages_and_filters_are_those_of_the_list(site: Site) -> None:
    for name in ("a", "b", "c", "d", "e"):
        site.app.schedules.add(name, "0 * * * *", "work", tags=["vowel"] if name in "ae" else [])
    site.app.schedules.add("f", "0 * * * *", "work", tenant="blue")
    first = site.get("timeline?limit=3")
    assert [lane["schedule"] for lane in first["lanes"]] == ["a", "b", "c"]
    rest = site.get("timeline", params={"limit": 3, "cursor": first["cursor"]})
    assert [lane["schedule"] for lane in rest["lanes"]] == ["d", "e"]
    assert rest["cursor"] is None
    assert [lane["schedule"] for lane in site.get("timeline?tag=vowel")["lanes"]] == ["a", "e"]
    assert len(site.get("timeline?all_tenants=true")["lanes"]) == 6
    assert [lane["schedule"] for lane in site.get("timeline", tenant="blue", role="viewer")["lanes"]] == ["f"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("since=41d", "since"), ("until=32d", "until"), ("limit=101", "limit"), ("cursor=x", "cursor")],
)
def test_a_wrong_question_is_refused(site: Site, query: str, field: str) -> None:
    response = site.request("GET", f"timeline?{query}")
    assert response.status_code in (400, 422)
    assert response.json()["field"] == field

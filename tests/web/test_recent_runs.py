"""The last runs of schedules, and their triggers in words, as a page shows them."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import MINUTE, claim, fail, fire, succeed
from tests.web.site import Site, assert_problem


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def run_twice(app: Scheduler, clock: VirtualClock) -> None:
    """Let the schedule ``beat`` succeed after 2 s, and then fail."""
    for end in (succeed, lambda app, run: fail(app, run, "no")):
        clock.now += MINUTE
        fire(app)
        clock.now += 500
        (run,) = claim(app)
        clock.now += 2_000
        end(app, run)


def test_a_page_has_the_last_runs_of_each_schedule(site: Site, clock: VirtualClock) -> None:
    site.app.schedules.add("beat", "* * * * *", "work")
    run_twice(site.app, clock)
    site.app.schedules.add("calm", "0 9 * * *", "work")
    beat, calm = site.get("schedules?recent=60", role="viewer")["items"]
    assert [(run["state"], run["duration"], run["lateness"]) for run in beat["recent"]] == [
        ("succeeded", 2, 0.5),
        ("failed", 2, 3),
    ]
    assert beat["recent"][0].keys() == {"id", "state", "scheduled_at", "duration", "lateness"}
    assert beat["recent"][0]["id"] == site.get("runs?schedule=beat")["items"][1]["id"]
    assert calm["recent"] == []
    (newest,) = site.get("schedules?recent=1")["items"][0]["recent"]
    assert newest["state"] == "failed"
    assert site.get("schedules/beat?recent=60")["recent"] == beat["recent"]


def test_runs_are_read_only_for_those_who_ask(
    site: Site, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.app.schedules.add("beat", "* * * * *", "work")
    run_twice(site.app, clock)

    def refuse(*_: object) -> None:
        raise AssertionError("runs were read")

    monkeypatch.setattr(site.app.schedules, "recent", refuse)
    assert [each["recent"] for each in site.get("schedules")["items"]] == [None]
    assert site.get("schedules?recent=0")["items"][0]["recent"] is None
    assert site.get("schedules/beat")["recent"] is None
    assert site.post("schedules/beat/pause", {})["recent"] is None


def test_the_number_of_runs_is_bounded(site: Site) -> None:
    site.app.schedules.add("beat", "* * * * *", "work")
    for path in ("schedules", "schedules/beat"):
        for recent in ("-1", "61", "many"):
            assert_problem(site.request("GET", f"{path}?recent={recent}"), 400, "invalid-value", "recent")


def test_every_schedule_has_its_trigger_in_words(site: Site) -> None:
    site.app.schedules.add("calm", "0 9 * * mon-fri tz=Europe/Berlin", "work")
    words = site.get("schedules/calm")["words"]
    assert words.startswith("at 09:00, Monday to Friday (Europe/Berlin)"), words
    assert site.get("schedules")["items"][0]["words"] == words

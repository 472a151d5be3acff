"""Answers that take long are computed once and kept for a while; others are always current."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evenbeat import Scheduler, every
from evenbeat.web import costly
from evenbeat.web.costly import LONGEST_KEPT, CostlyAnswers
from tests.web.site import Site


class Work:
    """Computes answers, each of which takes some time on a virtual clock."""

    def __init__(self, takes: float) -> None:
        self.now = 1000.0
        self.takes = takes
        self.calls = 0
        self.answers = CostlyAnswers(lambda: self.now)

    def __call__(self) -> int:
        self.now += self.takes
        self.calls += 1
        return self.calls

    def ask(self, key: str = "k", after: float = 0.0) -> int:
        self.now += after
        return self.answers.answer(key, self)


def test_a_quick_answer_is_never_kept() -> None:
    work = Work(takes=0.19)
    assert [work.ask(), work.ask(), work.ask("other")] == [1, 2, 3]


@pytest.mark.parametrize(("takes", "kept"), [(0.25, 2.5), (3.0, 30.0), (6.0, 60.0), (100.0, 60.0)])
def test_an_answer_is_kept_for_ten_times_as_long_as_it_took(takes: float, kept: float) -> None:
    work = Work(takes)
    assert [work.ask(), work.ask(after=kept - 0.01)] == [1, 1]
    assert work.ask("other") == 2, "each question has its own answer"
    assert work.ask(after=0.02) == 3
    assert kept <= LONGEST_KEPT


def test_forgotten_answers_are_computed_again() -> None:
    work = Work(takes=3.0)
    assert [work.ask(), work.ask()] == [1, 1]
    work.answers.forget()
    assert [work.ask(), work.ask()] == [2, 2]


def test_an_answer_that_was_begun_before_a_change_is_not_kept() -> None:
    work = Work(takes=3.0)

    def with_a_change_meanwhile() -> int:
        work.answers.forget()
        return work()

    assert work.answers.answer("k", with_a_change_meanwhile) == 1
    assert work.ask() == 2


def test_an_error_is_not_kept() -> None:
    work = Work(takes=3.0)

    def fail() -> int:
        work()
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            work.answers.answer("k", fail)
    assert work.ask() == 3
    assert work.ask() == 3
    assert work.answers._asked == {}


def test_the_number_of_kept_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costly, "MOST_KEPT", 3)
    work = Work(takes=1.0)
    assert [work.ask(key) for key in "abcd"] == [1, 2, 3, 4]
    assert set(work.answers._kept) == {"b", "c", "d"}
    work.ask("e", after=10.0)
    assert set(work.answers._kept) == {"e"}, "those that are over are dropped"


def wait_for(condition: Callable[[], bool]) -> None:
    reached = threading.Event()
    for _ in range(10_000):
        if condition():
            return
        reached.wait(0.001)
    pytest.fail("the condition was not reached")


@pytest.mark.parametrize(("takes", "computed"), [(3.0, 1), (0.0, 3)])
def test_one_thread_computes_while_others_wait(takes: float, computed: int) -> None:
    work, may_end, busy, most = Work(takes), threading.Event(), [0], [0]
    got: list[int] = []

    def compute() -> int:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        assert may_end.wait(10)
        busy[0] -= 1
        return work()

    threads = [
        threading.Thread(target=lambda: got.append(work.answers.answer("k", compute))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: "k" in work.answers._asked and work.answers._asked["k"].threads == 3)
    assert work.ask("other") == 1, "another question does not wait"
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert most == [1]
    assert work.calls == computed + 1
    assert sorted(got) == ([2, 2, 2] if takes else [2, 3, 4])


@pytest.fixture
def slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Lets each forecast take 3 s."""
    work, forecast = Work(takes=3.0), Scheduler.forecast

    def slowly(app: Scheduler, *given: Any, **options: Any) -> Any:
        work()
        return forecast(app, *given, **options)

    monkeypatch.setattr(Scheduler, "forecast", slowly)
    site.web.state.costly = work.answers
    return work


def test_a_slow_forecast_is_computed_once_for_many_pages(site: Site, slow: Work) -> None:
    site.app.schedules.add("a", every("10m"), "work")
    first = site.get("forecast?hours=1", role="viewer")
    site.app.schedules.add("b", every("10m"), "work")
    for role in ("viewer", "operator", "admin"):
        assert site.get("forecast?hours=1", role=role) == first
    assert slow.calls == 1
    for other in ("hours=2", "hours=1&by=hour", "hours=1&since=1h"):
        assert site.get(f"forecast?{other}") != first
    assert slow.calls == 4
    slow.now += 30.0
    assert site.get("forecast?hours=1")["schedules"] == 2


def test_who_changes_a_schedule_sees_the_new_forecast(site: Site, slow: Work) -> None:
    site.app.schedules.add("a", every("10m"), "work")
    before = site.get("forecast?hours=1")
    for method, path, body in (
        ("PATCH", "schedules/a", {"trigger": "every 5m"}),
        ("POST", "schedules/a/pause", {}),
        ("POST", "bulk/schedules", {"action": "resume", "filter": {}, "dry_run": False}),
        ("DELETE", "schedules/a", None),
    ):
        assert site.request(method, path, json=body).is_success
        after = site.get("forecast?hours=1")
        assert after["counts"] != before["counts"], path
        before = after
    assert slow.calls == 5


def test_tenants_do_not_share_a_forecast(site: Site, slow: Work) -> None:
    for tenant in ("default", "acme"):
        site.app.schedules.add(f"of-{tenant}", every("10m"), "work", tenant=tenant)
    everything = site.get("forecast?hours=1&all_tenants=true")
    assert everything["schedules"] == 2
    for tenant, path in (("acme", "forecast?hours=1"), ("default", "forecast?hours=1&tenant=default")):
        seen = site.request("GET", path, tenant=tenant)
        assert seen.json()["schedules"] == 1
        assert f"of-{tenant}" in seen.text
        assert seen.text.count("of-") == seen.text.count(f"of-{tenant}")
    assert site.get("forecast?hours=1") == site.get("forecast?hours=1&tenant=default")
    assert slow.calls == 3, "the token of the tenant and one for all tenants ask the same question"
    refused = site.request("GET", "forecast?hours=1&all_tenants=true", tenant="acme")
    assert refused.status_code == 403


def test_a_refused_forecast_is_refused_each_time(site: Site, slow: Work) -> None:
    for _ in range(2):
        assert site.request("GET", "forecast?hours=200").status_code == 422
    assert slow.calls == 2


def test_a_quick_forecast_is_current(site: Site) -> None:
    site.web.state.costly = CostlyAnswers(lambda: 0.0)
    for number in range(3):
        assert site.get("forecast?hours=1")["schedules"] == number
        site.app.schedules.add(f"s{number}", every("10m"), "work")

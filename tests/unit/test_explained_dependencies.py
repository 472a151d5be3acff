"""What people read about dependencies: why a tick was skipped, what started a run, and what is due."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenbeat import Scheduler, every, on_success_of
from evenbeat.core.instants import from_ms
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, VirtualScheduler, virtual

HOUR = 3_600_000


@pytest.fixture
def time() -> Iterator[VirtualScheduler]:
    app = Scheduler("memory://")
    app.task(name="work")(lambda: None)
    with virtual(app) as time:
        time.schedules.add("load", every("1h"), "work")
        yield time


def test_why_names_the_predecessor_of_a_skipped_tick(time: VirtualScheduler) -> None:
    time.schedules.add("clean", every("1h"), "work", paused=True)
    time.schedules.add("digest", "30 * * * *", "work", after="load, clean within 45m")
    time.travel("95m")
    assert time.schedules.account("digest").skipped == {"dependency": 2}
    first = time.schedules.why("digest", "12:30")
    assert first.verdict == "dependency"
    # At 12:30 neither had succeeded; load has since.
    assert first.sentence == (
        "the tick of Sun 2026-03-01 12:30 UTC did not run: clean had not succeeded in time "
        "(after load, clean within 45m)"
    )
    assert [fact.text for fact in first.evidence[1:]] == ["clean has never succeeded"]
    time.schedules.resume("clean")
    time.travel("1h")
    later = time.schedules.why("digest", "13:30")
    assert "did not run: load or clean had not succeeded in time" in later.sentence
    assert [fact.text for fact in later.evidence[1:]] == ["last success of load", "last success of clean"]


def test_why_says_that_a_chain_of_successes_was_stopped(
    time: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    monkeypatch.setattr("evenbeat.rules.dependencies.MOST_SUCCESSES", 0)
    time.travel("1m")
    time.schedules.run_now("load")
    time.travel("1m")
    assert time.app.runs.list(schedule="report") == []
    assert time.schedules.account("report").skipped == {"chain": 1}
    found = time.schedules.why("report", "12:01")
    assert found.verdict == "chain"
    assert (
        "1,000 successes in a row had led to it; schedules may start each other in a cycle" in found.sentence
    )
    assert found.remedy == "to find a cycle: evenbeat doctor"


def test_why_falls_back_if_the_schedule_waits_for_nothing_any_more(time: VirtualScheduler) -> None:
    time.schedules.add("digest", "30 * * * *", "work", after="load within 10m")
    time.travel("35m")
    time.schedules.update("digest", after=None)
    assert "a schedule that it waits for had not" in time.schedules.why("digest", "12:30").sentence


def test_a_run_names_the_schedule_the_run_and_the_tick_that_started_it(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    time.travel("1h")
    (load,) = time.app.runs.list(schedule="load")
    (listed,) = time.app.runs.list(schedule="report")
    assert (listed.predecessor, listed.predecessor_schedule, listed.tick) == (load.id, "load", load.tick)
    why = time.app.runs.why(listed.id)
    assert why.evidence[0].text == (
        f"started by the success of load, run {load.id}, tick Sun 2026-03-01 13:00 UTC"
    )
    assert why.evidence[0].at == load.finished_at
    assert time.app.runs.get(load.id).predecessor_schedule is None


def test_a_run_that_a_run_by_hand_started_names_its_schedule_when_it_is_read(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    by_hand = time.schedules.run_now("load")
    time.travel("1m")
    (listed,) = time.app.runs.list(schedule="report")
    assert (listed.predecessor, listed.predecessor_schedule, listed.tick) == (by_hand.id, None, None)
    assert time.app.runs.get(listed.id).predecessor_schedule == "load"
    assert time.app.runs.why(listed.id).evidence[0].text == (
        f"started by the success of load, run {by_hand.id}"
    )


def test_a_change_without_a_node_does_not_make_a_schedule_on_success_due() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.add("load", "0 3 1 1 *", "work")
    app.schedules.add("report", on_success_of("load"), "work")

    def overdue() -> list[str]:
        clock.advance("5m")
        (found,) = [each for each in diagnose(store, store.now()) if each.check == "schedules"]
        return [each["name"] for each in found.facts["schedules"]]

    app.schedules.update("report", description="new")
    app.schedules.add("mail", on_success_of("report"), "work")
    assert overdue() == []
    app.schedules.pause("report", until="1h")
    assert overdue() == []
    app.schedules.resume("report")
    app.schedules.delete("mail")
    app.schedules.add("mail", on_success_of("report"), "work")
    assert overdue() == []
    assert app.schedules.list(late=True) == []
    # A success that no node fires is due, before and after a change.
    app.schedules.run_now("load")
    (run,) = store.claim_runs(Claim(worker="w", token="c", limit=1, now=clock.now, lease=HOUR)).runs
    assert store.settle_runs([attempts.succeeded(run, None, clock.now, "done")]) == [True]
    app.schedules.update("report", description="newer")
    assert overdue() == ["report"]
    store.fire_due(clock.now, 10, plan)
    assert overdue() == []
    assert len(app.runs.list(schedule="report")) == 1


def verdicts(time: VirtualScheduler, name: str, *times: str) -> list[str]:
    return [time.schedules.why(name, at).verdict for at in times]


@pytest.fixture
def held(time: VirtualScheduler) -> VirtualScheduler:
    """Return a scheduler with a follower whose first run does not end soon."""

    @time.app.task(retries=5, backoff="1d")
    def slow() -> None:
        raise ValueError

    time.schedules.add("report", on_success_of("load"), "slow", overlap="queue_all")
    time.travel("4h 30m")  # from 12:00: successes at 13:00, 14:00, 15:00 and 16:00
    return time


def test_why_knows_each_success_that_waits(held: VirtualScheduler) -> None:
    waits = "waits_for_run"
    asked = ("13:00", "14:00", "15:00", "16:00")
    assert verdicts(held, "report", *asked) == ["retry", waits, waits, waits]
    assert verdicts(held, "report", "14:30") == ["no_tick"]


def test_why_knows_each_success_of_a_row_with_several(held: VirtualScheduler) -> None:
    held.schedules.delete("report")
    assert [row.count for row in held.schedules.skipped("report")] == [3]
    assert verdicts(held, "report", "14:00", "15:00", "16:00") == ["deleted"] * 3
    assert verdicts(held, "report", "14:30") == ["no_tick"]


def test_why_knows_the_ends_of_a_row_of_an_earlier_trigger(held: VirtualScheduler) -> None:
    held.schedules.update("report", trigger="every 20m", overlap="allow")
    held.travel("1h")
    assert verdicts(held, "report", "14:00", "16:00") == ["changed"] * 2


def test_why_knows_a_success_that_no_node_has_planned_yet() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.add("load", "0 3 1 1 *", "work")
    app.schedules.add("report", on_success_of("load"), "work")
    clock.advance("5m")
    app.schedules.run_now("load")
    (run,) = store.claim_runs(Claim(worker="w", token="c", limit=1, now=clock.now, lease=HOUR)).runs
    assert store.settle_runs([attempts.succeeded(run, None, clock.now, "done")]) == [True]
    at = from_ms(clock.now)
    clock.advance("5m")
    assert app.schedules.why("report", at).verdict == "no_ticker"

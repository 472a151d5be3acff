"""Ids that are derived from others: they are never given twice, also if a user gives the first one again."""

from __future__ import annotations

from datetime import timedelta

from evenbeat import Scheduler, every, follow_up, on_success_of
from evenbeat.core.instants import LAST
from evenbeat.testing import VirtualScheduler, virtual


def purge(time: VirtualScheduler) -> None:
    while (purged := time.store.purge(LAST, 100)).deleted or purged.until < LAST:
        pass


def test_the_runs_of_a_follow_up_get_other_ids_when_an_id_comes_again() -> None:
    app = Scheduler("memory://")
    followed: list[str] = []

    @app.task
    def after(run_id: str) -> None: ...

    @app.task
    def first() -> object:
        return follow_up(after.bind("x"))

    with virtual(app) as time:
        for _ in range(2):
            app.enqueue(first, id="order-42")
            # No run of somebody else stands in for the one that follows.
            app.enqueue(after.bind("other"), id="order-42+1.0", tenant="other")
            time.run_pending()
            (found,) = app.runs.list(task="after", tenant="default")
            followed.append(found.id)
            assert (found.state, found.payload) == ("succeeded", {"run_id": "x"})
            purge(time)
    assert len(set(followed)) == 2


def test_the_runs_that_a_success_starts_get_other_ids_when_an_id_comes_again() -> None:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with virtual(app) as time:
        app.schedules.add("load", every("1d"), "work")
        app.schedules.add("report", on_success_of("load"), "work")
        seen: list[str] = []
        for _ in range(3):
            app.schedules.run_now("load", id="by-hand")
            time.run_pending()
            (found,) = app.runs.list(schedule="report")
            seen.append(found.id)
            purge(time)
            time.travel(timedelta(seconds=1))
        assert len(set(seen)) == 3
        assert all("/after//by-hand@" in each for each in seen)
        app.schedules.run_now("load")
        time.run_pending()
        (found,) = app.runs.list(schedule="report")
        assert "@" not in found.id

"""Dependencies on the command line: added, shown, explained and removed."""

from __future__ import annotations

from evenbeat import Scheduler
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, Clock, answered, claim, failed, fire, printed, succeed

app, clock = cli_store.app, cli_store.clock


def test_a_schedule_on_success_is_added_and_shown(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("load", "every 1h", "work")
    added = printed("schedules", "add", "report", "on success of load", "work")
    assert added == "added report: After each success of load\nnext run with the next success of load\n"
    assert "after" in printed("schedules", "show", "report")
    assert "load has never succeeded" in printed("schedules", "show", "report")
    clock.pass_(HOUR)
    fire(app)
    (run,) = claim(app)
    succeed(app, run)
    clock.pass_(1_000)
    shown = printed("schedules", "show", "report")
    assert "load succeeded Mon 2026-03-02 09:00" in shown
    assert "successes that have not fired yet: 1" in shown
    assert "followed by" in printed("schedules", "show", "load")
    fire(app)
    (started,) = app.runs.list(schedule="report")
    assert started.predecessor == run.id
    linked = answered("schedules", "show", "report", "--json")["dependencies"]
    assert (linked["on_success_of"], linked["pending"]) == ("load", 0)
    app.schedules.delete("load")
    assert "load does not exist any more" in printed("schedules", "show", "report")


def test_a_tick_that_waits_is_shown_and_its_dependency_removed(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("load", "every 1d", "work")
    printed("schedules", "add", "digest", "every 1h", "work", "--after", "load within 1h wait 30m")
    clock.pass_(HOUR)
    fire(app)
    shown = printed("schedules", "show", "digest")
    assert "for other schedules to succeed, with the tick of Mon 2026-03-02 09:00" in shown
    assert "a tick waits until Mon 2026-03-02 09:30" in shown
    assert "waits for a success of load (load within 1h wait 30m)" in printed("why", "digest")
    printed("schedules", "update", "digest", "--after", "")
    assert app.schedules.get("digest").after is None


def test_a_wrong_dependency_is_refused(app: Scheduler) -> None:
    app.schedules.add("load", "every 1h", "work")
    words = ("schedules", "add", "b", "every 1h", "work", "--after", "lod within 1h")
    assert "--after names the schedule" in failed(*words, code=2)
    assert "did you mean load?" in failed(*words, code=2)
    assert "b -> b" in failed("schedules", "add", "b", "on success of b", "work", code=2)

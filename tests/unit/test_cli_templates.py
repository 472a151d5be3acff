"""``evenbeat templates``, and what other commands say about templates and bulk updates."""

from __future__ import annotations

from evenbeat import Scheduler
from tests.unit.cli_store import MINUTE, Clock, answered, app, clock, failed, printed

__all__ = ["app", "clock"]


def test_a_template_is_set_shown_and_deleted(app: Scheduler) -> None:
    trigger = ("--trigger", "0 3 * * *")
    assert printed("templates", "set", "nightly", *trigger, "--retries", "3") == (
        "set nightly\n0 schedules inherit from it, 0 changed\n"
    )
    assert "inherited from nightly: trigger, retries\n" in printed("schedules", "add", "a", "@nightly", "t")
    dry = printed("templates", "set", "nightly", *trigger, "--retries", "4", "--queue", "q", "--dry-run")
    assert dry == (
        "would set nightly\n1 schedule inherits from it, 1 would change\n"
        "  a: retries 3 → 4, queue default → q\n"
    )
    assert app.schedules.get("a").retries == 3
    assert "1 changed" in printed("templates", "set", "nightly", *trigger, "--retries", "4", "--queue", "q")
    shown = printed("templates", "show", "nightly")
    assert "queue    q" in shown
    assert "1 schedule inherits from it" in shown
    assert answered("templates", "show", "nightly")["schedules"] == ["a"]
    listed = answered("templates", "list")["templates"]
    assert [each["name"] for each in listed][:2] == ["nightly", "hourly"]
    assert "template  nightly; inherits trigger, retries, queue" in printed("schedules", "show", "a")
    assert "is used by a; give these schedules another template" in failed("templates", "delete", "nightly")
    assert "template: nightly → none" in printed("schedules", "update", "a", "--no-template")
    assert printed("templates", "delete", "nightly") == "deleted template nightly\n"
    assert 'there is no template "nightly"' in failed("templates", "show", "nightly")
    assert "built in" in printed("templates", "show", "workdays")


def test_wrong_uses_of_templates_are_refused(app: Scheduler) -> None:
    assert "give the options of the template" in failed("templates", "set", "x", code=2)
    assert "--tz goes with --trigger" in failed("templates", "set", "x", "--tz", "UTC", code=2)
    assert "built-in template" in failed("templates", "set", "workdays", "--retries", "1", code=2)
    assert "--retries -1" in failed("templates", "set", "x", "--retries", "-1", code=2)
    assert "--tz goes with a trigger" in failed(
        "schedules", "add", "a", "@workdays", "t", "--tz", "UTC", code=2
    )
    assert "@fortnightly" in failed("schedules", "add", "a", "@fortnightly", "t", code=2)
    assert not app.schedules.list()


def test_an_option_is_given_back(app: Scheduler) -> None:
    app.templates.set("n", retries=3, queue="q")
    printed("schedules", "add", "a", "every 1h", "t", "--template", "n", "--retries", "1")
    assert "retries: 1 → 3" in printed("schedules", "update", "a", "--inherit", "retries")
    assert "is not an option that schedules inherit" in failed(
        "schedules", "update", "a", "--inherit", "payload", code=2
    )


def test_all_that_match_are_updated(app: Scheduler) -> None:
    for name, task in (("report-a", "t"), ("report-b", "u"), ("other", "t")):
        app.schedules.add(name, "every 1h", task)
    refused = failed("schedules", "update", "--all", "--name", "report-*", "--retries", "3")
    assert "nothing was done: 2 schedules match" in refused
    update = ("schedules", "update", "--all", "--name", "report-*", "--retries", "3", "--yes")
    assert printed(*update) == "updated 2 schedules\n"
    assert [each.retries for each in app.schedules.list()] == [0, 3, 3]
    printed("schedules", "update", "--all", "--of-task", "t", "--task", "u", "--yes")
    assert {each.task for each in app.schedules.list()} == {"u"}
    assert "options that match schedules go with --all" in failed(
        "schedules", "update", "other", "--name", "x*", "--retries", "1", code=2
    )
    assert "give what to change" in failed("schedules", "update", "--all", "--yes", code=2)
    assert "give the name of a schedule, or --all" in failed("schedules", "update", "--retries", "1", code=2)
    assert printed("schedules", "list", "--name", "oth?r").count("\n") == 3
    assert "is not a pattern of names" in failed("schedules", "list", "--name", "a b", code=2)


def test_a_resume_catches_up(app: Scheduler, clock: Clock) -> None:
    for name in ("a", "b"):
        app.schedules.add(name, "every 10m", "t", catch_up="all", paused=True)
    clock.pass_(30 * MINUTE)
    assert printed("schedules", "resume", "a", "--catch-up").startswith("resumed a, next run")
    assert len(app.runs.list(schedule="a")) == 3
    printed("schedules", "resume", "--all", "--catch-up", "--yes")
    assert len(app.runs.list(schedule="b")) == 3

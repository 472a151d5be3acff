"""The commands that create and change schedules."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evenbeat import Scheduler
from evenbeat.core.options import SCHEDULE
from evenbeat.observe.phrases import measured
from tests.unit import cli_store
from tests.unit.cli_store import MINUTE, Clock, answered, failed, fire, printed

app, clock = cli_store.app, cli_store.clock


# -- schedules add -------------------------------------------------------------------------------------------


def test_a_schedule_is_added_and_its_database_created(tmp_path: Path) -> None:
    text = printed("schedules", "add", "digest", "0 9 * * mon-fri", "send_digest", "--tz", "Europe/Berlin")

    assert text == (
        "added digest: At 09:00, Monday to Friday (Europe/Berlin)\n"
        "next run Tue 2026-03-03 08:00 +00:00, in 1 d\n"
    )
    assert (tmp_path / "evenbeat.db").exists()


def test_all_options_of_a_schedule_can_be_given(app: Scheduler) -> None:
    values = {
        "retries": "3",
        "backoff": "5s",
        "max_backoff": "1m",
        "timeout": "5m",
        "on_crash": "fail",
        "max_crashes": "1",
        "expires": "10m",
        "queue": "mail",
        "priority": "7",
        "description": "x",
        "tags": "eu,billing",
        "catch_up": "skip",
        "grace": "2m",
        "catch_up_limit": "5",
        "catch_up_rate": "10/m",
        "overlap": "skip",
        "max_concurrent": "2",
        "spread": "30s",
        "after": "before, other within 1h wait 5m",
    }
    for name in ("before", "other"):
        app.schedules.add(name, "every 1h", "t")
    assert values.keys() == set(SCHEDULE) - {"catch_up_max_age"}  # with skip, grace is the age
    flags = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", value)]
    printed("schedules", "add", "a", "every 1h", "t", "--payload", '{"n": 1}', "--start-at", "+3h", *flags)

    info = app.schedules.get("a")
    assert (info.queue, info.priority, info.description, info.payload) == ("mail", 7, "x", {"n": 1})
    assert info.tags == ("billing", "eu")
    assert (info.overlap, info.max_concurrent, info.spread) == ("skip", 2, timedelta(seconds=30))
    assert (info.catch_up, info.grace, info.catch_up_limit) == ("skip", timedelta(minutes=2), 5)
    assert (info.catch_up_rate, info.catch_up_max_age) == ("10/m", None)
    assert (info.retries, info.timeout, info.on_crash) == (3, timedelta(minutes=5), "fail")
    assert info.expires == timedelta(minutes=10)
    assert info.after == "before, other within 1h wait 5m"
    assert info.next_run == datetime(2026, 3, 2, 11, tzinfo=UTC) + info.spread_delay
    printed("schedules", "update", "a", "--catch-up", "all", "--catch-up-max-age", "2d")
    assert app.schedules.get("a").catch_up_max_age == timedelta(days=2)


@pytest.mark.parametrize(
    ("start", "first"), [("2026-03-02T08:03", "08:03"), ("+3m", "08:03"), ("2026-03-02T07:55Z", "08:05")]
)
def test_an_interval_counts_from_its_start(app: Scheduler, clock: Clock, start: str, first: str) -> None:
    printed("schedules", "add", "a", "every 10m", "t", "--start-at", start)
    assert f"{app.schedules.get('a').next_run:%H:%M}" == first
    clock.pass_(6 * MINUTE)
    fire(app)
    assert [f"{run.tick:%H:%M}" for run in app.runs.list()] == [first]
    hour, minute = first.split(":")
    assert f"{app.schedules.get('a').next_run:%H:%M}" == f"{hour}:{int(minute) + 10}"


def test_run_now_asks_for_a_run_besides(app: Scheduler) -> None:
    assert "and one run at once" in printed("schedules", "add", "a", "@daily", "t", "--run-now")
    assert len(app.runs.list()) == 1


def test_a_single_instant_in_the_past_is_due_at_once() -> None:
    assert "4 d 8 h ago" in printed("schedules", "add", "a", "at 2026-02-26T00:00Z", "t")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("a", "0 9 * * mon-fry", "t"), "    0 9 * * mon-fry\n            ^^^^^^^\n"),
        (("a b", "@daily", "t"), 'error: name "a b" is not 1 to 128 letters, digits, _, -, . or : (not'),
        (("a", "@daily", "t", "--payload", "{"), "error: invalid value for '--payload': '{' is not JSON"),
        (("a", "@daily", "t", "--payload", "[1]"), "is not an object of named arguments"),
        (("a", "@daily", "t", "--timeout", "soon"), 'error: --timeout "soon" is not a duration'),
        (("a", "@daily", "t", "--priority", "99"), "error: --priority 99 is not one of 0-9"),
        (("a", "@daily", "t", "--overlap", "no"), "error: invalid value for '--overlap'"),
        (("a", "@daily"), "error: missing argument 'TASK'"),
        (("a", "@daily", "t", "--tenant", "x y"), 'error: --tenant "x y" is not 1 to 128 letters'),
        (("a", "@daily", "t", "--store", "oracle://x:y@z"), 'error: --store "oracle://x:***@z" is not a URL'),
    ],
)
def test_invalid_values_are_refused_before_anything_is_done(args: tuple[str, ...], message: str) -> None:
    assert message in failed("schedules", "add", *args, code=2)


def test_a_name_that_is_taken_fails(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    assert failed("schedules", "add", "a", "@daily", "t") == (
        'error: schedule "a" of tenant "default" exists already\n'
        "hint: 'evenbeat schedules show a' shows it\n"
    )


# -- schedules: changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "end"),
    [
        ("2h", "Mon 2026-03-02 10:00 +00:00, in 2 h"),
        ("+90s", "Mon 2026-03-02 08:01:30 +00:00, in 1 min 30 s"),
        ("2026-03-05T09:00", "Thu 2026-03-05 09:00 +00:00, in 3 d 1 h"),
        ("2026-03-05T09:00+02:00", "Thu 2026-03-05 07:00 +00:00, in 2 d 23 h"),
    ],
)
def test_a_pause_may_end_by_itself(app: Scheduler, until: str, end: str) -> None:
    app.schedules.add("a", "@daily", "t")

    assert printed("schedules", "pause", "a", "--until", until, "--note", "x") == f"paused a until {end}\n"
    assert app.schedules.get("a").pause_note == "x"


def test_a_time_of_day_to_come_is_the_next_one_in_the_local_zone(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")  # it is 09:00 there
    app.schedules.add("a", "@daily", "t")

    assert "until Mon 2026-03-02 18:00 +01:00, in 9 h" in printed(
        "schedules", "pause", "a", "--until", "18:00"
    )
    assert "until Tue 2026-03-03 08:59 +01:00" in printed("schedules", "pause", "a", "--until", "8:59")
    assert "until Tue 2026-03-03 09:00 +01:00" in printed("schedules", "pause", "a", "--until", "09:00")
    assert "for Mon 2026-03-02 09:30 +01:00, in 30 min" in printed("runs", "enqueue", "t", "--at", "09:30")
    assert "for Tue 2026-03-03 08:30:15" in printed("runs", "enqueue", "t", "--at", "08:30:15")
    assert 'WHEN "25:00" is neither' in failed("schedules", "reschedule", "a", "25:00", code=2)


def test_a_dry_run_of_resume_says_what_becomes_of_the_missed_ticks(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "every 10m", "t", paused=True)
    clock.pass_(60 * MINUTE)
    sentence = "The 6 ticks of the pause are skipped; it fires next at Mon 2026-03-02 09:10 +00:00."
    caught_up = "1 run starts at once for 6 ticks of the pause; it fires next at Mon 2026-03-02 09:10 +00:00."
    assert printed("schedules", "resume", "a", "--dry-run") == f"{sentence}\nWith --catch-up: {caught_up}\n"
    document = answered("schedules", "resume", "a", "--dry-run", "--json")
    assert (document["resume"]["skipped"], document["resume"]["sentence"]) == (6, sentence)
    assert app.schedules.get("a").state == "paused"
    every = printed("schedules", "resume", "--all", "--dry-run").splitlines()
    assert every[2:] == [f"a         {sentence}", "", "would resume 1 schedule; nothing was done"]
    assert caught_up in printed("schedules", "resume", "--all", "--dry-run", "--catch-up", "--yes")
    assert answered("schedules", "resume", "--all", "--dry-run")["matched"] == 1
    assert app.schedules.get("a").state == "paused"


def test_a_pause_without_an_end_says_how_to_end_it_and_resume_does(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    assert printed("schedules", "pause", "a") == (
        "paused a until it is resumed: evenbeat schedules resume a\n"
    )
    tomorrow = "next run Tue 2026-03-03 00:00 +00:00, in 16 h\n"
    assert printed("schedules", "resume", "a") == f"resumed a, {tomorrow}"
    assert printed("schedules", "resume", "a") == f"a was not paused: it is active, {tomorrow}"


def test_commands_to_paste_name_the_tenant(app: Scheduler) -> None:
    def pasted(text: str) -> tuple[str, ...]:
        """The arguments of the first command in a text."""
        line = next(line for line in text.splitlines() if "evenbeat " in line)
        return tuple(line.partition("evenbeat ")[2].split())

    tenant = ("--tenant", "acme")
    assert pasted(printed("schedules", "add", "a", "@daily", "t", "--paused", *tenant)) == (
        ("schedules", "resume", "a", *tenant)
    )
    again = "'evenbeat schedules show a --tenant acme' shows it"
    assert again in failed("schedules", "add", "a", "@daily", "t", *tenant)
    updated = printed("schedules", "update", "a", "--retries", "1", *tenant)
    assert printed(*pasted(updated)).startswith("resumed a")
    moved = failed("schedules", "reschedule", "a", "2026-03-01T00:00Z", *tenant, code=2)
    assert "'evenbeat schedules run a --tenant acme' runs it now" in moved
    resume = pasted(printed("schedules", "pause", "a", *tenant))
    assert pasted(printed("schedules", "reschedule", "a", "+1h", *tenant)) == resume
    assert printed(*resume).startswith("resumed a")
    for added in (("schedules", "run", "a"), ("runs", "enqueue", "t")):
        assert "queued" in printed(*pasted(printed(*added, *tenant)))
    cancel = pasted(printed("schedules", "pause", "a", *tenant).splitlines()[-1])
    assert printed(*cancel, "--yes").startswith("cancelled 1 run")
    none = "'evenbeat schedules list --tenant acme' shows those that are there"
    assert none in failed("schedules", "show", "zzz", *tenant)


def test_a_finished_schedule_can_not_be_paused(app: Scheduler) -> None:
    app.schedules.add("a", "at 2026-03-01T00:00Z", "t")
    fire(app)

    lines = printed("schedules", "pause", "a").splitlines()
    assert lines[0] == "a is finished: there is nothing to pause"
    assert lines[1].startswith("1 run is queued and will run")


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("2026-03-01T00:00", "error: --until 2026-03-01T00:00 is not in the future\n"),
        ("soon", 'error: --until "soon" is neither a date and time nor a duration; write 18:00 or 2026-'),
    ],
)
def test_an_invalid_end_is_refused(app: Scheduler, until: str, message: str) -> None:
    app.schedules.add("a", "@daily", "t")

    assert failed("schedules", "pause", "a", "--until", until, code=2).startswith(message)


def test_trigger_queues_a_run_now(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", {"n": 1})

    text = printed("schedules", "run", "a")
    made = answered("schedules", "run", "a", "--payload", '{"n": 2}')["run"]
    second, first = app.runs.list(schedule="a")
    assert {first.id, second.id} == {made["id"], text.split()[-1]}
    assert sorted(run.payload["n"] for run in (first, second)) == [1, 2]


def test_a_trigger_that_overlap_refuses_fails(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", overlap="skip")
    app.schedules.run_now("a")

    assert "leave no room for another" in failed("schedules", "run", "a")


@pytest.mark.parametrize("when", ["+2h", "2h", "2026-03-02T10:00", "2026-03-02T11:00+01:00"])
def test_reschedule_moves_the_next_run(app: Scheduler, when: str) -> None:
    app.schedules.add("a", "@daily", "t")

    assert printed("schedules", "reschedule", "a", when) == (
        "next run of a: Mon 2026-03-02 10:00 +00:00, in 2 h\n"
    )


def test_a_paused_schedule_that_is_moved_stays_paused_and_says_so(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a")

    assert printed("schedules", "reschedule", "a", "+2h") == (
        "next run of a: Mon 2026-03-02 10:00 +00:00, in 2 h\n"
        "it is paused, and runs only if it is resumed before: evenbeat schedules resume a\n"
    )


def test_a_schedule_that_is_moved_into_its_pause_says_when_it_runs(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a", until="2026-03-03T12:00Z")

    assert printed("schedules", "reschedule", "a", "+2h") == (
        "moved the next tick of a to Mon 2026-03-02 10:00 +00:00, in 2 h\n"
        "it is paused until Tue 2026-03-03 12:00 +00:00: this tick will be skipped\n"
        "next run Wed 2026-03-04 00:00 +00:00, in 1 d 16 h\n"
    )
    assert printed("schedules", "reschedule", "a", "2026-03-03T13:00") == (
        "next run of a: Tue 2026-03-03 13:00 +00:00, in 1 d 5 h\n"
        "it is paused until Tue 2026-03-03 12:00 +00:00\n"
    )


def test_a_spread_schedule_that_is_moved_says_when_it_fires(app: Scheduler) -> None:
    delay = app.schedules.add("a", "@daily", "t", spread="1h").spread_delay

    first, second = printed("schedules", "reschedule", "a", "+2h").splitlines()
    fires = datetime(2026, 3, 2, 10, tzinfo=UTC) + delay
    assert first.startswith(f"next run of a: {fires:%a %Y-%m-%d %H:%M}")
    assert second == (f"that is Mon 2026-03-02 10:00 +00:00 and its share of the spread, {measured(delay)}")


@pytest.mark.parametrize("when", ["2020-01-01", "2026-03-02T07:59"])
def test_a_schedule_is_not_moved_into_the_past(app: Scheduler, when: str) -> None:
    app.schedules.add("slow", "@daily", "t")

    assert failed("schedules", "reschedule", "slow", when, code=2) == (
        f"error: {when} is in the past; give a time to come; 'evenbeat schedules run slow' runs it now\n"
    )


def test_delete_does_not_ask_without_a_terminal(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    assert printed("schedules", "delete", "a") == "deleted a\n"
    assert app.schedules.list() == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_delete_asks_in_a_terminal(app: Scheduler, answer: str, code: int) -> None:
    app.schedules.add("a", "@daily", "t")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenbeat", "schedules", "delete", "a"]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, answer.encode())
    _, stderr = child.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert child.returncode == code
    assert "delete a (@daily, t)? [y/N]" in stderr.replace("0 0 * * *", "@daily")
    assert bool(app.schedules.list()) == bool(code)


def test_delete_warns_that_code_creates_the_schedule_again(app: Scheduler) -> None:
    app.task(schedule="@daily", name="t")(lambda: None)
    app.declare_tasks()

    assert "creates it again" in printed("schedules", "delete", "t", "--yes")


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("show", "digets"), "did you mean digest?"),
        (("pause", "digets"), "did you mean digest?"),
        (("resume", "digets"), "did you mean digest?"),
        (("run", "digets"), "did you mean digest?"),
        (("reschedule", "digets", "+1h"), "did you mean digest?"),
        (("delete", "digets"), "did you mean digest?"),
        (("show", "zzz"), "'evenbeat schedules list' shows those that are there"),
        (("show", "zebra"), "tenant acme has one: --tenant acme"),
        (("show", "zzz", "--tenant", "nobody"), "there are no schedules of tenant nobody"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_nearest(
    app: Scheduler, args: tuple[str, ...], hint: str
) -> None:
    app.schedules.add("digest", "@daily", "t")
    app.schedules.add("zebra", "@daily", "t", tenant="acme")

    tenant = "nobody" if "nobody" in args else "default"
    what, known = "schedule", ""
    if not hint.startswith("did you mean"):
        what, known = "row of schedule", "; it may be in the code of nodes only, and no node is alive now"
    assert failed("schedules", *args) == (
        f'error: there is no {what} "{args[1]}" of tenant "{tenant}"{known}\nhint: {hint}\n'
    )


def test_delete_warns_of_schedules_that_wait(app: Scheduler) -> None:
    app.schedules.add("load", "every 1h", "work")
    app.schedules.add("later", "on success of load", "work")
    words = "warning: later waits for load, which does not succeed any more; change what it waits for, or add"
    with_yes = answered("schedules", "delete", "load")
    assert with_yes["warnings"][0]["problem"] == "later waits for load, which does not succeed any more"
    app.schedules.add("load", "every 1h", "work")
    assert words in printed("schedules", "delete", "--all", "--name", "load", "--yes")
    app.schedules.add("load", "every 1h", "work")
    assert printed("schedules", "delete", "load").splitlines()[-1].startswith(words)

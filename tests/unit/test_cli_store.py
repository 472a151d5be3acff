"""The commands that work on a store: their output, their changes, and their failures."""

from __future__ import annotations

import inspect
import json
import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from evenbeat import LockHeld, RunRefused, ScheduleConflict, Scheduler, SchemaTooNew, StoreUnavailable
from evenbeat.app.schedules import Schedules
from evenbeat.cli import store_input
from evenbeat.cli.groups import LazyGroup
from evenbeat.cli.phrases import one_line
from evenbeat.cli.root import root
from evenbeat.core.options import SCHEDULE
from evenbeat.core.records import LogChunk, Record, RunRecord
from evenbeat.observe.phrases import measured
from evenbeat.rules import attempts
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.stores.sqlite.schema import schema_sql
from evenbeat.stores.sqlite.server_checks import schema_version

MINUTE, HOUR = 60_000, 3_600_000


class Clock:
    """The clock of this machine, which is that of SQLite: Monday, 2026-03-02, 08:00 UTC."""

    def __init__(self) -> None:
        self.now = 1_772_438_400_000

    def pass_(self, ms: int) -> None:
        self.now += ms


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", *(key for key in os.environ if "EVENBEAT" in key)):
        monkeypatch.delenv(name, raising=False)
    found = Clock()
    monkeypatch.setattr(time, "time_ns", lambda: found.now * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: found.now / 1000)
    return found


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/evenbeat.db")
    assert scheduler.store.now()
    yield scheduler
    scheduler.close()


def run(*args: str, answers: str | None = None) -> Result:
    # click before 8.2 mixes stderr into stdout by default.
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    options: dict[str, Any] = {"mix_stderr": False} if mixes else {}
    result = CliRunner(**options).invoke(root, args, prog_name="evenbeat", input=answers)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def printed(*args: str, code: int = 0) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (code, ""), result.stderr
    return result.stdout


def answered(*args: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(printed(*args, "--json", code=code))
    assert isinstance(document, dict)
    return document


def failed(*args: str, code: int = 1) -> str:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    return result.stderr


def fire(app: Scheduler) -> None:
    app.store.fire_due(app.store.now(), 100, plan)


def claim(app: Scheduler, lease: int = 30_000) -> list[RunRecord]:
    token = f"claim-{time.monotonic_ns()}"
    wanted = Claim(worker="node-1", token=token, limit=100, now=app.store.now(), lease=lease)
    return list(app.store.claim_runs(wanted).runs)


def succeed(app: Scheduler, run: RunRecord, result: str = "null") -> None:
    assert app.store.settle_runs(
        [attempts.succeeded(run, result, app.store.now(), f"{run.id}-{run.attempt}")]
    ) == [True]


def fail(app: Scheduler, run: RunRecord, error: str) -> None:
    assert app.store.settle_runs(
        [attempts.failed(run, error, app.store.now(), f"{run.id}-{run.attempt}")]
    ) == [True]


# -- schedules list --------------------------------------------------------------------------------


def test_schedules_are_listed_with_state_next_run_trigger_task_and_last_result(
    app: Scheduler, clock: Clock
) -> None:
    app.schedules.add("digest", "0 9 * * mon-fri", "send_digest")
    app.schedules.add("cleanup", "every 10m", "clean")
    app.schedules.pause("cleanup", "migration")
    app.schedules.run_now("digest")
    (held,) = claim(app)
    succeed(app, held)
    clock.pass_(5 * MINUTE)

    assert printed("schedules", "list").splitlines() == [
        "name     state              next run             trigger      task         last run",
        "─" * 87,
        "cleanup  paused: migration                       every 10m    clean",
        "digest   active             09:00     in 55 min  0 9 * * 1-5  send_digest  ok 5 min ago",
    ]


def test_near_dates_are_short(app: Scheduler) -> None:
    for name, when in (("a", "2026-03-02T09:00Z"), ("b", "2026-03-04T09:00:30Z"), ("c", "2026-04-02T09:00Z")):
        app.schedules.add(name, f"at {when}", "t")

    rows = printed("schedules", "list").splitlines()[2:]
    assert [row.partition("active")[2].partition("at ")[0].strip() for row in rows] == [
        "09:00             in 1 h",
        "Wed 09:00:30      in 2 d 1 h",
        "2026-04-02 09:00  in 31 d 1 h",
    ]


def test_dates_are_those_of_the_local_zone(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules.add("a", "0 9 * * *", "t")
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    assert "  18:00     in 1 h" in printed("schedules", "list")
    assert "Mon 2026-03-02 18:00 +09:00" in printed("schedules", "show", "a")


def test_a_pause_with_an_end_says_until_when(app: Scheduler) -> None:
    app.schedules.add("a", "* * * * *", "t")
    app.schedules.pause("a", "tax rates", until="2026-03-02T12:00Z")

    assert "paused until 12:00: tax rates" in printed("schedules", "list")


def test_an_overdue_schedule_is_seen_to_be(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t")
    clock.pass_(2 * HOUR)

    assert "09:00     1 h ago" in printed("schedules", "list")


@pytest.mark.parametrize(
    ("end", "words"), [("succeeded", "ok 2 min ago"), ("failed", "failed 2 min ago"), ("", "cancelled 2 min")]
)
def test_the_last_result_is_shown(app: Scheduler, clock: Clock, end: str, words: str) -> None:
    app.schedules.add("a", "@daily", "t")
    made = app.schedules.run_now("a")
    if end:
        (held,) = claim(app)
        succeed(app, held) if end == "succeeded" else fail(app, held, "no")
    else:
        app.runs.cancel(made.id)
    clock.pass_(2 * MINUTE)

    assert words in printed("schedules", "list")


def test_lists_are_narrowed_and_belong_to_a_tenant(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.add("b", "@daily", "u")
    app.schedules.add("c", "@daily", "t", tenant="acme")
    app.schedules.pause("b")

    def names(*args: str) -> list[str]:
        return [row["name"] for row in answered("schedules", "list", *args)["schedules"]]

    assert names() == ["a", "b"]
    assert names("--state", "paused") == names("--task", "u") == ["b"]
    assert names("--limit", "1") == ["a"]
    assert names("--tenant", "acme") == ["c"]
    assert names("--all-tenants") == ["c", "a", "b"]
    assert "tenant   name" in printed("schedules", "list", "--all-tenants")


def test_an_empty_list_has_a_hint(app: Scheduler) -> None:
    assert printed("schedules", "list") == "no schedules yet: evenbeat schedules add --help\n"
    assert printed("schedules", "list", "--state", "paused") == "no such schedules\n"
    assert printed("runs", "list") == "no runs\n"
    assert printed("runs", "list", "--state", "failed") == "no such runs\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_a_list_fits_any_terminal(app: Scheduler, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    app.schedules.add("weekly-digest-for-all-customers", "0 8 * * mon tz=Europe/Berlin", "send_the_digest")
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a", "because of a long story that does not end soon")
    monkeypatch.setenv("COLUMNS", str(columns))

    lines = printed("schedules", "list").splitlines()
    assert max(map(len, lines)) <= columns
    assert any("in 6 d 23 h" in line for line in lines)
    assert columns < 80 or any("weekly-digest-for-all-customers" in line for line in lines)


def titles(*args: str) -> list[str]:
    return [word.strip() for word in printed(*args).splitlines()[0].split("  ") if word.strip()]


def test_the_columns_of_a_narrow_table_have_titles(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules.add("weekly-digest-for-all-customers", "0 8 * * mon tz=Europe/Berlin", "send_the_digest")
    app.schedules.run_now("weekly-digest-for-all-customers")
    held = claim(app)[0]
    succeed(app, held)
    app.schedules.run_now("weekly-digest-for-all-customers")
    claim(app)

    monkeypatch.setenv("COLUMNS", "80")
    assert titles("schedules", "list") == ["name", "state", "next", "trigger", "last run"]
    assert titles("runs", "list") == ["run", "state", "task", "due", "took"]
    monkeypatch.setenv("COLUMNS", "70")
    assert titles("runs", "list") == ["run", "state", "task", "due"]


def test_the_list_as_json_has_the_definition_and_the_history(app: Scheduler) -> None:
    app.schedules.add("a", "0 9 * * * tz=Europe/Berlin", "t", {"team": "ops"}, timeout="5m")

    (row,) = answered("schedules", "list")["schedules"]
    assert (row["next_run"], row["payload"]) == ("2026-03-03T08:00:00Z", {"team": "ops"})
    assert (row["timeout"], row["stats"]["run_count"]) == (300, 0)


# -- schedules show --------------------------------------------------------------------------------


def test_all_about_a_schedule_is_shown(app: Scheduler, clock: Clock) -> None:
    app.schedules.add(
        "digest",
        "0 9 * * mon-fri",
        "send_digest",
        {"team": "ops"},
        description="For everybody.",
        retries=3,
        timeout="5m",
        catch_up="skip",
        overlap="queue",
        max_concurrent=2,
        spread="1m",
        on_crash="fail",
    )
    made = app.schedules.run_now("digest")
    (held,) = claim(app)
    clock.pass_(1_500)
    fail(app, replace(held, failures=3), "Traceback (most recent call last):\n  …\nOSError: no \x1b[31mroute")
    app.schedules.reschedule("digest", "2026-03-04T10:00Z")

    text = printed("schedules", "show", "digest")
    for line in (
        "digest",
        "At 09:00, Monday to Friday (UTC)",
        "state    active",
        "about    For everybody.",
        "task     send_digest",
        "trigger  0 9 * * 1-5",
        'payload  {"team": "ops"}',
        "policy   catch-up skip (later than 1m), overlap queue, at most 2 runs at once, spread over 1m",
        "(fires 1.5 s after each tick)",
        "runs     queue default, priority 5 (normal), 3 retries after 10s, doubled, timeout 5m,",
        "created  Mon 2026-03-02 08:00 +00:00, by hand",
        "1  Wed 2026-03-04 10:00:01 +00:00  2 d 2 h",
        "2  Thu 2026-03-05 09:00:01 +00:00  3 d 1 h",
        "history  1 run: 0 succeeded, 1 failed",
        "         last failure Mon 2026-03-02 08:00:01 +00:00, now",
        "         OSError: no �[31mroute",
        f"{made.id}  failed  08:00  0 ms  1.5 s",
        "09:00 to Wed 09:00      3  passed over when the next run was moved",
    ):
        assert line in text


def test_a_trigger_is_shown_as_the_name_resolves_it(app: Scheduler) -> None:
    app.schedules.add("nightly-report", "H 3 * * *", "t")

    assert "At 03:18 every day (UTC)" in printed("schedules", "show", "nightly-report")


def test_a_schedule_that_code_declared_says_so(app: Scheduler) -> None:
    app.schedules.declare("a", "@daily", "t")
    assert "created  Mon 2026-03-02 08:00 +00:00, by code" in printed("schedules", "show", "a")
    assert app.schedules.get("a").declared


def test_a_cancelled_retry_took_no_time_and_is_in_the_history(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t", retries=1)
    made = app.schedules.run_now("a")
    (held,) = claim(app)
    fail(app, held, "no")
    clock.pass_(450)
    app.runs.cancel(made.id)

    assert app.runs.get(made.id).duration is None
    assert "took" not in printed("runs", "show", made.id).partition("#")[0]
    assert "history  1 run: 0 succeeded, 0 failed, 1 cancelled" in printed("schedules", "show", "a")


def test_a_tick_that_waits_for_a_run_to_end_says_so(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t", overlap="queue")
    app.schedules.run_now("a")
    (held,) = claim(app, lease=2 * HOUR)
    clock.pass_(HOUR)
    assert "09:00     now" in printed("schedules", "list")
    fire(app)
    clock.pass_(1_000)

    assert "09:00     waits for a run to end" in printed("schedules", "list")
    shown = printed("schedules", "show", "a")
    assert "waits    for a run to end, with the tick of Mon 2026-03-02 09:00 +00:00" in shown
    assert app.schedules.get("a").is_waiting
    succeed(app, held)
    fire(app)
    assert not app.schedules.get("a").is_waiting
    assert "waits" not in printed("schedules", "list")


def test_a_schedule_that_never_ran_has_no_history(app: Scheduler) -> None:
    app.schedules.add("a", "every 10m", "t", tenant="acme")

    text = printed("schedules", "show", "a", "--tenant", "acme")
    assert "history  no run has ended yet\n" in text
    assert "by hand, for tenant acme" in text


def test_every_reason_for_a_skipped_tick_has_words(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(10 * MINUTE)
    fire(app)
    app.schedules.pause("a")
    clock.pass_(3 * MINUTE)
    app.schedules.resume("a")

    skipped = answered("schedules", "show", "a")["skipped"]
    assert [(row["reason"], row["count"]) for row in skipped] == [("paused", 3), ("coalesced", 9)]
    assert [row["why"] for row in skipped] == [
        "the schedule was paused",
        "missed; a later run stands for them (catch-up latest)",
    ]


def test_show_as_json_has_the_coming_ticks(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    document = answered("schedules", "show", "a")
    assert document["next"][:2] == ["2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z"]
    assert document["explain"] == "at 00:00 every day (UTC)"


# -- schedules add ---------------------------------------------------------------------------------


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
        "queue": "mail",
        "priority": "7",
        "description": "x",
        "tags": "eu,billing",
        "catch_up": "skip",
        "grace": "2m",
        "catch_up_limit": "5",
        "overlap": "skip",
        "max_concurrent": "2",
        "spread": "30s",
    }
    assert values.keys() == set(SCHEDULE)
    flags = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", value)]
    printed("schedules", "add", "a", "every 1h", "t", "--payload", '{"n": 1}', "--start-at", "+3h", *flags)

    info = app.schedules.get("a")
    assert (info.queue, info.priority, info.description, info.payload) == ("mail", 7, "x", {"n": 1})
    assert info.tags == ("billing", "eu")
    assert (info.overlap, info.max_concurrent, info.spread) == ("skip", 2, timedelta(seconds=30))
    assert (info.catch_up, info.grace, info.catch_up_limit) == ("skip", timedelta(minutes=2), 5)
    assert (info.retries, info.timeout, info.on_crash) == (3, timedelta(minutes=5), "fail")
    assert info.next_run == datetime(2026, 3, 2, 11, tzinfo=UTC) + info.spread_delay


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
        (("a", "@daily", "t", "--tenant", "x y"), 'error: tenant "x y" is not 1 to 128 letters'),
        (("a", "@daily", "t", "--store", "oracle://x:y@z"), 'error: store "oracle://x:***@z" is not a URL'),
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


# -- schedules: changes ----------------------------------------------------------------------------


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


def test_a_pause_without_an_end_says_how_to_end_it_and_resume_does(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    assert printed("schedules", "pause", "a") == (
        "paused a until it is resumed: evenbeat schedules resume a\n"
    )
    tomorrow = "next run Tue 2026-03-03 00:00 +00:00, in 16 h\n"
    assert printed("schedules", "resume", "a") == f"resumed a, {tomorrow}"
    assert printed("schedules", "resume", "a") == f"a was not paused: it is active, {tomorrow}"


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
    assert failed("schedules", *args) == (
        f'error: there is no schedule "{args[1]}" of tenant "{tenant}"\nhint: {hint}\n'
    )


# -- runs ------------------------------------------------------------------------------------------


def test_runs_are_listed_with_their_times(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("digest", "0 8 * * *", "send")
    app.schedules.reschedule("digest", "2026-03-02T08:00Z")
    clock.pass_(1_300)
    fire(app)
    (held,) = claim(app)
    clock.pass_(65_000)
    succeed(app, held)
    clock.pass_(1_000)
    app.enqueue("mail", delay="1h", id="by-hand")

    assert printed("runs", "list").splitlines() == [
        "run                             state      task  due        late       took",
        "─" * 75,
        "by-hand                         queued     mail  09:01:07",
        "default/digest/2/1772438400000  succeeded  send  08:00     1.3 s  1 min 5 s",
    ]


def test_runs_are_narrowed(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.run_now("a")
    for number in range(3):
        app.enqueue("u", id=f"u{number}")
    app.runs.cancel("u0")

    def ids(*args: str) -> list[str]:
        return sorted(run["id"] for run in answered("runs", "list", *args)["runs"])

    assert len(ids("--schedule", "a")) == len(ids("--task", "t")) == 1
    assert ids("--task", "u") == ["u0", "u1", "u2"]
    assert ids("--state", "cancelled") == ["u0"]
    assert answered("runs", "list", "--limit", "2")["more"] is True
    assert "there are more: --limit 10" in printed("runs", "list", "--limit", "2")
    assert "did you mean" in failed("runs", "list", "--schedule", "aa")


def test_a_run_is_shown_with_its_timing_and_result(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t", tenant="acme")
    clock.pass_(3 * MINUTE + 2_500)
    fire(app)
    (held,) = claim(app)
    clock.pass_(1_200)
    app.store.append_log([LogChunk(run=held.id, attempt=1, seq=0, text="x", at=clock.now)])
    succeed(app, held, '{"sent": 12}')

    assert printed("runs", "show", held.id, "--tenant", "acme").splitlines() == [
        "acme/a/1/1772438580000",
        "",
        "state     succeeded",
        "task      t",
        "schedule  a",
        "          stands for 2 earlier ticks as well",
        "tenant    acme",
        "due       Mon 2026-03-02 08:03 +00:00, 3 s ago",
        "started   Mon 2026-03-02 08:03:02 +00:00, 2.5 s late",
        "ended     Mon 2026-03-02 08:03:03 +00:00",
        "took      1.2 s",
        "attempts  1",
        "worker    node-1",
        "queue     default, priority 5 (normal)",
        "log       1 line: evenbeat runs logs acme/a/1/1772438580000",
        'result    {"sent": 12}',
    ]
    assert failed("runs", "show", held.id).endswith("hint: of tenant acme? add --tenant acme\n")
    document = answered("runs", "show", held.id, "--tenant", "acme")["run"]
    assert (document["lateness"], document["duration"], document["log_lines"]) == (2.5, 1.2, 1)


def test_a_failed_run_is_shown_with_its_traceback(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", {"team": "ops"}, id="r", retries=1)
    (held,) = claim(app)
    fail(app, held, "first")
    text = printed("runs", "show", "r")
    assert "state     retrying\n" in text
    assert "\nagain     Mon 2026-03-02 08:00:09 +00:00, in 9 s\n" in text
    assert "due" not in text
    clock.pass_(MINUTE)
    (held,) = claim(app)
    fail(app, held, 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: \x1b[2Jno\n')

    text = printed("runs", "show", "r")
    assert "state     failed\n" in text
    assert 'payload   {"team": "ops"}\n' in text
    assert "attempts  2: 2 failures; up to 1 retry\n" in text
    assert text.endswith('\nTraceback (most recent call last):\n  File "a.py", line 1\nOSError: �[2Jno\n')


def test_the_log_of_a_run_is_shown_by_attempt(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    assert run("runs", "logs", "r").stderr == "the run has no log\n"
    chunks = [("one\ntwo\n", 1), ("three \x1b[31m", 2)]
    app.store.append_log(
        [LogChunk(run="r", attempt=n, seq=0, text=text, at=clock.now + n) for text, n in chunks]
    )

    assert printed("runs", "logs", "r").splitlines() == [
        "2026-03-02 08:00:00.001  one",
        "2026-03-02 08:00:00.001  two",
        "attempt 2",
        "2026-03-02 08:00:00.002  three �[31m",
    ]
    assert answered("runs", "logs", "r") == {
        "run": "r",
        "state": "queued",
        "lines": [
            {"at": "2026-03-02T08:00:00.001Z", "attempt": 1, "text": "one\ntwo\n"},
            {"at": "2026-03-02T08:00:00.002Z", "attempt": 2, "text": "three \x1b[31m"},
        ],
    }


def test_a_log_is_followed_until_the_run_is_over(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    looks = iter(range(4))

    def meanwhile(_: SqliteStore, timeout: float) -> bool:
        seq = next(looks)
        if seq == 3:
            succeed(app, held)
        app.store.append_log([LogChunk(run="r", attempt=1, seq=seq, text=f"line-{seq}", at=0)])
        return True

    monkeypatch.setattr(SqliteStore, "wait", meanwhile)

    lines = printed("runs", "logs", "r", "--follow").splitlines()
    assert [line.split()[-1] for line in lines] == ["line-0", "line-1", "line-2", "line-3"]
    assert "exclude each other" in failed("runs", "logs", "r", "-f", "--json", code=2)


def test_a_failed_run_is_tried_again(app: Scheduler) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    fail(app, held, "no")

    assert printed("runs", "retry", "r") == "queued r again\n"
    assert failed("runs", "retry", "r") == (
        "error: run r is queued; only failed and cancelled runs can be retried\n"
    )


def test_a_run_of_a_schedule_with_bounds_is_tried_again_as_a_new_one(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", overlap="skip")
    app.schedules.run_now("a", id="r")
    (held,) = claim(app)
    fail(app, held, "no")

    assert printed("runs", "retry", "r").startswith("queued a new run with the same payload: evenbeat runs")


def test_queued_runs_are_cancelled_and_running_ones_notified(app: Scheduler) -> None:
    for name in ("a", "b"):
        app.enqueue("t", id=name)
    assert printed("runs", "cancel", "a") == "cancelled a\n"
    assert printed("runs", "cancel", "a") == "cancelled a\n"
    (held,) = claim(app)
    assert printed("runs", "cancel", "b").startswith("asked b to stop; its worker node-1 is notified")
    assert "state     stopping" in printed("runs", "show", "b")
    succeed(app, held)
    assert printed("runs", "cancel", "b", code=1) == "b is over already: succeeded\n"


@pytest.mark.parametrize("command", ["show", "logs", "retry", "cancel"])
def test_a_run_that_is_not_there(app: Scheduler, command: str) -> None:
    assert failed("runs", command, "nope") == (
        'error: there is no run "nope"; it never existed, or its history was purged\n'
        "hint: 'evenbeat runs list' shows the newest\n"
    )


# -- forecast --------------------------------------------------------------------------------------


def test_the_load_ahead_is_drawn_with_where_schedules_meet(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        app.schedules.add(f"import-{number}", "0 * * * *", "t")
    app.schedules.add("poll", "*/30 * * * *", "t")
    app.schedules.add("off", "* * * * *", "t")
    app.schedules.pause("off")
    monkeypatch.setenv("COLUMNS", "60")

    lines = printed("forecast", "--hours", "4", "--minutes", "15").splitlines()
    assert lines == [
        "31 runs of 9 schedules",
        "in the next 4 hours, up to 9 a minute (UTC)",
        "",
        "9     █   █   █",
        "      █   █   █",
        "      █   █   █",
        "      █   █   █",
        "      █   █   █",
        "0   ▅ █ ▅ █ ▅ █ ▅",
        "  08:00   10:00",
        "",
        "busiest           runs  schedules",
        "─" * 60,
        "09:00 and 2 more     9  import-0, import-1, import-2,",
        "                        import-3, import-4, import-5 and 3",
        "                        more",
        "",
        "quiet:   08:00 to 08:30 (30 min): no runs",
        "quiet:   08:31 to 09:00 (29 min): no runs",
        "quiet:   09:01 to 09:30 (29 min): no runs",
        "spread:  15m for import-0, import-1, import-2, import-3,",
        "         import-4, import-5 and 3 more lowers 09:00 from 9",
        "         to 2 runs a minute",
        "hint:    write H for the minute ('H * * * *'): each schedule",
        "         gets its own minute; or set a spread",
    ]


def test_the_forecast_as_json(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")
    app.schedules.add("b", "0 9 * * *", "t", tenant="acme")

    document = answered("forecast", "--hours", "2", "--minutes", "60", "--all-tenants")
    assert document == {
        "from": "2026-03-02T08:00:00Z",
        "until": "2026-03-02T10:00:00Z",
        "schedules": 2,
        "runs": 2,
        "minutes": 60,
        "bars": [{"at": "2026-03-02T08:00:00Z", "runs": 0}, {"at": "2026-03-02T09:00:00Z", "runs": 2}],
        "busiest": [
            {"runs": 2, "at": ["2026-03-02T09:00:00Z"], "schedules": ["acme/b", "default/a"], "more": 0}
        ],
        "quiet": [
            {"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:00Z", "runs": 0, "most": 0},
            {"start": "2026-03-02T09:01:00Z", "end": "2026-03-02T10:00:00Z", "runs": 0, "most": 0},
        ],
        "proposals": [],
        "notes": [],
    }
    assert answered("forecast", "--hours", "2")["runs"] == 1


def test_a_pause_that_ends_and_a_moved_run_are_foreseen(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")
    app.schedules.pause("a", until="2026-03-02T10:30Z")
    app.schedules.add("b", "@daily", "t")
    app.schedules.reschedule("b", "2026-03-02T09:07Z")
    app.schedules.add("over", "at 2026-03-02T09:00Z", "t")
    app.schedules.pause("over", until="2026-03-02T10:30Z")

    bars = answered("forecast", "--hours", "5", "--minutes", "60")["bars"]
    assert [bar["runs"] for bar in bars] == [0, 1, 0, 1, 1]


def test_a_forecast_without_runs_is_one_line(app: Scheduler) -> None:
    app.schedules.add("a", "@yearly", "t")

    assert printed("forecast") == "1 active schedule, no runs in the next 24 hours\n"


def test_a_forecast_begins_at_any_time(app: Scheduler) -> None:
    app.schedules.add("a", "0 9 4 * *", "t")

    assert answered("forecast", "--hours", "2", "--from", "2026-03-04 08:00")["runs"] == 1
    words = printed("forecast", "--hours", "2", "--from", "2026-03-03 08:00")
    assert words == "1 active schedule, no runs in 2 hours from Tue 2026-03-03 08:00 +00:00\n"


@pytest.mark.parametrize("columns", [30, 60, 100, 200])
def test_a_forecast_fits_any_terminal(app: Scheduler, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    for number in range(30):
        app.schedules.add(f"import-{number}", "*/5 * * * *", "t")
    monkeypatch.setenv("COLUMNS", str(columns))

    for args in ((), ("--minutes", "1", "--hours", "3"), ("--hours", "744")):
        lines = printed("forecast", *args).splitlines()
        assert max(map(len, lines)) <= columns


# -- doctor ----------------------------------------------------------------------------------------


def levels(code: int, *args: str) -> dict[str, str]:
    return {check["check"]: check["level"] for check in answered("doctor", *args, code=code)["checks"]}


def node(app: Scheduler, **body: object) -> None:
    app.store.put_record(
        Record(kind="node", key="host-1", body=json.dumps(body), expires=app.store.now() + HOUR)
    )


def test_all_is_well_with_a_new_store(app: Scheduler) -> None:
    assert printed("doctor").splitlines() == [
        "ok  store       sqlite:///evenbeat.db",
        "ok  schema      1, the newest",
        "ok  safety      journal_mode wal, synchronous full",
        "ok  clock       the store and this machine agree",
        "ok  nodes       no node is running, and there is nothing to fire",
        "ok  schedules   none of 0 is overdue",
        "ok  queue       no run has waited for over a minute",
        "ok  leases      every running run has a live worker",
        "ok  quarantine  every row could be read",
        "ok  duplicates  no tick twice in 0 runs",
        "",
        "all is well",
    ]


def test_no_node_is_a_warning_until_a_schedule_is_due(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t")
    assert levels(0)["nodes"] == "warn"
    assert "1 warning" in printed("doctor")

    clock.pass_(3 * HOUR)
    assert levels(1)["schedules"] == "fail"
    text = printed("doctor", code=1)
    assert "1 schedule is due and no node fires" in text
    assert "a for 2 h" in text
    assert text.endswith("1 problem, 1 warning\n")


def test_live_nodes_are_listed_and_asked_for_tasks(app: Scheduler, clock: Clock) -> None:
    node(app, host="box", pid=12, tasks=["t"], queues=["default"])
    for task, queue in (("t", "default"), ("u", "default"), ("t", "mail")):
        app.enqueue(task, queue=queue)
    clock.pass_(5 * MINUTE)

    text = printed("doctor", code=1)
    assert "1 node running" in text
    assert "host-1 on box, pid 12, 1 task" in text
    assert "3 runs wait for a worker" in text
    assert "t: 1 run, for up to 5 min; nodes that have it are busy" in text
    assert "u: 1 run, for up to 5 min; no live node has the task u" in text
    assert "t: 1 run, for up to 5 min; no live node that has the task takes from queue mail" in text


def test_nodes_with_only_a_ticker_or_only_a_worker_are_named(app: Scheduler, clock: Clock) -> None:
    node(app, host="box", pid=12, tasks=["t"], queues=["default"], ticker=True, worker=False)
    app.enqueue("t")
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(5 * MINUTE)
    text = printed("doctor", code=1)
    assert "1 node running" in text
    assert "no live node executes runs" in text
    assert "host-1 on box, pid 12, ticker only" in text

    (record,) = app.store.find_records("node")
    body = json.loads(record.body) | {"ticker": False, "worker": True}
    assert app.store.put_record(replace(record, body=json.dumps(body), version=2), record.version)
    assert "host-1 on box, pid 12, 1 task, worker only" in printed("doctor", code=1)


def test_a_node_that_says_nothing_readable_is_a_node(app: Scheduler) -> None:
    app.store.put_record(Record(kind="node", key="a", body="?"))
    app.store.put_record(Record(kind="node", key="b", body="[]"))

    assert "2 nodes running" in printed("doctor")


def test_runs_whose_workers_are_gone_are_found_and_queued_again(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    clock.pass_(31_000)
    assert levels(0)["leases"] == "ok"  # nodes need a moment
    clock.pass_(MINUTE)
    assert "r of node-1, for 1 min" in printed("doctor", code=1)

    document = answered("doctor", "--repair")
    assert document["repaired"] == {"requeued": ["r"], "cancelled": [], "woken": []}
    assert [(entry.action, entry.via) for entry in app.runs.history("r")] == [("repair", "cli")]
    assert (app.runs.get("r").state, app.runs.get("r").crashes) == ("queued", 1)
    assert printed("doctor", "--repair").startswith("there was nothing to repair\n\n")


def test_rows_in_quarantine_are_shown_and_those_that_can_be_planned_are_woken(
    app: Scheduler, clock: Clock
) -> None:
    for name in ("a", "b"):
        app.schedules.add(name, "@hourly", "t")
    clock.pass_(HOUR)

    def broken(*_: object) -> Any:
        raise ValueError("the moon \x1b[2J is full")

    app.store.fire_due(clock.now, 10, broken)
    (row,) = app.store.find_schedules(ScheduleQuery(name="a")).items
    senseless = replace(row, trigger="when it rains", revision=row.revision + 1)
    app.store.put_schedules([Write(Planned(senseless), row.version)])

    text = printed("doctor", code=1)
    assert "2 rows could not be read" in text
    assert "a: the moon �[2J is full" in text
    text = printed("doctor", "--repair", code=1)
    assert "woken: b" in text
    assert "1 row could not be read" in text


def test_a_tick_that_was_settled_twice_is_found_and_its_surplus_cancelled(
    app: Scheduler, clock: Clock
) -> None:
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(3 * MINUTE)
    fire(app)
    (one,) = app.store.find_runs(RunQuery()).items
    assert levels(0)["duplicates"] == "ok"
    missed = replace(one, id="default/a/1/x", tick=(one.tick or 0) - MINUTE)
    app.store.add_runs([replace(one, id="default/a/1/y"), missed])

    text = printed("doctor", code=1)
    assert "2 ticks were settled more than once" in text
    assert "default/a/1/x queued; recorded as skipped: coalesced" in text
    assert "2 runs are still queued: evenbeat doctor --repair cancels them" in text
    repaired = answered("doctor", "--repair")["repaired"]
    assert len(repaired["cancelled"]) == 2
    text = printed("doctor")
    assert "no tick twice in 3 runs; 2 duplicates were cancelled" in text
    assert "default/a/1/x cancelled; recorded as skipped: coalesced" in text
    assert "report it" not in text
    assert "default/a/1/x" in repaired["cancelled"]
    states = app.runs.count()
    assert (states["queued"], states["cancelled"]) == (1, 2)


def test_a_clock_that_went_back_is_noticed(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t")
    clock.pass_(-2 * HOUR)

    assert "rows from 2 h ahead: its clock went back" in printed("doctor", code=1)


def test_a_file_that_is_not_a_database_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.db").write_text("This is no database, it is a text. " * 100)

    document = answered("doctor", "--repair", code=1)
    assert [check["check"] for check in document["checks"]] == ["store"]
    assert document["repaired"] is None


# -- config, db, completion ------------------------------------------------------------------------


def test_settings_are_shown_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evenbeat.toml").write_text(
        'thread_concurrency = 4\nstore = "postgresql://me:secret@db/jobs"\n'
    )
    monkeypatch.setenv("EVENBEAT_QUEUES", "default,mail")

    lines = [" ".join(line.split()) for line in printed("config", "show", "--tenant", "acme").splitlines()]
    assert "thread_concurrency 4 thread_concurrency in evenbeat.toml:1" in lines
    assert "queues default, mail EVENBEAT_QUEUES" in lines
    assert "tenant acme --tenant" in lines
    assert "lease 30s default" in lines
    text = printed("config", "show", "--json")
    assert "secret" not in text + "\n".join(lines)
    assert json.loads(text)["settings"]["store"] == {
        "value": "postgresql://me:***@db/jobs",
        "from": "file",
        "name": "store",
        "file": f"{tmp_path}/evenbeat.toml",
        "line": 2,
    }


def test_a_variable_that_is_misspelt_is_a_warning_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENBEAT_STROE", "x")

    result = run("config", "show")
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: EVENBEAT_STROE is not a setting and is ignored: did you mean EVENBEAT_STORE?\n"
    )


def test_an_invalid_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.toml").write_text("thread_concurrency = 0\n")

    assert failed("schedules", "list", code=2) == (
        f"error: thread_concurrency in {tmp_path}/evenbeat.toml:1: "
        "thread_concurrency 0 is not a whole number of 1 to 10,000\n"
    )


def test_a_store_of_an_unknown_kind_is_refused_with_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENBEAT_STORE", "oracle://db")

    assert failed("runs", "list", code=2).startswith(
        'error: EVENBEAT_STORE: store "oracle://db" is not a URL of a known kind; write sqlite'
    )


def test_db_upgrade_makes_the_tables_and_says_so(tmp_path: Path) -> None:
    assert printed("db", "upgrade") == "created the tables of sqlite:///evenbeat.db: schema 1\n"
    assert printed("db", "upgrade") == "sqlite:///evenbeat.db is up to date: schema 1\n"
    assert answered("db", "upgrade") == {"store": "sqlite:///evenbeat.db", "from": 1, "to": 1}
    assert printed("db", "upgrade", "--sql") == "-- sqlite:///evenbeat.db is up to date: schema 1\n"


def test_db_upgrade_prints_the_sql_and_runs_nothing(tmp_path: Path) -> None:
    assert printed("db", "upgrade", "--sql") == schema_sql()
    assert answered("db", "upgrade", "--sql")["sql"] == schema_sql()
    assert not (tmp_path / "evenbeat.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    assert "_EVENBEAT_COMPLETE" in run("completion", shell).stdout


def completions(*words: str, **environment: str) -> tuple[str, str]:
    line = " ".join(["evenbeat", *words])
    env = (
        os.environ
        | environment
        | {"_EVENBEAT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    )
    done = subprocess.run(
        [sys.executable, "-c", "from evenbeat.cli import main; main()"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def test_names_of_schedules_are_completed_from_the_store(app: Scheduler) -> None:
    for name in ("digest", "daily", "cleanup"):
        app.schedules.add(name, "@daily", "t")
    app.schedules.add("other", "@daily", "t", tenant="acme")

    assert completions("schedules", "show", "d") == ("plain,daily\nplain,digest\n", "")
    assert completions("schedules", "show", "--tenant", "acme", "''") == ("plain,other\n", "")
    assert completions("runs", "list", "--schedule", "c") == ("plain,cleanup\n", "")
    assert completions("schedules", "p") == ("plain,pause\n", "")


def test_a_completion_never_fails_and_makes_nothing(tmp_path: Path) -> None:
    assert completions("schedules", "show", "d") == ("\n", "")
    assert completions("schedules", "show", "d", EVENBEAT_STORE="oracle://x") == ("\n", "")
    (tmp_path / "evenbeat.toml").write_text("no toml")
    assert completions("schedules", "show", "d") == ("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["evenbeat.toml"]


# -- how they fail ---------------------------------------------------------------------------------

READING = [
    ("schedules", "list"),
    ("schedules", "show", "a"),
    ("schedules", "pause", "a"),
    ("schedules", "resume", "a"),
    ("schedules", "run", "a"),
    ("schedules", "delete", "a"),
    ("schedules", "reschedule", "a", "+1h"),
    ("runs", "list"),
    ("runs", "show", "r"),
    ("runs", "logs", "r"),
    ("runs", "retry", "r"),
    ("runs", "cancel", "r"),
    ("forecast",),
    ("doctor",),
    ("doctor", "--repair"),
]


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_a_database_that_is_not_there_is_not_made_by_accident(args: tuple[str, ...], tmp_path: Path) -> None:
    assert failed(*args) == (
        "error: there is no database evenbeat.db\n"
        "hint: name another one with --store or EVENBEAT_STORE, or its app with EVENBEAT_APP; "
        "'evenbeat db upgrade' creates this one\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_app_that_is_named_says_which_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "shop_jobs.py").write_text(
        "from evenbeat import Scheduler\napp = Scheduler('sqlite:///shop.db')\n"
    )
    (tmp_path / "evenbeat.toml").write_text('app = "shop_jobs.py"\n')
    assert "there is no database shop.db, which shop_jobs.py names" in failed("runs", "list")
    Scheduler("sqlite:///shop.db").store.close()
    assert printed("runs", "list") == "no runs\n"
    # Who names a store means it.
    monkeypatch.setenv("EVENBEAT_STORE", "sqlite:///other.db")
    assert "there is no database other.db" in failed("runs", "list")


def test_a_database_of_others_gets_no_tables_by_accident(tmp_path: Path) -> None:
    with sqlite3.connect("evenbeat.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    for args in READING:
        assert "error: there are no Evenbeat tables in evenbeat.db\n" in failed(*args)
    assert schema_version(str(tmp_path / "evenbeat.db")) == 0
    assert printed("db", "upgrade") == "created the tables of sqlite:///evenbeat.db: schema 1\n"
    assert printed("runs", "list") == "no runs\n"


def test_a_missing_database_is_reported_with_the_setting_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVENBEAT_STORE", "sqlite:////nowhere/jobs.db")

    assert "there is no database /nowhere/jobs.db, which EVENBEAT_STORE names\n" in failed("runs", "list")
    assert "/nowhere/x.db, which --store names\n" in failed(
        "runs", "list", "--store", "sqlite:////nowhere/x.db"
    )
    assert "the folder /nowhere does not exist; make it first\n" in failed("db", "upgrade")
    assert failed("doctor", "sqlite:///nope.db").startswith("error: there is no database nope.db\n")


@pytest.mark.parametrize("args", [*READING, ("db", "upgrade")], ids=" ".join)
def test_a_store_in_memory_has_nothing_to_see(args: tuple[str, ...]) -> None:
    assert "is visible only inside its process" in failed(*args, "--store", "memory://")


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("/x/evenbeat.db: database is locked"),
        ScheduleConflict("default", "a"),
        SchemaTooNew(9, 1),
        LockHeld("default", "a"),
        RunRefused("no room", subject="a"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_is_one_line_and_exit_code_1(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Schedules, "list", refuse)

    assert failed("schedules", "list") == f"error: {error}\n"


def test_a_store_of_a_newer_version_is_a_line(app: Scheduler) -> None:
    with sqlite3.connect("evenbeat.db") as connection:
        connection.execute("UPDATE evenbeat_meta SET value = '9' WHERE key = 'schema'")
    connection.close()

    message = "the database has schema 9, this version of Evenbeat knows 1; upgrade Evenbeat"
    assert failed("schedules", "list") == f"error: {message}\n"
    assert failed("db", "upgrade") == f"error: {message}\n"
    assert message in printed("doctor", code=1)


def test_every_command_closes_its_store(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(Scheduler, "close", lambda self: closed.append(self))

    failed("schedules", "show", "nope")
    assert len(closed) == 1
    assert store_input.complete_schedule(click.Context(root), click.Argument(["name"]), "") == []
    assert len(closed) == 2


# -- help ------------------------------------------------------------------------------------------


def commands(group: LazyGroup, *path: str) -> Iterator[tuple[tuple[str, ...], str, click.Command]]:
    for name, lazy in group.lazy.items():
        command = import_module(lazy.module).command
        yield (*path, name), lazy.help, command
        if isinstance(command, LazyGroup):
            yield from commands(command, *path, name)


@pytest.mark.parametrize("path", [path for path, _, _ in commands(root)], ids=" ".join)
def test_each_command_has_help_that_fits_a_terminal(path: tuple[str, ...]) -> None:
    text = printed(*path, "-h")

    assert text.startswith(f"Usage: evenbeat {' '.join(path)} ")
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_in_each_table_is_that_of_the_command() -> None:
    for path, words, command in commands(root):
        assert (command.name, command.get_short_help_str(limit=200)) == (path[-1], words)


def test_a_group_alone_shows_its_help_and_answers_typos() -> None:
    assert printed("schedules") == printed("schedules", "--help")
    assert failed("schedules", "lits", code=2) == "error: no such command 'lits': did you mean list?\n"


@pytest.mark.parametrize("args", [("schedules", "list"), ("runs", "list"), ("doctor",), ("config", "show")])
def test_an_answer_in_json_loads_neither_rich_nor_numpy(app: Scheduler, args: tuple[str, ...]) -> None:
    code = (
        "import sys; from evenbeat.cli.root import root\n"
        "root.main(sys.argv[1:], standalone_mode=False)\n"
        "print(*{'rich', 'numpy'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args, "--json"], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("KeyError: 1\n\n  File x\n    ^^^", "KeyError: 1"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 1\n", "KeyError: 1"),
        ("worker \x1b was lost", "worker � was lost"),
        ("\n", ""),
    ],
)
def test_an_error_in_one_line(error: str, line: str) -> None:
    assert one_line(error) == line


@pytest.mark.parametrize("zone", ["Etc/UTC", "UTC", "Europe/Berlin"])
def test_ticks_of_a_period_are_in_the_local_zone(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    app.schedules.add("a", "every 10m", "t")
    monkeypatch.setenv("TZ", zone)

    assert f"#  {zone.removeprefix('Etc/')} " in printed("schedules", "show", "a")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 ms"), (0.0124, "12 ms"), (1.24, "1.2 s"), (59.96, "60.0 s"), (65.4, "1 min 5 s"), (7200, "2 h")],
)
def test_how_long_it_took_in_words(seconds: float, words: str) -> None:
    assert measured(seconds * 1000) == words


# -- on call ---------------------------------------------------------------------------------------


def ids_of(*args: str) -> list[str]:
    return [run["id"] for run in answered("runs", "list", *args)["runs"]]


def execute(app: Scheduler, clock: Clock, run_id: str, took: int) -> None:
    app.enqueue("t", id=run_id)
    (held,) = claim(app)
    clock.pass_(took)
    succeed(app, held)


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        ("07:55", "08:10", ["early"]),
        ("7:55", "8:00:01", ["early"]),
        ("08:30", "08:40", ["long"]),
        ("2026-03-02T08:00", "2026-03-02T08:20Z", ["early"]),
        ("35m", None, ["running"]),
        ("45m", None, ["running", "long"]),
        (None, "1h30m", ["early"]),
        ("23:00", "08:01", ["early"]),
    ],
)
def test_runs_between_two_times_are_listed(
    app: Scheduler, clock: Clock, since: str | None, until: str | None, found: list[str]
) -> None:
    execute(app, clock, "early", 5 * MINUTE)  # from 08:00
    clock.pass_(20 * MINUTE)
    execute(app, clock, "long", 30 * MINUTE)  # from 08:25 to 08:55
    app.enqueue("t", id="running")
    claim(app)
    app.enqueue("t", id="waiting")
    clock.pass_(40 * MINUTE)  # 09:35

    asked = [*(("--since", since) if since else ()), *(("--until", until) if until else ())]
    assert ids_of(*asked) == found


def test_a_time_of_day_is_the_last_one_that_has_come_in_the_local_zone(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clock.pass_(14 * HOUR + 50 * MINUTE)  # 23:50 in Berlin
    execute(app, clock, "night", 5 * MINUTE)
    clock.pass_(20 * MINUTE)  # 00:15
    assert ids_of("--since", "23:51", "--until", "00:05") == ["night"]
    assert ids_of("--since", "23:56") == []
    assert ids_of("--since", "00:01") == []
    # An end that has not come yet.
    assert ids_of("--since", "23:51", "--until", "00:30") == ["night"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--since", "soon"), '--since "soon" is neither a time nor a duration'),
        (("--since", "25:00"), '--since "25:00" is neither a time nor a duration'),
        (
            ("--since", "+2h"),
            "--since +2h is in the future, and a past time is needed; write 2h, which counts back",
        ),
        (("--since", "3h", "--until", "+2h"), "--until +2h is in the future"),
        (("--since", "1h", "--until", "2h"), "--until 2h is not after --since 1h"),
        (("--state", "tired"), "'tired' is not one of"),
    ],
)
def test_an_invalid_window_is_refused(app: Scheduler, args: tuple[str, ...], message: str) -> None:
    assert message in failed("runs", "list", *args, code=2)


def test_running_runs_are_listed_with_their_worker_and_for_how_long(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    app.enqueue("t", id="waits", queue="slow")
    clock.pass_(185_000)

    lines = printed("runs", "list").splitlines()
    assert lines[0].split() == ["run", "state", "task", "due", "late", "took", "worker"]
    assert lines[2].split() == ["r", "running", "t", "08:00", "0", "ms", "3", "min", "5", "s", "node-1"]
    assert lines[3].split() == ["waits", "queued", "t", "08:00"]
    assert ids_of("--worker", "node-1") == ["r"]
    assert ids_of("--queue", "slow") == ["waits"]


def test_runs_that_wait_for_their_next_attempt_are_asked_for_by_name(app: Scheduler) -> None:
    app.enqueue("t", id="r", retries=2)
    (held,) = claim(app)
    fail(app, held, "no")
    app.enqueue("t", id="new")

    assert ids_of("--state", "retrying") == ["r"]
    assert ids_of("--state", "queued") == ["new", "r"]


def failures(app: Scheduler, count: int) -> None:
    for number in range(count):
        app.enqueue("t", id=f"r{number}")
    for held in claim(app):
        fail(app, held, "no")


def test_all_matching_runs_are_retried_after_a_yes(app: Scheduler, clock: Clock) -> None:
    failures(app, 7)
    app.enqueue("other", id="other")

    assert failed("runs", "retry", "--all", "--task", "t") == (
        "error: nothing was done: 7 runs match\nhint: add --yes to retry them\n"
    )
    assert failed("runs", "retry", "--all", "--json").startswith("error: nothing was done: 7 runs")
    assert len(ids_of("--state", "failed")) == 7
    assert printed("runs", "retry", "--all", "--task", "t", "--since", "1h", "--limit", "2", "--yes") == (
        "queued 2 runs again\nthere are more: run it again, or with a higher --limit\n"
    )
    document = answered("runs", "retry", "--all", "--yes")
    assert (document["matched"], document["done"], document["refused"], document["more"]) == (5, 5, [], False)
    assert ids_of("--state", "failed") == []
    assert printed("runs", "retry", "--all", "--task", "t") == "there are no such runs to retry\n"


def test_runs_that_can_not_be_retried_are_named(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", overlap="skip")
    for name in ("r1", "r2"):
        app.schedules.run_now("a", id=name)
        (held,) = claim(app)
        fail(app, held, "no")

    lines = printed("runs", "retry", "--all", "--schedule", "a", "--yes", code=1).splitlines()
    assert lines[:2] == ["queued 1 run again", "left 1 run alone:"]
    assert "leave no room for another" in lines[2]


def test_all_of_a_choice_are_cancelled(app: Scheduler) -> None:
    app.enqueue("t", id="busy")
    claim(app)
    app.enqueue("t", id="r1")
    app.enqueue("t", id="r2", queue="slow")

    assert "add --yes to cancel them" in failed("runs", "cancel", "--all")
    assert printed("runs", "cancel", "--all", "--queue", "slow", "-y") == (
        "cancelled 1 run; running ones are asked to stop\n"
    )
    assert printed("runs", "cancel", "--all", "-y") == "cancelled 2 runs; running ones are asked to stop\n"
    states = {
        entry["id"]: (entry["state"], entry["cancel_requested"]) for entry in answered("runs", "list")["runs"]
    }
    assert states == {"busy": ("running", True), "r1": ("cancelled", False), "r2": ("cancelled", False)}


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_a_run_is_named_or_runs_are_chosen(app: Scheduler, command: str) -> None:
    for args in ((), ("r", "--all"), ("r", "--task", "t"), ("r", "--state", "failed")):
        assert run("runs", command, *args).exit_code == 2


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_all_are_shown_and_asked_about_in_a_terminal(app: Scheduler, answer: str, code: int) -> None:
    failures(app, 6)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenbeat", "runs", "retry", "--all"]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, answer.encode())
    stdout, stderr = child.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert child.returncode == code
    assert "r0   failed" in stderr
    assert "and 1 more" in stderr
    assert "retry 6 runs? [y/N]" in stderr
    assert stdout == ("" if code else "queued 6 runs again\n")


def test_a_run_is_enqueued_by_hand(app: Scheduler) -> None:
    words = printed("runs", "enqueue", "mail", "--payload", '{"to": "ops"}', "--id", "m1", "--queue", "slow")
    assert words == (
        "queued a run of mail in queue slow: evenbeat runs show m1\n"
        "the options that the code gives the task are not known here: name its app with EVENBEAT_APP\n"
    )
    found = app.runs.get("m1")
    assert (found.task, found.payload, found.queue, found.state) == ("mail", {"to": "ops"}, "slow", "queued")

    later = printed(
        "runs", "enqueue", "mail", "--at", "+2h", "--id", "m2", "--priority", "9", "--retries", "3"
    )
    assert later.startswith(
        "queued a run of mail in queue default for Mon 2026-03-02 10:00 +00:00, in 2 h: "
        "evenbeat runs show m2\n"
    )
    assert (app.runs.get("m2").priority, app.runs.get("m2").retries) == (9, 3)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """An app in a file of its own, which the settings name; its database is made."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_app", raising=False)
    (tmp_path / "shop_app.py").write_text(
        "from evenbeat import Scheduler\n"
        "app = Scheduler('sqlite:///shop.db')\n"
        "@app.task(queue='slow', timeout='5m', retries=2, priority='high')\n"
        "def mail(to: str) -> None: ...\n"
    )
    monkeypatch.setenv("EVENBEAT_APP", "shop_app")
    scheduler = Scheduler("sqlite:///shop.db")
    scheduler.store.close()
    return scheduler


def test_a_run_by_hand_gets_the_options_of_its_task_where_the_app_is_known(
    shop: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = ("--payload", '{"to": "ops"}')
    words = printed("runs", "enqueue", "mail", *payload, "--id", "m1", "--retries", "5")
    assert words == "queued a run of mail in queue slow: evenbeat runs show m1\n"
    made = answered("runs", "show", "m1")["run"]
    assert (made["queue"], made["priority_name"]) == ("slow", "high")
    assert (made["timeout"], made["retries"]) == (300, 5)

    added = answered("schedules", "add", "mails", "@daily", "mail", *payload)["schedule"]
    assert (added["queue"], added["retries"]) == ("slow", 2)
    assert "it takes to" in failed("runs", "enqueue", "mail", "--payload", '{"too": "ops"}', code=2)

    # Also where the settings name another store than the code does.
    Scheduler("sqlite:///other.db").store.close()
    monkeypatch.setenv("EVENBEAT_STORE", "sqlite:///other.db")
    assert "in queue slow" in printed("runs", "enqueue", "mail", *payload)


def test_a_task_that_the_app_does_not_have_is_reported(shop: Scheduler) -> None:
    warning = "the options that the code gives the task are not known here: the app has no such task"
    words = printed("runs", "enqueue", "mial", "--id", "m1")
    assert words.endswith(f"{warning}: did you mean mail?\n")
    warning = "warning: the app does not have the task {}: its runs wait until a node has it"
    assert printed("schedules", "add", "a", "@daily", "unlike").endswith(f"{warning.format('unlike')}\n")
    lines = printed("schedules", "add", "b", "@daily", "mial").splitlines()
    assert lines[-1] == f"{warning.format('mial')}; did you mean mail?"


def test_a_task_that_no_live_node_has_is_reported(app: Scheduler) -> None:
    assert "warning" not in printed("schedules", "add", "a", "@daily", "mial")  # no task is known yet
    node(app, tasks={"mail": "thread", "t": "thread"}, queues=["default"])
    warning = "warning: no live node has the task mial: its runs wait until a node has it; did you mean mail?"
    assert printed("schedules", "add", "b", "@daily", "mial").splitlines()[-1] == warning
    assert printed("schedules", "update", "b", "--task", "mail").splitlines()[-1].startswith("next run")
    assert printed("schedules", "update", "b", "--task", "mial").splitlines()[-1] == warning
    (warning,) = answered("schedules", "add", "c", "@daily", "mial")["schedule"]["warnings"]
    assert warning["hint"] == "did you mean mail?"


def test_the_store_of_the_app_is_named_where_it_is_used(shop: Scheduler) -> None:
    assert printed("doctor").splitlines()[0] == "ok  store       sqlite:///shop.db"
    assert answered("doctor")["checks"][0]["message"] == "sqlite:///shop.db"
    assert printed("db", "upgrade") == "sqlite:///shop.db is up to date: schema 1\n"
    lines = [" ".join(line.split()) for line in printed("config", "show").splitlines()]
    assert "store sqlite:///shop.db the code of shop_app" in lines
    assert answered("config", "show")["settings"]["store"] == {
        "value": "sqlite:///shop.db",
        "from": "app",
        "name": "shop_app",
        "file": None,
        "line": None,
    }


def test_settings_are_shown_also_if_the_app_can_not_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.setenv("EVENBEAT_APP", "broken_app.py")

    result = run("config", "show", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["settings"]["store"]["value"] is None
    assert result.stderr == (
        "warning: the store is that of the app broken_app.py, which can't be imported: "
        "ZeroDivisionError: division by zero\n"
    )
    assert "not known" in run("config", "show").stdout


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_has_no_word_for_is_refused_in_words_of_json(app: Scheduler, word: str) -> None:
    text = failed("runs", "enqueue", "pay", "--payload", f'{{"amount": {word}}}', code=2)
    assert f"is not JSON: it has no {word}; write null or a text instead" in text


def test_enqueueing_an_id_again_says_that_it_is_there(app: Scheduler, clock: Clock) -> None:
    printed("runs", "enqueue", "mail", "--id", "m1")
    clock.pass_(1_000)
    assert printed("runs", "enqueue", "mail", "--id", "m1") == "m1 is there already: queued\n"


def test_a_schedule_is_updated_and_the_differences_are_shown(app: Scheduler) -> None:
    app.schedules.add("a", "every 10m", "t", {"n": 1}, timeout="5m", description="kept")

    assert printed(
        "schedules",
        "update",
        "a",
        "--trigger",
        "every 5m",
        "--overlap",
        "skip",
        "--priority",
        "high",
        "--payload",
        '{"n": 2}',
        "--retries",
        "3",
        "--no-timeout",
    ).splitlines() == [
        "updated a",
        "  trigger: every 10m → every 5m",
        '  payload: {"n": 1} → {"n": 2}',
        "  retries: 0 → 3",
        "  timeout: 5m → none",
        "  priority: 5 → 8",
        "  overlap: allow → skip",
        "next run Mon 2026-03-02 08:05 +00:00, in 5 min",
    ]
    found = app.schedules.get("a")
    assert (found.trigger, found.description, found.timeout) == ("every 5m", "kept", None)
    assert (
        printed("schedules", "update", "a", "--overlap", "skip")
        == "nothing changed: a has these values already\n"
    )
    printed("schedules", "update", "a", "--no-payload", "--task", "u", "--max-concurrent", "2")
    printed("schedules", "update", "a", "--no-max-concurrent")
    found = app.schedules.get("a")
    assert (found.payload, found.task, found.max_concurrent) == (None, "u", None)


def test_an_update_says_that_the_zone_is_another_one(app: Scheduler) -> None:
    app.schedules.add("a", "0 8 * * * tz=Europe/Berlin", "t")

    output = printed("schedules", "update", "a", "--trigger", "30 8 * * 1-5")
    assert "the zone is now UTC, was Europe/Berlin; --tz Europe/Berlin keeps it\n" in output
    output = printed("schedules", "update", "a", "--trigger", "30 8 * * 1-5", "--tz", "Europe/Paris")
    assert "the zone is now Europe/Paris, was UTC\n" in output
    output = printed("schedules", "update", "a", "--trigger", "45 8 * * *", "--tz", "Europe/Paris")
    assert "zone" not in output
    # An interval has no zone.
    assert "zone" not in printed("schedules", "update", "a", "--trigger", "every 5m")


def test_an_update_mentions_the_code_and_a_pause(app: Scheduler) -> None:
    app.task(schedule="every 10m", name="t")(lambda: None)
    app.declare_tasks()
    app.schedules.pause("t")
    assert printed("schedules", "update", "t", "--trigger", "every 5m").splitlines() == [
        "updated t",
        "  trigger: every 10m → every 5m",
        "the edit stays until the definition in the code changes",
        "to undo it: evenbeat schedules reset t",
        "it is paused: evenbeat schedules resume t",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give what to change"),
        (("--tz", "UTC"), "--tz goes with --trigger"),
        (("--timeout", "5s", "--no-timeout"), "--timeout and --no-timeout exclude each other"),
        (("--trigger", "every 0s"), "every"),
        (("--grace", "5m"), '--grace "5m" has no effect with --catch-up latest; add --catch-up skip, or'),
        (
            ("--catch-up-limit", "5"),
            "--catch-up-limit 5 has no effect with --catch-up latest; add --catch-up all",
        ),
    ],
)
def test_an_invalid_update_is_refused(app: Scheduler, args: tuple[str, ...], message: str) -> None:
    app.schedules.add("a", "every 10m", "t")
    assert message in failed("schedules", "update", "a", *args, code=2)


def test_queues_are_shown_with_their_runs_nodes_and_trend(app: Scheduler, clock: Clock) -> None:
    assert printed("queues") == "no queues: nothing is queued, and no node is running\n"
    node(app, host="box", pid=12, tasks={"t": "thread"}, queues=["default"], slots={"thread": 1})
    app.enqueue("t", queue="slow")
    clock.pass_(12 * MINUTE)
    for _ in range(3):
        app.enqueue("t")
    app.enqueue("t", delay="1h", tenant="acme")
    (first, *_rest) = claim(app)
    succeed(app, first)

    lines = printed("queues").splitlines()
    assert lines[0].split() == ["queue", "due", "oldest", "running", "later", "in", "5", "min", "nodes"]
    assert lines[2].split() == ["default", "0", "2", "1", "3", "due,", "1", "ended", "host-1"]
    assert lines[3].split() == ["slow", "1", "12", "min", "0", "stands", "still", "none"]
    document = answered("queues", "--period", "15m")
    assert document["period"] == 15 * 60
    assert [(queue["name"], queue["came_due"], queue["trend"]) for queue in document["queues"]] == [
        ("default", 3, "empty"),
        ("slow", 1, "stands still"),
    ]


def test_why_a_run_waits_is_shown(app: Scheduler, clock: Clock) -> None:
    def waits(run_id: str) -> str:
        (line,) = [line for line in printed("runs", "show", run_id).splitlines() if line.startswith("waits")]
        return line.removeprefix("waits").strip()

    app.enqueue("t", id="due")
    assert waits("due") == "for a worker: no live node executes runs"
    node(app, tasks={"t": "thread"}, queues=["default"], slots={"thread": 1})
    app.enqueue("t", id="later", delay="1h")
    app.enqueue("t", id="slow", queue="slow")
    app.enqueue("u", id="unknown")
    assert waits("due") == "host-1 may take it any moment"
    assert waits("later") == "until it is due"
    assert waits("slow") == "for a worker: no live node that has the task takes from queue slow"
    assert waits("unknown") == "for a worker: no live node has the task u"
    wanted = Claim(worker="host-1", token="c", limit=1, now=clock.now, lease=30_000)
    (held,) = app.store.claim_runs(wanted).runs
    assert "waits" not in printed("runs", "show", "due")
    app.enqueue("t", id="next")
    assert waits("next") == "for a free slot: host-1 is busy"
    assert answered("runs", "show", "next")["waits"] == {"reason": "busy", "until": None, "nodes": ["host-1"]}
    fail(app, replace(held, execution=replace(held.execution, retries=1)), "no")
    assert waits("due") == "for its next attempt"
    app.enqueue("u", id="nobody", delay="1h")
    assert waits("nobody") == "until it is due; now no live node could take it"


def test_a_run_that_was_handed_back_says_until_when_it_waits_and_for_what(
    app: Scheduler, clock: Clock
) -> None:
    made = app.enqueue("mail", {"to": "ops"})
    node(app, tasks={"mail": "thread"}, queues=["default"], slots={"thread": 1})
    for _ in range(7):
        (held,) = claim(app)
        app.store.settle_runs([attempts.unfit(held, "no such argument", app.store.now(), f"{held.attempt}")])
        clock.pass_(0 if held.attempt == 7 else MINUTE)

    assert (
        "waits     until Mon 2026-03-02 08:07 +00:00, in 1 min, for a node whose code its payload fits"
        in printed("runs", "show", made.id)
    )
    assert answered("runs", "show", made.id)["waits"]["reason"] == "unfit"


def test_how_long_a_run_has_been_running_is_shown(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    clock.pass_(61_000)
    assert "took      1 min 1 s so far\n" in printed("runs", "show", "r")


def test_a_spread_schedule_is_late_and_due_by_its_own_time(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("beat", "0 * * * *", "t", spread="20m")
    delay = app.schedules.get("beat").spread_delay
    assert timedelta(0) < delay < timedelta(minutes=20)
    assert (
        answered("schedules", "show", "beat")["next"][0]
        == answered("schedules", "show", "beat")["schedule"]["next_run"]
    )
    clock.now += HOUR + delay // timedelta(milliseconds=1) - 1
    # Not overdue before its own time.
    assert "ago" not in printed("schedules", "list")
    clock.pass_(1)
    fire(app)
    (held,) = claim(app)
    found = answered("runs", "show", held.id)["run"]
    assert found["lateness"] == 0
    assert "late" not in printed("runs", "show", held.id)


def test_ticks_that_waited_for_the_run_before_were_not_missed(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t", overlap="queue")
    clock.pass_(MINUTE)
    fire(app)
    (held,) = claim(app, lease=HOUR)
    clock.pass_(2 * MINUTE)
    succeed(app, held)
    fire(app)

    (row,) = answered("schedules", "show", "a")["skipped"]
    assert (row["count"], row["why"]) == (1, "a later run stands for it (overlap queue)")


def test_the_attempts_of_a_run_are_shown_with_worker_and_outcome(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r", retries=3)
    (held,) = claim(app)
    clock.pass_(2_000)
    fail(app, held, "Traceback (most recent call last):\n  File x\nOSError: no route")
    clock.pass_(MINUTE)
    (held,) = claim(app)
    assert app.store.settle_runs([attempts.released(held, clock.now, "back")]) == [True]
    assert "attempts  2: 1 failure, 1 handed back; up to 3 retries\n" in printed("runs", "show", "r")
    (held,) = claim(app)
    clock.pass_(500)

    lines = printed("runs", "show", "r").splitlines()
    assert "attempts  3: 1 failure, 1 handed back; up to 3 retries" in lines
    assert [line.split() for line in lines[lines.index("") + 1 :] if line[:2].strip().isdigit()] == [
        ["1", "failed", "08:00", "2.0", "s", "node-1", "OSError:", "no", "route"],
        ["2", "handed", "back", "08:01:02", "0", "ms", "node-1"],
    ]
    succeed(app, held)
    assert "3  succeeded    08:01:02  500 ms  node-1" in printed("runs", "show", "r")


def test_one_attempt_needs_no_table(app: Scheduler) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    succeed(app, held)
    text = printed("runs", "show", "r")
    assert "attempts  1\n" in text
    assert "#" not in text


def test_a_pause_is_shown_with_its_author_and_time(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a", "migration")
    clock.pass_(HOUR)
    by = app.schedules.get("a").paused_by
    assert by
    text = printed("schedules", "show", "a")
    assert "state    paused: migration\n" in text
    assert f"paused   by {by}, Mon 2026-03-02 08:00 +00:00, 1 h ago\n" in text

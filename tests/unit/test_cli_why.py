"""``evenbeat why`` and ``evenbeat account``: their output and exit codes, on SQLite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.rules.firing import plan
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock

MINUTE = 60_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> VirtualClock:
    """The clock of the store, which begins on Sunday, 2026-03-01, at 12:00 UTC."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "EVENBEAT_STORE", "EVENBEAT_APP", "EVENBEAT_TENANT"):
        monkeypatch.delenv(name, raising=False)
    found = VirtualClock()
    monkeypatch.setattr("time.time", lambda: found.now / 1000)
    monkeypatch.setattr("time.time_ns", lambda: found.now * 1_000_000)
    return found


@pytest.fixture
def app(clock: VirtualClock, tmp_path: Path) -> Any:
    scheduler = Scheduler(SqliteStore(str(tmp_path / "evenbeat.db"), clock=clock))
    scheduler.schedules.add("beat", "*/10 * * * *", "work")
    for minute in (10, 40, 50):
        clock.now += minute * MINUTE - clock.now % (60 * MINUTE)
        scheduler.store.fire_due(clock.now, 100, plan)
    yield scheduler
    scheduler.close()


def run(*args: str, width: int = 80) -> Result:
    environment = {"COLUMNS": str(width), "NO_COLOR": "1", "TZ": "UTC"}
    result = CliRunner(env=environment).invoke(root, args, prog_name="evenbeat")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def lines(result: Result) -> list[str]:
    return result.stdout.splitlines()


def test_a_schedule_and_a_time_are_explained(app: Scheduler) -> None:
    result = run("why", "beat", "--at", "12:20", width=120)
    assert result.exit_code == 0
    assert lines(result) == [
        (
            "the tick of Sun 2026-03-01 12:20 UTC did not run: run default/beat/1/1772368800000 stands "
            "for it (catch-up latest)"
        ),
        "",
        (
            "Sun 2026-03-01 12:40 +00:00  recorded as coalesced: 2 ticks from Sun 2026-03-01 12:20 UTC to "
            "Sun 2026-03-01 12:30 UTC"
        ),
        "",
        "remedy  to run each missed tick: evenbeat schedules update beat --catch-up all",
    ]
    narrow = run("why", "beat", "--at", "12:20")
    assert max(map(len, lines(narrow))) <= 80
    assert " ".join(narrow.stdout.split()) == " ".join(result.stdout.split())


def test_a_run_is_explained_by_its_id(app: Scheduler) -> None:
    result = run("why", "default/beat/1/1772368800000")
    assert lines(result)[0].startswith("the run of beat for Sun 2026-03-01 12:40 UTC waits for a worker")
    made = app.enqueue("work", delay="1h")
    assert "is queued until" in run("why", made.id).stdout
    refused = run("why", made.id, "--at", "12:00")
    assert refused.exit_code == 2
    assert "--at goes with the name of a schedule" in refused.stderr


def test_an_explanation_as_json(app: Scheduler) -> None:
    document = json.loads(run("why", "beat", "--at", "12:20", "--json").stdout)
    assert (document["verdict"], document["tick"]) == ("coalesced", "2026-03-01T12:20:00Z")
    assert (document["before"], document["after"]) == ("2026-03-01T12:10:00Z", "2026-03-01T12:30:00Z")
    assert document["run"] == "default/beat/1/1772368800000"
    assert document["evidence"][0]["at"] == "2026-03-01T12:40:00Z"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("bet",), "did you mean beat?"),
        (("default/beat/1/7",), "'evenbeat runs list' shows the newest"),
        (("beat", "--tenant", "acme"), "tenant default has one: --tenant default"),
    ],
)
def test_a_name_that_nothing_has_is_a_failure_with_a_hint(
    app: Scheduler, words: tuple[str, ...], hint: str
) -> None:
    result = run("why", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert hint in result.stderr


def test_an_account_adds_up(app: Scheduler) -> None:
    result = run("account", "beat")
    assert result.exit_code == 0
    assert lines(result) == [
        "beat: */10 * * * *",
        "from Sun 2026-03-01 12:00 +00:00, when the schedule was created",
        "to   Sun 2026-03-01 12:50 +00:00",
        "",
        "ticks",
        "─────────────────────────────────────────────────────",
        "expected   5",
        "ran        3  3 queued",
        "coalesced  2  the run of a later tick stands for them",
        "missing    0",
        "twice      0",
    ]
    part = json.loads(run("account", "beat", "--from", "2026-03-01T12:15", "--to", "20m", "--json").stdout)
    assert (part["expected"], part["coalesced"], part["adds_up"]) == (1, 1, True)


def test_an_account_with_a_missing_and_a_doubled_tick_fails(app: Scheduler, tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "evenbeat.db")) as rest, rest:
        rest.execute("DELETE FROM evenbeat_runs WHERE id = 'default/beat/1/1772367000000'")
        rest.execute("UPDATE evenbeat_skipped SET last = last + 600000, count = count + 1")
    result = run("account", "beat")
    assert result.exit_code == 1
    assert "missing: Sun 2026-03-01 12:10 +00:00" in result.stdout
    assert "twice: Sun 2026-03-01 12:40 +00:00" in result.stdout
    assert run("account", "beat", "--json").exit_code == 1
    assert "left no record" in run("why", "beat", "--at", "12:10", width=200).stdout


def test_an_account_that_is_too_long_names_the_way_out(app: Scheduler) -> None:
    result = run("account", "beat", "--to", "2030-01-01")
    assert result.exit_code == 2
    assert "is more than a year ahead" in result.stderr
    app.schedules.update("beat", trigger="* * * * *")
    result = run("account", "beat", "--to", "2026-12-31")
    assert result.exit_code == 2
    assert "shorten the period" in result.stderr

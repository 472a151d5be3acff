"""How the commands that work on a store fail, and their help."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from evenbeat import (
    InvalidValue,
    LockHeld,
    RunRefused,
    ScheduleConflict,
    Scheduler,
    SchemaTooNew,
    StoreUnavailable,
)
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli import store_input
from evenbeat.cli.failures import naming_flags
from evenbeat.cli.groups import LazyGroup
from evenbeat.cli.phrases import one_line
from evenbeat.cli.root import root
from evenbeat.observe.phrases import measured
from evenbeat.stores.sqlite.server_checks import schema_version
from tests.lengths import LONG
from tests.unit import cli_store
from tests.unit.cli_store import failed, printed

app, clock = cli_store.app, cli_store.clock


# -- how they fail -------------------------------------------------------------------------------------------


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
    ("repair",),
    ("repair", "--yes"),
    ("retention", "list"),
    ("retention", "set", "--keep", "7d"),
    ("retention", "remove"),
    ("quarantine", "list"),
    ("quarantine", "show", "a"),
    ("quarantine", "retry", "a"),
    ("quarantine", "drop", "a"),
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
    assert printed("db", "upgrade") == "created the tables of sqlite:///evenbeat.db: schema 3\n"
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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "--keep and --most are both missing; give --keep 7d, --most 10000 or both; to end a rule"),
        (("--keep", "1s"), '--keep "1s" is shorter than 1m; nodes look for old runs once a minute'),
        (("--keep", "soon"), '--keep "soon" is not a duration'),
        (("--most", "0"), "--most 0 is not a whole number of 1 to"),
        (("--most", "-1"), "--most -1 is not a whole number of 1 to"),
        (("--most", str(2**63)), f"--most {2**63} is not a whole number of 1 to"),
        (("--tenant", "a:b", "--most", "1"), '--tenant "a:b" is not 1 to 128'),
    ],
)
def test_a_refused_retention_rule_is_described_by_its_flags(
    app: Scheduler, args: tuple[str, ...], message: str
) -> None:
    assert failed("retention", "set", *args, code=2).startswith(f"error: {message}")
    assert app.retention.list() == []


def test_only_flags_of_the_command_replace_options_of_the_library() -> None:
    refusal = InvalidValue(
        "rate and burst are given",
        field="rate",
        value=None,
        hint='use burst=1_000 and key="x", or rate=fast, all=True',
    )
    options = [click.Option([flag]) for flag in ("--rate", "--burst", "--job-key/--no-job-key", "--all")]
    context = click.Context(click.Command("set", params=[*options, click.Argument(["key"])]))

    assert str(naming_flags(refusal, context)) == (
        '--rate and --burst are given; use --burst 1000 and key="x", or rate=fast, --all'
    )
    assert naming_flags(refusal, click.Context(click.Command("remove"))) is refusal


def test_a_store_of_a_newer_version_is_a_line(app: Scheduler) -> None:
    with sqlite3.connect("evenbeat.db") as connection:
        connection.execute("UPDATE evenbeat_meta SET value = '9' WHERE key = 'schema'")
    connection.close()

    message = "the database has schema 9, this version of Evenbeat knows 3; upgrade Evenbeat"
    assert failed("schedules", "list") == f"error: {message}\n"
    assert failed("db", "upgrade") == f"error: {message}\n"
    assert message in printed("doctor", code=1)


def test_every_command_closes_its_store(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    close = Scheduler.close

    def noted(self: Scheduler) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Scheduler, "close", noted)

    failed("schedules", "show", "nope")
    assert len(closed) == 1
    assert store_input.complete_schedule(click.Context(root), click.Argument(["name"]), "") == []
    assert len(closed) == 2


# -- help ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "args",
    [
        ("schedules", "list"),
        *(pytest.param(args, marks=LONG) for args in (("runs", "list"), ("doctor",), ("config", "show"))),
    ],
)
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

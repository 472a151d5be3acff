"""``evenbeat config``, ``db`` and ``completion``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evenbeat import Scheduler
from evenbeat.stores.sqlite.schema import schema_sql
from tests.unit import cli_store
from tests.unit.cli_store import answered, failed, printed, run

app, clock = cli_store.app, cli_store.clock


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
    assert printed("db", "upgrade") == "created the tables of sqlite:///evenbeat.db: schema 3\n"
    assert printed("db", "upgrade") == "sqlite:///evenbeat.db is up to date: schema 3\n"
    assert answered("db", "upgrade") == {"store": "sqlite:///evenbeat.db", "from": 3, "to": 3}
    assert printed("db", "upgrade", "--sql") == "-- sqlite:///evenbeat.db is up to date: schema 3\n"


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


def test_names_of_flows_are_completed_from_the_app(tmp_path: Path) -> None:
    code = "from evenbeat import Scheduler\napp = Scheduler()\nflow = app.new_flow('nightly')\n"
    (tmp_path / "flow_app.py").write_text(code + "flow.add_step('a', app.task(name='a')(lambda: None))\n")
    assert completions("flows", "show", "n", EVENBEAT_APP="flow_app.py") == ("plain,nightly\n", "")
    assert completions("flows", "run", "--app", "flow_app.py", "n") == ("plain,nightly\n", "")
    assert completions("flows", "show", "n") == ("\n", "")
    assert completions("flows", "show", "n", EVENBEAT_APP="no_app.py") == ("\n", "")


def test_a_completion_never_fails_and_makes_nothing(tmp_path: Path) -> None:
    assert completions("schedules", "show", "d") == ("\n", "")
    assert completions("schedules", "show", "d", EVENBEAT_STORE="oracle://x") == ("\n", "")
    (tmp_path / "evenbeat.toml").write_text("no toml")
    assert completions("schedules", "show", "d") == ("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["evenbeat.toml"]

"""``plan``, ``apply`` and ``runs move`` on the command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from evenbeat import InvalidValue, Scheduler
from tests.unit.cli_store import Clock, answered, app, clock, failed, node, printed, run

__all__ = ["app", "clock"]

CODE = """
from evenbeat import Scheduler, cron
app = Scheduler("sqlite:///evenbeat.db", source="shop")

@app.task(schedule=cron("0 9 * * *"), retries=2)
def report(): ...

@app.task
def work(n: int = 1, password: str = ""): ...
"""
FILE = """
source = "shop"

[schedules.nightly]
trigger = "0 3 * * *"
task = "work"
payload = { n = 5, password = "hunter2" }
"""


_tests = 0


def code() -> str:
    """Return the name of the file with the code of this test."""
    return f"jobs{_tests}.py"


@pytest.fixture(autouse=True)
def files(app: Scheduler, tmp_path: Path) -> Path:
    # The module of each test has another name: a process imports a name once.
    global _tests
    _tests += 1
    (tmp_path / code()).write_text(CODE)
    (tmp_path / "schedules.toml").write_text(FILE)
    return tmp_path


def test_plan_and_apply_obey_the_mode_of_the_settings(
    files: Path, app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes with this setting write no row of a decorated task, and delete the one it had."""
    monkeypatch.setenv("EVENBEAT_SCHEDULE_MODE", "code")
    assert "0 to add, 0 to change, 0 to remove" in printed("plan", code())
    printed("apply", code(), "--yes")
    assert app.schedules.list() == []
    monkeypatch.setenv("EVENBEAT_SCHEDULE_MODE", "durable")
    printed("apply", code(), "--yes")
    assert [row.name for row in app.schedules.list()] == ["report"]
    monkeypatch.delenv("EVENBEAT_SCHEDULE_MODE")
    (files / "evenbeat.toml").write_text('schedule_mode = "code"')
    shown = printed("plan", code(), code=3)
    assert "- report  remove (code shop): it is in the code only" in shown
    assert "1 to remove" in shown
    printed("apply", code(), "--yes")
    assert app.schedules.list() == []


def test_plan_shows_what_a_deploy_would_add_and_exits_with_3(files: Path) -> None:
    shown = printed("plan", code(), "--file", "schedules.toml", code=3)
    assert shown == (
        "+ nightly  add (file shop)\n"
        "    task        work\n"
        "    trigger     0 3 * * *\n"
        '    payload     {"n": 5, "password": "***"}\n'
        "    managed_by  file:shop\n"
        "    ticks       Tue 03:00, Wed 03:00, Thu 03:00, Fri 03:00, Sat 03:00\n"
        "+ report  add (code shop)\n"
        "    task        report\n"
        "    trigger     0 9 * * *\n"
        "    managed_by  code:shop\n"
        "    retries     2\n"
        "    ticks       09:00, Tue 09:00, Wed 09:00, Thu 09:00, Fri 09:00\n"
        "\n"
        "2 to add, 0 to change, 0 to remove; 0 unchanged\n"
    )


def test_apply_does_it_and_a_second_plan_has_nothing_to_do(app: Scheduler, files: Path) -> None:
    assert printed("apply", code(), "--file", "schedules.toml", "--yes") == "added 2\n"
    assert {row.name: row.managed_by for row in app.schedules.list()} == {"nightly": "file", "report": "code"}
    assert printed("plan", code(), "--file", "schedules.toml") == (
        "0 to add, 0 to change, 0 to remove; 2 unchanged\n"
    )
    assert printed("apply", code(), "--file", "schedules.toml", "--yes") == "nothing was changed\n"


def test_apply_without_yes_asks_and_in_a_script_does_nothing(app: Scheduler, files: Path) -> None:
    assert failed("apply", code()) == (
        "error: nothing was done: 1 to add, 0 to change, 0 to remove; 0 unchanged\n"
        "hint: add --yes to apply it\n"
    )
    assert app.schedules.list() == []


def test_a_change_is_shown_field_by_field_with_the_ticks_before_and_after(files: Path) -> None:
    printed("apply", "--file", "schedules.toml", "--yes")
    (files / "schedules.toml").write_text(FILE.replace("0 3", "0 4"))
    assert printed("plan", "--file", "schedules.toml", code=3).splitlines()[:4] == [
        "~ nightly  change (file shop)",
        "    trigger       0 3 * * * -> 0 4 * * *",
        "    ticks before  Tue 03:00, Wed 03:00, Thu 03:00, Fri 03:00, Sat 03:00",
        "    ticks after   Tue 04:00, Wed 04:00, Thu 04:00, Fri 04:00, Sat 04:00",
    ]
    assert printed("apply", "--file", "schedules.toml", "--yes") == "changed 1\n"


def test_drift_and_conflicts_are_shown_with_the_command(app: Scheduler, files: Path) -> None:
    printed("apply", "--file", "schedules.toml", "--yes")
    app.schedules.update("nightly", retries=7)
    assert printed("plan", "--file", "schedules.toml") == (
        "^ nightly  drift (file shop)\n"
        "    retries       7, declared 0\n"
        "    to settle it  evenbeat schedules reset nightly\n"
        "\n"
        "0 to add, 0 to change, 0 to remove; 0 unchanged, 1 edited by hand\n"
    )
    assert "edited" in printed("schedules", "list")
    assert "by hand; the file declares retries 0" in printed("schedules", "show", "nightly")
    app.schedules.add("report", "@daily", "report")
    shown = printed("plan", code(), code=3)
    assert "! report  conflict (code shop): it was made by hand\n" in shown
    assert f"    to settle it  evenbeat apply --adopt {code()}\n" in shown
    assert "conflict" in printed("apply", code(), "--yes", code=1)
    assert printed("apply", code(), "--yes", "--adopt") == "changed 1\n"


def test_a_schedule_of_a_file_is_described_as_such(app: Scheduler, files: Path) -> None:
    printed("apply", "--file", "schedules.toml", "--yes")
    assert printed("schedules", "reset", "nightly") == (
        "nightly is as the file declares it: there is nothing to undo\n"
    )
    edited = printed("schedules", "update", "nightly", "--retries", "7")
    assert "the edit stays until the definition in the file changes\n" in edited
    assert ", by file\n" in printed("schedules", "show", "nightly")


def test_prune_removes_what_the_file_no_longer_declares(app: Scheduler, files: Path) -> None:
    printed("apply", "--file", "schedules.toml", "--yes")
    (files / "schedules.toml").write_text('source = "shop"\n')
    assert "? nightly  orphan" in printed("plan", "--file", "schedules.toml")
    assert "- nightly  remove" in printed("plan", "--file", "schedules.toml", "--prune", code=3)
    assert printed("apply", "--file", "schedules.toml", "--prune", "--yes") == "removed 1\n"


def _settling(*args: str, code: int = 0) -> str:
    """Return the one command that a plan recommends."""
    (entry,) = (each for each in answered("plan", *args, code=code)["entries"] if each["command"])
    command: str = entry["command"]
    return command


def test_the_command_that_settles_an_orphan_has_the_options_of_the_plan(app: Scheduler, files: Path) -> None:
    options = ("--file", "my schedules.toml", "--source", "other", "--tenant", "default")
    (files / "my schedules.toml").write_text(FILE)
    printed("apply", code(), *options, "--yes")
    (files / "my schedules.toml").write_text("")
    command = _settling(code(), *options)
    assert command == (
        f"evenbeat apply --prune {code()} --file 'my schedules.toml' --source other --tenant default"
    )
    assert f"to settle it  {command}\n" in printed("plan", code(), *options)
    assert printed(*shlex.split(command)[1:], "--yes") == "removed 1\n"


def test_the_command_names_the_store_that_was_given(app: Scheduler, files: Path) -> None:
    (files / "evenbeat.toml").write_text('store = "sqlite:///elsewhere.db"\n')
    options = ("--file", "schedules.toml", "--store", "sqlite:///evenbeat.db")
    app.schedules.add("nightly", "@daily", "work")
    adopt = _settling(*options, code=3)
    assert adopt == "evenbeat apply --adopt --file schedules.toml --store sqlite:///evenbeat.db"
    (left,) = answered("apply", *options, "--yes", code=1)["left"]
    assert left["command"] == adopt
    assert printed(*shlex.split(adopt)[1:], "--yes") == "changed 1\n"
    app.schedules.update("nightly", retries=7)
    reset = _settling(*options)
    assert reset == "evenbeat schedules reset nightly --store sqlite:///evenbeat.db"
    assert printed(*shlex.split(reset)[1:]).startswith("reset nightly (retries)")


def test_a_command_that_takes_no_app_names_its_store(files: Path) -> None:
    (files / code()).write_text(CODE.replace("evenbeat.db", "other.db"))
    printed("apply", code(), "--yes")
    other = ("--store", "sqlite:///other.db")
    printed("schedules", "update", "report", "--retries", "7", *other)
    assert _settling(code()) == "evenbeat schedules reset report --store sqlite:///other.db"


def test_an_orphan_without_a_label_is_settled_by_its_deletion(files: Path) -> None:
    (files / "schedules.toml").write_text(FILE.replace('source = "shop"', ""))
    printed("apply", "--file", "schedules.toml", "--yes")
    (files / "schedules.toml").write_text("")
    assert _settling("--file", "schedules.toml") == "evenbeat schedules delete nightly"


def test_prune_without_a_label_is_refused(files: Path) -> None:
    (files / "schedules.toml").write_text(FILE.replace('source = "shop"', ""))
    assert "prune needs a label of the file" in failed("plan", "--file", "schedules.toml", "--prune", code=2)
    assert "1 to add" in printed("plan", "--file", "schedules.toml", "--prune", "--source", "x", code=3)


def test_json_has_the_whole_plan(files: Path) -> None:
    plan = answered("plan", "--file", "schedules.toml", code=3)
    (entry,) = plan["entries"]
    assert (entry["action"], entry["name"], len(entry["ticks_after"])) == ("add", "nightly", 5)
    assert plan["unchanged"] == 0
    result = answered("apply", "--file", "schedules.toml", "--yes")
    assert [each["name"] for each in result["done"]] == ["nightly"]


def test_the_settings_name_the_app_and_the_file(files: Path) -> None:
    (files / "evenbeat.toml").write_text(f'app = "{code()}"\nschedules_file = "schedules.toml"\n')
    assert printed("plan", code=3).endswith("2 to add, 0 to change, 0 to remove; 0 unchanged\n")
    assert printed("plan", "--tenant", "acme") == "0 to add, 0 to change, 0 to remove; 0 unchanged\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--file", "missing.toml"), "missing.toml"),
        (("--tenant", "a b"), '--tenant "a b"'),
        (("--file", "wrong.toml"), "schedules.a.taks in wrong.toml:3"),
    ],
)
def test_wrong_values_are_refused(files: Path, args: tuple[str, ...], message: str) -> None:
    (files / "wrong.toml").write_text('[schedules.a]\ntrigger = "@daily"\ntaks = "work"\n')
    assert message in failed("plan", *args, code=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'trigger = "0 9 * * * skip=nix"',
            'schedules.a.trigger in wrong.toml:3: trigger "0 9 * * * skip=nix"',
        ),
        ('trigger = "0 9 * * *"\nretries = "three"', "schedules.a.retries in wrong.toml:4: retries"),
        ('trigger = "0 9 * *"', 'schedules.a.trigger in wrong.toml:3: trigger "0 9 * *"'),
        ('trigger = "0 9 * * *"\npayload = { m = 1 }', "schedules.a.payload in wrong.toml:4"),
        (
            'trigger = "0 9 * * *"\ntz = "Europe/Berlin"',
            'is not an option of a schedule; write tz= in the trigger: "0 9 * * * tz=Europe/Berlin"',
        ),
        ('trigger = "@daily"\nstart = "2026-05-01"', "did you mean start_at?"),
    ],
)
def test_a_refusal_names_the_schedule_and_the_line(files: Path, line: str, message: str) -> None:
    (files / "wrong.toml").write_text(f'[schedules.a]\ntask = "work"\n{line}\n')
    assert message in failed("plan", code(), "--file", "wrong.toml", code=2)


def test_an_unknown_calendar_of_the_code_or_of_a_node_names_the_schedule(app: Scheduler, files: Path) -> None:
    app.declare("nightly", "0 9 * * * skip=nix", "work")
    words = 'schedule nightly: trigger "0 9 \\* \\* \\* skip=nix": there is no calendar "nix"'
    with pytest.raises(InvalidValue, match=words):
        app.plan()
    with pytest.raises(InvalidValue, match=words):
        app.declare_tasks()


# -- runs move -----------------------------------------------------------------------------------------------


def test_move_counts_asks_and_moves(app: Scheduler) -> None:
    for _ in range(2):
        app.enqueue("old")
    app.schedules.add("hourly", "@hourly", "old")
    assert failed("runs", "move", "--task", "old", "--to", "new") == (
        "error: nothing was done: 2 runs match\nhint: add --yes to move them\n"
    )
    assert printed("runs", "move", "--task", "old", "--to", "new", "--dry-run") == (
        "would move 2 runs from old to new\n"
        "1 schedule still adds runs of old; to change that:\n"
        "  evenbeat schedules update hourly --task new\n"
    )
    assert printed("runs", "move", "--task", "old", "--to", "new", "--yes").startswith("moved 2 runs")
    assert {each.task for each in app.runs.list()} == {"new"}
    assert printed("schedules", "update", "hourly", "--task", "new")
    assert printed("runs", "move", "--task", "old", "--to", "new") == "no queued run has the task old\n"


def test_move_answers_json_with_the_schedules_and_warnings(app: Scheduler, files: Path) -> None:
    (files / "evenbeat.toml").write_text(f'app = "{code()}"\n')
    app.enqueue("old", {"m": 1})
    result = answered("runs", "move", "--task", "old", "--to", "work", "--yes")
    assert (result["done"], result["schedules"]) == (1, [])
    assert "1 payload does not fit task work" in result["warnings"][0]["problem"]


def test_move_refuses_the_same_task() -> None:
    assert 'to "old" is the task that the runs have' in failed(
        "runs", "move", "--task", "old", "--to", "old", code=2
    )


# -- doctor --------------------------------------------------------------------------------------------------


def test_doctor_names_schedules_whose_task_no_node_has(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("nightly", "@daily", "send_report")
    node(app, tasks=["send_reports"], queues=["default"], worker=True, ticker=True)
    shown = run("doctor").stdout
    assert "1 schedule has a task that no live node has" in shown
    assert "send_report, of nightly; did you mean send_reports?" in shown
    assert "evenbeat runs move --task OLD --to NEW" in shown
    app.schedules.update("nightly", task="send_reports")
    assert "no live node has" not in run("doctor").stdout


def test_plan_and_apply_name_what_is_refused(files: Path) -> None:
    (files / "cycle.toml").write_text(
        'source = "shop"\n'
        '[schedules.a]\ntrigger = "on success of b"\ntask = "work"\n'
        '[schedules.b]\ntrigger = "on success of a"\ntask = "work"\n'
    )
    assert "added" in printed("apply", code(), "--yes")
    shown = printed("plan", code(), "--file", "cycle.toml", code=3)
    why = 'trigger "on success of b" would make a wait for itself: a -> b -> a'
    assert f"x a  refused (file shop): {why}; remove one of these dependencies\n" in shown
    assert shown.endswith("0 to add, 0 to change, 0 to remove; 1 unchanged, 2 refused\n")
    done = printed("apply", code(), "--file", "cycle.toml", "--yes", code=1)
    assert done.count(why) == 1
    assert "b -> a -> b" in done

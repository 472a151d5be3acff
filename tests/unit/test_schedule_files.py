"""Schedules that a TOML file declares."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from evenbeat import InvalidValue, Scheduler
from evenbeat.config import read_settings
from evenbeat.core.options import NEW_SCHEDULE
from evenbeat.schedule_files import known_keys, read_schedule_file
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

WHOLE = """
source = "shop"

[schedules.nightly]
trigger = "0 3 * * * tz=Europe/Berlin"
task = "work"
tenant = "acme"
description = "the books"
tags = ["billing", "eu"]
overlap = "skip"
retries = 3
timeout = "5m"
priority = "high"

[schedules.nightly.payload]
n = 5

[schedules.once]
trigger = "every 1h"
task = "work"
start_at = 2030-01-01T00:30:00Z
paused = true
note = "until the launch"
"""


@pytest.fixture
def app() -> Scheduler:
    return Scheduler(MemoryStore(VirtualClock()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "schedules.toml"


def refusal(app: Scheduler, file: Path, text: str) -> InvalidValue:
    file.write_text(text)
    with pytest.raises(InvalidValue) as caught:
        app.plan(file=file)
    return caught.value


def test_a_file_says_all_that_python_can_say(app: Scheduler, file: Path) -> None:
    file.write_text(WHOLE)
    assert len(app.apply(file=file).done) == 2
    nightly = app.schedules.get("nightly", tenant="acme")
    assert (nightly.managed_by, nightly.source, nightly.payload) == ("file", "shop", {"n": 5})
    assert (nightly.tags, nightly.overlap, nightly.retries) == (("billing", "eu"), "skip", 3)
    once = app.schedules.get("once")
    assert (once.state, once.pause_note) == ("paused", "until the launch")
    assert once.next_run == datetime(2030, 1, 1, 0, 30, tzinfo=UTC)
    assert app.plan(file=file).entries == ()


def test_the_keys_are_those_of_python() -> None:
    assert set(known_keys()) == {"trigger", "task", "payload", "tenant", "start_at", *NEW_SCHEDULE}


def test_the_label_of_the_call_overrides_that_of_the_file(app: Scheduler, file: Path) -> None:
    file.write_text(WHOLE)
    app.apply(file=file, source="billing")
    assert app.schedules.get("once").source == "billing"


def test_prune_removes_what_the_file_no_longer_declares(app: Scheduler, file: Path) -> None:
    file.write_text(WHOLE)
    app.apply(file=file)
    file.write_text(WHOLE.partition("[schedules.nightly]")[0])
    assert {entry.action for entry in app.plan(file=file).entries} == {"orphan"}
    assert len(app.apply(file=file, prune=True).done) == 2


def test_a_file_without_a_label_is_not_pruned(app: Scheduler, file: Path) -> None:
    file.write_text('[schedules.a]\ntrigger = "@daily"\ntask = "work"\n')
    with pytest.raises(InvalidValue, match="prune needs a label of the file"):
        app.plan(file=file, prune=True)
    assert len(app.plan(file=file, prune=True, source="shop").to_do) == 1


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        (
            "[schedules.a]\ntask = 't'\n",
            "schedules.a in {file}:1 has no trigger",
            "add the key trigger, or the key template",
        ),
        ("[schedules.a]\ntrigger = '@daily'\n", "schedules.a in {file}:1 has no task", "add the key task"),
        (
            "[schedules.a]\ntrigger = '@daily'\ntask = 't'\nretrys = 3\n",
            "schedules.a.retrys in {file}:4 = 3 is not an option of a schedule",
            "did you mean retries?",
        ),
        (
            "[schedules.a]\ntrigger = '@daily'\ntask = 't'\nretries = '3'\n",
            'schedules.a.retries in {file}:4: retries "3" is not a whole number',
            None,
        ),
        (
            "[schedules.a]\ntrigger = '0 0 30 2 *'\ntask = 't'\n",
            'schedules.a.trigger in {file}:2: trigger "0 0 30 2 *": the expression never matches',
            None,
        ),
        (
            "[schedules.a]\ntrigger = '@daily'\ntask = 't'\npayload = 7\n",
            "schedules.a.payload in {file}:4: payload 7 is not an object",
            None,
        ),
        (
            "[schedules.a]\ntrigger = '@daily'\ntask = 't'\ntenant = 'a b'\n",
            'schedules.a.tenant in {file}:4: tenant "a b"',
            None,
        ),
        ("[schedules.'a b']\ntrigger = '@daily'\ntask = 't'\n", 'name "a b" is not 1 to 128', None),
        (
            "[schedules.a]\ntrigger = '@daily'\ntask = 't'\n\"retries\" = '3'\n",
            'schedules.a.retries in {file}:1: retries "3" is not a whole number',
            None,
        ),
        ("[schedules]\na = 7\n", "schedules.a in {file}:2 7 is not a table", None),
        ("schedules = 7\n", "schedules in {file} 7 is not a table", None),
        ("[schedule.a]\n", "schedule in {file} is not a key", "did you mean schedules?"),
        ("source = 'a:b'\n", 'source in {file}: source "a:b"', None),
        ("[schedules\n", "file {file} can't be read", None),
    ],
)
def test_wrong_files_are_refused_with_the_place(
    app: Scheduler, file: Path, text: str, problem: str, hint: str | None
) -> None:
    error = refusal(app, file, text)
    assert problem.format(file=file) in str(error)
    assert hint is None or error.hint == hint


def test_a_file_that_is_missing_or_too_long_is_refused(app: Scheduler, file: Path) -> None:
    with pytest.raises(InvalidValue, match="can't be read"):
        app.plan(file=file)
    with file.open("wb") as open_file:
        open_file.truncate(10_000_001)
    with pytest.raises(InvalidValue, match="is longer than 10,000,000 bytes"):
        read_schedule_file(file)


def test_settings_declare_schedules_in_their_own_tables_and_name_a_file(tmp_path: Path, file: Path) -> None:
    (tmp_path / "evenbeat.toml").write_text(
        'schedules_file = "schedules.toml"\n'
        '[schedules.a]\ntrigger = "@daily"\ntask = "work"\n'
        '[schedules.b]\ntrigger = "@daily"\ntask = "work"\n'
    )
    file.write_text('source = "shop"\n[schedules.b]\ntrigger = "@hourly"\ntask = "work"\n')
    below = tmp_path / "below"
    below.mkdir()
    found = read_settings(environment={}, folder=below).schedule_file()
    assert found is not None
    assert {each.name: each.fields["trigger"] for each in found.schedules} == {"a": "@daily", "b": "@hourly"}
    assert found.source == "shop"


def test_settings_without_schedules_declare_none(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.toml").write_text("")
    assert read_settings(environment={}, folder=tmp_path).schedule_file() is None


def test_a_wrong_table_of_the_settings_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.toml").write_text('[schedules.a]\ntrigger = "@daily"\ntask = "t"\nqueu = "x"\n')
    with pytest.raises(InvalidValue, match=r"schedules\.a\.queu in .*evenbeat\.toml:4.*did you mean queue"):
        read_settings(environment={}, folder=tmp_path)


def test_a_node_declares_the_schedules_of_its_file(app: Scheduler, file: Path) -> None:
    file.write_text(WHOLE)
    app.declare_file(file)
    app.declare_tasks()
    assert app.schedules.get("once").managed_by == "file"
    assert app.plan().unchanged == 2


def test_a_file_overrides_the_code(app: Scheduler, file: Path) -> None:
    app.declare("once", "@daily", "work")
    file.write_text(WHOLE)
    entries = {entry.name: entry.managed_by for entry in app.plan(file=file).entries}
    assert entries == {"once": "file", "nightly": "file"}


def test_wrong_values_of_a_file_are_refused_before_a_node_starts(app: Scheduler, file: Path) -> None:
    file.write_text('[schedules.a]\ntrigger = "@daily"\ntask = "t"\nretries = -1\n')
    with pytest.raises(InvalidValue, match="retries -1"):
        app.declare_file(file)


def test_schedules_of_a_call_are_those_of_a_file(app: Scheduler) -> None:
    wanted = {"a": {"trigger": "@daily", "task": "work", "retries": 2}}
    app.declare("mine", "@daily", "work")
    assert [entry.name for entry in app.plan(schedules=wanted).entries] == ["a"]
    app.apply(schedules=wanted, source="ci")
    assert (app.schedules.get("a").managed_by, app.schedules.get("a").source) == ("file", "ci")
    assert [each.name for each in app.apply(schedules={}, source="ci", prune=True).done] == ["a"]


def test_a_call_for_one_tenant_refuses_schedules_of_others(app: Scheduler) -> None:
    wanted = {"a": {"trigger": "@daily", "task": "work", "tenant": "other"}}
    with pytest.raises(InvalidValue, match='tenant "other" is not "acme"'):
        app.plan(schedules=wanted, tenant="acme")
    del wanted["a"]["tenant"]
    assert app.plan(schedules=wanted, tenant="acme").entries[0].tenant == "acme"


def test_a_file_and_schedules_are_not_taken_together(app: Scheduler, file: Path) -> None:
    with pytest.raises(InvalidValue, match="both given"):
        app.plan(file=file, schedules={})

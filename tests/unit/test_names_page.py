"""docs/names.md: every name of Evenbeat on the page exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import evenbeat
from evenbeat import documents
from evenbeat.app.locks import Lock
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.root import root
from evenbeat.core import options, records
from evenbeat.node.settings import NodeOptions
from evenbeat.stores import rows
from evenbeat.timeline import RebuildPolicy

PAGE = (Path(__file__).parents[2] / "docs/names.md").read_text("utf-8")
APP = evenbeat.Scheduler("memory://")

# Of another section's subject than the whole product: the stores and handlers of documents.
DOCUMENTS = {
    name
    for kind in (
        documents.Processor,
        documents.MongoDocuments,
        documents.PostgresDocuments,
        documents.SqliteDocuments,
    )
    for name in inspect.signature(kind).parameters
} | {name for kind in (documents.Processor, documents.Document, documents.Documents) for name in dir(kind)}
OURS = {
    *options.SCHEDULE,
    *NodeOptions.__annotations__,
    *dir(evenbeat.Schedule),
    *evenbeat.ScheduleStats.__struct_fields__,
    *rows.SCHEDULE,
    *rows.RUN,
    *rows.STATISTICS,
    *get_args(records.ScheduleState),
    *get_args(records.RunState),
    *get_args(records.Cause),
    *get_args(records.Kind),
    *inspect.signature(Schedules.add).parameters,
    *inspect.signature(evenbeat.every).parameters,
    *(name for name in dir(Lock) if not name.startswith("_")),
    "ttl",
    *RebuildPolicy.__struct_fields__,
}
# No names, but what a name looks like: the id of a run, the text of a trigger, a key of Redis, a built-in.
SHOWN = {"tenant/name/generation/tick", "0 9 * * 1-5 tz=Europe/Berlin", "len()", "schedule_id"}


def tables() -> list[tuple[str, list[list[str]]]]:
    """The heading above each table, and its rows, the header first."""
    found = []
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
            lines = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()]
            found.append((section.splitlines()[0], [lines[0], *lines[2:]]))
    return found


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


CASES = [
    pytest.param(heading, code, id=f"{heading}: {code}")
    for heading, lines in tables()
    for line in lines[1:]
    for code in codes(line[1])
]


def resolves(path: str, one: Any) -> bool:
    for part in path.split("."):
        if not hasattr(one, part):
            return False
        one = getattr(one, part)
    return True


def is_importable(dotted: str) -> bool:
    """``evenbeat.timeline.Snapshot.of``: the longest part of it that is a module, then attributes."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return end == len(parts) or resolves(".".join(parts[end:]), module)
    return False


def is_command(words: list[str]) -> bool:
    group: click.Command | None = root
    for word in words:
        if not isinstance(group, click.Group):
            return False
        group = group.get_command(click.Context(group), word)
    return group is not None


def is_ours(heading: str, code: str) -> bool:
    if code in SHOWN:
        return True
    if code.startswith("evenbeat "):
        return is_command(code.split()[1:])
    if code in ("evenbeat.statistics", "evenbeat.schedules", "evenbeat.runs"):
        return True  # tables of PostgreSQL, whose columns are checked below
    bare = re.sub(r"[=(].*", "", code).removeprefix("@")
    if bare.startswith("evenbeat."):
        return is_importable(bare)
    if bare.startswith("app."):
        return resolves(bare.removeprefix("app."), APP)
    if heading == "A collection of jobs":
        return bare.partition(".")[0] in DOCUMENTS or bare == "a.b.sleepUntil"
    return bare in OURS or bare in evenbeat.__all__


@pytest.mark.parametrize(("heading", "code"), CASES)
def test_a_name_of_ours_exists(heading: str, code: str) -> None:
    assert is_ours(heading, code)


def test_names_in_the_text_exist() -> None:
    named = [code for code in codes(PAGE) if re.match(r"(app|evenbeat)\.", code) and " " not in code]
    assert len(named) > 40
    assert [code for code in named if not is_ours("", code)] == []


def test_columns_are_those_of_the_tables() -> None:
    columns = {"evenbeat.schedules": rows.SCHEDULE, "evenbeat.runs": rows.RUN}
    seen = []
    for _, (header, *lines) in tables():
        table = header[1].strip("`")
        for line in lines if table in columns else ():
            seen.append(table)
            if not re.match(r"none|in `|`last_run` of", line[1]):
                assert codes(line[1])[0] in columns[table], line
    assert set(seen) == set(columns)


@pytest.mark.parametrize("wrong", ["app.schedules.enable", "evenbeat.timeline.Index", "evenbeat go", "burst"])
def test_a_name_that_is_not_ours_is_found(wrong: str) -> None:
    assert not is_ours("", wrong)


@pytest.mark.parametrize(
    "theirs",
    [
        "WithScheduledTask",
        "WithDBDrivenSchedule",
        "TriggerSchedule",
        "RescheduleFor",
        "SetScheduleEnabled",
        "ScheduledRunIndex",
        "Query",
        "Peek",
        "Swap",
        "GenerateScheduledRuns",
        "next_run_at",
        "last_run_at",
        "last_enqueued_at",
        "cron_spec",
        "LockNext",
        "MustRegister",
        "AcquireLock",
        "Initialise",
        "repeatEvery",
    ],
)
def test_names_of_the_designs_are_there(theirs: str) -> None:
    assert theirs in PAGE

"""Finding the scheduler that a command line names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenbeat import AppImportError, InvalidValue
from evenbeat.app.loading import load_app, load_processor

ONE = 'from evenbeat import Scheduler\nscheduler = Scheduler("memory://", tenant="here")\n'


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str = ONE) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_only_scheduler_of_a_file_is_found_and_the_file_is_a_module_by_its_stem(tmp_path: Path) -> None:
    app = load_app(write(tmp_path / "one_app.py"))

    assert app is sys.modules["one_app"].scheduler
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize("target", ["two_apps.py:second", "two_apps:second"])
def test_one_of_several_is_found_by_its_name(tmp_path: Path, target: str) -> None:
    text = 'from evenbeat import Scheduler\nfirst = Scheduler("memory://")\nsecond = Scheduler("memory://")\n'
    write(tmp_path / "two_apps.py", text)

    assert load_app(target) is sys.modules["two_apps"].second


def test_several_without_a_name_are_named(tmp_path: Path) -> None:
    text = 'from evenbeat import Scheduler\nb = Scheduler("memory://")\na = Scheduler("memory://")\n'
    target = write(tmp_path / "two_apps.py", text)

    with pytest.raises(InvalidValue, match=r"several Schedulers in .*: a, b; say which one, as in .*py:a"):
        load_app(target)


def test_two_names_of_one_scheduler_are_one(tmp_path: Path) -> None:
    target = write(tmp_path / "alias_app.py", ONE + "app = scheduler\n")

    assert load_app(target) is sys.modules["alias_app"].scheduler


@pytest.mark.parametrize("target", ["shop/jobs/nightly.py", "shop.jobs.nightly", "shop/jobs/nightly.py:app"])
def test_a_file_in_a_package_is_imported_as_part_of_it(tmp_path: Path, target: str) -> None:
    write(tmp_path / "shop/__init__.py", "")
    write(tmp_path / "shop/jobs/__init__.py", ONE)
    write(tmp_path / "shop/jobs/nightly.py", "from . import scheduler as app\n")

    assert load_app(target) is sys.modules["shop.jobs"].scheduler


def test_start_and_run_do_nothing_while_the_module_is_imported(tmp_path: Path) -> None:
    app = load_app(write(tmp_path / "eager_app.py", ONE + "scheduler.start()\nscheduler.run()\n"))

    assert not app.is_running


def test_what_the_module_raises_keeps_its_traceback(tmp_path: Path) -> None:
    target = write(tmp_path / "bad_app.py", "def f():\n    return 1 / 0\n\nf()\n")

    with pytest.raises(AppImportError) as caught:
        load_app(target)

    lines = str(caught.value).splitlines()
    assert lines[0] == f"{target} raised when it was imported"
    assert lines[2:4] == ["Traceback (most recent call last):", f'  File "{target}", line 4, in <module>']
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("target", ["bad_app.py", "bad_app"])
def test_also_what_is_missing_misspelt_or_an_exit(tmp_path: Path, target: str, text: str, last: str) -> None:
    write(tmp_path / "bad_app.py", text)

    with pytest.raises(AppImportError) as caught:
        load_app(target)
    assert str(caught.value).splitlines()[-1] == last


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", r"there is no file .*nowhere\.py"),
        ("nowhere", r'there is no module "nowhere"; name a file'),
        ("nowhere.at.all", r'there is no module "nowhere\.at\.all"'),
        ("empty_app.py", r"there is no Scheduler in empty_app\.py; make one at the top level"),
        ("one_app.py:app", r'app of "one_app\.py:app" is not there; there is scheduler'),
        ("one_app:Scheduler", r"Scheduler of .* is a type, not a Scheduler; there is scheduler"),
        ("json.py", r"json\.py can't be imported: json is .*; rename the file"),
        ("one.app.py", r"one\.app\.py can't be imported under its name; rename it"),
        ("", r"is not understood; write app\.py"),
        ("one_app:", r"is not understood"),
        (":app", r"is not understood"),
        ("one_app:a-b", r"is not understood"),
    ],
)
def test_what_can_not_be_found_is_refused_with_a_way_out(tmp_path: Path, target: str, message: str) -> None:
    write(tmp_path / "one_app.py")
    write(tmp_path / "empty_app.py", "")
    write(tmp_path / "json.py")
    write(tmp_path / "one.app.py")

    with pytest.raises(InvalidValue, match=message):
        load_app(target)


PROCESSOR = """
from evenbeat.documents import MemoryDocuments, Processor
processor = Processor(MemoryDocuments({}), print)
"""


def test_a_processor_is_found_in_the_same_way(tmp_path: Path) -> None:
    target = write(tmp_path / "orders.py", ONE + PROCESSOR)

    assert load_processor(target) is sys.modules["orders"].processor
    assert load_processor(f"{target}:processor") is load_processor("orders")
    with pytest.raises(InvalidValue, match=r"scheduler of .* is a Scheduler, not a Processor; there is proc"):
        load_processor("orders:scheduler")


def test_the_error_for_a_module_without_a_processor_shows_how_to_make_one(tmp_path: Path) -> None:
    target = write(tmp_path / "no_orders.py")

    with pytest.raises(InvalidValue, match=r"no Processor in .*: processor = Processor\(…\)"):
        load_processor(target)


def test_a_processor_that_starts_itself_is_not_started_by_looking(tmp_path: Path) -> None:
    target = write(tmp_path / "eager.py", PROCESSOR + "processor.start()\nprocessor.run()\n")

    assert not load_processor(target).is_running

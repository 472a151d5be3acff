"""The processes that try mutants, in a copy of the tree. Each mutant runs in a fork of one of them.

``collected`` has collected the tests: in the fork, a mutant replaces a function's code, or a constant, which
takes milliseconds. ``plain`` has imported third-party packages alone: it is for mutants of code that runs
when a module is imported, if replacing is not enough.

Both read jobs from stdin, one JSON object per line, and answer each with one line.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import pytest

_PRELOADED = (
    "asyncio",
    "click",
    "django",
    "msgspec",
    "numpy",
    "psycopg",
    "pymongo",
    "redis",
    "rich.console",
    "sqlalchemy",
    "sqlite3",
    "xml.dom",
    "zoneinfo",
    "multiprocessing",
    "concurrent.futures",
    "difflib",
    "http.server",
)
_VALUES = (str, int, float, tuple, frozenset, type(None))
# Tests marked long cost more than the mutants that they alone would catch.
_QUIET = ("-q", "-p", "no:cacheprovider", "--no-header", "-m", "not long")


def main(kind: str, tests: Sequence[str]) -> None:
    _die_with_parent()
    # pytest replaces the first three descriptors.
    jobs, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if kind == "collected":
        pytest.main([*_QUIET, "--capture=no", *tests], [_Collected(jobs, answers)])
        return
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in jobs:
        job = json.loads(line)
        _answer(answers, _forked(job, partial(_import_and_run, job)))


class _Collected:
    """A plugin that takes jobs where pytest would run the tests."""

    def __init__(self, jobs: TextIO, answers: TextIO) -> None:
        self._jobs = jobs
        self._answers = answers

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        for line in self._jobs:
            job = json.loads(line)

            def work(job: dict[str, Any] = job) -> dict[str, Any]:
                if job.get("measure"):
                    return _measure(session, job["modules"])
                sys.dont_write_bytecode = True
                file, source = Path(job["file"]), job["source"]
                if job["imported"]:
                    replaced = replace_values(file, source)
                else:
                    replaced = replace_code(file, job["place"], source)
                if not replaced:
                    return {"code": -2, "failed": ""}
                return _run(session, [items[test] for test in job["tests"]])

            _answer(self._answers, _forked(job, work))
        return True


def _die_with_parent() -> None:
    """End with the parent process, where the system can do that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def _forked(job: dict[str, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        _die_with_parent()
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, to in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, to)
        answer: dict[str, Any] = {"code": 3, "failed": "the tests ended"}
        try:
            answer = work()
        finally:
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
    os.close(writing)
    text = _read(reading, job["timeout"])
    # Also processes that the tests started and left behind.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"code": -1, "failed": "timeout"}
    return {**answer, "took": round(time.monotonic() - started, 2)}


def _read(descriptor: int, timeout: float) -> str:
    """Read until the other side closes; return an empty text if that takes too long."""
    deadline = time.monotonic() + timeout
    parts: list[bytes] = []
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return ""
            part = os.read(descriptor, 1 << 20)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)
    finally:
        os.close(descriptor)


# -- a mutant of what runs when it is imported -------------------------------------------------------------


class _First:
    """A plugin that remembers the first test that fails."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid or "collection"


def _import_and_run(job: dict[str, Any]) -> dict[str, Any]:
    sys.dont_write_bytecode = True
    first = _First()
    code = pytest.main(["-x", *_QUIET, *job["tests"]], [first])
    return {"code": int(code), "failed": first.failed}


# -- a mutant of a function --------------------------------------------------------------------------------


def replace_code(file: Path, place: str, source: str) -> bool:
    """Give the function its code from the changed source; return False if it can't be replaced in place."""
    new = _find_code(compile(source, str(file), "exec", dont_inherit=True), place.split("."))
    if new is None:
        return False
    found = [
        function
        for function in _functions()
        if function.__code__.co_qualname == new.co_qualname
        and os.path.realpath(function.__code__.co_filename) == os.path.realpath(file)
    ]
    for function in found:
        if function.__code__.co_freevars != new.co_freevars:
            return False
        function.__code__ = new
    return bool(found)


def replace_values(file: Path, source: str) -> bool:
    """Give a module the constants and the default arguments of the changed source; return False if none
    differs.

    Values that other modules have computed from the old constants stay: a mutant that survives this is tried
    again by importing it.
    """
    ours = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "evenbeat"]
    (module,) = [one for one in ours if os.path.realpath(one.__file__ or "") == os.path.realpath(file)]
    made: dict[str, Any] = {"__name__": module.__name__, "__file__": str(file)}
    exec(compile(source, str(file), "exec", dont_inherit=True), made)  # noqa: S102
    changed = False
    for name, new in made.items():
        old = vars(module).get(name)
        if isinstance(new, _VALUES) and type(new) is type(old) and new != old:
            changed = True
            for one in ours:
                if vars(one).get(name) is old:
                    setattr(one, name, new)
    present = {
        function.__qualname__: function
        for function in _functions()
        if os.path.realpath(function.__code__.co_filename) == os.path.realpath(file)
    }
    for function in _within(made.values(), module.__name__):
        other = present.get(function.__qualname__)
        if other is None or other is function:
            continue
        positional = tuple(map(_newer, other.__defaults__ or (), function.__defaults__ or ()))
        old = other.__kwdefaults__ or {}
        named = {name: _newer(old.get(name), new) for name, new in (function.__kwdefaults__ or {}).items()}
        if (positional, named) != (other.__defaults__ or (), old):
            changed = True
            other.__defaults__, other.__kwdefaults__ = positional or None, named or None
    return changed


def _newer(old: object, new: object) -> object:
    """Return the new value if it can be compared; a function is another object each time it is created."""
    return new if isinstance(new, _VALUES) else old


def _within(values: Iterable[object], module: str) -> Iterator[FunctionType]:
    for value in values:
        if isinstance(value, FunctionType) and value.__module__ == module:
            yield value
        elif isinstance(value, type) and value.__module__ == module:
            yield from (inner for inner in vars(value).values() if isinstance(inner, FunctionType))


def _functions() -> Iterator[FunctionType]:
    # gc.freeze hides objects from get_objects, not from a walk over modules and classes.
    seen: set[int] = set()
    todo: list[object] = [
        value
        for name, module in list(sys.modules.items())
        if name.split(".")[0] == "evenbeat"
        for value in list(vars(module).values())
    ]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
        if isinstance(value, type) and value.__module__.split(".")[0] == "evenbeat":
            todo.extend(vars(value).values())
        elif isinstance(value, property):
            todo += [value.fget, value.fset]
        elif isinstance(value, (staticmethod, classmethod)):
            todo.append(value.__func__)
        if (wrapped := getattr(value, "__wrapped__", None)) is not None:
            todo.append(wrapped)


def _find_code(code: CodeType, path: list[str]) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name == path[0]:
            found = constant if len(path) == 1 else _find_code(constant, path[1:])
            # The body of a class is code, too; a function inside a function is replaced with the outer one.
            if found is not None:
                return found if not constant.co_flags & 0x2 or len(path) == 1 else constant
    return None


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> dict[str, Any]:
    first = _First()
    session.config.pluginmanager.register(first)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if first.failed:
            return {"code": 1, "failed": first.failed}
    return {"code": 0, "failed": ""}


# -- which test runs which line ----------------------------------------------------------------------------


class _Lines:
    """A plugin that measures which lines each test executes, and how long it takes."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files
        self._lines: set[tuple[str, int]] = set()
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: list[str] = []
        self._outside = set[str]()

    def watch(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if name in self._outside:
            return None
        module = self._files.get(name) or self._files.get(os.path.realpath(name))
        if module is None:
            self._outside.add(name)
            return None
        lines = self._lines

        def line(frame: FrameType, event: str, _: object) -> Any:
            lines.add((module, frame.f_lineno))
            return line

        lines.add((module, frame.f_lineno))
        return line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._lines.clear()
        started = time.monotonic()
        threading.settrace(self.watch)
        sys.settrace(self.watch)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            found: dict[str, list[int]] = defaultdict(list)
            for module, number in sorted(self._lines):
                found[module].append(number)
            self.tests[item.nodeid] = {"took": round(time.monotonic() - started, 3), "lines": found}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.failed.append(f"{report.nodeid} (skipped)")


def _measure(session: pytest.Session, modules: Sequence[str]) -> dict[str, Any]:
    root = Path.cwd() / "src" / "evenbeat"
    lines = _Lines({os.path.realpath(root / module): module for module in modules})
    session.config.pluginmanager.register(lines)
    items = session.items
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return {"code": 0, "failed": lines.failed, "tests": lines.tests}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

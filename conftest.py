"""Documentation that runs: the examples in README.md and docs/ are tests.

``python`` blocks are executed in order, one namespace per document; one that starts with ``>>>`` is a
doctest. Each ``$ evenbeat …`` line of a ``console`` block is run, and its output, stdout and stderr
together, must equal the lines below it: ``...`` at the end of a line stands for the rest of the line, on a
line of its own for any lines. ``$ echo $?`` is the exit code of the command before.

A document has a folder of its own to work in. Its commands run on Monday, 2026-03-02, at 08:00 UTC; the user
is ``ana`` and the machine is ``shop``.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from doctest import ELLIPSIS
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from evenbeat.cli.root import root

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent
ENVIRONMENT = {"COLUMNS": "100", "LOGNAME": "ana", "NO_COLOR": "1", "TZ": "UTC"}
HOST = "shop"
NOW = 1_772_438_400


class Step(NamedTuple):
    """A line of a console block and its expected output."""

    command: str
    expected: list[str]


def run_console(example: Example) -> str | None:
    """Run the commands of a block; return the difference, or None."""
    exit_code = 0
    for command, expected in read_console(str(example.parsed)):
        words = shell_words(command)
        if words == ["echo", "$?"]:
            printed = str(exit_code)
        elif words[0] == "evenbeat":
            with clock_stopped(), patch.object(socket, "gethostname", lambda: HOST):
                result = CliRunner(env=ENVIRONMENT).invoke(root, words[1:], prog_name="evenbeat")
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            exit_code, printed = result.exit_code, result.output
        elif expected:
            return f"$ {command}\nis not run here, so its output can't be checked: show it in a text block"
        else:
            continue  # an installation, an export: shown, not run
        if not matches(expected, printed.splitlines()):
            shown = "\n".join(expected)
            return f"$ {command}\nprinted\n\n{printed.rstrip()}\n\nbut the document says\n\n{shown}"
    return None


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Stop the clock, so that the output has the same dates on every day."""
    with patch.object(time, "time", lambda: float(NOW)), patch.object(time, "time_ns", lambda: NOW * 10**9):
        yield


def enter_folder(namespace: dict[str, Any]) -> None:
    """Give each document a folder of its own to work in."""
    namespace["_folder"], namespace["_back"] = TemporaryDirectory(prefix="evenbeat-docs-"), Path.cwd()
    os.chdir(namespace["_folder"].name)


def leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


def read_console(source: str) -> Iterator[Step]:
    """Yield the steps of a block, without the blank lines before the next command."""
    step: Step | None = None
    for line in source.rstrip().splitlines():
        if line.startswith("$ "):
            if step is not None:
                yield trimmed(step)
            step = Step(line[2:].strip(), [])
        elif step is None:
            raise ValueError(f"a console block starts with a command, not with {line!r}")
        else:
            step.expected.append(line.rstrip())
    if step is None:
        raise ValueError("a console block without a command")
    yield trimmed(step)


def trimmed(step: Step) -> Step:
    return Step(step.command, "\n".join(step.expected).rstrip("\n").splitlines())


def shell_words(command: str) -> list[str]:
    """Return the words of a command line. Refuse a command that needs a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = list(lexer)
    if words[0] == "evenbeat" and any(re.fullmatch(r"[|&;<>]+", word) for word in words):
        raise ValueError(f"{command!r} needs a shell")
    return words


def matches(expected: list[str], printed: list[str]) -> bool:
    """Return whether all lines agree, except for ``...``."""
    pattern = ""
    for line in expected:
        if line == "...":
            pattern += r"(?:.*\n)*"
        elif line.endswith("..."):
            pattern += re.escape(line.removesuffix("...")) + r".*\n"
        else:
            pattern += re.escape(line) + r"\n"
    text = "".join(f"{line.rstrip()}\n" for line in printed)
    return re.fullmatch(pattern, text.rstrip("\n") + "\n" if text.strip() else "") is not None


collect_markdown: Callable[[Path, pytest.Collector], pytest.Collector | None] = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=ELLIPSIS),
        CodeBlockParser(language="console", evaluator=run_console),
        SkipParser(),
    ],
    pattern="*.md",
    setup=enter_folder,
    teardown=leave_folder,
).pytest()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect README.md and all pages under docs/. Sybil's own patterns match neither depth nor root."""
    where = file_path.relative_to(ROOT).parts if file_path.is_relative_to(ROOT) else ()
    if where == ("README.md",) or where[:1] == ("docs",):
        return collect_markdown(file_path, parent)
    return None

"""CONTRIBUTING.md, the workflow and the hooks: what they name exists, and they agree with pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = (ROOT / ".github" / "workflows" / "check.yml").read_text()
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize(
    "text", [CONTRIBUTING, WORKFLOW, HOOKS], ids=["CONTRIBUTING.md", "check.yml", "hooks"]
)
def test_every_make_command_that_is_named_exists(text: str) -> None:
    named = set(re.findall(r"(?:`|\$ |run: )make ([a-z-]+)", text))
    assert named <= TARGETS


def test_the_paths_that_contributors_are_sent_to_exist() -> None:
    paths = re.findall(r"`((?:src|tests|docs|examples)/[\w/.-]+)`", CONTRIBUTING)
    paths += [
        f"src/evenbeat/{path}" for path in re.findall(r"`((?:cli|stores|triggers)/[\w/.-]+)`", CONTRIBUTING)
    ]
    assert len(paths) > 10
    assert [path for path in paths if "NAME" not in path and not (ROOT / path).exists()] == []


def test_the_map_for_contributors_is_complete() -> None:
    listed = set(re.findall(r"`(\w+)/`", CONTRIBUTING))
    folders = {file.parent.name for file in (ROOT / "src" / "evenbeat").glob("*/__init__.py")}
    assert folders - {"demo"} <= listed
    tests = {
        path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("test_*.py"))
    }
    assert tests <= listed


def test_the_workflow_runs_on_each_python_that_the_package_names() -> None:
    found = re.search(r"python: \[(.*)\]", WORKFLOW)
    assert found is not None
    versions = re.findall(r'"([\d.]+)"', found[1])
    named = [
        text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"] if ":: Python :: 3" in text
    ]
    assert set(named) <= set(versions)
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"


def test_hooks_run_the_tools_of_the_environment() -> None:
    """So their versions are those of pyproject.toml, and not another copy of them."""
    entries = re.findall(r"entry: (\S+)", HOOKS)
    assert entries == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    pinned = {requirement.partition("==")[0] for requirement in PROJECT["dependency-groups"]["dev"]}
    assert {"ruff", "mypy"} <= pinned

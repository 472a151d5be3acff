"""``pip install evenbeat`` brings click, msgspec, rich and tzdata: all but the extras works with these."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# Hides every package but the dependencies, and those that they bring themselves.
ONLY_DEPENDENCIES = """
import sys
from importlib.metadata import packages_distributions

brought = {"evenbeat", "click", "msgspec", "rich", "tzdata", "pygments", "markdown_it", "mdurl"}
hidden = packages_distributions().keys() - brought
assert "numpy" in hidden

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ONLY_DEPENDENCIES + code]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENBEAT_")}
    environment |= {"NO_COLOR": "1", "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def evenbeat(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"sys.argv = ['evenbeat', *{words!r}]\nfrom evenbeat.cli import main\nmain()"
    return python(folder, code)


def test_the_package_depends_on_four_others() -> None:
    names = [re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]]  # type: ignore[index]
    assert names == ["click", "msgspec", "rich", "tzdata"]


def test_numpy_is_an_extra_and_part_of_those_that_need_it() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [line.partition(">")[0] for line in extras["timeline"]] == ["numpy"]
    assert "evenbeat[metrics,timeline]" in extras["web"]
    assert "timeline" in extras["all"][0]


def test_a_snapshot_is_built_queried_and_swapped_without_numpy(tmp_path: Path) -> None:
    done = python(
        tmp_path,
        """
from evenbeat.timeline import RebuildPolicy, Snapshot, Timeline

ticks = Snapshot.of([(2000, "b"), (1000, "b"), (2000, "a")])
timeline = Timeline(RebuildPolicy())
assert not timeline.step(0)
timeline.swap(ticks)
assert timeline.query(0, 3000) == [(1000, "b"), (2000, "a"), (2000, "b")]
assert (timeline.peek(), timeline.peek(1001), len(timeline)) == ((1000, "b"), (2000, "a"), 3)
assert Snapshot([5, 3], [0, 1], ["x", "y"]).peek() == (3, "y")
print("it works")
""",
    )
    assert done.stdout == "it works\n", done.stderr


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("from evenbeat.timeline import Plan", "evenbeat.timeline.Plan"),
        ("from evenbeat.timeline import Load", "evenbeat.timeline.Load"),
    ],
)
def test_planning_without_numpy_says_what_to_install(tmp_path: Path, code: str, what: str) -> None:
    done = python(tmp_path, code)
    message = f"ImportError: {what} needs numpy, which is not installed; pip install 'evenbeat[timeline]'"
    assert done.stderr.splitlines()[-1] == message


def test_the_forecast_without_numpy_says_what_to_install(tmp_path: Path) -> None:
    done = evenbeat(tmp_path, "forecast")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: the forecast needs numpy, which is not installed",
        "hint: pip install 'evenbeat[timeline]'",
    ]


@pytest.mark.long
def test_the_other_commands_work(tmp_path: Path) -> None:
    for words in (
        ("--help",),
        ("next", "0 9 * * *"),
        ("explain", "0 9 * * *", "--tz", "Europe/Berlin"),
        ("schedules", "add", "nightly", "0 3 * * *", "cleanup"),
        ("schedules", "show", "nightly"),
        ("runs", "enqueue", "cleanup"),
        ("runs", "list"),
        ("queues",),
        ("config", "show"),
        ("db", "upgrade"),
        ("doctor",),
    ):
        done = evenbeat(tmp_path, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    done = evenbeat(tmp_path, "demo", "--for", "2s")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Stopped; evenbeat-demo.db has" in done.stdout
    assert "(pip install 'evenbeat[web]')" in done.stdout

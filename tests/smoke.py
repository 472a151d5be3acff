"""Try the wheel that ``make release`` built, in an environment that has nothing else.

    .venv-release/bin/python -I tests/smoke.py dist

``-I`` keeps this folder and PYTHONPATH off the path, so that the installed package is what is imported.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import evenbeat

PUBLIC = ("evenbeat", "evenbeat.documents", "evenbeat.stores.base", "evenbeat.testing", "evenbeat.timeline")
COMMAND = str(Path(sys.executable).with_name("evenbeat"))
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EVENBEAT"))
}
DEADLINE = 120
APP = """
from evenbeat import Scheduler

app = Scheduler("sqlite:///smoke.db")


@app.task(executor="process")
def double(number: int) -> int:
    return 2 * number
"""


def check_archives(dist: Path) -> None:
    """Check that each archive has what it needs, and that tests and benchmarks stay out of the wheel."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    inside = ZipFile(wheel).namelist()
    assert "evenbeat/py.typed" in inside
    assert any(name.endswith("/licenses/LICENSE") for name in inside)
    assert {name.split("/")[0].partition("-")[0] for name in inside} == {"evenbeat", "_evenbeat_pytest.py"}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "docs/index.md", "pyproject.toml"} <= names


def check_imports() -> None:
    """Check that the installed package is the one that is imported, and that each public name is there."""
    assert evenbeat.__file__ is not None
    assert Path(evenbeat.__file__).is_relative_to(sys.prefix), evenbeat.__file__
    assert evenbeat.__version__ == version("evenbeat")
    for name in PUBLIC:
        importlib.import_module(name)
    for name in evenbeat.__all__:
        getattr(evenbeat, name)


def run(*arguments: str, code: int = 0) -> str:
    """Run an ``evenbeat`` command, check its exit code, and return what it prints."""
    done = subprocess.run(
        [COMMAND, *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def check_a_node() -> None:
    """Execute a task in a process of its own, under ``evenbeat run``."""
    Path("app.py").write_text(APP)
    app = evenbeat.Scheduler("sqlite:///smoke.db")
    wanted = app.enqueue("double", {"number": 21})
    node = subprocess.Popen([COMMAND, "run", "app.py"], env=ENVIRONMENT)
    try:
        assert app.runs.join(wanted.id, DEADLINE).result == 42
    finally:
        node.terminate()
        assert node.wait(DEADLINE) == 0
        app.close()


def main(dist: Path) -> None:
    check_archives(dist)
    check_imports()
    with TemporaryDirectory(prefix="evenbeat-smoke-") as folder:
        os.chdir(folder)
        assert run("--version").strip() == f"evenbeat {evenbeat.__version__}"
        check_a_node()
        run("demo", "--for", "5s")
        assert "every" in run("schedules", "list", "--store", "sqlite:///evenbeat-demo.db")
        # Without extras there is no numpy, and the forecast names the extra that brings it.
        assert "evenbeat[timeline]" in run("forecast", "--store", "sqlite:///evenbeat-demo.db", code=1)
        os.chdir("/")
    sys.stdout.write(f"evenbeat {evenbeat.__version__}: the wheel installs, imports and runs\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

"""The dashboard in the package: built once, in the sdist, and served by the wheel made from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.nodes import without_node

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **variables: str) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def make_environment(folder: Path) -> list[str]:
    """Create an empty environment, and return the command that installs into it."""
    uv = shutil.which("uv")
    if uv is not None:
        run(uv, "venv", "-q", "--python", sys.executable, folder)
        return [uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python")]
    run(sys.executable, "-m", "venv", folder)
    return [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]


@pytest.mark.long
def test_a_wheel_made_from_the_sdist_without_node_serves_the_dashboard(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist)
    run(*build, "--sdist", ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()

    run(*build, "--wheel", sources, **without_node(tmp_path / "hidden"))

    (wheel,) = dist.glob("*.whl")
    environment = tmp_path / "environment"
    run(*make_environment(environment), f"{wheel}[web]")
    run(environment / "bin" / "python", "-I", ROOT / "tests" / "smoke.py", dist, "web")

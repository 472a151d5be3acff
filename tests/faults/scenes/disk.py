"""A disk that is full for a while."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import small_disk
from tests.faults.fleet import ROOT, Account
from tests.faults.scene import Ground, Mutant, Outcome, Scene, caught
from tests.missing import Unavailable


@contextmanager
def elsewhere(store: str, folder: Path) -> Iterator[Ground]:
    """The process with the small disk makes a ground for itself; here there is only its folder."""
    ground = Ground(store, folder)
    _run(ground, 0)
    yield ground


def full_disk(ground: Ground, faults: int) -> Outcome:
    """Three nodes; what the database is kept on is full for three seconds, and then there is room again."""
    return _play(ground, faults)


def _play(ground: Ground, faults: int, *options: str) -> Outcome:
    done = _run(ground, faults, *options)
    assert done.returncode == 0, f"the scene broke: {done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    assert "problem" not in result, result["problem"]
    return Outcome(**{**result, "account": Account(**result["account"])})


def _run(ground: Ground, faults: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the process with the small disk; without faults it only sees whether it can have one."""
    with tempfile.TemporaryDirectory(prefix="evenbeat-disk-") as disk:
        Path(disk).chmod(0o755)  # servers of root's run as another user
        words = [ground.url, str(ground.folder), disk, str(faults), *options]
        command = [sys.executable, "-m", small_disk.__name__, *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == small_disk.REFUSED:
        raise Unavailable(done.stderr.strip(), is_required=False)
    return done


def torn(ground: Ground) -> str | None:
    """Nodes that advance a schedule first and add its runs after that lose what the disk has no room for."""
    return caught(lambda: _play(ground, 2, "--broken", "torn"))


WHAT = "3 nodes; a disk that is full for 3 s, but for a little now and then"
SCENES = (
    Scene("disk", full_disk, WHAT, 1, 3, ("sqlite", "postgres"), elsewhere),
    Scene("disk", full_disk, WHAT, 0, 3, ("valkey",), elsewhere),
    # It has room in its journal for a minute.
    Scene("disk", full_disk, WHAT, 0, 1, ("mongo",), elsewhere),
)
MUTANTS = (Mutant("torn", torn, "lost", ("sqlite",), (), elsewhere),)

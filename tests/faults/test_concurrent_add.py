"""A name is added once, however many processes add it at the same moment with the same options."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.adder import BETWEEN
from tests.faults.fleet import ROOT, opened
from tests.faults.scene import STORES
from tests.lengths import some

PROCESSES, THREADS, NAMES = 2, 8, 20


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a fresh database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'evenbeat.db'}"
    return str(request.getfixturevalue(request.param))


@pytest.mark.parametrize("url", some(STORES, "sqlite"), indirect=True)
def test_of_all_processes_that_add_a_name_at_once_exactly_one_succeeds(url: str) -> None:
    with opened(url):
        pass  # creates the tables
    start = time.time() + 2.0
    words = [sys.executable, "-m", "tests.faults.adder", url, str(start), str(NAMES), str(THREADS)]
    processes = [
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    patience = 60 + NAMES * BETWEEN
    counts = [json.loads(process.communicate(timeout=patience)[0]) for process in processes]
    made, existed, unsure = (
        sum((Counter(one[kind]) for one in counts), Counter[str]()) for kind in ("made", "existed", "unsure")
    )
    for name in (f"name-{at}" for at in range(NAMES)):
        # On a slow machine, a thread that got no answer may be the one that succeeded.
        assert made[name] == 1 or (made[name] == 0 and unsure[name]), f"{made[name]} were given {name}"
        assert made[name] + existed[name] + unsure[name] == PROCESSES * THREADS

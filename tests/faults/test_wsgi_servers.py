"""A scheduler inside a WSGI app, under servers that fork their workers before or after they import it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from evenbeat.stores.base import RunQuery
from evenbeat.stores.sqlite import SqliteStore
from tests.faults.fleet import ROOT, check_ticks, wait_until
from tests.servers import free_port

APP = "tests.faults.wsgi_app:application"
HOOKS = """
from tests.faults.wsgi_app import scheduler

def post_worker_init(worker):
    scheduler.start()

def worker_exit(server, worker):
    scheduler.stop("2s")
"""


class Web:
    """A server with two worker processes, and its answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.store = SqliteStore(folder / "evenbeat.db")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, "HOME": str(self.folder), **environment},
            )
        self.until_two()
        self.store.open()

    def until_two(self) -> None:
        wait_until(lambda: len(self.workers()) == 2, f"there are no two workers: {self.log()}")

    def workers(self) -> dict[int, bool]:
        """Return the processes that answer, and whether the scheduler of each runs."""
        found: dict[int, bool] = {}
        for _ in range(10):
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}", timeout=5) as reply,
            ):
                pid, running = reply.read().decode().split()
                found[int(pid)] = running == "True"
        return found

    def nodes(self) -> set[str]:
        """Return the processes that have executed runs."""
        runs = self.store.find_runs(RunQuery(states=("succeeded",), limit=10_000)).items
        return {str(run.result) for run in runs}

    def done(self) -> int:
        return self.store.count_runs().get("succeeded", 0)

    def until_more(self) -> None:
        before = self.done()
        wait_until(lambda: self.done() >= before + 10, f"nothing is executed any more: {self.log()}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.store.close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with closing(Web(tmp_path)) as made:
        yield made


def gunicorn(web: Web, *options: str, **environment: str) -> None:
    if importlib.util.find_spec("gunicorn") is None:
        pytest.skip("gunicorn is not installed")
    address = f"127.0.0.1:{web.port}"
    web.start(sys.executable, "-m", "gunicorn", "-w", "2", "-b", address, *options, APP, **environment)


def kill_one(web: Web) -> None:
    web.until_more()
    os.kill(next(iter(web.workers())), signal.SIGKILL)
    web.until_more()
    web.until_two()
    web.stop()
    check_ticks(web.store, "beat")


def test_an_app_that_each_gunicorn_worker_imports_is_a_node_in_each(web: Web) -> None:
    gunicorn(web, WSGI_APP="start-when-imported")
    assert set(web.workers().values()) == {True}
    kill_one(web)


@pytest.mark.long
def test_an_app_that_starts_before_gunicorn_forks_is_a_node_in_the_parent_alone(web: Web) -> None:
    gunicorn(web, "--preload", WSGI_APP="start-when-imported")
    assert set(web.workers().values()) == {False}
    kill_one(web)
    assert web.process is not None
    assert web.nodes() == {str(web.process.pid)}


def test_an_app_that_is_loaded_before_gunicorn_forks_and_started_after_is_a_node_in_each(web: Web) -> None:
    hooks = web.folder / "hooks.py"
    hooks.write_text(HOOKS)
    gunicorn(web, "--preload", "-c", str(hooks))
    assert set(web.workers().values()) == {True}
    kill_one(web)


@pytest.mark.parametrize("lazy", [True, False])
def test_an_app_under_uwsgi(web: Web, lazy: bool) -> None:
    binary = shutil.which("uwsgi")
    if binary is None:
        pytest.skip("uwsgi is not installed; it is built from source: pip install uwsgi")
    options = ["--http-socket", f"127.0.0.1:{web.port}", "--master", "--processes", "2", "--enable-threads"]
    options += [
        "--die-on-term",
        "--virtualenv",
        sys.prefix,
        "--module",
        APP,
        *(["--lazy-apps"] if lazy else []),
    ]
    web.start(binary, *options, WSGI_APP="start-when-imported")
    assert set(web.workers().values()) == {lazy}
    kill_one(web)

"""``evenbeat dev`` and ``evenbeat demo`` as people use them: started, edited, stopped, started again.

Real time and real processes: reloading and draining are the subject. The tests wait for what is output.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

APP = """
from evenbeat import Scheduler, every

app = Scheduler("sqlite:///evenbeat.db")

@app.task(schedule=every("200ms"))
def greet():
    return "hello"
"""


class CommandOutput:
    """The output of a command, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def wait_for(self, *words: str) -> None:
        self.wait_until(lambda: all(word in self.text for word in words), f"{words}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"never came: {what}; the output was\n{self.text}"
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@contextmanager
def evenbeat(folder: Path, *arguments: str) -> Iterator[CommandOutput]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "evenbeat", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield CommandOutput(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def test_an_app_is_started_again_when_its_file_changes(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP)
    with evenbeat(tmp_path, "dev", "app.py") as dev:
        dev.wait_for("Evenbeat runs app.py", '→ "hello"')
        app.write_text(APP.replace("hello", "good morning"))
        dev.wait_for("app.py changed: restarting", '→ "good morning"')
        app.write_text("not python (")
        dev.wait_for("SyntaxError", "waiting for a change")
        app.write_text(APP.replace("hello", "back again"))
        dev.wait_for('→ "back again"')
        assert dev.stop() == 0
    assert not (tmp_path / "evenbeat.db-wal").exists()  # it was closed, not killed


def test_dev_without_reloading_drains_when_it_is_terminated(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with evenbeat(tmp_path, "dev", "--no-reload", "app.py") as dev:
        dev.wait_for('→ "hello"')
        assert dev.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGHUP])
def test_the_app_ends_when_the_process_that_watches_it_does(tmp_path: Path, end: signal.Signals) -> None:
    (tmp_path / "app.py").write_text(f"import os\nprint('app is', os.getpid())\n{APP}")
    with evenbeat(tmp_path, "dev", "app.py") as output:
        output.wait_for("app is ", "greet")
        app = int(output.text.partition("app is ")[2].split()[0])
        output.process.send_signal(end)
        output.wait_until(lambda: not is_alive(app), f"the app ends after {end.name}")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_dev_says_what_is_missing(tmp_path: Path) -> None:
    with evenbeat(tmp_path, "dev") as dev:
        assert dev.process.wait(60) == 2
        dev.wait_for("which app?")


def test_the_demo_serves_the_dashboard_with_a_week_behind_it(tmp_path: Path) -> None:
    with evenbeat(tmp_path, "demo", "--port", "0") as demo:
        demo.wait_for("Dashboard: http://127.0.0.1:", "A week of history: ", "The jobs start now.")
        url = dashboard_url(demo)
        demo.wait_for("welcome", "● pulse")
        page = read(f"{url}api/v1/schedules?all_tenants=true&limit=200")
        names = {(each["tenant"], each["name"]) for each in page["items"]}
        assert {("default", "nightly-report"), ("acme", "digest"), ("default", "pulse")} <= names
        runs = read(f"{url}api/v1/runs?schedule=nightly-report&limit=20")["items"]
        assert {run["state"] for run in runs} == {"failed", "succeeded"}
        assert demo.stop() == 0
    assert demo.text.index("Dashboard: ") < demo.text.index("A week of history: ")
    assert demo.text.count("http://127.0.0.1") == 1
    with evenbeat(tmp_path, "demo", "--for", "200ms", "--no-web") as again:
        assert again.process.wait(60) == 0
        again.wait_for("Stopped for", "Stopped; evenbeat-demo.db has")
        assert "Dashboard" not in again.text
        assert "week of history" not in again.text  # it is written once


@pytest.mark.long
def test_the_demo_takes_the_next_port_if_the_usual_one_is_in_use(tmp_path: Path) -> None:
    with held_port(8787), evenbeat(tmp_path, "demo", "--for", "200ms") as demo:
        assert demo.process.wait(60) == 0
        demo.wait_for("Stopped; ")
        assert 8787 < int(dashboard_url(demo).rpartition(":")[2].strip("/")) < 8807


@contextmanager
def held_port(port: int) -> Iterator[None]:
    """Listen on ``port``; wait for it while another test has it, as that one may end at any moment."""
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                break
            except OSError:  # a program that keeps it for a minute keeps it during the test as well
                time.sleep(0.1)
        yield


def test_the_demo_refuses_a_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with evenbeat(tmp_path, "demo", "--port", str(port)) as demo:
            assert demo.process.wait(60) == 1
            demo.wait_for(f"can't listen on 127.0.0.1:{port}", "--port", "--no-web")


def dashboard_url(demo: CommandOutput) -> str:
    return demo.text.partition("Dashboard: ")[2].split()[0]


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  # on this host
        return json.loads(answer.read())


@pytest.mark.long
def test_the_demo_runs_stops_and_catches_up_when_it_is_started_again(tmp_path: Path) -> None:
    with evenbeat(tmp_path, "demo", "--port", "0") as demo:
        demo.wait_for("welcome", "pulse", "clock", "primes", "flaky", "sent with attempt 2")
        assert demo.stop() == 0
        assert "Stopped; evenbeat-demo.db has" in demo.text
    time.sleep(4.5)  # long enough that the interval of two seconds misses a tick
    with evenbeat(tmp_path, "demo", "--port", "0", "--for", "1s") as again:
        assert again.process.wait(60) == 0
        again.wait_for("Stopped for", "a later run stands for", "Stopped")
    with evenbeat(tmp_path, "demo", "--port", "0", "--fresh", "--for", "500ms") as fresh:
        assert fresh.process.wait(60) == 0
        fresh.wait_for("Stopped")
        assert "Stopped for" not in fresh.text

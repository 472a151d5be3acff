"""Stories of alerts, with real processes and a real HTTP receiver.

A job fails, and people learn of it once; it fails three times in a row, and they learn of that; it succeeds,
and they learn of that, too. And a schedule that nobody runs is reported by the web process alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fleet import wait_until
from tests.lengths import LONG
from tests.unit.receivers import Receiver, receiver
from tests.web.test_story import place

APP = """
import os
from pathlib import Path
from evenbeat import Scheduler, every

app = Scheduler(os.environ["STORE"])

@app.task(schedule=every("1s"), overlap="queue")
def charge() -> str:
    if not Path("mended").exists():
        raise RuntimeError("the bank is away")
    return "charged"

app.alerts.declare_channel("ops", "webhook", "env:EVENBEAT_SECRET_URL", secret="env:EVENBEAT_SECRET_KEY")
app.alerts.declare_rule("failures", on=["failed", "failing:3"], to="ops")
"""


class Stage:
    """Processes of Evenbeat on one store, and the receiver of its alerts."""

    def __init__(self, folder: Path, store: str, ops: Receiver) -> None:
        self.folder = folder
        self.ops = ops
        (folder / "app.py").write_text(APP)
        self._environment = os.environ | {
            "STORE": store,
            "EVENBEAT_STORE": store,
            "EVENBEAT_SECRET_URL": f"{ops.url}/hook",
            "EVENBEAT_SECRET_KEY": "a-key-of-this-test",
            "EVENBEAT_ALLOW_PRIVATE_WEBHOOKS": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def evenbeat(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "evenbeat", *words, "--json"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    def start(self, *words: str) -> None:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "evenbeat", *words],
                cwd=self.folder,
                env=self._environment,
                stderr=log,
                stdout=log,
            )
        self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(60)
        self._processes.clear()

    def told(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived."""
        return [json.loads(request.body) for request in list(self.ops.requests)]

    def announcements(self) -> list[str]:
        return [message["announcement"] for message in self.told()]

    def await_announcement(self, kind: str) -> dict[str, Any]:
        wait_until(lambda: kind in self.announcements(), lambda: f"not {kind}: {self.trouble()}", 90)
        return next(message for message in self.told() if message["announcement"] == kind)

    def trouble(self) -> str:
        return f"{self.announcements()}\n{(self.folder / 'log').read_text()[-3000:]}"


@pytest.fixture(params=("sqlite", "postgres"))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with place(request.param, tmp_path) as store, receiver() as ops:
        made = Stage(tmp_path, store, ops)
        made.evenbeat("db", "upgrade")
        try:
            yield made
        finally:
            made.stop()


@LONG
def test_people_learn_of_a_failing_job_once_of_its_third_failure_and_of_its_recovery(stage: Stage) -> None:
    stage.start("run", "app.py", "--processes", "2", "--public-url", "https://jobs.example.com")

    opened = stage.await_announcement("opened")
    assert (opened["schedule"], opened["failures"], opened["error"]) == (
        "charge",
        1,
        "RuntimeError: the bank is away",
    )
    assert "failed" in opened["why"]
    assert opened["link"].startswith("https://jobs.example.com/")

    escalated = stage.await_announcement("escalated")
    assert (escalated["failures"], escalated["incident"]) == (3, opened["incident"])
    (incident,) = stage.evenbeat("alerts", "open")["incidents"]
    assert (incident["id"], incident["announced"]) == (opened["incident"], ["opened", "escalated"])
    assert incident["failures"] >= 3

    (stage.folder / "mended").touch()
    recovered = stage.await_announcement("recovered")
    assert recovered["incident"] == opened["incident"]
    assert stage.evenbeat("alerts", "open")["incidents"] == []
    assert stage.evenbeat("alerts", "open", "--past")["incidents"][0]["id"] == opened["incident"]

    # A test comes after all of that, and nothing was sent twice.
    assert stage.evenbeat("alerts", "test", "ops")["delivery"]["state"] == "sent"
    assert stage.announcements() == ["opened", "escalated", "recovered", "test"]
    assert len({message["id"] for message in stage.told()}) == 4
    log = stage.evenbeat("alerts", "log")["deliveries"]
    assert [each["state"] for each in log] == ["sent"] * 4
    assert [each["id"] for each in reversed(log)] == [message["id"] for message in stage.told()]


@LONG
def test_a_schedule_that_nobody_runs_is_reported_by_the_web_process_alone(stage: Stage) -> None:
    stage.evenbeat("schedules", "add", "nightly", "every 1s", "work")
    stage.evenbeat("alerts", "channels", "add", "ops", "webhook", "env:EVENBEAT_SECRET_URL")
    stage.evenbeat("alerts", "add", "late", "--on", "late:5s", "--to", "ops", "--schedule", "nightly")
    stage.start("web", "--web-port", "0")

    late = stage.await_announcement("opened")
    assert (late["subject"], late["condition"], late["rule"]) == ("nightly", "late:5s", "late")
    assert late["why"]
    assert "Late" in late["title"]
    assert stage.evenbeat("alerts", "test", "ops")["delivery"]["state"] == "sent"
    assert stage.announcements() == ["opened", "test"]

"""A story of two tenants, by curl alone: a job fails, the stream says so, and people find out why and act.

Real time, because a real server, a real node and a real client are the subject.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.faults.fleet import wait_until
from tests.isolation import own_place
from tests.lengths import some
from tests.web.curl import Curl

ROOT = Path(__file__).parents[2]

APP = """
import os
from pathlib import Path
from evenbeat import Scheduler

app = Scheduler(os.environ["STORE"])

@app.task
def charge(card: str) -> str:
    if not Path("mended").exists():
        raise RuntimeError(f"the bank is away, marker-of-acme {card}")
    return "charged"
"""


class Stage:
    """An app that runs, its API, and people with tokens."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        self._environment = os.environ | {"STORE": store, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._store = store
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def evenbeat(self, *words: str) -> Any:
        printed = subprocess.run(
            [sys.executable, "-m", "evenbeat", *words, "--json"],
            cwd=self.folder,
            env=self._environment | {"EVENBEAT_STORE": self._store},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return json.loads(printed)

    def start(self) -> None:
        words = [sys.executable, "-m", "evenbeat", "run", "app.py", "--web", "--web-port", "0"]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(words, cwd=self.folder, env=self._environment, stderr=log, stdout=log)
        self._processes.append(process)
        wait_until(lambda: "its API at" in self.log(), lambda: f"no API: {self.log()}", 60)
        found = re.search(r"(http://\S+)/api/v1", self.log())
        assert found is not None
        self.url = found[1]

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def person(self, name: str, role: str, tenant: str) -> Curl:
        made = self.evenbeat("tokens", "create", name, "--role", role, "--tenant", tenant)
        return Curl(self.url, made["secret"])

    def stream(self, curl: Curl, name: str) -> Path:
        into = self.folder / name
        self._processes.append(curl.stream("events", into))
        wait_until(lambda: "connected" in into.read_text(), "the stream did not begin", 30)
        return into

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            process.wait(30)


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "sqlite":
            yield f"sqlite:///{folder / 'jobs.db'}"
        else:
            server = servers.started(kind)
            stack.callback(server.stop)
            yield stack.enter_context(own_place(server.url))


@pytest.fixture(params=some(("sqlite", "postgres"), "sqlite"))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with place(request.param, tmp_path) as store:
        made = Stage(tmp_path, store)
        made.evenbeat("db", "upgrade")
        made.start()
        try:
            yield made
        finally:
            made.close()


def test_a_job_fails_and_the_people_on_call_find_out_why_and_act(stage: Stage) -> None:
    admin = stage.person("deployer", "admin", "acme")
    viewer = stage.person("vera", "viewer", "acme")
    operator = stage.person("otto", "operator", "acme")
    stranger = stage.person("eve", "admin", "globex")
    seen, foreign = stage.stream(viewer, "seen"), stage.stream(stranger, "foreign")

    made = admin(
        "POST",
        "schedules",
        {"name": "marker-of-acme", "trigger": "every 1s", "task": "charge", "payload": {"card": "4711"}},
    )
    assert made.status == 201, made.text

    # The job fails, and the stream says so.
    wait_until(lambda: '"failed"' in seen.read_text(), lambda: f"no failure: {seen.read_text()}", 60)
    failed = re.search(r'"kind":"failed","tenant":"acme","id":"([^"]+)"', seen.read_text())
    assert failed is not None, seen.read_text()
    run = failed[1]

    # "why" explains it.
    why = viewer("GET", f"runs/{run}/why")
    assert why.status == 200, why.text
    assert "failed" in why.body["sentence"]
    assert "the bank is away" in why.text

    # A viewer may not retry, an operator does.
    refused = viewer("POST", f"runs/{run}/retry")
    assert (refused.status, refused.body["type"]) == (403, "urn:evenbeat:problem:role-too-low")
    (stage.folder / "mended").touch()
    retried = operator("POST", f"runs/{run}/retry")
    assert retried.status == 200, retried.text
    again = retried.body["id"]
    wait_until(lambda: viewer("GET", f"runs/{again}").body["state"] == "succeeded", "it did not run", 60)
    history = viewer("GET", f"runs/{run}/history")
    assert [(entry["actor"], entry["action"]) for entry in history.body["items"]] == [("otto", "retry")]

    # The account adds up.
    paused = operator("POST", "schedules/marker-of-acme/pause", {"note": "enough"})
    assert (paused.status, paused.body["paused_by"]) == (200, "otto"), paused.text
    account = viewer("GET", "schedules/marker-of-acme/account")
    assert account.status == 200, account.text
    figures = account.body
    assert figures["expected"] > 0
    assert (figures["missing"], figures["doubled"], figures["adds_up"]) == (0, 0, True), account.text
    parts = (figures["ran"], figures["coalesced"], figures["moved"], figures["pending"])
    assert figures["expected"] == sum(parts) + sum(figures["skipped"].values())

    # The other tenant sees nothing.
    for path in ("schedules", "runs", "failures", "audit", "statistics", "forecast", "tenants"):
        answer = stranger("GET", path)
        assert answer.status == 200, (path, answer.text)
        assert "marker-of-acme" not in answer.text, path
    for path in (f"runs/{run}", "schedules/marker-of-acme", "schedules/marker-of-acme/account"):
        assert stranger("GET", path).status == 404, path
        assert stranger("GET", f"{path}?tenant=acme").status == 403, path
    assert "acme" not in foreign.read_text()

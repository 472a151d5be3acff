"""For tests of commands that work on a store: an app on a file, a clock, calls of the command line."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.core.records import Record, RunRecord
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim

MINUTE, HOUR = 60_000, 3_600_000


class Clock:
    """The clock of this machine, which is that of SQLite: Monday, 2026-03-02, 08:00 UTC."""

    def __init__(self) -> None:
        self.now = 1_772_438_400_000

    def pass_(self, ms: int) -> None:
        self.now += ms


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", *(key for key in os.environ if "EVENBEAT" in key)):
        monkeypatch.delenv(name, raising=False)
    found = Clock()
    monkeypatch.setattr(time, "time_ns", lambda: found.now * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: found.now / 1000)
    return found


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/evenbeat.db")
    assert scheduler.store.now()
    yield scheduler
    scheduler.close()


def run(*args: str, answers: str | None = None) -> Result:
    # click before 8.2 mixes stderr into stdout by default.
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    options: dict[str, Any] = {"mix_stderr": False} if mixes else {}
    result = CliRunner(**options).invoke(root, args, prog_name="evenbeat", input=answers)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def printed(*args: str, code: int = 0) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (code, ""), result.stderr
    return result.stdout


def answered(*args: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(printed(*args, "--json", code=code))
    assert isinstance(document, dict)
    return document


def failed(*args: str, code: int = 1) -> str:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    return result.stderr


def fire(app: Scheduler) -> None:
    app.store.fire_due(app.store.now(), 100, plan)


def claim(app: Scheduler, lease: int = 30_000) -> list[RunRecord]:
    token = f"claim-{time.monotonic_ns()}"
    wanted = Claim(worker="node-1", token=token, limit=100, now=app.store.now(), lease=lease)
    return list(app.store.claim_runs(wanted).runs)


def succeed(app: Scheduler, run: RunRecord, result: str = "null") -> None:
    assert app.store.settle_runs(
        [attempts.succeeded(run, result, app.store.now(), f"{run.id}-{run.attempt}")]
    ) == [True]


def fail(app: Scheduler, run: RunRecord, error: str) -> None:
    assert app.store.settle_runs(
        [attempts.failed(run, error, app.store.now(), f"{run.id}-{run.attempt}")]
    ) == [True]


def node(app: Scheduler, **body: object) -> None:
    app.store.put_record(
        Record(kind="node", key="host-1", body=json.dumps(body), expires=app.store.now() + HOUR)
    )

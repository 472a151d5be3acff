"""``evenbeat run`` warns of what it will never do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.cli.worker_warnings import worker_warnings
from evenbeat.supervision import supervisor

APP = """
from evenbeat import Scheduler

app = Scheduler("sqlite:///evenbeat.db")


@app.task
def quick(): ...


@app.task(queue="slow")
def report(): ...


@app.task(queue="slow")
def export(): ...
"""


def test_an_app_without_tasks_is_warned_about() -> None:
    app = Scheduler("memory://")
    (warning,) = worker_warnings(app.tasks, app.node_settings())
    assert warning.startswith(
        "the app has no tasks, so this worker executes nothing: register some with @app.task"
    )


def test_tasks_of_other_queues_are_named_with_a_way_out() -> None:
    app = Scheduler("memory://", queues=["default", "mail"])
    for name, queue in (("a", "default"), ("b", "slow"), ("c", "slow"), ("d", "api"), ("e", "mail")):
        app.task(name=name, queue=queue)(lambda: None)
    api, slow = worker_warnings(app.tasks, app.node_settings())
    assert api.startswith("this worker does not take from queue api, so d will wait for a node that does")
    assert slow == (
        "this worker does not take from queue slow, so b, c will wait for a node that does: "
        "start one with --queues slow, or this one with --queues default,mail,slow"
    )
    assert (
        list(worker_warnings(app.tasks, app.node_settings(queues=["default", "mail", "slow", "api"]))) == []
    )


@pytest.mark.parametrize(
    ("options", "warned"), [((), True), (("--queues", "default,slow"), False), (("--no-worker",), False)]
)
def test_run_warns_once_when_it_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: tuple[str, ...],
    warned: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor.Supervisor, "run", lambda self: 0)  # noqa: ARG005
    # What the command does to the root logger would outlive the test.
    monkeypatch.setattr("evenbeat.observe.logs.configure", lambda *_: None)
    # Modules of the same name would be taken for each other.
    file = tmp_path / f"{tmp_path.name}.py"
    file.write_text(APP)
    with caplog.at_level(logging.WARNING, "evenbeat"):
        assert CliRunner().invoke(root, ["run", file.name, *options], prog_name="evenbeat").exit_code == 0
    found = [message for message in caplog.messages if "does not take from queue slow" in message]
    assert len(found) == warned
    assert all("export, report will wait" in message for message in found)

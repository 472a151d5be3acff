"""A node in threads of this process: its states, and tasks that are added while it runs.

Real threads: starting and stopping them is the subject. The tests wait for events, never for a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from evenbeat import Event, InvalidValue, Scheduler, StoreUnavailable, every
from evenbeat.tasks.task import ExecutorKind
from tests.unit.workbench import blocks_and_returns_late, returns_late


@pytest.fixture
def app() -> Iterator[Scheduler]:
    scheduler = Scheduler("memory://", poll_interval="10ms")
    yield scheduler
    scheduler.stop()
    scheduler.close()


def test_a_scheduler_shows_whether_it_is_running_processing_or_idle(app: Scheduler) -> None:
    begun, gate, idle = threading.Event(), threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        begun.set()
        assert gate.wait(30)

    @app.on_idle
    def note() -> None:
        idle.set()

    def standing() -> tuple[bool, bool, bool]:
        return (app.is_running, app.is_processing, app.is_idle)

    assert standing() == (False, False, False)
    app.start()
    assert standing() == (True, False, True)
    app.enqueue(work)
    assert begun.wait(30)
    assert standing() == (True, True, False)
    gate.set()
    assert idle.wait(30)
    assert standing() == (True, False, True)
    app.stop()
    assert standing() == (False, False, False)


def test_a_task_that_is_registered_while_a_node_runs_is_executed_and_its_schedule_declared(
    app: Scheduler,
) -> None:
    app.start()

    @app.task(schedule=every("1h"))
    def late() -> str:
        return "learnt"

    assert app.schedules.get("late").managed_by == "code"
    assert app.runs.join(app.enqueue(late).id, "30s").result == "learnt"


def test_a_node_takes_runs_from_its_own_queues_alone() -> None:
    app = Scheduler("memory://", queues=["mail"], poll_interval="10ms")

    @app.task
    def work() -> str:
        return "done"

    elsewhere = app.enqueue(work)
    mail = app.enqueue(work, queue="mail")
    with app:
        assert app.runs.join(mail.id, "30s").state == "succeeded"
        # It was enqueued first, and would have been claimed first.
        assert app.runs.get(elsewhere.id).state == "queued"


@pytest.mark.parametrize("kind", ["thread", "async", "process"])
def test_a_function_that_returns_after_its_timeout_has_succeeded_and_is_not_repeated(
    app: Scheduler, kind: str
) -> None:
    function = blocks_and_returns_late if kind == "async" else returns_late
    task = app.task(name="pay", executor=cast(ExecutorKind, kind), timeout="20ms", retries=3, backoff="0s")(
        function
    )
    app.start()
    run = app.runs.join(app.enqueue(task).id, "60s")
    assert (run.state, run.result, run.attempt, run.error) == ("succeeded", "paid", 1, None)
    assert [line.text for line in app.runs.logs(run.id)] == [
        "WARNING evenbeat: it returned after its timeout, which counts as success"
    ]


def test_a_scheduler_that_runs_is_not_started_again(app: Scheduler) -> None:
    app.start()
    with pytest.raises(InvalidValue, match=r"has been started already; stop\(\) it first"):
        app.start()


def test_a_hook_that_fails_at_the_start_leaves_nothing_running(app: Scheduler) -> None:
    @app.on_start
    def fails() -> None:
        raise RuntimeError("no connection to the mail server")

    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="mail server"):
        app.start()
    assert not app.is_running
    assert set(threading.enumerate()) <= before


def test_a_task_whose_name_no_database_accepts_is_refused_when_it_is_registered(app: Scheduler) -> None:
    with pytest.raises(InvalidValue, match="has a lone surrogate, which no database accepts"):
        app.task(name="mail\ud800")(lambda: None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_has_no_node_and_leaves_the_runs_of_its_parent_alone(tmp_path: Path) -> None:
    app = Scheduler(f"sqlite:///{tmp_path / 'evenbeat.db'}", poll_interval="10ms", drain_timeout="1s")
    begun, gate = threading.Event(), threading.Event()

    @app.task
    def work() -> str:
        begun.set()
        assert gate.wait(60)
        return "done"

    app.start()
    run = app.enqueue(work)
    assert begun.wait(30)
    before = app.node
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # As a server that imports the app first and then forks its workers.
            is_idle = not app.is_running and not app.is_processing
            app.stop()
            app.start()
            app.stop()
            code = 0 if is_idle else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert app.node is before
    gate.set()
    assert app.runs.join(run.id, "30s").attempt == 1
    app.stop()
    app.close()


def test_the_lease_renewer_backs_off_by_far_less_than_reapers_wait_after_an_outage() -> None:
    app = Scheduler("memory://", lease="3s")
    with app:
        node = app.node
        assert node is not None
        assert node._leases_loop is not None
        waits = [node._leases_loop._fail(StoreUnavailable("away")) for _ in range(10)]
    assert max(waits) <= 3.0 / 12


def test_a_node_whose_descriptors_were_closed_stops_working_and_reports_it(app: Scheduler) -> None:
    reported = threading.Event()

    @app.task
    def work() -> None: ...

    @app.on_error
    def note(event: Event) -> None:
        if "start a new process" in (event.error or ""):
            reported.set()

    app.start()
    node = app.node
    assert node is not None
    os.close(node._probe._number)  # as a job does that closes all descriptors
    assert reported.wait(30)
    run = app.enqueue(work)
    app.stop()  # at once: nothing can be recorded
    assert app.runs.get(run.id).state == "queued"

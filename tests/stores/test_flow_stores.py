"""Flows on every database, with real nodes: two at once, results by reference, resume, cancel."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenbeat import Flow, Run, RunContext, Scheduler
from evenbeat.stores.base import RunQuery

ELEMENTS = 60

EVERY_STORE = pytest.mark.parametrize("url", ["sqlite", "postgres", "valkey", "mongo"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/evenbeat.db"
    return str(request.getfixturevalue(request.param))


class Calls:
    """What was called, by all nodes of a test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.names: Counter[str] = Counter()
        self.broken: set[str] = set()
        self.gate = threading.Event()

    def note(self, run: RunContext) -> None:
        assert run.flow is not None
        with self._lock:
            self.names[f"{run.flow.step}" + ("" if run.flow.index is None else f".{run.flow.index}")] += 1
        if run.flow.step in self.broken:
            raise ValueError("broken")


def made(url: str, calls: Calls) -> tuple[Scheduler, dict[str, Flow[..., Any]]]:
    """An app; each is a node of its own."""
    app = Scheduler(url, thread_concurrency=5)

    @app.task
    def numbers(run: RunContext, count: int) -> list[int]:
        calls.note(run)
        return list(range(count))

    @app.task
    def double(run: RunContext, n: int) -> int:
        calls.note(run)
        return 2 * n

    @app.task
    def add(run: RunContext, parts: list[int]) -> int:
        calls.note(run)
        return sum(parts)

    @app.task
    def held(run: RunContext) -> None:
        calls.note(run)
        while not calls.gate.wait(0.05):
            run.raise_if_cancelled()

    @app.flow
    def doubled(count: int) -> Any:
        return add.step(double.map(numbers.step(count)))

    @app.flow
    def outer(count: int) -> Any:
        both = [doubled.step(count, step_name="one"), doubled.step(count, step_name="two")]
        return add.step(both, step_name="total")

    @app.flow
    def waits() -> Any:
        add.step([1], after=[held.step()])
        add.step([1], step_name="never", run_if="always")

    return app, {"doubled": doubled, "outer": outer, "waits": waits}


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def nodes(url: str, calls: Calls) -> Iterator[list[tuple[Scheduler, dict[str, Flow[..., Any]]]]]:
    both = [made(url, calls) for _ in range(2)]
    try:
        yield both
    finally:
        calls.gate.set()
        for app, _ in both:
            app.stop()
            app.close()


def join(app: Scheduler, run: Run) -> Run:
    return app.runs.join(run.id, "120s")


@EVERY_STORE
def test_two_nodes_run_each_step_once_and_join_once(
    nodes: list[tuple[Scheduler, dict[str, Flow[..., Any]]]], calls: Calls
) -> None:
    (app, flows), (other, _) = nodes
    runs = [flows["outer"].enqueue(ELEMENTS) for _ in range(2)]
    app.start()
    other.start()
    ended = [join(app, run) for run in runs]
    assert [(run.state, run.result, run.error) for run in ended] == [
        ("succeeded", 2 * ELEMENTS * (ELEMENTS - 1), None)
    ] * 2
    # Two flows, each with two inner ones.
    expected = {f"double.{index}": 4 for index in range(ELEMENTS)} | {"numbers": 4, "add": 4, "total": 2}
    assert calls.names == expected
    rows = app.store.find_runs(RunQuery(states=("queued", "running", "failed", "cancelled"))).items
    assert rows == ()


@EVERY_STORE
def test_a_failed_flow_is_resumed(
    nodes: list[tuple[Scheduler, dict[str, Flow[..., Any]]]], calls: Calls
) -> None:
    (app, flows), (other, _) = nodes
    calls.broken = {"add"}
    app.start()
    other.start()
    run = flows["outer"].enqueue(3)
    assert join(app, run).state == "failed"
    calls.broken = set()
    calls.names.clear()
    app.flows.resume(run.id)
    ended = join(app, run)
    assert (ended.state, ended.result) == ("succeeded", 12)
    assert calls.names == {"add": 2, "total": 1}


@EVERY_STORE
def test_a_cancelled_flow_ends_with_its_running_step(
    nodes: list[tuple[Scheduler, dict[str, Flow[..., Any]]]], calls: Calls
) -> None:
    (app, flows), _ = nodes
    app.start()
    run = flows["waits"].enqueue()
    while not calls.names["held"]:
        app.store.wait(0.05)
    app.flows.cancel(run.id)
    ended = join(app, run)
    assert ended.state == "cancelled"
    shown = app.flows.show(run.id)
    assert {step.name: step.state for step in shown.steps} == {
        "held": "cancelled",
        "add": "not_run",
        "never": "not_run",
    }
    assert calls.names == {"held": 1}

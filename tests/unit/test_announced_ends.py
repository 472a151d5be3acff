"""Signals for alert rules, and events, whoever ends a run: a worker, a user, a repair, a backfill."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evenbeat
from evenbeat import Event, Scheduler
from evenbeat.core.records import RunRecord
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.rules import attempts, flows
from evenbeat.rules.alert_records import SIGNAL
from evenbeat.stores.base import RunQuery
from tests.unit.test_flow_settling import claim

HOOK = "https://hooks.example.com/x"
SETTLERS = {
    # What writes ends, with their signals.
    "node/flows.py",
    "node/settling.py",
    "node/owed_successes.py",
    # What ends no run: it hands back, renews, moves, resumes or retries.
    "node/flow_work.py",
    "node/flow_checks.py",
    "app/flows.py",
    "app/runs.py",
    "app/run_moves.py",
}
"""The modules that call ``settle_runs`` of a store."""


def begun() -> tuple[Scheduler, RunRecord]:
    """Return an app with a rule, and a queued step, with which its flow ends."""
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    @app.flow
    def nightly() -> Any:
        return work.step()

    app.alerts.channels.add("ops", "webhook", HOOK)
    app.alerts.rules.add("failures", on="failed", to="ops")
    run = app.enqueue(nightly)
    (claimed,) = claim(app.store, {"nightly"})
    begin = Begin(claimed, nightly.graph, flows.graph_records([nightly.graph]))
    assert FlowSettling(app.store, "worker").settle((), app.store.now(), [begin]).answers == [True]
    (step,) = app.store.find_runs(RunQuery(ids=(f"{run.id}~work",))).items
    return app, step


def signals(app: Scheduler) -> list[tuple[str, str]]:
    found = (json.loads(record.body) for record in app.store.find_records(SIGNAL))
    return [(each["task"], each["kind"]) for each in found]


@pytest.mark.parametrize(
    "cancel", [lambda app, step: app.runs.cancel(step.id), lambda app, _: app.runs.cancel_all(task="work")]
)
def test_a_flow_that_fails_with_a_step_that_a_user_cancels_is_announced(
    cancel: Callable[[Scheduler, RunRecord], object],
) -> None:
    app, step = begun()
    heard: list[tuple[str, str]] = []

    @app.on_event
    def hear(event: Event) -> None:
        if event.run is not None:
            heard.append((event.kind, event.run.task))

    cancel(app, step)
    assert signals(app) == [("nightly", "failed")]
    assert heard == [("failed", "nightly")]
    app.close()


def test_a_step_that_a_backfill_or_a_repair_ends_is_announced_with_its_flow() -> None:
    app, step = begun()
    store = app.store
    wish = attempts.final(step, "failed", store.now(), "t", expect=("queued",), error="boom")
    assert FlowSettling(store, "repair").settle([End(step, wish)], store.now()).answers == [True]
    assert sorted(signals(app)) == [("nightly", "failed"), ("work", "failed")]
    app.close()


def test_nothing_else_settles_runs() -> None:
    root = Path(evenbeat.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\.settle_runs\b", path.read_text())
    }
    others = {name for name in found if not name.startswith(("stores/", "testing/", "demo/"))}
    assert others == SETTLERS, "an end has to go through FlowSettling, or nobody learns of it"

"""Signals: what runs that end and ticks that are skipped leave for alert rules."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.core.records import Execution
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Outcome
from evenbeat.node.reaper import Reaper
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.observe.events import Events
from evenbeat.rules import attempts
from evenbeat.rules.alert_records import SIGNAL, SIGNAL_KEPT
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.supervision.dead_child_runs import DeadChildRuns, HandBack
from evenbeat.testing import VirtualClock
from tests.alerting import a_run, put_rule, rule, signals
from tests.unit.workbench import Workbench


def ended(made: Signals, state: str, **fields: Any) -> bool:
    """Whether the end of a run leaves a signal."""
    run = a_run("x", **{"state": "running", **fields})
    end = {
        "failed": attempts.failed(run, "boom", 5, "t"),
        "succeeded": attempts.succeeded(run, None, 5, "t"),
        "cancelled": attempts.cancelled(run, 5, "t"),
        "released": attempts.released(run, 5, "t"),
    }[state]
    return len(made.with_end(run, end, 5).records) > len(end.records)


def test_without_a_rule_that_asks_for_one_nothing_leaves_a_signal() -> None:
    for rules in ((), (rule("late"), rule("queue", owner=None))):
        assert not Signals(rules)


@pytest.mark.parametrize(
    ("fields", "run", "expected"),
    [
        ({}, {}, True),
        ({"owner": None}, {"tenant": "acme"}, True),
        ({"owner": "acme"}, {}, False),
        ({"schedule": "s"}, {}, True),
        ({"schedule": "s"}, {"schedule": "t"}, False),
        ({"schedule": "s"}, {"schedule": None}, False),
        ({"schedule": "s", "owner": None}, {"tenant": "acme"}, True),
        ({"schedule": "s", "owner": "acme"}, {}, False),
        # A run does not carry the tags of its schedule: the watch compares them.
        ({"tag": "nightly"}, {}, True),
        ({"tag": "nightly", "owner": "acme"}, {}, False),
    ],
)
def test_failures_that_a_rule_may_cover_leave_a_signal(
    fields: dict[str, Any], run: dict[str, Any], expected: bool
) -> None:
    made = Signals([rule("failed", **fields)])
    assert made
    assert ended(made, "failed", **run) is expected
    assert not ended(made, "succeeded", **run)


def test_only_a_rule_with_runs_asks_for_other_ends() -> None:
    made = Signals([rule("failed"), rule("runs", schedule="s")])
    assert [ended(made, state) for state in ("failed", "succeeded", "cancelled", "released")] == [
        True,
        True,
        True,
        False,
    ]
    assert not ended(made, "succeeded", schedule="t")


def test_a_failure_that_will_be_retried_leaves_no_signal() -> None:
    made = Signals([rule("failed")])
    assert not ended(made, "failed", execution=Execution(retries=1))


def test_rules_are_replaced_while_the_process_runs() -> None:
    made = Signals()
    made.use([rule("failed")])
    assert ended(made, "failed")
    made.use([])
    assert not made


def test_a_worker_records_a_signal_with_the_end_and_says_so() -> None:
    written: list[int] = []
    made = Signals(on_written=lambda: written.append(1))
    bench = Workbench(signals=made)
    made.use([rule("failed")])
    for name in ("first", "second"):
        bench.add(name)
    bench.step()
    bench.executor.end(Outcome("raised", error="ValueError: boom"))
    bench.executor.end(Outcome("returned", "null"))
    bench.step()
    (signal,) = signals(bench.store)
    assert (signal.run, signal.kind, signal.error) == ("first", "failed", "ValueError: boom")
    assert signal.took is not None
    assert written == [1]


def test_a_signal_is_written_once_though_the_reply_to_the_end_is_lost() -> None:
    bench = Workbench(signals=Signals([rule("failed")]))
    bench.add("x")
    bench.step()
    bench.executor.end(Outcome("raised", error="boom"))
    bench.store.lose.add("settle")
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.clock.advance("5s")
    bench.step()
    assert len(signals(bench.store)) == 1


def test_the_supervisor_records_signals_for_runs_of_a_dead_child() -> None:
    app = Scheduler("memory://")
    put_rule(app.store, "failed")
    app.store.add_runs([a_run("x", execution=Execution(on_crash="fail")), a_run("y")])
    app.store.claim_runs(Claim(worker="child", token="c", limit=2, now=app.store.now(), lease=60_000))
    HandBack(app).add(DeadChildRuns("child", "crashed", "signal 9"))
    assert [each.run for each in signals(app.store)] == ["x"]


def test_the_reaper_records_a_signal_for_a_run_that_may_not_run_again() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    put_rule(store, "failed")
    store.add_runs([a_run("x", execution=Execution(on_crash="fail")), a_run("y")])
    store.claim_runs(Claim(worker="dead", token="c", limit=2, now=clock.now, lease=1_000))
    made = Signals(stored_rules(store))
    reaper = Reaper(store, Events(), 3_000, clock=lambda: clock.now / 1000, signals=made)
    reaper.step(clock.now)
    clock.advance("1500ms")
    reaper.step(clock.now)
    (signal,) = signals(store)
    assert (signal.run, signal.error) == ("x", "worker dead was lost during attempt 1")
    (record,) = store.find_records(SIGNAL)
    assert record.expires == signal.at + SIGNAL_KEPT

"""The self-check of the nodes: each finding is announced once, and again when it is gone."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from evenbeat import Event, Scheduler
from evenbeat.core.clocks import wall_clock
from evenbeat.core.records import Record
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.doctor.findings import Finding
from evenbeat.node.self_check import CHECK_EVERY, SelfCheck, latest_check
from evenbeat.observe.events import Events
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.test_attention import add_node


class Counted(MemoryStore):
    """Counts the calls of a check."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if callable(found) and not name.startswith("_") and name != "now":
            super().__getattribute__("calls")[name] += 1
        return found


class Cluster:
    """Two nodes' checks on one store, with what each announced."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = Counted(clock)
        self.app = Scheduler(self.store)
        self.app.task(name="work")(lambda: None)
        self.announced: list[tuple[str, str, str, bool]] = []
        self.checks = []
        for name in ("one", "two"):
            events = Events()
            events.listen(partial(self._note, name))
            self.checks.append(SelfCheck(self.store, events, name))

    def _note(self, node: str, event: Event) -> None:
        assert event.kind == "attention"
        assert event.finding is not None
        subject = event.finding.schedule or event.finding.task or ""
        self.announced.append((node, event.finding.kind, subject, event.is_over))

    def step(self) -> list[tuple[str, str, bool]]:
        """Let a minute pass and both nodes check; return what they announced."""
        self.clock.advance("1m")
        self.announced.clear()
        for check in self.checks:
            assert check.step(self.clock.now) == self.clock.now + CHECK_EVERY
        return [(kind, subject, is_over) for _, kind, subject, is_over in self.announced]

    def doctor(self) -> Finding | None:
        found = [each for each in diagnose(self.store, wall_clock()) if each.check == "self-check"]
        return found[0] if found else None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(VirtualClock())


def test_a_finding_is_announced_once_by_one_node_and_again_when_it_is_gone(cluster: Cluster) -> None:
    add_node(cluster.app)
    cluster.app.schedules.add("nightly", "every 1h", "work")
    assert cluster.step() == []
    cluster.clock.advance("1h")
    assert cluster.step() == [("late", "nightly", False)]
    assert cluster.step() == []
    cluster.store.fire_due(cluster.clock.now, 10, plan)
    assert cluster.step() == [("late", "nightly", True)]
    assert cluster.step()[:1] != [("late", "nightly", True)]


def test_tasks_that_no_node_has_stuck_runs_and_orphans_are_found(cluster: Cluster) -> None:
    add_node(cluster.app)
    cluster.app.enqueue("unknown")
    cluster.app.schedules.add("gone", "every 1h", "work")
    cluster.app.schedules.run_now("gone")
    cluster.app.schedules.delete("gone")
    cluster.app.enqueue("work", priority="high", timeout="10s")
    now = cluster.clock.now
    claim = Claim(worker="n", token="t", limit=1, now=now, lease=10_000_000, tasks=frozenset(("work",)))
    assert len(cluster.store.claim_runs(claim).runs) == 1
    cluster.clock.advance("1s")
    assert sorted(cluster.step()) == [("no_node", "unknown", False), ("orphaned", "gone", False)]
    assert cluster.step() == [("stuck", "work", False)]
    found = cluster.doctor()
    assert found is not None
    assert (found.level, len(found.details)) == ("warn", 3)
    kinds = {item.kind for item in cluster.app.attention().items}
    assert {"no_node", "orphaned", "stuck"} <= kinds
    add_node(cluster.app, "m", tasks=["unknown"])
    cluster.app.runs.cancel_all(state="queued", schedule="gone")
    assert sorted(cluster.step()) == [("no_node", "unknown", True), ("orphaned", "gone", True)]


def test_an_idle_check_costs_the_same_whatever_the_history(cluster: Cluster) -> None:
    add_node(cluster.app)
    cluster.step()
    cluster.store.calls.clear()
    cluster.step()
    # One node checks, the other reads when that was.
    assert cluster.store.calls == {
        "get_record": 2,
        "find_records": 1,
        "count_queues": 1,
        "find_schedules": 1,
        "put_record": 1,
    }


def test_a_clock_that_is_set_back_does_not_stop_the_check(cluster: Cluster) -> None:
    cluster.step()
    cluster.clock.now -= 3_600_000
    assert cluster.checks[0].step(cluster.clock.now) == cluster.clock.now + CHECK_EVERY
    last = latest_check(cluster.store)
    assert last is not None
    assert (last.at, last.by) == (cluster.clock.now, "one")


def test_a_damaged_result_is_replaced(cluster: Cluster) -> None:
    cluster.store.put_record(Record(kind="self_check", key="findings", body="nonsense"))
    assert latest_check(cluster.store) is None
    cluster.step()
    assert latest_check(cluster.store) is not None


def test_a_check_that_no_node_repeats_is_a_warning(cluster: Cluster) -> None:
    assert cluster.doctor() is None
    add_node(cluster.app)
    cluster.step()
    found = cluster.doctor()
    assert found is not None
    assert (found.level, found.message) == ("ok", "the nodes found nothing wrong")
    cluster.clock.advance("10m")
    found = cluster.doctor()
    assert found is not None
    assert (found.level, found.message) == ("warn", "the nodes' last check is 10 min old")

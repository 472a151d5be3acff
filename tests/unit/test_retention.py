"""Retention rules: which runs are deleted when, and how rules are set."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.app.acting import acting_as
from evenbeat.core.records import FINAL_STATES, Record, RunRecord, RunState
from evenbeat.core.retention import ENDED_STATES, MOST_KEPT, EndedState
from evenbeat.errors import InvalidValue
from evenbeat.node.pruner import PURGE_EVERY, Pruner, purged_before
from evenbeat.record_errors import RetentionRuleNotFound
from evenbeat.rules.retention import KIND, Rule, deciding_rule, read_rules, sweeps, words
from evenbeat.stores.base import EVERYTHING, EndedRuns, Purged
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

HOUR, DAY = 3_600_000, 86_400_000
DEFAULT = 30 * DAY

RULES = [
    Rule(keep=20 * DAY),
    Rule(state="failed", keep=90 * DAY),
    Rule(tenant="acme", keep=7 * DAY),
    Rule(tenant="acme", state="succeeded", keep=DAY),
    Rule(tenant="blue", state="cancelled", keep=2 * DAY),
    Rule(tenant="blue", most=5),
]


@pytest.mark.parametrize(
    ("tenant", "state", "days"),
    [
        ("acme", "succeeded", 1),
        ("acme", "failed", 7),
        ("acme", "cancelled", 7),
        ("blue", "cancelled", 2),
        ("blue", "failed", 90),
        ("blue", "succeeded", 20),
        ("other", "failed", 90),
        ("other", "succeeded", 20),
    ],
)
def test_the_most_specific_rule_decides_about_the_age(tenant: str, state: EndedState, days: int) -> None:
    rule = deciding_rule(RULES, tenant, state)
    assert rule is not None
    assert rule.keep == days * DAY
    # Each run is in exactly one sweep: that of its rule.
    now = 1000 * DAY
    mine = [
        sweep
        for sweep in sweeps(RULES, DEFAULT, now)
        if state in sweep.states
        and (tenant not in sweep.spared if sweep.tenant is None else sweep.tenant == tenant)
    ]
    assert [sweep.before for sweep in mine] == [now - days * DAY]


def test_without_a_rule_the_setting_of_the_node_decides() -> None:
    assert deciding_rule([Rule(tenant="acme", keep=1)], "other", "failed") is None
    (sweep,) = sweeps([], DEFAULT, 0)
    assert (sweep.before, sweep.states, sweep.tenant, sweep.spared) == (-DEFAULT, ENDED_STATES, None, ())


def test_a_rule_explains_itself() -> None:
    assert words(Rule(tenant="acme", state="failed", keep=DAY, most=1000)) == (
        "Keeps failed runs of tenant acme for 1d after their end and at most the newest 1,000. "
        "Overrides all other rules for their age."
    )
    assert "of all tenants together" in words(Rule(most=1))
    assert "Replaces the node's setting" in words(Rule(keep=DAY))


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("all/any", "nonsense"),
        ("all/any", '{"keep": -1}'),
        ("own/any", '{"most": 0}'),
        ("all/running", '{"keep": 5}'),
        ("else/any", "{}"),
    ],
)
def test_a_rule_that_was_damaged_deletes_nothing(key: str, body: str) -> None:
    assert read_rules([Record(kind=KIND, key=key, body=body)]) == []


# -- the app -----------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


def test_rules_are_set_listed_replaced_and_removed_and_the_audit_has_each(app: Scheduler) -> None:
    with acting_as("anna"):
        app.retention.set(state="succeeded", tenant="acme", keep="7d", most=10_000)
        app.retention.set(keep="20d")
        app.retention.set(state="succeeded", tenant="acme", keep="6d")
    first, second = app.retention.list()
    assert (first.tenant, first.state, first.updated_by) == (None, None, "anna")
    assert (second.tenant, second.state, second.most) == ("acme", "succeeded", None)
    assert second.keep is not None
    assert second.keep.days == 6
    app.retention.remove(state="succeeded", tenant="acme")
    assert [rule.tenant for rule in app.retention.list()] == [None]
    with pytest.raises(RetentionRuleNotFound, match="succeeded runs of tenant"):
        app.retention.remove(state="succeeded", tenant="acme")
    entries = app.audit.list(all_tenants=True)
    assert [(entry.action, entry.kind, entry.tenant) for entry in entries] == [
        ("remove", "retention", "acme"),
        ("set", "retention", "acme"),
        ("set", "retention", "default"),
        ("set", "retention", "acme"),
    ]
    assert (entries[1].before, entries[1].after) == (
        {"tenant": "acme", "keep": "7d", "most": 10_000},
        {"tenant": "acme", "keep": "6d"},
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "keep"),
        ({"keep": "0s"}, "keep"),
        ({"keep": "59s"}, "keep"),
        ({"keep": -1}, "keep"),
        ({"keep": 2**63}, "keep"),
        ({"keep": "soon"}, "keep"),
        ({"most": 0}, "most"),
        ({"most": -1}, "most"),
        ({"most": MOST_KEPT + 1}, "most"),
        ({"most": 2**63}, "most"),
        ({"most": 1.5}, "most"),
        ({"most": True}, "most"),
        ({"most": 1, "state": "running"}, "state"),
        ({"most": 1, "state": "lost"}, "state"),
        ({"most": 1, "tenant": "a b"}, "tenant"),
        ({"most": 1, "tenant": ""}, "tenant"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(
    app: Scheduler, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.retention.set(**given)
    assert refused.value.field == field
    assert app.retention.list() == []


def test_the_number_of_rules_is_bounded(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.app.retention.MOST_RULES", 2)
    app.retention.set(tenant="a", most=1)
    app.retention.set(tenant="b", most=1)
    app.retention.set(tenant="b", most=2)
    with pytest.raises(InvalidValue, match="would have retention rule 3"):
        app.retention.set(tenant="c", most=1)


# -- the pruner --------------------------------------------------------------------------------------------


def add(app: Scheduler, tenant: str, state: RunState, age: int, number: int = 1) -> None:
    """Add runs that ended so many ms ago, and a ms apart."""
    now = app.store.now()
    app.store.add_runs(
        [
            RunRecord(
                id=f"{tenant}-{state}-{age}-{at}",
                task="work",
                tenant=tenant,
                state=state,
                created_at=now - age - 5,
                finished_at=now - age - at,
            )
            for at in range(number)
        ]
    )


def pruned(app: Scheduler, clock: VirtualClock, pruner: Pruner | None = None) -> set[str]:
    """Step a pruner until its round is over; return the runs that are left."""
    pruner = pruner or Pruner(app.store, DEFAULT)
    start = clock.now
    while (again := pruner.step(clock.now)) < start + PURGE_EVERY:
        clock.now = again
    return {run.id.rpartition("-")[0] for run in app.runs.list(all_tenants=True, limit=10_000)}


def test_the_pruner_obeys_the_most_specific_rule(app: Scheduler, clock: VirtualClock) -> None:
    app.retention.set(state="failed", keep="90d")
    app.retention.set(tenant="acme", keep="7d")
    app.retention.set(tenant="acme", state="succeeded", keep="1d")
    for tenant in ("acme", "other"):
        for state in sorted(FINAL_STATES):
            for days in (2, 8, 40, 100):
                add(app, tenant, state, days * DAY)
    assert pruned(app, clock) == {
        f"acme-failed-{2 * DAY}",
        f"acme-cancelled-{2 * DAY}",
        *(f"other-failed-{days * DAY}" for days in (2, 8, 40)),
        *(f"other-{state}-{days * DAY}" for state in ("succeeded", "cancelled") for days in (2, 8)),
    }


def test_only_the_newest_runs_are_kept(app: Scheduler, clock: VirtualClock) -> None:
    app.retention.set(tenant="acme", state="succeeded", most=3)
    add(app, "acme", "succeeded", HOUR, 10)
    add(app, "acme", "failed", HOUR, 10)
    add(app, "other", "succeeded", HOUR, 10)
    pruned(app, clock)
    assert app.store.count_runs("acme") == {"succeeded": 3, "failed": 10}
    assert app.store.count_runs("other") == {"succeeded": 10}
    kept = app.runs.list(tenant="acme", state="succeeded")
    assert sorted(run.id for run in kept) == [f"acme-succeeded-{HOUR}-{at}" for at in range(3)]
    app.retention.set(most=5)
    clock.advance("1m")
    pruned(app, clock)
    # The ten that ended last, among runs that ended in the same milliseconds, are those with numbers 0 and 1.
    left = sum(sum(app.store.count_runs(tenant).values()) for tenant in ("acme", "other"))
    assert 5 <= left < 9


def test_the_instant_before_which_a_tenant_lacks_history_is_noted(
    app: Scheduler, clock: VirtualClock
) -> None:
    app.retention.set(tenant="acme", keep="1d")
    pruned(app, clock)
    own, general = purged_before(app.store, "acme"), purged_before(app.store, "other")
    assert own is not None
    assert general is not None
    assert 0 <= own - (clock.now - DAY) <= DAY // 1000
    assert 0 <= general - (clock.now - DEFAULT) <= DEFAULT // 1000


def test_rules_are_read_once_a_minute_and_while_a_backlog_is_purged(clock: VirtualClock) -> None:
    class Endless(MemoryStore):
        reads = 0
        purges: list[EndedRuns] = []  # noqa: RUF012  # one store

        def find_records(self, kind: str, *args: Any, **rest: Any) -> list[Record]:
            self.reads += kind == KIND
            return super().find_records(kind, *args, **rest)

        def purge(self, finished_before: int, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
            self.purges.append(runs)
            return Purged(limit, finished_before - 1)

    store = Endless(clock)
    app = Scheduler(store)
    app.retention.set(tenant="acme", keep="1d")
    pruner = Pruner(store, DEFAULT)
    start = clock.now
    store.reads = 0
    while clock.now < start + 3 * PURGE_EVERY:
        clock.now = pruner.step(clock.now)
    assert store.reads == 3
    # A long backlog of one sweep does not keep the others waiting.
    first = [(runs.tenant, runs.others) for runs in store.purges[:6]]
    assert first == 2 * [(None, True), (None, False), ("acme", False)]


def test_the_size_of_a_batch_depends_on_how_long_the_last_one_took(clock: VirtualClock) -> None:
    class Slow(MemoryStore):
        took = 0.0
        sizes: list[int] = []  # noqa: RUF012  # one store

        def purge(self, finished_before: int, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
            self.sizes.append(limit)
            passed[0] += self.took
            return Purged(limit, finished_before - 1)

    passed = [0.0]
    store = Slow(clock)
    pruner = Pruner(store, DEFAULT, clock=lambda: passed[0])
    rests = []
    for took, steps in ((0.001, 4), (0.1, 8), (0.01, 2)):
        store.took = took
        for _ in range(steps):
            again = pruner.step(clock.now)
            rests.append(again - clock.now)
            clock.now = again
    assert store.sizes == [100, 200, 400, 500, 500, 250, 125, 62, 31, 20, 20, 20, 20, 20]
    assert rests == [50] * 4 + [400] * 8 + [50] * 2


def test_spared_runs_are_not_read_again_each_minute(app: Scheduler, clock: VirtualClock) -> None:
    seen: list[EndedRuns] = []

    class Watched(MemoryStore):
        def purge(self, finished_before: int, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
            seen.append(runs)
            return super().purge(finished_before, limit, runs)

    store = Watched(clock)
    app = Scheduler(store)
    app.retention.set(tenant="acme", keep="365d")
    pruner = Pruner(store, DEFAULT)
    pruner.step(clock.now)
    first = clock.now - DEFAULT
    clock.advance("1m")
    seen.clear()
    pruner.step(clock.now)
    (general,) = [runs for runs in seen if runs.spared]
    assert (general.spared, general.since) == (("acme",), first)
    clock.advance("1h")
    seen.clear()
    pruner.step(clock.now)
    assert [runs.since for runs in seen if runs.spared] == [None]

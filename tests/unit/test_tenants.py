"""``app.tenants``: which tenants there are, what a purge deletes, and what a quota refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from evenbeat import (
    InvalidValue,
    Quota,
    QuotaExceeded,
    QuotaNotFound,
    RunExists,
    ScheduleNotFound,
    Scheduler,
    TenantNotFound,
    TenantPurge,
    TenantView,
    acting_as,
)
from evenbeat.core.instants import from_ms
from evenbeat.core.records import FORMAT, LogChunk, Record, RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.rules.tenants import kinds_of, quota_record
from evenbeat.stores.base import ActiveCounts, Claim, RunQuery, ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import virtual
from evenbeat.testing.clock import VirtualClock
from tests.unit.test_figures import Fed

NOTHING = {"schedules": 0, "active_schedules": 0, "paused_schedules": 0, "due": 0, "later": 0, "running": 0}


class Counted(MemoryStore):
    """Counts the calls that quotas make."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.calls: list[str] = []

    def find_records(self, kind: str, tenant: str | None = None, **bounds: Any) -> list[Record]:
        if kind == "quota":
            self.calls.append("quotas")
        return super().find_records(kind, tenant, **bounds)

    def count_active(self, now: int) -> list[ActiveCounts]:
        self.calls.append("count")
        return super().count_active(now)

    def count_tenants(self, tenant: str | None = None) -> list[Any]:
        self.calls.append("schedules")
        return super().count_tenants(tenant)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Counted:
    return Counted(clock)


@pytest.fixture
def app(store: Counted) -> Scheduler:
    return Scheduler(store)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that quotas measure, to be set by the test."""
    now = [1_000.0]
    monkeypatch.setattr("evenbeat.app.quotas.time.monotonic", lambda: now[0])
    return now


def names(app: Scheduler) -> list[str]:
    return [tenant.name for tenant in app.tenants.list()]


def claim(app: Scheduler, limit: int = 1, queue: str = "default") -> list[RunRecord]:
    now = app.store.now()
    wanted = Claim(worker="w", token=uuid4().hex, limit=limit, now=now, lease=30_000, queues=(queue,))
    return list(app.store.claim_runs(wanted).runs)


def end(app: Scheduler, runs: Sequence[RunRecord]) -> None:
    now = app.store.now()
    assert all(app.store.settle_runs([attempts.succeeded(run, None, now, f"t{run.id}") for run in runs]))


# -- list and get --------------------------------------------------------------------------------------------


def test_tenants_are_those_with_schedules_runs_or_a_quota(app: Scheduler, clock: VirtualClock) -> None:
    assert app.tenants.list() == []
    for tenant in ("b", "a", "a-b", "default"):
        for name in ("z", "a", "x.y"):
            app.schedules.add(name, "every 1h", "works", tenant=tenant)
    app.schedules.pause("z", tenant="a")
    app.schedules.delete("z", tenant="b")
    app.schedules.add("gone", "every 1h", "works", tenant="left")
    app.schedules.delete("gone", tenant="left")
    app.enqueue("works", tenant="ended")
    end(app, claim(app))
    app.enqueue("works", tenant="running")
    claim(app)
    app.enqueue("works", tenant="a")
    app.enqueue("works", tenant="queued")
    app.enqueue("works", tenant="queued", delay="1h")
    app.tenants.set_quota("planned", schedules=3)
    node = Fed(app)
    node.starts(2, tenant="a")
    node.starts(1, tenant="only-figures")
    clock.advance("1m")
    node.writes()
    found = {tenant.name: tenant for tenant in app.tenants.list()}
    assert list(found) == ["a", "a-b", "b", "default", "ended", "planned", "queued", "running"]
    none: dict[str, Any] = {**NOTHING, "quota": None, "started": 0, "succeeded": 0, "failed": 0}
    three = {"schedules": 3, "active_schedules": 3}
    assert found["a"] == TenantView(
        name="a", **none | three | {"active_schedules": 2, "paused_schedules": 1, "due": 1, "started": 2}
    )
    assert found["a-b"] == TenantView(name="a-b", **none | three)
    assert found["b"] == TenantView(name="b", **none | {"schedules": 2, "active_schedules": 2})
    assert found["ended"] == TenantView(name="ended", **none)
    assert found["planned"] == TenantView(name="planned", **none | {"quota": Quota(schedules=3)})
    assert found["queued"] == TenantView(name="queued", **none | {"due": 1, "later": 1})
    assert found["running"] == TenantView(name="running", **none | {"running": 1})
    assert [tenant.name for tenant in app.tenants.list(limit=2)] == ["a", "a-b"]
    assert app.tenants.list(name="a") == [found["a"]]
    assert app.tenants.list(name="planned") == [found["planned"]]
    assert app.tenants.list(name="nobody") == []
    assert app.tenants.list(limit=0) == []
    with pytest.raises(InvalidValue, match="limit -1 is negative"):
        app.tenants.list(-1)
    assert asyncio.run(app.tenants.alist()) == list(found.values())


def test_a_tenant_is_shown_with_its_history_next_fire_and_limits(app: Scheduler, clock: VirtualClock) -> None:
    for at in range(250):
        app.schedules.add(f"s{at:03}", f"every {at + 60}m", "works", tenant="acme")
    app.schedules.add("first", "every 59m", "works", tenant="acme")
    app.schedules.add("sooner", "every 1m", "works", tenant="other")
    app.schedules.add("paused", "every 2m", "works", tenant="acme")
    app.schedules.pause("paused", tenant="acme", until="3m")
    app.enqueue_many(["works"] * 3, tenant="acme")
    (ended, failed, _) = claim(app, 3)
    end(app, [ended])
    now = clock.now
    assert all(app.store.settle_runs([attempts.failed(failed, "no", now, "f")]))
    clock.advance("10s")
    app.enqueue("works", tenant="acme")
    clock.advance("10s")
    app.enqueue("works", tenant="acme")
    for limit in (Limit(tenant="acme", concurrency=1), Limit(task="works", concurrency=1)):
        assert app.store.put_record(limit_record(limit))
    shown = app.tenants.get("acme")
    assert (shown.name, shown.schedules, shown.paused_schedules) == ("acme", 252, 1)
    assert (shown.due, shown.running) == (2, 1)
    assert shown.ended == {"cancelled": 0, "failed": 1, "succeeded": 1}
    assert shown.oldest_due == from_ms(now) + timedelta(seconds=10)
    assert shown.next_fire == app.schedules.get("first", tenant="acme").next_run
    assert shown.limits == ("tenant=acme",)
    other = app.tenants.get("other")
    assert (other.oldest_due, other.limits, sum(other.ended.values())) == (None, (), 0)
    assert asyncio.run(app.tenants.aget("acme")) == shown


def test_an_unknown_tenant_is_not_shown(app: Scheduler) -> None:
    app.schedules.add("s", "every 1h", "works", tenant="acme")
    for name in ("acm", "ACME", "default"):
        with pytest.raises(TenantNotFound, match=f'there is no tenant "{name}"') as refused:
            app.tenants.get(name)
        assert refused.value.tenant == name
    for name in ("two words", "", "a.b", "x" * 129):
        with pytest.raises(InvalidValue) as invalid:
            app.tenants.get(name)
        assert invalid.value.field == "name"


# -- purge ---------------------------------------------------------------------------------------------------


def fill(app: Scheduler, tenant: str) -> None:
    """Give a tenant something of everything."""
    for name in ("one", "two", "three"):
        app.schedules.add(name, "every 1m", "works", tenant=tenant, description="secret")
    app.schedules.pause("two", tenant=tenant)
    app.schedules.add("gone", "every 1m", "works", tenant=tenant)
    app.schedules.delete("gone", tenant=tenant)
    app.enqueue_many(["works"] * 3, tenant=tenant, queue=tenant)
    ended, running = claim(app, 2, tenant)
    app.store.append_log([LogChunk(run=ended.id, attempt=1, seq=0, text="line", at=0)])
    end(app, [ended])
    assert running.tenant == tenant
    for kind in kinds_of(tenant):
        if kind != "quota":
            assert app.store.put_record(Record(kind=kind, tenant=tenant, key="k", body="{}"))
    app.tenants.set_quota(tenant, schedules=100)
    app.tokens.create("theirs", tenant=tenant)


def everything(app: Scheduler, tenant: str) -> dict[str, Any]:
    """Return what a store keeps of a tenant, apart from its audit."""
    store = app.store
    return {
        "schedules": app.schedules.list(tenant=tenant),
        "runs": app.runs.list(tenant=tenant),
        "ledger": [store.find_skipped(tenant, name) for name in ("one", "two", "three", "gone")],
        "statistics": store.statistics([(tenant, name) for name in ("one", "two", "three")]),
        "records": [store.find_records(kind, tenant) for kind in kinds_of(tenant)],
        "tokens": [token.id for token in app.tokens.list() if token.tenant == tenant],
    }


def test_a_purge_deletes_everything_of_one_tenant(app: Scheduler, clock: VirtualClock) -> None:
    app.tokens.create("of all")
    for tenant in ("acme", "acme-2"):
        fill(app, tenant)
    clock.advance("150s")
    app.store.fire_due(clock.now, 100, plan)
    others = everything(app, "acme-2")
    audit_before = app.audit.list(tenant="acme", limit=100)
    counted = app.tenants.purge("acme", dry_run=True)
    assert everything(app, "acme")["schedules"] != []
    assert counted.dry_run
    assert not counted.is_complete
    assert (counted.schedules, counted.stopping, counted.tokens) == (3, 1, 1)
    queued = counted.cancelled
    assert queued == 3  # one by hand, and two ticks
    assert counted.runs == queued + 1
    assert counted.records == len(kinds_of("acme"))

    seen: list[TenantPurge] = []
    with acting_as("ops"):
        done = app.tenants.purge("acme", progress=seen.append)
    assert (done.schedules, done.cancelled, done.stopping) == (3, queued, 1)
    assert (done.runs, done.tokens) == (queued + 1, 1)
    assert not done.is_complete  # a run is still running
    assert not done.dry_run
    assert seen[0].schedules == 3
    assert seen[-1].tokens == 1
    (running,) = app.runs.list(tenant="acme")
    assert running.state == "running"
    assert running.cancel_requested
    assert everything(app, "acme-2") == others

    (record,) = app.store.find_runs(_running("acme")).items
    assert app.store.settle_runs([attempts.cancelled(record, clock.now, "x")]) == [True]
    done = app.tenants.purge("acme")
    assert done.is_complete
    assert (done.schedules, done.cancelled, done.stopping, done.runs) == (0, 0, 0, 1)
    left = everything(app, "acme")
    assert left["schedules"] == left["runs"] == left["tokens"] == []
    assert left["ledger"] == [[]] * 4
    assert left["records"] == [[]] * len(kinds_of("acme"))
    assert all(figures.run_count == 0 for figures in left["statistics"])
    assert everything(app, "acme-2") == others
    assert names(app) == ["acme-2"]
    with pytest.raises(ScheduleNotFound):
        app.schedules.get("one", tenant="acme")

    # The audit stays, and names the purge.
    audit = app.audit.list(tenant="acme", limit=100)
    assert [entry.action for entry in audit if entry not in audit_before] == ["purge", "revoke", "purge"]
    purge = audit[2] if audit[2].action == "purge" else audit[1]
    assert (purge.kind, purge.subject, purge.actor) == ("tenant", "acme", "ops")
    assert purge.before["schedules"] == 3
    assert "audit entries" in done.remains[0]


def _running(tenant: str) -> RunQuery:
    return RunQuery(tenant=tenant, states=("running",))


def test_a_purge_of_nothing_changes_and_records_nothing(app: Scheduler) -> None:
    fill(app, "acme")
    end(app, app.store.find_runs(_running("acme")).items)
    assert app.tenants.purge("acme").is_complete
    entries = app.audit.list(tenant="acme", limit=100)
    for name in ("acme", "nobody"):
        assert app.tenants.purge(name, dry_run=True).is_complete
        again = app.tenants.purge(name)
        assert again.is_complete
        assert (again.schedules, again.cancelled, again.runs, again.records, again.tokens) == (0, 0, 0, 0, 0)
    assert app.audit.list(tenant="acme", limit=100) == entries
    assert app.audit.list(tenant="nobody") == []


def test_no_tick_fires_again_after_a_purge() -> None:
    app = Scheduler("memory://")
    ran: list[str] = []

    @app.task
    def works() -> None:
        ran.append("x")

    with virtual(app) as scheduler:
        for tenant in ("acme", "other"):
            app.schedules.add("beat", "every 1m", works, tenant=tenant)
        before = {run.id for run in scheduler.travel("10m") if run.tenant == "acme"}
        assert len(before) == 10
        scheduler.down_for("5m")  # ticks are overdue
        assert app.tenants.purge("acme").is_complete
        assert {run.tenant for run in scheduler.travel("10m")} == {"other"}
        # A schedule of the same name begins now, and has ticks of its own.
        made = app.schedules.add("beat", "every 1m", works, tenant="acme", catch_up="all")
        assert made.next_run is not None
        assert made.next_run > scheduler.now
        after = [run for run in scheduler.travel("3m") if run.tenant == "acme"]
        assert len(after) == 3
        assert not before & {run.id for run in after}


def test_a_purge_stops_at_its_limit_and_goes_on_when_repeated(app: Scheduler) -> None:
    fill(app, "acme")
    end(app, app.store.find_runs(_running("acme")).items)
    app.enqueue_many(["works"] * 1_200, tenant="acme")
    rounds = 0
    while not (done := app.tenants.purge("acme", limit=1)).is_complete:
        assert done.schedules + done.cancelled + done.runs + done.records + done.tokens <= 500
        rounds += 1
    assert rounds >= 6
    assert app.tenants.list() == []
    for limit in (0, -1, "many"):
        with pytest.raises(InvalidValue) as refused:
            app.tenants.purge("acme", limit=limit)  # type: ignore[arg-type]  # wrong on purpose
        assert refused.value.field == "limit"


@pytest.mark.parametrize(
    "method", ["put_schedules", "settle_runs", "purge", "purge_tenant", "put_record", "delete_record"]
)
def test_an_interrupted_purge_is_completed_by_the_next(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for tenant in ("acme", "other"):
        fill(app, tenant)
    end(app, app.store.find_runs(_running("acme")).items)
    others = everything(app, "other")

    def dies(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the server is gone")

    with monkeypatch.context() as broken:
        broken.setattr(app.store, method, dies)
        with pytest.raises(StoreUnavailable):
            app.tenants.purge("acme")
    assert everything(app, "other") == others
    assert app.tenants.purge("acme").is_complete
    assert names(app) == ["other"]
    assert everything(app, "other") == others


def test_a_schedule_that_a_node_fires_meanwhile_is_deleted_all_the_same(
    app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("beat", "every 1m", "works", tenant="acme")
    put = app.store.put_schedules
    fires = [1, 2, 3]

    def fired_first(writes: Any) -> Any:
        if fires:
            fires.pop()
            clock.advance("1m")
            app.store.fire_due(clock.now, 10, plan)
        return put(writes)

    monkeypatch.setattr(app.store, "put_schedules", fired_first)
    # A round without any progress leaves it to the next purge.
    while not app.tenants.purge("acme").is_complete:
        pass
    assert fires == []
    assert names(app) == []
    clock.advance("1h")
    assert app.store.fire_due(clock.now, 10, plan).planned == ()


def test_a_schedule_of_a_newer_version_stays_and_is_reported(app: Scheduler) -> None:
    for name in ("new", "old"):
        app.schedules.add(name, "every 1m", "works", tenant="acme")
    (row,) = app.store.find_schedules(ScheduleQuery(tenant="acme", name="new")).items
    newer = replace(row, format=FORMAT + 1)
    store = app.store
    assert isinstance(store, MemoryStore)
    store._schedules[newer.key] = newer
    done = app.tenants.purge("acme")
    assert (done.schedules, done.is_complete) == (1, False)


def test_the_default_tenant_needs_a_word_of_its_own(app: Scheduler) -> None:
    app.tokens.create("of all")
    fill(app, "default")
    rule = Record(kind="alert_rule", key="all/late", body="{}")
    assert app.store.put_record(rule)
    end(app, app.store.find_runs(_running("default")).items)
    before = everything(app, "default")
    for dry_run in (True, False):
        with pytest.raises(InvalidValue, match="even_default=True") as refused:
            app.tenants.purge("default", dry_run=dry_run)
        assert refused.value.field == "name"
    assert everything(app, "default") == before
    done = app.tenants.purge("default", even_default=True)
    assert done.is_complete
    assert names(app) == []
    # What the store keeps with this tenant for all of them is there.
    assert done.tokens == 0
    assert len(app.tokens.list()) == 2
    assert app.store.get_record("alert_rule", "default", "all/late") == rule
    assert "tokens, limits" in done.remains[-1]


def test_limits_that_name_the_tenant_remain_and_are_named(app: Scheduler) -> None:
    assert app.store.put_record(limit_record(Limit(tenant="acme", task="works", concurrency=1)))
    done = app.tenants.purge("acme")
    assert done.remains[-1] == "limits that name it: task=works tenant=acme"
    assert len(app.store.find_records("limit")) == 1


def test_purge_is_awaited_and_checks_names(app: Scheduler) -> None:
    fill(app, "acme")
    counted = asyncio.run(app.tenants.apurge("acme", dry_run=True))
    assert counted == app.tenants.purge("acme", dry_run=True)
    for name in ("two words", "", "a:b"):
        with pytest.raises(InvalidValue) as refused:
            app.tenants.purge(name)
        assert refused.value.field == "name"


# -- quotas --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 2**63, 1_000_000_001, 1.5, "many", True])
@pytest.mark.parametrize("field", ["schedules", "queued_runs"])
def test_a_quota_that_would_not_do_is_refused(app: Scheduler, field: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.tenants.set_quota("acme", **{field: value})
    assert refused.value.field == field
    assert app.tenants.list() == []


def test_a_quota_is_set_replaced_and_removed_and_each_change_is_audited(app: Scheduler) -> None:
    with pytest.raises(InvalidValue, match="both missing"):
        app.tenants.set_quota("acme")
    with pytest.raises(InvalidValue, match='name "two words"'):
        app.tenants.set_quota("two words", schedules=1)
    with pytest.raises(InvalidValue, match='name ""'):
        app.tenants.remove_quota("")
    with pytest.raises(QuotaNotFound, match='tenant "acme" has no quota'):
        app.tenants.remove_quota("acme")
    assert app.tenants.set_quota("acme", schedules=0) == Quota(schedules=0)
    replaced = asyncio.run(app.tenants.aset_quota("acme", queued_runs=1_000_000_000))
    assert replaced == Quota(queued_runs=1_000_000_000)
    assert app.tenants.get("acme").quota == replaced
    app.tenants.set_quota("acme", queued_runs=1_000_000_000)  # changes nothing
    asyncio.run(app.tenants.aremove_quota("acme"))
    assert app.tenants.list() == []
    said = [
        (entry.kind, entry.subject, entry.action, entry.before, entry.after)
        for entry in reversed(app.audit.list(tenant="acme"))
    ]
    first = {"schedules": 0, "queued_runs": None}
    second = {"schedules": None, "queued_runs": 1_000_000_000}
    assert said == [
        ("tenant", "acme", "set", {}, first),
        ("tenant", "acme", "set", first, second),
        ("tenant", "acme", "remove", second, {}),
    ]


def test_a_quota_of_schedules_refuses_new_ones_and_leaves_the_others(app: Scheduler) -> None:
    for name in ("a", "b", "c"):
        app.schedules.add(name, "every 1h", "works", tenant="acme")
    app.schedules.pause("a", tenant="acme")
    app.schedules.delete("c", tenant="acme")
    app.tenants.set_quota("acme", schedules=3)
    app.schedules.add("c", "every 1h", "works", tenant="acme")
    for write in (app.schedules.add, app.schedules.declare):
        with pytest.raises(QuotaExceeded) as refused:
            write("d", "every 1h", "works", tenant="acme")
        error = refused.value
        assert (error.tenant, error.what) == ("acme", "schedules")
        assert (error.quota, error.used, error.wanted) == (3, 3, 1)
        assert str(error) == (
            'tenant "acme" has 3 schedules, and its quota is 3: 1 more is too many; '
            "delete some of its schedules, or raise the quota"
        )
    # What is there can be changed, declared again, fired and run.
    app.schedules.update("a", tenant="acme", priority="high")
    app.schedules.declare("b", "every 2h", "works", tenant="acme")
    app.schedules.run_now("b", tenant="acme")
    app.schedules.add("d", "every 1h", "works", tenant="other")
    app.schedules.add("d", "every 1h", "works")
    app.schedules.delete("a", tenant="acme")
    app.schedules.add("d", "every 1h", "works", tenant="acme")
    app.tenants.set_quota("acme", schedules=1)  # below what is there
    with pytest.raises(QuotaExceeded, match="has 3 schedules, and its quota is 1"):
        app.schedules.add("e", "every 1h", "works", tenant="acme")
    app.tenants.remove_quota("acme")
    app.schedules.add("e", "every 1h", "works", tenant="acme")


def test_a_quota_of_queued_runs_refuses_new_ones(app: Scheduler) -> None:
    app.tenants.set_quota("acme", queued_runs=2)
    app.enqueue("works", tenant="acme")
    app.enqueue("works", tenant="acme", delay="1h")
    with pytest.raises(QuotaExceeded) as refused:
        app.enqueue("works", tenant="acme")
    assert str(refused.value) == (
        'tenant "acme" has 2 queued runs, and its quota is 2: 1 more is too many; '
        "try again when some have run, cancel some, or raise the quota"
    )
    assert app.runs.count(tenant="acme") == {"queued": 2}
    app.enqueue("works", tenant="other")
    app.enqueue("works")


def test_a_bulk_beyond_the_quota_adds_nothing(app: Scheduler) -> None:
    app.tenants.set_quota("acme", queued_runs=2_500)
    with pytest.raises(QuotaExceeded) as refused:
        app.enqueue_many(["works"] * 2_501, tenant="acme")
    assert (refused.value.used, refused.value.wanted) == (0, 2_501)
    assert app.runs.count(tenant="acme") == {}
    assert len(app.enqueue_many(["works"] * 2_500, tenant="acme")) == 2_500
    assert app.runs.count(tenant="acme") == {"queued": 2_500}
    assert app.enqueue_many([], tenant="acme") == []
    with pytest.raises(InvalidValue, match="more ids than calls; 0 of 1 runs were added"):
        app.enqueue_many(["works"], ids=["a", "b"], tenant="acme")


def test_enqueueing_again_is_not_refused_beyond_the_quota(app: Scheduler) -> None:
    app.tenants.set_quota("acme", queued_runs=3)
    first = app.enqueue("works", id="one", tenant="acme")
    app.enqueue_many(["works"] * 2, ids=["two", "three"], tenant="acme")
    assert app.enqueue("works", id="one", tenant="acme").id == first.id
    assert app.enqueue_many(["works"] * 2, ids=["two", "one"], tenant="acme") == ["two", "one"]
    with pytest.raises(QuotaExceeded):
        app.enqueue_many(["works"] * 2, ids=["two", "four"], tenant="acme")
    with pytest.raises(QuotaExceeded):
        app.enqueue("works", id="four", tenant="acme")
    app.enqueue("works", id="theirs", tenant="other")
    with pytest.raises(RunExists):
        app.enqueue("works", id="theirs", tenant="acme")
    assert app.runs.count(tenant="acme") == {"queued": 3}


def test_runs_now_are_refused_beyond_the_quota_and_ticks_are_not(app: Scheduler, clock: VirtualClock) -> None:
    for name in ("a", "b"):
        app.schedules.add(name, "every 1m", "works", tenant="acme")
    app.tenants.set_quota("acme", queued_runs=1)
    app.schedules.run_now("a", tenant="acme")
    with pytest.raises(QuotaExceeded):
        app.schedules.run_now("a", tenant="acme")
    result = app.schedules.run_all(tenant="acme")
    assert result.done == 0
    assert all("its quota is 1" in refused.why for refused in result.refused)
    clock.advance("1m")
    assert len(app.store.fire_due(clock.now, 10, plan).planned) == 2
    assert app.runs.count(tenant="acme") == {"queued": 3}


def test_what_is_not_used_adds_no_query(app: Scheduler, store: Counted, seconds: list[float]) -> None:
    app.enqueue("works")
    store.calls.clear()
    for _ in range(10):
        app.enqueue("works", tenant="acme")
        app.enqueue_many(["works"] * 3, tenant="acme")
        app.schedules.declare("s", "every 1h", "works", tenant="acme")
        seconds[0] += 0.4
    # The quotas are read once in five seconds, and nothing is counted.
    assert store.calls == []
    seconds[0] += 1.1
    app.enqueue("works")
    assert store.calls == ["quotas"]


def test_only_tenants_with_a_quota_are_counted_and_once_a_second(
    app: Scheduler, store: Counted, seconds: list[float]
) -> None:
    app.tenants.set_quota("acme", queued_runs=1_000)
    app.tenants.set_quota("half", schedules=1_000)
    app.enqueue("works", tenant="acme")
    store.calls.clear()
    for _ in range(9):
        app.enqueue("works", tenant="other")
        app.enqueue("works", tenant="half")
        app.schedules.declare("s", "every 1h", "works", tenant="acme")
        app.enqueue("works", tenant="acme")
        seconds[0] += 0.1
    assert store.calls == []
    seconds[0] += 0.2
    app.enqueue("works", tenant="acme")
    assert store.calls == ["count"]


def test_a_count_that_takes_long_is_kept_for_long(
    app: Scheduler, store: Counted, seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.tenants.set_quota("acme", queued_runs=1_000)
    count = store.count_active

    def slow(now: int) -> list[ActiveCounts]:
        seconds[0] += 0.3
        return count(now)

    monkeypatch.setattr(store, "count_active", slow)
    app.enqueue("works", tenant="acme")
    store.calls.clear()
    seconds[0] += 2.9
    app.enqueue("works", tenant="acme")
    assert "count" not in store.calls
    seconds[0] += 0.2
    app.enqueue("works", tenant="acme")
    assert store.calls.count("count") == 1


def test_a_quota_of_another_process_holds_after_five_seconds(
    app: Scheduler, store: Counted, seconds: list[float]
) -> None:
    other = Scheduler(store)
    app.enqueue("works", tenant="acme")
    other.tenants.set_quota("acme", queued_runs=0)
    with pytest.raises(QuotaExceeded):
        other.enqueue("works", tenant="acme")
    seconds[0] += 4.9
    app.enqueue("works", tenant="acme")
    seconds[0] += 0.2
    with pytest.raises(QuotaExceeded):
        app.enqueue("works", tenant="acme")


def test_processes_together_exceed_a_quota_for_a_second_at_most(
    app: Scheduler, store: Counted, seconds: list[float]
) -> None:
    app.tenants.set_quota("acme", queued_runs=10)
    other = Scheduler(store)
    for scheduler in (app, other):
        scheduler.enqueue("works", tenant="acme")
    app.enqueue_many(["works"] * 8, tenant="acme")
    other.enqueue_many(["works"] * 8, tenant="acme")  # counted before the others came
    assert app.runs.count(tenant="acme") == {"queued": 18}
    seconds[0] += 1
    for scheduler in (app, other):
        with pytest.raises(QuotaExceeded, match="has 18 queued runs"):
            scheduler.enqueue("works", tenant="acme")


def test_runs_that_were_claimed_make_room_within_a_second(app: Scheduler, seconds: list[float]) -> None:
    app.tenants.set_quota("acme", queued_runs=2)
    app.enqueue_many(["works"] * 2, tenant="acme")
    assert len(claim(app, 2)) == 2
    seconds[0] += 1
    app.enqueue_many(["works"] * 2, tenant="acme")


def test_threads_of_a_process_do_not_exceed_a_quota_together(app: Scheduler) -> None:
    app.tenants.set_quota("acme", queued_runs=50)
    refused: list[QuotaExceeded] = []
    start = threading.Barrier(8)

    def enqueue() -> None:
        start.wait(20)
        for _ in range(20):
            try:
                app.enqueue("works", tenant="acme")
            except QuotaExceeded as error:
                refused.append(error)

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.runs.count(tenant="acme") == {"queued": 50}
    assert len(refused) == 8 * 20 - 50


def test_a_damaged_quota_bounds_nothing(app: Scheduler) -> None:
    for body in ("{", '{"schedules": "many"}', '{"schedules": -5}', '{"queued_runs": 99999999999999999999}'):
        record = replace(quota_record("acme", Quota(), 1), body=body, version=7)
        present = app.store.get_record("quota", "acme", "quota")
        assert app.store.put_record(record, None if present is None else present.version)
        Scheduler(app.store).enqueue("works", tenant="acme")
    assert app.tenants.get("acme").quota is None
    app.tenants.set_quota("acme", queued_runs=0)  # replaces it
    with pytest.raises(QuotaExceeded):
        app.enqueue("works", tenant="acme")


def test_virtual_time_has_quotas_of_its_own() -> None:
    app = Scheduler(MemoryStore(VirtualClock()))

    @app.task
    def works() -> None:
        pass

    app.tenants.set_quota("acme", queued_runs=0)
    with virtual(app) as scheduler:
        app.enqueue(works, tenant="acme")
        scheduler.tenants.set_quota("acme", queued_runs=2)
        app.enqueue(works, tenant="acme")
        with pytest.raises(QuotaExceeded):
            app.enqueue(works, tenant="acme")
        assert len(scheduler.travel("2s")) == 2
        app.enqueue(works, tenant="acme")
        assert scheduler.tenants.get("acme").due == 1
    with pytest.raises(QuotaExceeded):
        app.enqueue(works, tenant="acme")


def test_a_node_whose_code_declares_more_than_the_quota_does_not_start(app: Scheduler) -> None:
    app.tenants.set_quota("default", schedules=0)
    app.task(name="beat", schedule="every 1h")(lambda: None)
    with pytest.raises(QuotaExceeded):
        app.declare_tasks()
    with pytest.raises(QuotaExceeded):
        app.start()
    assert not app.is_running
    app.tenants.set_quota("default", schedules=1)
    app.declare_tasks()
    app.tenants.set_quota("default", schedules=0)
    app.declare_tasks()  # it is there

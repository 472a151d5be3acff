"""Limits and turns of tenants on PostgreSQL: locks, round trips, plans. The contract has the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from evenbeat.core.rates import Rate
from evenbeat.core.records import RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts
from evenbeat.rules.limits import BUCKET, LIMIT, OWNER, Limit, limit_record
from evenbeat.stores.base import Claim, Claimed, RunQuery
from evenbeat.stores.postgres import PostgresStore, limited_claims
from evenbeat.testing import VirtualClock
from tests.store_calls import CommandLog, WaitingThread, claim
from tests.stores import on_postgres
from tests.stores.on_postgres import sql

MINUTE = 60_000
a_place, clock, make = on_postgres.a_place, on_postgres.clock, on_postgres.make


class Stop(Exception):
    """The process ends here."""


@pytest.fixture
def options() -> dict[str, Any]:
    return {"timeout": 60, "lock_timeout": 60}


def wait_for(store: PostgresStore, question: str) -> None:
    """Wait until a query returns true."""
    deadline = time.monotonic() + 60
    while not sql(store, question)[0][0]:
        assert time.monotonic() < deadline, question


def set_limit(store: PostgresStore, **fields: Any) -> None:
    assert store.put_record(limit_record(Limit(**fields)))


def remove_limit(store: PostgresStore, **fields: Any) -> None:
    assert store.delete_record(LIMIT, OWNER, Limit(**fields).name, 1)


def add(store: PostgresStore, count: int, prefix: str, **fields: Any) -> None:
    fields = {"task": "work", "run_at": store.now(), **fields}
    store.add_runs([RunRecord(id=f"{prefix}{at:02}", **fields) for at in range(count)])


def claimed(store: PostgresStore, token: str, limit: int = 10, **fields: Any) -> Claimed:
    wanted = {"worker": "w", "now": store.now(), "lease": 30_000, **fields}
    return store.claim_runs(Claim(token=token, limit=limit, **wanted))


def ids(store: PostgresStore, token: str, **fields: Any) -> list[str]:
    return [run.id for run in claim(store, token, **fields)]


def cohorts(store: PostgresStore) -> dict[str, str | None]:
    return {run.id: run.cohort for run in store.find_runs(RunQuery(limit=1000)).items}


# Locks.


def test_while_a_claim_of_limited_runs_is_frozen_others_claim_unlimited_runs(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    other = make()
    seen: list[Claimed] = []

    def freeze(name: str) -> None:
        if name == "lock claimable":
            seen.append(claimed(other, "c2", worker="w2"))

    store = make(on_command=freeze)
    set_limit(store, task="work", concurrency=2)
    add(store, 5, "limited")
    add(store, 1, "free", task="other")
    add(store, 1, "more", task="other", run_at=clock.now + 1)
    held = ids(store, "c1")
    (beside,) = seen
    assert held == ["free00", "limited00", "limited01"]
    # The unlimited run is locked by the frozen claim. Limited runs may wait, so the claim is repeated soon.
    assert beside == Claimed((), clock.now)
    clock.advance("1s")
    assert ids(other, "c3", worker="w2") == ["more00"]
    assert claimed(other, "c4", worker="w2") == Claimed((), None)


def test_a_claim_beside_a_frozen_one_takes_the_unlimited_runs(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    other = make()
    seen: list[Claimed] = []
    is_armed: list[bool] = []

    def freeze(name: str) -> None:
        if name == "lock claimable" and is_armed:
            add(other, 2, "free", task="other")
            seen.append(claimed(other, "c2", worker="w2"))

    store = make(on_command=freeze)
    set_limit(store, task="work", concurrency=3)
    add(store, 5, "limited")
    # All have their cohorts now: only the advisory lock keeps the other claim from them.
    assert ids(store, "c0", limit=1) == ["limited00"]
    is_armed.append(True)
    assert ids(store, "c1") == ["limited01", "limited02"]
    assert [run.id for run in seen[0].runs] == ["free00", "free01"]
    assert seen[0].next_due == clock.now


def test_the_server_ends_a_claim_that_is_frozen_with_the_lock(
    make: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_claims, "_IDLE_TIMEOUT", 20)
    other = make()
    lock = "FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"

    def freeze(name: str) -> None:
        if name == "lock claimable":
            with store._connections._state:
                (held,) = store._connections._in_use
            pid = held.connection.info.backend_pid
            wait_for(other, f"SELECT NOT EXISTS (SELECT 1 {lock} AND pid = {pid})")

    store = make(on_command=freeze)
    set_limit(store, task="work", concurrency=2)
    add(store, 5, "limited")
    with pytest.raises(StoreUnavailable):
        claim(store, "c1")
    monkeypatch.undo()
    assert other.count_runs() == {"queued": 5}
    assert ids(other, "c2") == ["limited00", "limited01"]


def test_a_limit_is_set_after_the_claims_that_have_not_read_it(make: Callable[..., PostgresStore]) -> None:
    other = make()
    setters: list[threading.Thread] = []
    waiting = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"

    def set_meanwhile(name: str) -> None:
        if name == "claim runs" and not setters:
            setters.append(
                threading.Thread(target=set_limit, args=(other,), kwargs={"task": "work", "concurrency": 2})
            )
            setters[0].start()
            wait_for(other, waiting)

    store = make(on_command=set_meanwhile)
    add(store, 5, "r")
    assert ids(store, "c1", limit=1) == ["r00"]
    setters[0].join()
    assert ids(other, "c2") == ["r01"]


def test_a_limit_that_cannot_be_set_beside_a_frozen_claim_fails_soon(
    make: Callable[..., PostgresStore],
) -> None:
    other = make()
    failures: list[StoreUnavailable] = []

    def set_meanwhile(name: str) -> None:
        if name == "claim runs":
            with pytest.raises(StoreUnavailable) as caught:
                set_limit(other, task="work", concurrency=2)
            failures.append(caught.value)

    store = make(on_command=set_meanwhile)
    add(store, 1, "r")
    assert ids(store, "c1") == ["r00"]
    assert len(failures) == 1


@pytest.mark.parametrize(
    "last", ["select next due", "select claimable", "give cohorts", "lock claimable", "claim runs"]
)
def test_a_claim_that_ends_at_any_command_changes_nothing(
    make: Callable[..., PostgresStore], last: str
) -> None:
    def stop(name: str) -> None:
        if name == last:
            raise Stop

    store, other = make(on_command=stop), make()
    set_limit(other, task="work", concurrency=3, rate=Rate(2, MINUTE), burst=2)
    add(other, 5, "r")
    before = [sql(other, f"SELECT * FROM evenbeat.{table} ORDER BY 1, 2, 3") for table in ("runs", "records")]
    with pytest.raises(Stop):
        claim(store, "c1")
    after = [sql(other, f"SELECT * FROM evenbeat.{table} ORDER BY 1, 2, 3") for table in ("runs", "records")]
    assert after == before
    assert ids(other, "c1") == ["r00", "r01"]


def test_a_claim_whose_reply_is_lost_after_the_commit_is_repeated(make: Callable[..., PostgresStore]) -> None:
    def stop(name: str) -> None:
        if name == "committed" and armed:
            armed.clear()
            raise Stop

    armed: list[bool] = []
    store = make(on_command=stop)
    set_limit(store, task="work", concurrency=3, rate=Rate(2, MINUTE), burst=2)
    add(store, 5, "r")
    armed.append(True)
    with pytest.raises(Stop):
        claim(store, "c1")
    assert ids(store, "c1") == ["r00", "r01"]
    assert len(store.find_records(BUCKET)) == 1
    assert ids(store, "c2") == []


def test_a_run_that_another_transaction_has_locked_spends_no_token(
    make: Callable[..., PostgresStore],
) -> None:
    store = make()
    set_limit(store, task="work", rate=Rate(1, MINUTE), burst=2)
    add(store, 2, "r")
    with psycopg.connect(store.location.conninfo) as connection:
        # As a cancellation does. The first claim gives no cohort to a locked run.
        lock = store.location.own("SELECT 1 FROM evenbeat.runs WHERE id = 'r00' FOR UPDATE").encode()
        connection.execute(lock)
        assert ids(store, "c1") == ["r01"]
        connection.rollback()
        assert ids(store, "c2") == ["r00"]


# Cohorts.


def test_runs_get_their_cohorts_in_parts_an_equal_part_of_each_tenant(
    make: Callable[..., PostgresStore], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_claims, "_ASSIGNED", 10)
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 20, "flood", tenant="flood", run_at=clock.now - 1000)
    add(store, 20, "quiet", tenant="quiet", run_at=clock.now)
    add(store, 1, "free", tenant="flood", task="other")
    first = claimed(store, "c1")
    assert {run.id for run in first.runs} == {"flood00", "free00"}
    assert first.next_due is not None
    assert first.next_due <= clock.now
    given = [name for name, cohort in cohorts(store).items() if cohort is not None]
    assert sorted(given) == [f"{tenant}{at:02}" for tenant in ("flood", "quiet") for at in range(5)]
    for number in range(4):
        assert ids(store, f"d{number}") == []
    assert all(cohorts(store)[f"{tenant}{at:02}"] for tenant in ("flood", "quiet") for at in range(20))
    assert claimed(store, "e") == Claimed((), None)


def test_runs_leave_the_cohorts_of_a_removed_limit_in_parts(
    make: Callable[..., PostgresStore], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 9, "r")
    (held,) = claim(store, "c1")
    remove_limit(store, task="work")
    monkeypatch.setattr(limited_claims, "_ASSIGNED", 3)
    taken = [claimed(store, f"d{number}", limit=5) for number in range(3)]
    assert [[run.id for run in one.runs] for one in taken] == [
        ["r01", "r02", "r03"],
        ["r04", "r05", "r06"],
        ["r07", "r08"],
    ]
    assert [one.next_due for one in taken] == [clock.now, clock.now, None]
    assert set(cohorts(store).values()) <= {None, held.cohort}


def test_a_damaged_cohort_is_replaced(make: Callable[..., PostgresStore]) -> None:
    store = make()
    set_limit(store, task="work", concurrency=2)
    add(store, 4, "r")
    assert ids(store, "c1", limit=1) == ["r00"]
    sql(store, "UPDATE evenbeat.runs SET cohort = 'no such thing'")
    assert ids(store, "c2") == ["r01"]
    assert set(cohorts(store).values()) == {"default 4 default work"}


def test_runs_that_started_before_a_limit_count_and_free_their_slots(
    make: Callable[..., PostgresStore],
) -> None:
    store, other = make(), make()
    add(store, 3, "r")
    (held,) = claim(store, "c1", limit=1)
    set_limit(store, task="work", concurrency=1)
    assert claimed(store, "c2") == Claimed((), None)
    assert cohorts(store)["r00"] == "default 4 default work"
    waiter = WaitingThread(other)
    assert store.settle_runs([attempts.succeeded(held, None, store.now(), "end")]) == [True]
    assert waiter.is_woken()
    assert ids(store, "c3") == ["r01"]


@pytest.mark.parametrize("tasks", [None, frozenset({"a", "m", "work", "z"})])
def test_unlimited_runs_on_both_sides_of_limited_tasks_are_claimed(
    make: Callable[..., PostgresStore], clock: VirtualClock, tasks: frozenset[str] | None
) -> None:
    store = make()
    for name in ("b", "n", "work"):
        set_limit(store, task=name, concurrency=1)
    set_limit(store, tenant="acme", concurrency=1)
    set_limit(store, queue="mail", concurrency=1)
    for at, name in enumerate(("a", "m", "work", "z")):
        add(store, 2, name, task=name, run_at=clock.now - 10 + at)
    add(store, 3, "acme", task="z", tenant="acme")
    add(store, 3, "mail", task="z", queue="mail")
    # Of two tenants in turn, and of two queues.
    add(store, 1, "other", task="z", tenant="globex")
    taken = ids(store, "c1", limit=20, tasks=tasks, queues=("default", "mail"))
    assert sorted(taken) == sorted(
        ["a00", "a01", "m00", "m01", "work00", "z00", "z01", "acme00", "mail00", "other00"]
    )


# Turns.


def test_a_claim_of_several_tenants_is_filled_from_those_that_have_more(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    add(store, 40, "flood", tenant="flood", run_at=clock.now - 1000)
    add(store, 40, "mail", tenant="flood", queue="mail", run_at=clock.now - 2000)
    for tenant in ("a", "b", "z"):
        add(store, 2, tenant, tenant=tenant)
    watch.seen.clear()
    taken = ids(store, "c1", limit=20, queues=("default", "mail"))
    assert len(taken) == len(set(taken)) == 20
    assert {"a00", "a01", "b00", "b01", "z00", "z01", "mail00"} <= set(taken)
    assert watch.seen == ["select next due", "select claimable", "claim runs", "committed"]
    watch.seen.clear()
    # A share of five for each of four tenants; the flood has more.
    for tenant in ("c", "d", "e"):
        add(store, 1, tenant, tenant=tenant)
    watch.seen.clear()
    taken = ids(store, "c2", limit=20, turn="d")
    assert len(taken) == len(set(taken)) == 20
    assert taken[:4] == ["e00", "flood00", "c00", "d00"]
    assert watch.seen[-4:] == ["select claimable", "select claimable", "claim runs", "committed"]


def test_more_tenants_than_a_claim_has_room_for_take_turns(make: Callable[..., PostgresStore]) -> None:
    store = make()
    for tenant in "abcdef":
        add(store, 3, tenant, tenant=tenant)
    assert ids(store, "c1", limit=4) == ["a00", "b00", "c00", "d00"]
    assert ids(store, "c2", limit=4, turn="d") == ["e00", "f00", "a01", "b01"]


def test_a_tenant_that_arrives_after_a_claim_is_served_by_the_next_one(
    make: Callable[..., PostgresStore],
) -> None:
    store = make()
    add(store, 10, "a", tenant="a")
    assert ids(store, "c1", limit=2) == ["a00", "a01"]
    add(store, 1, "b", tenant="b")
    assert ids(store, "c2", limit=2, turn="a") == ["b00", "a02"]


# Round trips.


def test_a_claim_without_limits_takes_as_many_round_trips_as_before(
    make: Callable[..., PostgresStore],
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    add(store, 9, "r")
    watch.seen.clear()
    assert len(claim(store, "c1", limit=3)) == 3
    assert watch.seen == ["select next due", "select claimable", "claim runs", "committed"]
    watch.seen.clear()
    # A limit that cannot concern the claim changes nothing.
    set_limit(store, task="other", concurrency=1)
    set_limit(store, queue="mail", concurrency=1)
    watch.seen.clear()
    assert len(claim(store, "c2", limit=3, tasks=frozenset({"work"}))) == 3
    assert watch.seen == ["select next due", "select claimable", "claim runs", "committed"]
    watch.seen.clear()
    assert len(claim(store, "c3", limit=3, tasks=frozenset({"work"}))) == 3
    assert watch.seen == ["select claimable", "claim runs", "committed"]


def test_an_idle_claim_with_limits_is_one_question(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    set_limit(store, task="work", concurrency=1)
    add(store, 1, "r", run_at=clock.now + MINUTE)
    watch.seen.clear()
    assert claimed(store, "c1") == Claimed((), clock.now + MINUTE)
    assert watch.seen == ["select next due"]


def test_a_claim_of_limited_runs_takes_four_round_trips(make: Callable[..., PostgresStore]) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    set_limit(store, task="work", concurrency=4)
    add(store, 9, "r")
    assert len(claim(store, "c1", limit=1)) == 1
    watch.seen.clear()
    assert len(claim(store, "c2", limit=2)) == 2
    assert watch.seen == ["select claimable", "select claimable", "lock claimable", "claim runs", "committed"]

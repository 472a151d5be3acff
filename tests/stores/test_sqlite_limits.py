"""Limits and turns of tenants on SQLite: commands, locks, cohorts that are given late, damaged rows."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenbeat.core.rates import Rate
from evenbeat.core.records import RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts
from evenbeat.rules.limits import BUCKET, LIMIT, OWNER, Limit, limit_record
from evenbeat.stores.base import Claim, Claimed, RunQuery
from evenbeat.stores.sqlite import SqliteStore, cohorts
from evenbeat.testing import VirtualClock
from tests.store_calls import CommandLog, Crash, claim
from tests.stores import on_sqlite

MINUTE = 60_000
COHORT = "default 4 default work"
clock, path, make, store = on_sqlite.clock, on_sqlite.path, on_sqlite.make, on_sqlite.store


def limit(store: SqliteStore, **fields: Any) -> None:
    assert store.put_record(limit_record(Limit(**fields)))


def unlimit(store: SqliteStore, **fields: Any) -> None:
    assert store.delete_record(LIMIT, OWNER, Limit(**fields).name, 1)


def add(store: SqliteStore, *ids: str, **fields: Any) -> None:
    wanted = {"task": "work", "run_at": store.now(), "created_at": store.now(), **fields}
    store.add_runs([RunRecord(id=name, **wanted) for name in ids])


def ids(store: SqliteStore, token: str, **fields: Any) -> list[str]:
    return [held.id for held in claim(store, token, **fields)]


def claimed(store: SqliteStore, token: str) -> Claimed:
    return store.claim_runs(Claim(worker="w", token=token, limit=10, now=store.now(), lease=30_000))


def end(store: SqliteStore, *held: RunRecord) -> None:
    ends = [attempts.succeeded(run, None, store.now(), f"end-{run.id}") for run in held]
    assert store.settle_runs(ends) == [True] * len(held)


def sql(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


# -- commands and locks ------------------------------------------------------------------------------------


def test_a_claim_beside_full_limits_leaves_the_write_lock_alone(
    make: Callable[..., SqliteStore], path: Path
) -> None:
    watch = CommandLog()
    store = make(busy_timeout=0, on_command=watch)
    limit(store, task="work", concurrency=1)
    add(store, "a", "b")
    (held,) = claim(store, "c1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        watch.seen.clear()
        assert ids(store, "c2") == []
        assert "begin" not in watch.seen
    end(store, held)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="write lock"):
            claim(store, "c3")
    assert ids(store, "c3") == ["b"]


def test_without_limits_tenants_and_priorities_cost_a_statement_each(
    make: Callable[..., SqliteStore],
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    for tenant in "ab":
        add(store, *(f"{tenant}{at}" for at in range(3)), tenant=tenant)
    add(store, "high", tenant="a", priority=9)
    watch.seen.clear()
    assert ids(store, "c", limit=5) == ["high", "a0", "b0", "a1", "b1"]
    assert Counter(watch.seen)["select claimable"] == 3
    assert not any("cohort" in name or "limits" in name for name in watch.seen)


def test_a_limit_that_is_set_while_a_claim_waits_for_the_lock_holds_for_it(
    make: Callable[..., SqliteStore], store: SqliteStore
) -> None:
    def interrupt(name: str) -> None:
        if name == "begin" and not store.find_records(LIMIT):
            limit(store, task="work", concurrency=2)

    add(store, "a", "b", "c", "d")
    slow = make(on_command=interrupt)
    assert ids(slow, "c") == ["a", "b"]
    assert ids(store, "next") == []


def test_a_crash_at_any_command_of_a_limited_claim_spends_neither_slot_nor_token(
    make: Callable[..., SqliteStore], path: Path
) -> None:
    first = make()
    limit(first, task="work", concurrency=2, rate=Rate(1, 60 * MINUTE), burst=2)
    add(first, "a", "b", "c")
    position = 0
    while True:
        store = make(on_command=(watch := CommandLog(position, on=False)))
        watch.on = True
        try:
            claim(store, "c")
        except Crash:
            assert watch.seen[-1] != "committed" or first.count_runs() == {"running": 2, "queued": 1}
        else:
            break
        if watch.seen[-1] == "committed":
            break
        assert first.count_runs() == {"queued": 3}
        assert first.find_records(BUCKET) == []
        assert sql(path, "SELECT DISTINCT cohort FROM evenbeat_runs") == [(None,)]
        position += 1
    assert {"set cohorts", "claim runs", "put buckets", "commit"} <= set(watch.seen)
    assert ids(first, "c") == ["a", "b"]  # the reply was lost, the claim was not
    assert ids(first, "next") == []
    assert len(first.find_records(BUCKET)) == 1


_DIES = """
import os, signal, sys
from evenbeat.stores.base import Claim
from evenbeat.stores.sqlite import SqliteStore

def on_command(name):
    if name == sys.argv[2]:
        print(name, flush=True)
        os.kill(os.getpid(), int(sys.argv[3]))

store = SqliteStore(sys.argv[1], on_command=on_command)
store.open()
store.claim_runs(Claim(worker="dead", token="dead", limit=5, now=store.now(), lease=60_000))
"""


def test_a_claimer_that_freezes_with_the_lock_is_reported_and_takes_no_slot_when_it_is_killed(
    path: Path,
) -> None:
    store = SqliteStore(path, busy_timeout=0.05)
    store.open()
    limit(store, task="work", concurrency=2, rate=Rate(1, 60 * MINUTE), burst=2)
    add(store, "a", "b", "c")
    command = [sys.executable, "-c", _DIES, str(path), "put buckets", str(int(signal.SIGSTOP))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == b"put buckets\n"
        _, status = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with pytest.raises(StoreUnavailable, match="write lock"):
            claim(store, "c")
        assert store.count_runs() == {"queued": 3}
        frozen.kill()
    assert ids(store, "c") == ["a", "b"]
    store.close()


def test_two_claimers_that_found_the_same_slot_do_not_both_take_it(make: Callable[..., SqliteStore]) -> None:
    ready = threading.Barrier(2)

    def meet(name: str) -> None:
        if name == "begin":
            ready.wait(20)

    first = make()
    limit(first, task="work", concurrency=1)
    add(first, "a", "b")
    taken: list[str] = []

    def work(store: SqliteStore, name: str) -> None:
        taken.extend(ids(store, name, worker=name))

    others = [make(on_command=meet) for _ in range(2)]
    threads = [threading.Thread(target=work, args=(store, f"w{at}")) for at, store in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == ["a"]


# -- cohorts -----------------------------------------------------------------------------------------------


def test_a_free_run_behind_more_limited_ones_than_one_claim_gives_a_cohort_is_claimed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    monkeypatch.setattr(cohorts, "_MOST_GIVEN", 4)
    limit(store, task="work", concurrency=1)
    add(store, *(f"r{at}" for at in range(10)), run_at=store.now() - 5)
    add(store, "free", task="other")
    given = "SELECT count(*) FROM evenbeat_runs WHERE cohort IS NOT NULL"
    first = claimed(store, "c0")
    assert [held.id for held in first.runs] == ["r0", "free"]
    assert first.next_due is not None
    assert first.next_due <= store.now()  # the next claim gives more cohorts
    assert sql(path, given) == [(4,)]
    for number, expected in enumerate((8, 10), 1):
        claimed(store, f"c{number}")
        assert sql(path, given) == [(expected,)]
    assert claimed(store, "full").next_due is None


def test_runs_in_cohorts_of_a_removed_limit_are_moved_by_several_claims(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    limit(store, task="work", key="customer", concurrency=1)
    add(store, *(f"r{at}" for at in range(6)), payload='{"customer":7}')
    (held,) = claim(store, "c0")
    unlimit(store, task="work", key="customer")
    limit(store, task="work", concurrency=1)
    monkeypatch.setattr(cohorts, "_MOST_GIVEN", 2)
    moved = f"SELECT count(*) FROM evenbeat_runs WHERE state = 'queued' AND cohort = '{COHORT}'"
    for number, expected in enumerate((2, 4), 1):
        assert claimed(store, f"c{number}") == ((), store.now())  # the next claim moves more
        assert sql(path, moved) == [(expected,)]
    claimed(store, "c3")
    assert sql(path, moved) == [(5,)]
    assert claimed(store, "full") == ((), None)
    end(store, held)
    assert ids(store, "c4") == ["r1"]


def test_runs_of_another_tasks_backlog_get_no_cohort(store: SqliteStore, path: Path) -> None:
    limit(store, task="work", concurrency=1)
    add(store, *(f"o{at:02}" for at in range(30)), task="other", run_at=store.now() - 5)
    add(store, "w")
    assert len(claim(store, "c1", limit=10)) == 10
    # It is behind: no claim has met it yet.
    assert sql(path, "SELECT id FROM evenbeat_runs WHERE cohort IS NOT NULL") == []
    assert len(claim(store, "c2", limit=21)) == 21
    assert sql(path, "SELECT id, state FROM evenbeat_runs WHERE cohort IS NOT NULL") == [("w", "running")]


def test_a_run_that_was_running_before_its_limit_was_set_wakes_workers_when_it_ends(
    store: SqliteStore, make: Callable[..., SqliteStore], path: Path
) -> None:
    add(store, "a", "b")
    (held,) = claim(store, "c1", limit=1)
    limit(store, task="work", concurrency=1)
    assert ids(store, "c2") == []
    assert sql(path, "SELECT cohort FROM evenbeat_runs WHERE id = 'a'") == [(COHORT,)]
    hints: list[str] = []
    store.hint = lambda: hints.append("hint")  # type: ignore[method-assign]
    end(store, held)
    assert hints == ["hint"]


def test_queued_runs_with_and_without_a_cohort_are_found_and_counted(
    store: SqliteStore, clock: VirtualClock
) -> None:
    limit(store, task="work", concurrency=1)
    add(store, "a", "b", "c", tenant="acme")
    add(store, "x", "y", task="other", queue="mail", run_at=clock.now + MINUTE)
    (held,) = claim(store, "c1")
    assert store.settle_runs([attempts.failed(held, "boom", clock.now, "failed")]) == [True]
    wanted = {"a", "b", "c", "x", "y"} - {held.id}

    def found(**fields: Any) -> set[str]:
        return {run.id for run in store.find_runs(RunQuery(**fields)).items}

    assert found(states=("queued",)) == wanted
    assert found(states=("queued",), queue="default") == wanted - {"x", "y"}
    assert found(states=("queued",), queue="mail") == {"x", "y"}
    assert found(states=("queued",), queue="mai") == set()
    assert found(since=clock.now - MINUTE, states=("queued",)) == set()
    assert store.count_runs("acme") == {"queued": 2, "failed": 1}
    assert store.count_runs("default") == {"queued": 2}
    counts = {one.queue: (one.due, one.later) for one in store.count_queues(clock.now, clock.now)}
    assert counts == {"default": (2, 0), "mail": (0, 2)}


def test_a_run_that_waits_in_the_cohort_of_a_removed_limit_is_claimed_in_time(
    store: SqliteStore, clock: VirtualClock
) -> None:
    limit(store, task="work", concurrency=1)
    add(store, "a", "b")
    (held,) = claim(store, "c1")
    end(store, held)
    unlimit(store, task="work")
    limit(store, task="work", key="customer", concurrency=1)
    later = clock.now + MINUTE
    with store._connections.write() as session:
        session.run("delay", "UPDATE evenbeat_runs SET run_at = ? WHERE id = 'b'", (later,))
    assert claimed(store, "c2") == ((), later)
    clock.advance("1m")
    assert ids(store, "c3") == ["b"]


# -- damaged rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cohort", ["'default x'", "'default '", "CAST(x'64656661756c7420ff' AS TEXT)"])
def test_a_run_in_a_cohort_that_cannot_be_read_gets_its_own(
    store: SqliteStore, path: Path, cohort: str
) -> None:
    limit(store, task="work", concurrency=1)
    add(store, "a", "b")
    sql(path, f"UPDATE evenbeat_runs SET cohort = {cohort} WHERE id = 'a'")
    assert ids(store, "c") == ["a"]
    assert sql(path, "SELECT DISTINCT cohort FROM evenbeat_runs") == [(COHORT,)]


@pytest.mark.parametrize("is_limited", [False, True])
def test_a_tenant_that_is_not_utf8_is_quarantined_and_blocks_nobody(
    store: SqliteStore, path: Path, is_limited: bool
) -> None:
    if is_limited:
        limit(store, task="work", concurrency=2)
    add(store, "bad", "worse", tenant="a", run_at=store.now() - 5)
    add(store, "good", tenant="b")
    sql(path, "UPDATE evenbeat_runs SET tenant = CAST(x'61ff' AS TEXT) WHERE id = 'bad'")
    sql(path, "UPDATE evenbeat_runs SET tenant = CAST(x'61fe' AS TEXT) WHERE id = 'worse'")
    taken = ids(store, "c1") + ids(store, "c2") + ids(store, "c3")
    assert taken == ["good"]
    assert store.count_runs() == {"running": 1, "failed": 2}
    assert claimed(store, "c4").next_due is None


def test_records_of_limits_that_cannot_be_read_limit_nothing(store: SqliteStore, path: Path) -> None:
    limit(store, task="work", concurrency=1)
    sql(path, "UPDATE evenbeat_records SET body = '{' WHERE kind = 'limit'")
    add(store, "a", "b")
    assert ids(store, "c") == ["a", "b"]

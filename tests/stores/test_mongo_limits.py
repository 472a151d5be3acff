"""Limits and turns of tenants in MongoDB alone: the lock, crashes, plans, the upgrade. tests/contract has the
others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from evenbeat.core.rates import Rate
from evenbeat.core.records import Execution, RunRecord
from evenbeat.rules import attempts
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.mongo import MongoStore, abandoned, claims, limited_claims, schema, turns
from evenbeat.stores.mongo.location import Document
from evenbeat.testing import VirtualClock
from tests.lengths import LONG
from tests.store_calls import CommandLog, Crash, claim
from tests.stores import on_mongo
from tests.stores.on_mongo import plain
from tests.stores.test_mongo_store import dump, keys_examined, restore, stages

MINUTE = 60_000
place, clock, make, store = on_mongo.place, on_mongo.clock, on_mongo.make, on_mongo.store


def set_limit(store: MongoStore, **fields: Any) -> None:
    assert store.put_record(limit_record(Limit(**fields)))


def add(store: MongoStore, *ids: str, **fields: Any) -> None:
    store.add_runs([RunRecord(id=name, **{"task": "work", **fields}) for name in ids])


def ids(runs: list[RunRecord]) -> list[str]:
    return [run.id for run in runs]


def running(store: MongoStore) -> int:
    return store.count_runs().get("running", 0)


# The cost of claims without limits.


def test_a_claim_of_one_tenant_without_limits_sends_three_commands(make: Callable[..., MongoStore]) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    add(store, "a", "b", "c", tenant="acme")
    claim(store, "first", limit=1)  # learns the tenant
    watch.on = True
    assert ids(claim(store, "second", limit=1)) == ["b"]
    assert watch.seen == ["find next due", "claim runs", "committed"]
    assert ids(claim(store, "third")) == ["c"]
    watch.seen = []
    assert claim(store, "idle") == []
    assert watch.seen == ["find next due"]


def test_a_claim_is_plain_again_after_the_last_limit_and_tenant_have_gone(
    make: Callable[..., MongoStore],
) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    set_limit(store, task="work", concurrency=1)
    add(store, "a", "b")
    add(store, "z", tenant="z")
    assert len(claim(store, "c1")) == 1
    assert store.delete_record("limit", "default", "task=work", 1)
    assert len(claim(store, "c2")) == 2
    assert claim(store, "c3") == []
    watch.on = True
    assert claim(store, "c4") == []
    assert watch.seen == ["find next due"]


# The lock.


def test_two_claims_at_once_do_not_fill_the_same_slot(
    make: Callable[..., MongoStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first claimer freezes before its commit. The second one would take a run of another tenant, which
    # the first has not written to. It ends the first one's transaction when that counts as abandoned.
    monkeypatch.setattr(abandoned, "IDLE", 600.0)
    reached, resume = threading.Event(), threading.Event()

    def freeze(name: str) -> None:
        if name == "commit" and threading.current_thread() is frozen:
            reached.set()
            resume.wait(60)

    first, second = make(on_command=freeze), make()
    set_limit(second, task="work", concurrency=1)
    add(second, "a", tenant="a")
    add(second, "b", tenant="b")
    add(second, "free", task="other")
    taken: list[RunRecord] = []
    frozen = threading.Thread(target=lambda: taken.extend(claim(first, "frozen")))
    frozen.start()
    assert reached.wait(60)
    others = ids(claim(second, "c0", turn="a", limit=1, tasks=frozenset({"work"})))
    assert others == []  # the slot is not known to be free
    monkeypatch.setattr(abandoned, "IDLE", 0.1)
    tries = 0
    while not others:
        tries += 1
        others = ids(claim(second, f"c{tries}", turn="a", limit=1, tasks=frozenset({"work"})))
    assert others == ["b"]
    resume.set()
    frozen.join(60)
    assert ids(taken) == ["free"]  # its transaction had ended: it claimed again
    assert running(second) == 2


def test_a_claimer_that_freezes_does_not_keep_unlimited_runs_from_others(
    make: Callable[..., MongoStore],
) -> None:
    store, other = make(), make()
    set_limit(store, task="work", concurrency=5)
    add(store, "limited")
    add(store, "free", task="other")
    with other._connections.session().transaction() as held:
        held.update("hold", schema.META, {"_id": "limits"}, {"$inc": {"claims": 1}})
        # The lock exists as soon as one claim of limited runs was made.
        if not plain(store)[schema.META].find_one({"_id": "limits"}):
            held.insert("hold", schema.META, [{"_id": "limits"}])
        claimed = store.claim_runs(Claim(worker="w", token="c", limit=5, now=store.now(), lease=MINUTE))
        assert [run.id for run in claimed.runs] == ["free"]
        assert claimed.next_due is not None
        assert claimed.next_due <= store.now()  # try again soon
    assert ids(claim(store, "c2")) == ["limited"]


KILLED = """
import os, sys
from evenbeat.stores.base import Claim
from evenbeat.stores.mongo import MongoStore

def die(name):
    if name == "commit":
        os.kill(os.getpid(), 9)

store = MongoStore(sys.argv[1], clock=lambda: int(sys.argv[2]), on_command=die)
store.open()
store.claim_runs(Claim(worker="dead", token="dead", limit=1, now=store.now(), lease=60000))
"""


def test_a_slot_of_a_claimer_that_was_killed_before_its_commit_is_not_lost(
    store: MongoStore, clock: VirtualClock, place: str
) -> None:
    set_limit(store, task="work", concurrency=1, rate=Rate(1, 60 * MINUTE))
    add(store, "a", "b")
    done = subprocess.run([sys.executable, "-c", KILLED, place, str(clock.now)], check=False)
    assert done.returncode == -9
    taken: list[str] = []
    tries = 0
    while not taken:
        tries += 1
        taken = ids(claim(store, f"c{tries}"))
        assert running(store) <= 1
    assert taken == ["a"]
    assert claim(store, "full") == []


def test_a_limited_claim_that_dies_at_any_command_is_finished_by_its_repetition(
    make: Callable[..., MongoStore],
) -> None:
    first = make()
    set_limit(first, task="work", key="customer", concurrency=2)
    set_limit(first, task="work", rate=Rate(3, 60 * MINUTE), burst=3)
    payloads = ['{"customer":1}', '{"customer":2}']
    for at in range(8):
        add(first, f"r{at}", payload=payloads[at % 2], tenant="ab"[at // 4])
    add(first, "free", task="other")
    before = dump(first)
    watch = CommandLog(on=False)
    whole = make(on_command=watch)
    watch.on = True
    taken = ids(claim(whole, "same"))
    assert len(taken) == 4
    assert {"lock limits", "claim limited runs", "put buckets", "commit"} <= set(watch.seen)
    after = dump(first)
    for position in range(len(watch.seen)):
        restore(first, before)
        crashing = CommandLog(position, on=False)
        store = make(on_command=crashing)
        crashing.on = True
        with pytest.raises(Crash):
            claim(store, "same")
        assert running(first) in (0, len(taken))
        assert sorted(ids(claim(store, "same"))) == sorted(taken)
        assert dump(first) == after
        assert claim(store, "another") == []


# Runs and documents in odd states.


def test_ending_a_limited_run_that_another_store_has_claimed_frees_its_slot(
    make: Callable[..., MongoStore],
) -> None:
    claimer, other = make(), make()
    set_limit(claimer, task="work", concurrency=1)
    add(claimer, "a")
    add(claimer, "free", task="other")
    hints: list[str] = []
    for store in (claimer, other):
        store.hint = lambda: hints.append("hint")  # type: ignore[method-assign]
    limited, free = sorted(claim(claimer), key=lambda run: run.id)
    assert other.settle_runs([attempts.heartbeat(limited, MINUTE, "beat")]) == [True]
    assert other.settle_runs([attempts.succeeded(free, None, other.now(), "end-free")]) == [True]
    assert hints == []
    assert other.settle_runs([attempts.succeeded(limited, None, other.now(), "end")]) == [True]
    assert hints == ["hint"]


def test_a_run_of_a_batch_that_ends_wakes_workers_only_if_it_was_limited(store: MongoStore) -> None:
    set_limit(store, task="work", concurrency=1)
    add(store, "a", "b", execution=Execution(retries=1, backoff=MINUTE))
    add(store, "c", "d", task="other")
    hints: list[str] = []
    store.hint = lambda: hints.append("hint")  # type: ignore[method-assign]
    held = {run.id: run for run in claim(store)}
    assert set(held) == {"a", "c", "d"}
    ends = [attempts.succeeded(held[name], None, store.now(), f"end-{name}") for name in "cd"]
    assert store.settle_runs(ends) == [True, True]
    assert hints == []
    assert store.settle_runs([attempts.failed(held["a"], "boom", store.now(), "failed")]) == [True]
    assert hints == ["hint"]  # a run that waits for its retry holds no slot


@pytest.mark.parametrize("cohort", ["nonsense", "default x default work", "default 4 default other"])
def test_a_cohort_that_was_edited_by_hand_is_given_anew(store: MongoStore, cohort: str) -> None:
    set_limit(store, task="work", concurrency=1)
    add(store, "a")
    plain(store).runs.update_one({"_id": "a"}, {"$set": {"cohort": f"default {cohort}"}})
    (held,) = claim(store)
    assert held.cohort == "default 4 default work"


def test_a_run_whose_tenant_is_not_a_text_blocks_no_tenant(store: MongoStore) -> None:
    add(store, "damaged", "fine")
    add(store, "other", tenant="acme")
    plain(store).runs.update_one({"_id": "damaged"}, {"$set": {"tenant": 5}})
    assert sorted(ids(claim(store))) == ["fine", "other"]
    assert plain(store).runs.find_one({"_id": "damaged"})["state"] == "failed"


def test_a_limit_without_a_key_does_not_read_payloads_of_running_runs(
    make: Callable[..., MongoStore],
) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    add(store, "a", "b", payload='{"customer":1}')
    assert ids(claim(store, "before", limit=1)) == ["a"]
    set_limit(store, task="work", concurrency=1)
    watch.on = True
    assert claim(store, "after") == []
    assert "find running" not in watch.seen
    set_limit(store, task="work", key="customer", concurrency=1)
    assert claim(store, "by-key") == []
    assert "find running" in watch.seen


def test_outdated_cohorts_are_replaced_step_by_step(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_claims, "GIVEN_AT_ONCE", 3)
    set_limit(store, task="work", concurrency=1)
    add(store, *(f"r{at}" for at in range(8)))
    wanted: Any = {"worker": "w", "limit": 10, "now": store.now(), "lease": MINUTE}
    first = store.claim_runs(Claim(token="c1", **wanted))
    assert [run.id for run in first.runs] == ["r0"]
    assert first.next_due is not None
    assert first.next_due <= store.now()  # five runs have no cohort yet
    assert store.claim_runs(Claim(token="c2", **wanted)).next_due is not None
    assert store.claim_runs(Claim(token="c3", **wanted)) == ((), None)
    assert store.delete_record("limit", "default", "task=work", 1)
    taken = [ids(claim(store, f"d{at}")) for at in range(4)]
    assert taken == [["r1", "r2", "r3"], ["r4", "r5", "r6"], ["r7"], []]


# Plans.


def flooded(store: MongoStore) -> Claim:
    """Add 3,000 runs of one tenant, and some of others; return a claim."""
    now = store.now()
    runs = [RunRecord(id=f"f{at}", task="work", tenant="flood", run_at=now - 1) for at in range(3000)]
    runs += [RunRecord(id=f"q{at}", task="work", tenant=f"quiet{at}", run_at=now) for at in range(3)]
    store.add_runs(runs)
    tasks = frozenset({"work", "other"})
    return Claim(worker="w", token="t", limit=5, now=now, lease=MINUTE, tasks=tasks)


def examined(store: MongoStore, collection: str, pipeline: list[Document]) -> tuple[list[str], int]:
    """Return the stages of a pipeline's plan, and how many entries of an index it reads."""
    command = {"aggregate": collection, "pipeline": pipeline, "cursor": {}}
    answer = plain(store).command({"explain": command, "verbosity": "executionStats"})
    return stages(answer), max(keys_examined(answer))


def test_the_runs_of_a_flood_are_not_read_to_find_other_tenants(store: MongoStore) -> None:
    wanted = flooded(store)
    found, keys = examined(store, schema.RUNS, claims.first_of_tenants("default", 5))
    assert f"DISTINCT_SCAN {schema.CLAIMABLE.name}" in found
    assert keys < 20
    read = sent_pipelines(store, lambda: claim_with(store, wanted))
    assert len(read) >= 4
    for collection, pipeline in read:
        assert examined(store, collection, pipeline)[1] < 100


def test_the_runs_behind_the_first_of_a_cohort_are_not_read(store: MongoStore) -> None:
    set_limit(store, task="work", concurrency=2)
    wanted = flooded(store)
    while plain(store).runs.count_documents({"state": "queued", "cohort": ""}):
        claim(store, limit=0)
    (pipeline,) = limited_claims.first_of_cohorts(["default"])
    found, keys = examined(store, schema.RUNS, pipeline)
    assert f"DISTINCT_SCAN {schema.COHORTS.name}" in found
    assert keys < 20
    add(store, "free", task="other", tenant="zen")
    taken: list[RunRecord] = []
    read = sent_pipelines(store, lambda: taken.extend(claim_with(store, wanted)))
    assert sorted(run.task for run in taken) == ["other", "work", "work"]
    for collection, pipeline in read:
        assert examined(store, collection, pipeline)[1] < 100


def test_unlimited_runs_are_found_behind_limited_ones_that_have_no_cohort_yet(store: MongoStore) -> None:
    set_limit(store, task="work", concurrency=2)
    wanted = flooded(store)
    add(store, "free", task="other", tenant="flood")
    seen = limited_claims.survey(store._connections.session(), wanted)
    search = turns.Search(store.now(), "", turns.unlimited(wanted, seen.limits))
    found: list[Document] = []

    def find() -> None:
        found.extend(turns.find_in_turn(store._connections.session(), seen.waiting, search, 5))

    for collection, pipeline in sent_pipelines(store, find):
        assert examined(store, collection, pipeline)[1] < 100
    assert [run["_id"] for run in found] == ["free"]


def claim_with(store: MongoStore, wanted: Claim) -> list[RunRecord]:
    return list(store.claim_runs(wanted).runs)


def sent_pipelines(store: MongoStore, call: Callable[[], object]) -> list[tuple[str, list[Document]]]:
    """Return the pipelines that a call sends outside of transactions."""
    session = store._connections.session()
    sent: list[tuple[str, list[Document]]] = []

    def aggregate(name: str, collection: str, pipeline: list[Document], **options: Any) -> list[Document]:
        sent.append((collection, pipeline))
        # A plan does not show what is inside $lookup.
        lookups = [stage["$lookup"] for stage in pipeline if "$lookup" in stage]
        sent.extend((lookup["from"], lookup["pipeline"]) for lookup in lookups)
        return type(session).aggregate(session, name, collection, pipeline, **options)

    vars(session)["aggregate"] = aggregate
    try:
        call()
    finally:
        del vars(session)["aggregate"]
    return sent


# The upgrade.


def as_version_1(store: MongoStore) -> None:
    """Give a database the indexes and documents of version 1."""
    database = plain(store)
    for index in (schema.CLAIMABLE, schema.CLAIMABLE_BY_TASK, schema.COHORTS):
        database.runs.drop_index(index.name)
    only = {"state": "queued"}
    database.runs.create_index([("queue", 1), ("run_at", 1)], name="claimable", partialFilterExpression=only)
    database.runs.create_index([("task", 1)], name="claimable_by_task", partialFilterExpression=only)
    database.runs.update_many({}, {"$unset": {"cohort": ""}})
    database.meta.update_one({"_id": "schema"}, {"$set": {"version": 1}})


@LONG
def test_a_database_of_version_1_is_upgraded_whatever_command_it_dies_at(
    mongo: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_DOCUMENTS_AT_ONCE", 2)
    store = MongoStore(mongo, clock)
    store.open()
    add(store, "a", "b", "c", "d", "e")
    add(store, "later", run_at=store.now() + MINUTE)
    (ended,) = claim(store, "c0", limit=1)
    store.settle_runs([attempts.succeeded(ended, None, store.now(), "end")])
    (held,) = claim(store, "c1", limit=1)
    as_version_1(store)
    script = store.schema().script
    assert 'db.runs.dropIndex("claimable")' in script
    assert "db.runs.updateMany(" in script
    watch = CommandLog()
    upgrading = MongoStore(mongo, clock, on_command=watch)
    upgrading.open()
    upgrading.close()
    assert {"fill cohorts", "drop index", "create indexes"} <= set(watch.seen)
    for position in range(len(watch.seen)):
        as_version_1(store)
        with pytest.raises(Crash):
            MongoStore(mongo, clock, on_command=CommandLog(position)).open()
        again = MongoStore(mongo, clock)
        again.open()
        assert again.schema().found == schema.KNOWN
        assert not {"claimable", "claimable_by_task"} & set(plain(again).runs.index_information())
        assert again.count_runs() == {"queued": 4, "running": 1, "succeeded": 1}
        again.close()
    fresh = MongoStore(mongo, clock)
    fresh.open()
    assert plain(fresh).runs.count_documents({"cohort": {"$exists": False}}) == 1  # the ended one
    assert fresh.find_runs(RunQuery(ids=(ended.id,))).items[0].cohort is None
    assert ids(claim(fresh, "c2")) == ["c", "d", "e"]
    failed = attempts.failed(held, "boom", fresh.now(), "failed")
    assert fresh.settle_runs([failed]) == [True]
    fresh.close()
    store.close()

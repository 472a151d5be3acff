"""Limits and turns of tenants in Redis: what happens between the scripts of a claim, and what a claim
costs. tests/contract has the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenbeat.core.rates import Rate
from evenbeat.core.records import Execution, RunRecord
from evenbeat.rules import attempts
from evenbeat.rules.limits import BUCKET, LIMIT, OWNER, Limit, limit_record
from evenbeat.stores import batching
from evenbeat.stores.base import Claim, Claimed, RunQuery
from evenbeat.stores.redis import RedisStore, limited
from evenbeat.stores.redis.location import read_location
from tests.contract.redis_indexes import differences
from tests.store_calls import CommandLog, Crash, claim
from tests.stores import on_redis
from tests.stores.on_redis import Make

MINUTE = 60_000
clock, make, store, client = on_redis.clock, on_redis.make, on_redis.store, on_redis.client


@pytest.fixture(autouse=True)
def _same_indexes(valkey: str) -> Iterator[None]:
    """Compares all indexes with the rows after each test, once its stores are closed."""
    yield
    assert differences(valkey) == {}


def set_limit(store: RedisStore, **fields: Any) -> None:
    limit = Limit(**fields)
    present = store.get_record(LIMIT, OWNER, limit.name)
    version = 0 if present is None else present.version
    assert store.put_record(limit_record(limit, version + 1), version or None)


def add(store: RedisStore, count: int, prefix: str = "r", **fields: Any) -> None:
    wanted = {"task": "work", "run_at": store.now() - 1000, **fields}
    store.add_runs([RunRecord(id=f"{prefix}{at:04}", **wanted) for at in range(count)])


def ids(store: RedisStore, token: str, **fields: Any) -> list[str]:
    return [run.id for run in claim(store, token, **fields)]


def claimed(store: RedisStore, token: str, limit: int = 10) -> Claimed:
    return store.claim_runs(Claim(worker="w", token=token, limit=limit, now=store.now(), lease=30_000))


def running(store: RedisStore) -> list[str]:
    return sorted(run.id for run in store.find_runs(RunQuery(states=("running",))).items)


class Interleaved:
    """Calls a function before a command, once."""

    def __init__(self, command: str, act: Callable[[], object]) -> None:
        self.command = command
        self.act: Callable[[], object] | None = act
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self.command and self.act is not None:
            act, self.act = self.act, None
            act()


def test_a_store_without_limits_claims_with_one_command(make: Make) -> None:
    log = CommandLog(on=False)
    store = make(on_command=log)
    add(store, 3)
    add(store, 3, "x", tenant="acme")
    log.on = True
    assert len(claim(store)) == 6
    assert log.seen == ["claim", "committed"]


def test_a_claim_of_limited_runs_costs_three_commands_once_they_have_cohorts(make: Make) -> None:
    log = CommandLog(on=False)
    store = make(on_command=log)
    set_limit(store, task="work", concurrency=2)
    add(store, 9)
    (first, _) = claim(store, "c1")
    store.settle_runs([attempts.succeeded(first, None, store.now(), "end")])
    log.on = True
    assert ids(store, "c2") == ["r0002"]
    assert log.seen == ["limited runs", "first runs", "claim chosen", "committed", "committed"]
    # A limit that admits nothing costs one.
    log.seen.clear()
    assert ids(store, "c3") == []
    assert log.seen == ["limited runs"]


def test_a_worker_that_stops_in_a_claim_holds_up_no_other_and_exceeds_no_limit(make: Make) -> None:
    other = make()
    set_limit(other, task="work", concurrency=2, rate=Rate(3, MINUTE), burst=3)
    add(other, 9)

    def overtake() -> None:
        add(other, 2, "urgent", priority=9)
        assert ids(other, "other", worker="w2") == ["urgent0000", "urgent0001"]

    # While the first worker stands before its last command, another one claims other runs of the limit.
    frozen = Interleaved("claim chosen", overtake)
    assert ids(make(on_command=frozen), "frozen") == []
    assert frozen.act is None
    assert running(other) == ["urgent0000", "urgent0001"]
    assert frozen.seen.count("claim chosen") == 1


def test_a_limit_that_is_set_during_a_claim_holds_for_it(make: Make) -> None:
    other = make()
    set_limit(other, task="other", concurrency=1)
    add(other, 5)
    late = Interleaved("claim chosen", lambda: set_limit(other, task="work", concurrency=1))
    assert ids(make(on_command=late), "c1") == ["r0000"]
    assert {run.cohort for run in other.find_runs(RunQuery()).items} == {"default 4 default work"}


def test_a_run_that_is_cancelled_during_a_claim_costs_no_token(make: Make) -> None:
    other = make()
    set_limit(other, task="work", rate=Rate(1, MINUTE), burst=2)
    add(other, 3)

    def cancel() -> None:
        (run,) = other.find_runs(RunQuery(ids=("r0000",))).items
        transition = attempts.cancel(run, other.now(), "cancel")
        assert transition is not None
        assert other.settle_runs([transition]) == [True]

    assert ids(make(on_command=Interleaved("claim chosen", cancel)), "c1") == ["r0001", "r0002"]


def test_a_run_that_is_queued_for_later_during_a_claim_is_not_taken_early(make: Make) -> None:
    other = make()
    set_limit(other, task="limited", concurrency=1)
    add(other, 1, execution=Execution(retries=3, backoff=MINUTE))

    def retry() -> None:
        (run,) = claim(other, "other", worker="w2")
        assert other.settle_runs([attempts.failed(run, "boom", other.now(), "failed")]) == [True]

    late = Interleaved("claim chosen", retry)
    found = claimed(make(on_command=late), "c1")
    assert late.act is None
    assert found.runs == ()
    assert found.next_due is not None
    assert found.next_due > other.now()


def test_a_claim_that_others_overtake_always_takes_runs_without_limits(make: Make) -> None:
    other = make()
    set_limit(other, task="work", concurrency=50)
    add(other, 100)
    add(other, 2, "free", task="free", queue="free")

    def overtake(name: str) -> None:
        if name == "claim chosen":
            tokens.append(f"other-{len(tokens)}")
            ids(other, tokens[-1], worker="w2", limit=1)

    tokens: list[str] = []
    store = make(on_command=overtake)
    wanted = Claim(worker="w", token="t", limit=10, now=store.now(), lease=30_000, queues=("default", "free"))
    found = store.claim_runs(wanted)
    assert [run.id for run in found.runs] == ["free0000", "free0001"]
    assert len(tokens) == limited._TRIES
    # Limited runs could start: the worker comes back soon, but not at once.
    assert found.next_due is not None
    assert store.now() < found.next_due < store.now() + 1000


def test_a_crash_at_any_command_of_a_limited_claim_exceeds_no_limit(
    make: Make, valkey: str, client: Any
) -> None:
    position, is_over = 0, False
    while not is_over:
        for name in client.scan_iter(f"{read_location(valkey).base}*"):
            client.delete(name)
        store = make()
        add(store, 2, "old")
        assert len(claim(store, "old")) == 2
        set_limit(store, task="work", concurrency=4, rate=Rate(1, MINUTE), burst=3)
        add(store, 9)
        crashing = CommandLog(position, on=False)
        dying = make(on_command=crashing)
        crashing.on = True
        try:
            ids(dying, "dying", worker="w1")
            is_over = True
        except Crash:
            pass
        taken = ids(store, "heir", worker="w2")
        assert running(store) == ["old0000", "old0001", "r0000", "r0001"]
        assert taken in ([], ["r0000", "r0001"])
        assert differences(valkey) == {}
        # A repetition of the claim returns its runs, if it was made.
        again = ids(store, "dying", worker="w1")
        assert sorted(again + taken) == ["r0000", "r0001"]
        (bucket,) = store.find_records(BUCKET)
        assert bucket.body.startswith("[60000,")
        position += 1
    assert position > 8


def test_running_runs_get_their_cohorts_in_parts(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "_GIVEN", 4)
    monkeypatch.setattr(limited, "_ROUNDS", 4)
    store = make()
    for at in range(15):
        add(store, 1, f"p{at}-", payload=f'{{"customer":{at % 3}}}')
    assert len(claim(store, limit=15)) == 15
    set_limit(store, task="work", key="customer", concurrency=6)
    for at in range(3):
        add(store, 4, f"q{at}-", payload=f'{{"customer":{at}}}')
    assert ids(store, "c2") == ["q0-0000", "q1-0000", "q2-0000"]


def test_runs_that_never_got_a_cohort_are_counted_when_they_run(make: Make) -> None:
    store = make()
    set_limit(store, task="work", concurrency=2)
    add(store, 3)
    (first, _) = claim(store, "c1")
    store.settle_runs([attempts.succeeded(first, None, store.now(), "end")])
    # Not claimed but written as running.
    add(store, 1, "x", state="running", worker="w9", lease_until=store.now() + MINUTE, attempt=1)
    assert ids(store, "c2") == []


def test_many_limited_runs_get_cohorts_bit_by_bit_and_others_are_claimed_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "_GIVEN", 10)
    monkeypatch.setattr(limited, "_ROUNDS", 2)
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 50)
    add(store, 1, "free", task="free", run_at=store.now())
    first = claimed(store, "c1")
    assert [run.id for run in first.runs] == ["r0000", "free0000"]
    assert first.next_due is not None
    assert first.next_due <= store.now()  # some have no cohort yet
    for at in range(2):
        assert claimed(store, f"d{at}").runs == ()
    assert claimed(store, "last").next_due is None
    assert Counter(run.cohort for run in store.find_runs(RunQuery()).items)[None] == 1


def test_a_claim_reads_some_of_very_many_cohorts_and_the_next_one_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "_COHORTS", 5)
    store = make()
    set_limit(store, task="work", key="customer", concurrency=1)
    now = store.now()
    for at in range(60):
        add(store, 2, f"c{at:02}-", payload=f'{{"customer":{at}}}', run_at=now - 100 + at)
    taken: list[str] = []
    for turn in range(6):
        found = claimed(store, f"t{turn}")
        assert found.next_due is not None
        assert found.next_due <= now
        taken += [run.id for run in found.runs]
    assert taken == [f"c{at:02}-0000" for at in range(60)]
    last = claimed(store, "last")
    assert (last.runs, last.next_due) == ((), None)


def test_limited_runs_that_are_too_large_for_one_reply_are_claimed_in_parts(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "BYTES", 2500)
    assert batching.BYTES > 2500
    store = make()
    set_limit(store, task="work", rate=Rate(1, MINUTE), burst=7)
    add(store, 9, payload='"' + "x" * 1000 + '"')
    assert len(ids(store, "c1")) == 7
    assert len(ids(store, "c1")) == 7  # a repetition
    assert running(store) == [f"r{at:04}" for at in range(7)]


@pytest.mark.parametrize("damage", ["gone", "another type", "entry without a run"])
def test_a_damaged_index_of_a_cohort_keeps_no_worker_busy(make: Make, client: Any, damage: str) -> None:
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 2)
    (held,) = claim(store, "c1")
    index = f"{store.location.base}cohort:default 4 default work"
    if damage == "entry without a run":
        client.delete(f"{store.location.base}runs:r0001")
        client.zrem(f"{store.location.base}newest", "r0001")
        client.zrem(f"{store.location.base}newest:tenant:default", "r0001")
        client.hincrby(f"{store.location.base}counts", "default queued", -1)
    else:
        client.delete(index)
        if damage == "another type":
            client.set(index, "in the way")
    store.settle_runs([attempts.succeeded(held, None, store.now(), "end")])
    for turn in range(3):
        last = claimed(store, f"t{turn}")
    assert (last.runs, last.next_due) == ((), None)
    assert client.exists(f"{store.location.base}limited") == 0
    if damage != "entry without a run":
        # What was lost is lost; new runs are claimed as soon as they can be written.
        client.delete(index, f"{store.location.base}runs:r0001")
        for name in ("newest", "newest:tenant:default"):
            client.zrem(f"{store.location.base}{name}", "r0001")
        client.hincrby(f"{store.location.base}counts", "default queued", -1)
    add(store, 1, "new")
    assert ids(store, "new") == ["new0000"]


def test_the_slot_of_an_unreadable_run_is_free_at_once(make: Make, client: Any) -> None:
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 2)
    client.hset(f"{store.location.base}runs:r0000", "definition", "{")
    assert ids(store, "c1") == []
    assert ids(store, "c2") == ["r0001"]
    client.hset(
        f"{store.location.base}runs:r0000",
        "definition",
        client.hget(f"{store.location.base}runs:r0001", "definition"),
    )


def test_a_queued_cohort_that_was_written_by_hand_is_mended(make: Make, client: Any) -> None:
    store = make()
    set_limit(store, task="work", concurrency=1)
    add(store, 1, "odd", cohort="default nonsense")
    add(store, 1, "stale", cohort="default 4 default work key=1", task="other")
    assert ids(store, "c1") == ["odd0000", "stale0000"]
    assert client.exists(f"{store.location.base}limited") == 0
    (odd, stale) = (store.find_runs(RunQuery(ids=(name,))).items[0] for name in ("odd0000", "stale0000"))
    assert (odd.cohort, stale.cohort) == ("default 4 default work", None)


def test_tenants_of_a_priority_share_a_claim_whatever_their_tasks_are(store: RedisStore) -> None:
    now = store.now()
    for tenant, number in (("a", 1), ("b", 3), ("c", 30)):
        for task in ("one", "two"):
            add(store, number, f"{tenant}-{task}", tenant=tenant, task=task, run_at=now)
    found = Counter(name[0] for name in ids(store, "c1", limit=18))
    assert found == {"a": 2, "b": 6, "c": 10}

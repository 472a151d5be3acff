"""Keys of a wrong type: no script stops between two writes, and no row affects another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from evenbeat.core.rates import Rate
from evenbeat.core.records import LogChunk, Record, RunRecord, ScheduleRecord, Transition
from evenbeat.documents import RedisDocuments
from evenbeat.errors import EvenbeatError, RowRefused, StoreUnavailable
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis.location import read_location
from evenbeat.testing import VirtualClock
from tests.contract.redis_indexes import differences

MINUTE = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(valkey: str, clock: VirtualClock) -> Iterator[RedisStore]:
    made = RedisStore(valkey, clock)
    made.open()
    yield made
    made.close()


@pytest.fixture
def client(valkey: str) -> Iterator[Any]:
    with redis.Redis.from_url(read_location(valkey).url) as made:
        yield made


def add(store: RedisStore, *names: str, **fields: Any) -> None:
    wanted = [ScheduleRecord(name=name, task="work", **{"trigger": "every 1m", **fields}) for name in names]
    answers = store.put_schedules([Write(changes.create(entry, store.now()), None) for entry in wanted])
    assert all(answer.accepted for answer in answers)


def claim(store: RedisStore, token: str = "c", **fields: Any) -> list[RunRecord]:
    wanted = Claim(token=token, limit=100, now=store.now(), lease=30_000, worker="w", **fields)
    return list(store.claim_runs(wanted).runs)


def overwrite(client: Any, store: RedisStore, rest: str) -> bytes:
    """Set a key to a text, which is the wrong type."""
    name = (store.location.base + rest).encode()
    client.set(name, "in the way")
    return name


def content(client: Any, store: RedisStore) -> dict[bytes, Any]:
    """Return the content of all keys, without reservations of nodes."""
    names: list[bytes] = sorted(client.scan_iter(f"{store.location.base}*", count=1000))
    read = {
        b"hash": lambda pipe, name: pipe.hgetall(name),
        b"set": lambda pipe, name: pipe.smembers(name),
        b"zset": lambda pipe, name: pipe.zrange(name, 0, -1, withscores=True),
        b"string": lambda pipe, name: pipe.get(name),
    }
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
    for name, kind in zip(names, pipe.execute(), strict=True):
        read[kind](pipe, name)
    found = dict(zip(names, pipe.execute(), strict=True))
    found.pop(f"{store.location.base}firing".encode(), None)
    return found


def restore(client: Any, store: RedisStore, wanted: dict[bytes, Any], only: bytes | None = None) -> None:
    pipe = client.pipeline(transaction=False)
    for name in [only] if only else client.scan_iter(f"{store.location.base}*", count=1000):
        pipe.delete(name)
    for name, value in wanted.items():
        if only and name != only:
            continue
        if isinstance(value, dict):
            pipe.hset(name, mapping=value)
        elif isinstance(value, set):
            pipe.sadd(name, *value)
        else:
            pipe.zadd(name, dict(value))
    pipe.execute()


# Rows.


@pytest.mark.parametrize(
    "where",
    [
        "active:b",
        "newest:schedule:b",
        "newest:tenant:acme",
        "ready:slow:5:default:work",
        "waiting:slow",
        "run",
    ],
)
def test_a_schedule_whose_run_cannot_be_written_is_deferred_alone(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str, where: str
) -> None:
    tenant = "acme" if "acme" in where else "default"
    add(store, "a", "c")
    add(store, "b", queue="slow", tenant=tenant)
    clock.advance("1m")
    name = overwrite(client, store, f"runs:default/b/1/{clock.now}" if where == "run" else where)
    fired = store.fire_due(clock.now, 10, plan)
    planned_by_name = {
        planned.schedule.name: (len(planned.runs), planned.deferred) for planned in fired.planned
    }
    assert (planned_by_name["a"], planned_by_name["c"], planned_by_name["b"][0]) == ((1, ""), (1, ""), 0)
    assert "is a string" in planned_by_name["b"][1]
    assert fired.quarantined == ()
    assert fired.next_wake == clock.now + 1_000
    client.delete(name)
    assert differences(valkey) == {}
    clock.advance("1m")
    (late,) = [
        planned for planned in store.fire_due(clock.now, 10, plan).planned if planned.schedule.name == "b"
    ]
    assert [(run.tick, run.coalesced) for run in late.runs] == [(clock.now, 1)]
    assert differences(valkey) == {}


def test_a_schedule_whose_ledger_cannot_be_written_is_deferred_alone(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add(store, "a", "b")
    clock.advance("3m")
    overwrite(client, store, "skipped:b")
    fired = store.fire_due(clock.now, 10, plan)
    assert {row.schedule.name: bool(row.deferred) for row in fired.planned} == {"a": False, "b": True}
    assert len(store.find_skipped("default", "a")) == 1


def test_a_schedule_that_is_something_else_is_noted_and_found_as_damaged(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add(store, "a", "b", "c")
    overwrite(client, store, "schedules:b")
    found = store.find_schedules(ScheduleQuery()).items
    assert [(row.name, bool(row.damage)) for row in found] == [("a", False), ("b", True), ("c", False)]
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, plan)
    assert [planned.schedule.name for planned in fired.planned] == ["a", "c"]
    assert fired.quarantined == (("default", "b"),)
    (note,) = store.find_records("quarantine")
    assert "no hash" in note.body
    assert store.fire_due(clock.now, 10, plan).next_wake == clock.now + MINUTE
    assert client.get(f"{store.location.base}schedules:b") == b"in the way"


def test_a_schedule_that_cannot_be_written_does_not_affect_others(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    overwrite(client, store, "schedules:b")
    wanted = [ScheduleRecord(name=name, task="work", trigger="every 1m") for name in "abc"]
    answers = store.put_schedules([Write(changes.create(entry, clock.now), None) for entry in wanted])
    assert [(answer.accepted, answer.current is None) for answer in answers] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    clock.advance("1m")
    assert len(store.fire_due(clock.now, 10, plan).planned) == 2


def test_a_run_that_is_something_else_does_not_block_its_queue(
    store: RedisStore, client: Any, valkey: str
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    overwrite(client, store, "runs:b")
    assert [held.id for held in claim(store)] == ["a", "c"]
    (note,) = store.find_records("quarantine")
    assert (note.key, "is a string" in note.body) == ("b", True)
    assert [held.id for held in claim(store)] == ["a", "c"]  # a repetition
    assert not client.exists(f"{store.location.base}ready:default:5:default:work")
    assert [found.id for found in store.find_runs(RunQuery()).items] == ["a", "c"]
    assert [found.id for found in store.find_runs(RunQuery(ids=("a", "b"))).items] == ["a"]


def test_a_run_that_is_something_else_is_not_settled_and_its_neighbours_are(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    held = claim(store)
    overwrite(client, store, "runs:b")
    ends = [attempts.succeeded(run, None, clock.now, run.id) for run in held]
    assert store.settle_runs(ends) == [True, False, True]
    assert store.count_runs()["succeeded"] == 2


def test_a_run_that_cannot_return_to_its_queue_is_not_changed_and_is_noted(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str
) -> None:
    store.add_runs([RunRecord(id="a", task="work", queue="slow"), RunRecord(id="b", task="work")])
    held = {run.id: run for run in claim(store, queues=("slow", "default"))}
    name = overwrite(client, store, "ready:slow:5:default:work")
    releases = [attempts.released(held[name], clock.now, f"t-{name}") for name in "ab"]
    assert store.settle_runs(releases) == [False, True]
    assert store.count_runs() == {"running": 1, "queued": 1}
    (note,) = store.find_records("quarantine")
    assert note.key == "a"
    client.delete(name)
    assert differences(valkey) == {}
    assert store.settle_runs(releases) == [True, True]
    assert differences(valkey) == {}


def test_a_run_whose_next_runs_cannot_be_added_is_not_settled(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    held = claim(store)
    name = overwrite(client, store, "ready:slow:5:default:work")
    following = RunRecord(id="next", task="work", queue="slow")
    ends = [
        attempts.succeeded(held[0], None, clock.now, "t-a", adds=(following,)),
        attempts.succeeded(held[1], None, clock.now, "t-b"),
    ]
    assert store.settle_runs(ends) == [False, True]
    client.delete(name)
    assert differences(valkey) == {}
    assert store.settle_runs(ends) == [True, True]
    assert differences(valkey) == {}


@pytest.mark.parametrize("where", ["records:audit:1", "kinds:audit"])
def test_a_run_whose_records_cannot_be_added_is_not_settled(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str, where: str
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    held = claim(store)
    name = overwrite(client, store, where)
    note = Record(kind="audit", key="1", body="ended")
    ends = [attempts.succeeded(run, None, clock.now, run.id) for run in held]
    ends[0] = replace(ends[0], records=(note,))
    assert store.settle_runs(ends) == [False, True]
    (found,) = store.find_records("quarantine")
    assert (found.key, "is a string" in found.body) == ("a", True)
    client.delete(name)
    assert differences(valkey) == {}
    assert store.settle_runs(ends) == [True, True]
    assert store.find_records("audit") == [note]
    assert differences(valkey) == {}


@pytest.mark.parametrize(
    ("where", "noted"),
    [
        ("over:default:succeeded", "b"),
        ("ready:default:5:default:work", "c"),
        ("records:audit:1", "c"),
        ("waiting:slow", "a"),
        ("runs:next", "a"),
    ],
)
def test_no_part_of_a_joint_transition_is_applied_if_another_one_cannot_be_written(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str, where: str, noted: str
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    flow, first, second = claim(store)
    note = Record(kind="audit", key="1", body="ended")
    ends = (
        attempts.succeeded(first, None, clock.now, "t-b"),
        replace(attempts.released(second, clock.now, "t-c"), records=(note,)),
    )
    change = Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=("running",),
        token="t-a",
        lease=MINUTE,
        flow="{}",
        renews=True,
        ends=ends,
        adds=(RunRecord(id="next", task="work", queue="slow"),),
    )
    name = overwrite(client, store, where)
    before = content(client, store)
    assert store.settle_runs([change]) == [False]
    (found,) = store.find_records("quarantine")
    assert (found.key, "is a string" in found.body) == (noted, True)
    store.delete_record("quarantine", "default", noted, found.version)
    assert content(client, store) == before
    client.delete(name)
    assert differences(valkey) == {}
    assert store.settle_runs([change]) == [True]
    assert store.find_records("audit") == [note]
    assert store.count_runs() == {"running": 1, "succeeded": 1, "queued": 2}
    assert differences(valkey) == {}


@pytest.mark.parametrize("where", ["records:signal:b", "kinds:signal"])
def test_a_schedule_whose_records_cannot_be_added_is_deferred_alone(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str, where: str
) -> None:
    def noted(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        notes = (Record(kind="signal", key=row.name, body=""),) if row.name == "b" else ()
        return plan(row, now, active)._replace(records=notes)

    add(store, "a", "b")
    name = overwrite(client, store, where)
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, noted)
    assert {row.schedule.name: bool(row.deferred) for row in fired.planned} == {"a": False, "b": True}
    client.delete(name)
    assert differences(valkey) == {}
    clock.advance("1m")
    store.fire_due(clock.now, 10, noted)
    assert [record.key for record in store.find_records("signal")] == ["b"]
    assert differences(valkey) == {}


@pytest.mark.parametrize("where", ["records:audit:1", "kinds:audit", "expiring"])
def test_schedules_whose_records_cannot_be_added_are_not_written(
    store: RedisStore, clock: VirtualClock, client: Any, where: str
) -> None:
    overwrite(client, store, where)
    before = content(client, store)
    wanted = [ScheduleRecord(name=name, task="work", trigger="every 1m") for name in "ab"]
    plans = [changes.create(entry, clock.now) for entry in wanted]
    plans[1] = plans[1]._replace(records=(Record(kind="audit", key="1", body=""),))
    writes = [Write(planned, None) for planned in plans]
    with pytest.raises((RowRefused, StoreUnavailable), match=f"{where} is a string"):
        store.put_schedules(writes)
    assert content(client, store) == before


@pytest.mark.parametrize("damage", ["something else", "gone"])
def test_a_missing_lost_run_does_not_block_others(
    store: RedisStore, clock: VirtualClock, client: Any, damage: str
) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    claim(store)
    clock.advance("1s")
    store.add_runs([RunRecord(id="b", task="work")])
    claim(store, "d")
    if damage == "gone":
        client.delete(f"{store.location.base}runs:a")
    else:
        overwrite(client, store, "runs:a")
    clock.advance("1m")
    assert store.lost_runs(clock.now, 1).runs == ()
    assert [run.id for run in store.lost_runs(clock.now, 1).runs] == ["b"]
    assert len(store.find_records("quarantine")) == (damage != "gone")


def test_a_users_batch_is_refused_as_a_whole_and_the_key_is_named(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    overwrite(client, store, "ready:slow:5:default:work")
    before = content(client, store)
    with pytest.raises(RowRefused, match="ready:slow:5:default:work is a string, not a zset"):
        store.add_runs([RunRecord(id="a", task="work"), RunRecord(id="b", task="work", queue="slow")])
    assert content(client, store) == before


# Every key in turn.


def prepare(store: RedisStore, clock: VirtualClock, is_limited: bool) -> None:
    """Create rows of every kind."""
    if is_limited:
        # Three of the runs below are claimed: one stays running, and the others wait in their cohorts.
        limit = Limit(task="work", concurrency=3, rate=Rate(10, MINUTE), burst=10)
        assert store.put_record(limit_record(limit))
    add(store, "free", "other")
    add(store, "single", overlap="cancel_running")
    add(store, "late", trigger="every 10s", tenant="acme")
    store.add_runs([RunRecord(id="x", task="work", queue="slow")])
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    held = claim(store, "one")
    store.append_log([LogChunk(run=held[0].id, attempt=1, seq=0, text="x", at=clock.now)])
    ends = [
        attempts.succeeded(held[0], None, clock.now, "s"),
        attempts.failed(held[1], "boom", clock.now, "f"),
    ]
    assert store.settle_runs(ends) == [True, True]
    store.put_record(Record(kind="node", key="n", body="{}", expires=clock.now + 1))
    store.put_record(Record(kind="audit", key="old", body="{}"))
    store.fire_due(clock.now, 10, plan)
    clock.advance("1m")


def actions(store: RedisStore, clock: VirtualClock) -> list[Callable[[], object]]:
    running = store.find_runs(RunQuery(states=("running",))).items
    row = store.find_schedules(ScheduleQuery(tenant="acme", name="late")).items[0]
    changed = changes.change(row, {"trigger": "every 1h"}, clock.now)
    assert changed is not None
    ends = [attempts.succeeded(run, None, clock.now, f"t-{run.id}") for run in running[:1]]
    ends += [attempts.released(run, clock.now, f"t-{run.id}") for run in running[1:]]
    # One record is new, and one replaces an expired one.
    notes = (
        Record(kind="audit", key="new", body="", expires=clock.now + 1),
        Record(kind="node", key="n", body=""),
    )
    ends = [replace(end, records=notes) for end in ends]
    waiting = store.find_runs(RunQuery(states=("queued",))).items
    cancels = tuple(filter(None, (attempts.cancel(run, clock.now, f"t-{run.id}") for run in waiting)))
    release = attempts.released(running[0], clock.now, "joint")
    joint = replace(release, ends=cancels, adds=(RunRecord(id="new", task="work", queue="slow"),))
    return [
        lambda: store.fire_due(clock.now, 10, lambda *given: plan(*given)._replace(records=notes)),
        lambda: store.put_schedules([Write(changed._replace(records=notes), row.version)]),
        lambda: store.add_runs([RunRecord(id="new", task="work", queue="slow")]),
        lambda: claim(store, "again", queues=("default", "slow")),
        lambda: store.settle_runs(ends),
        lambda: store.settle_runs([joint]),
        lambda: store.purge(clock.now, 100),
    ]


def is_of(name: str, index: str, member: object) -> bool:
    """Whether an entry of an index belongs to a row that was overwritten, or counts it."""
    row = name.partition(":")[2]
    sums = index in ("counts", "queues", "limited") or index.startswith(("waiting:", "cohorts:"))
    return sums or str(member).replace(" ", "/", 1) in (row, f"default/{row}")


@pytest.mark.parametrize(
    "is_limited", [pytest.param(False, id="free", marks=pytest.mark.long), pytest.param(True, id="limited")]
)
def test_no_script_stops_midway_whichever_key_is_something_else(
    store: RedisStore, clock: VirtualClock, client: Any, valkey: str, is_limited: bool
) -> None:
    prepare(store, clock, is_limited)
    before = content(client, store)
    base, start = store.location.base.encode(), clock.now
    assert len(before) > 30
    kinds = {name.removeprefix(base).partition(b":")[0] for name in before}
    assert is_limited == {b"cohort", b"cohorts", b"limited", b"limits", b"slots"}.issubset(kinds)
    unharmed = 0
    for name in before.keys() - {base + b"meta"}:
        for at in range(len(actions(store, clock))):
            act = actions(store, clock)[at]
            client.set(name, "in the way")
            broken = {**before, name: b"in the way"}
            try:
                act()
            except EvenbeatError:
                assert content(client, store) == broken, (at, name)
                restore(client, store, before, only=name)
                continue
            unharmed += 1
            client.delete(name)
            text = name.removeprefix(base).decode()
            for index, (found, wanted) in differences(valkey).items():
                assert isinstance(found, dict)
                assert isinstance(wanted, dict)
                odd = {member for member in found | wanted if found.get(member) != wanted.get(member)}
                alien = {member for member in odd if not is_of(text, index, member)}
                assert index == text or not alien, (at, name, index, found, wanted)
            restore(client, store, before)
            clock.now = start
    assert unharmed > 80


# Documents.


def test_documents_are_not_locked_where_their_note_is_something_else(valkey: str) -> None:
    with redis.Redis.from_url(read_location(valkey).url) as client:
        prefix = read_location(valkey).prefix
        documents = RedisDocuments(read_location(valkey).url, f"{prefix}:order:*")
        documents.put(f"{prefix}:order:1", {"sleep_until": "2020-01-01T00:00:00Z"})
        client.delete(f"{documents.index}:scan")
        client.lpush(f"{documents.index}:scan", "in the way")
        with pytest.raises(StoreUnavailable, match="a key has another type"):
            documents.lock_next(1000, 10)
        assert client.hget(f"{prefix}:order:1", "sleep_until") == b"2020-01-01T00:00:00Z"
        client.delete(f"{documents.index}:scan")
        assert len(documents.lock_next(1000, 10).found) == 1
        documents.close()
        client.delete(documents.index, f"{documents.index}:scan")

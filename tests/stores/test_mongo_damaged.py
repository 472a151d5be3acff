"""Documents of the MongoDB store that the driver can't read, or can't write as they are stored: texts that
are not UTF-8, and damaged binary data. They affect no other document, even if they come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.records import LogChunk, Record, RunRecord
from evenbeat.record_errors import QuarantineRefused
from evenbeat.rules.firing import plan
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery
from evenbeat.stores.mongo import MongoStore, damaged_ids, exact_reading, schema
from evenbeat.stores.mongo.rows import record_document, run_document, schedule_document
from evenbeat.stores.pages import every_run, every_schedule
from evenbeat.testing import VirtualClock
from tests.damaged_bson import Damaged, document, not_binary, not_utf_8
from tests.store_calls import add_schedules, claim, schedule_names
from tests.stores import on_mongo
from tests.stores.on_mongo import plain

MINUTE = 60_000
place, clock, make, store = on_mongo.place, on_mongo.clock, on_mongo.make, on_mongo.store

IDS: dict[str, Callable[[int], Any]] = {
    "low": lambda n: not_utf_8(b"default/\x80%02d" % n),  # before the text that the driver reads
    "high": lambda n: not_utf_8(b"default/\xff%02d" % n),  # after it
    "binary": lambda n: not_binary(b"%d" % n),
}
TEXTS: dict[str, Any] = {"text": not_utf_8(b'"M\xfcller"'), "binary": not_binary(b"x")}

each_id = pytest.mark.parametrize("odd", IDS.values(), ids=IDS)
each_limit = pytest.mark.parametrize("limit", [1, 3, 50])


def insert(store: MongoStore, collection: str, fields: dict[str, Any]) -> None:
    plain(store)[collection].insert_one(document(fields))


def damage(store: MongoStore, collection: str, key: str, fields: dict[str, Any]) -> None:
    """Replace fields of a document by damaged ones."""
    before = plain(store)[collection].find_one_and_delete({"_id": key})
    insert(store, collection, {**before, **fields})


def add_damaged_runs(store: MongoStore, odd: Callable[[int], Any], number: int, **fields: Any) -> None:
    for n in range(number):
        run = RunRecord(id="x", task="work", **fields)
        insert(store, schema.RUNS, {**run_document(run), "_id": odd(n)})


def claim_all(store: MongoStore, limit: int) -> list[str]:
    """Claim until nothing is due. A claim that has only found damaged runs must not be the last one."""
    found: list[str] = []
    for token in range(1000):
        claimed = store.claim_runs(
            Claim(worker="w", token=str(token), limit=limit, now=store.now(), lease=30_000)
        )
        found += [run.id for run in claimed.runs]
        if not claimed.runs and (claimed.next_due is None or claimed.next_due > store.now()):
            return found
    raise AssertionError("something stays due")


# Schedules.


@each_id
@each_limit
def test_schedules_with_damaged_ids_sleep_and_the_others_fire(
    store: MongoStore, clock: VirtualClock, odd: Callable[[int], Any], limit: int
) -> None:
    add_schedules(store, "a", "b")
    (schedule,) = store.find_schedules(ScheduleQuery(tenant="default", name="a")).items
    for n in range(20):
        early = replace(schedule, name=f"x{n}", wake_at=clock.now)
        insert(store, schema.SCHEDULES, {**schedule_document(early), "_id": odd(n)})
    clock.advance("1m")
    fired: list[str] = []
    quarantined: list[tuple[str, str]] = []
    for _ in range(50):
        done = store.fire_due(clock.now, limit, plan)
        fired += [planned.schedule.name for planned in done.planned]
        quarantined += done.quarantined
        if done.next_wake is not None and done.next_wake > clock.now:
            break
    assert sorted(fired) == ["a", "b"]
    assert len(set(quarantined)) == len(quarantined) == 20
    assert len(store.find_records("quarantine")) == 20
    clock.advance("1m")
    assert store.fire_due(clock.now, 50, plan).quarantined == ()


@pytest.mark.parametrize("name", ["payload", "trigger", "task", "timezone", "last_fire", "unknown"])
@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
def test_a_damaged_field_of_a_schedule_stops_no_other(
    store: MongoStore, clock: VirtualClock, name: str, value: Damaged
) -> None:
    add_schedules(store, "a", "b", "c")
    damage(store, schema.SCHEDULES, "default/b", {name: value})
    assert schedule_names(store) == ["a", "b", "c"]
    clock.advance("1m")
    done = store.fire_due(clock.now, 10, plan)
    assert {"a", "c"} <= {planned.schedule.name for planned in done.planned}
    assert done.next_wake == clock.now + MINUTE


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("damaged", [b"b\x80", b"b\xff", b"\xff", b"\x80"])
@pytest.mark.parametrize("field", ["name", "tenant"])
def test_pages_of_schedules_pass_over_damaged_names(
    store: MongoStore, field: str, damaged: bytes, size: int
) -> None:
    add_schedules(store, "a", "b", "bb", "c", "d", "e")
    for key in ("default/bb", "default/d"):
        damage(store, schema.SCHEDULES, key, {field: not_utf_8(damaged)})
    names = [one.name for one in every_schedule(store, ScheduleQuery(limit=size))]
    assert [name for name in names if name not in ("bb", "d")] == ["a", "b", "c", "e"]
    assert len(set(names)) == len(names)
    assert "bb" in names


def test_pages_go_on_after_a_schedule_with_the_name_of_another(store: MongoStore) -> None:
    add_schedules(store, "a", "b", "c", "d")
    plain(store).schedules.update_one({"_id": "default/b"}, {"$set": {"name": "cc"}})
    names = [one.name for one in every_schedule(store, ScheduleQuery(limit=1))]
    assert names == ["a", "c", "b", "d"]


@each_id
def test_notes_of_damaged_ids_are_listed_shown_and_dropped(
    store: MongoStore, place: str, clock: VirtualClock, odd: Callable[[int], Any]
) -> None:
    add_schedules(store, "a")
    insert(store, schema.RUNS, {**run_document(RunRecord(id="x", task="work")), "_id": odd(1)})
    damage(store, schema.SCHEDULES, "default/a", {"_id": odd(2)})
    assert claim(store) == []
    clock.advance("1m")
    assert len(store.fire_due(clock.now, 10, plan).quarantined) == 1
    with Scheduler(place) as app:
        names = [note.name for note in app.quarantine.list()]
        assert len(names) == 2
        for name in names:
            assert "is not a text in UTF-8" in app.quarantine.show(name).reason
            with pytest.raises(QuarantineRefused, match="mend its row in the database"):
                app.quarantine.retry(name)
            app.quarantine.drop(name)
        assert app.quarantine.list() == []


# Runs.


@each_id
@each_limit
def test_queued_runs_with_damaged_ids_fail_and_the_others_are_claimed(
    store: MongoStore, odd: Callable[[int], Any], limit: int
) -> None:
    add_damaged_runs(store, odd, 20, run_at=-5)
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    assert claim_all(store, limit) == ["a", "b"]
    assert store.count_runs() == {"running": 2, "failed": 20}
    assert len({note.key for note in store.find_records("quarantine")}) == 20


@each_id
def test_limited_runs_with_damaged_ids_fail_and_the_others_are_claimed(
    store: MongoStore, odd: Callable[[int], Any]
) -> None:
    assert store.put_record(limit_record(Limit(task="work", concurrency=1)))
    add_damaged_runs(store, odd, 3, run_at=-5)
    store.add_runs([RunRecord(id="a", task="work"), RunRecord(id="b", task="other")])
    assert sorted(claim_all(store, 1)) == ["a", "b"]
    assert store.count_runs() == {"running": 2, "failed": 3}


@each_id
def test_runs_with_damaged_ids_of_several_tenants_fail_and_the_others_are_claimed(
    store: MongoStore, odd: Callable[[int], Any]
) -> None:
    add_damaged_runs(store, odd, 5, run_at=-5)
    store.add_runs([RunRecord(id=name, task="work", tenant=name) for name in "ab"])
    assert sorted(claim_all(store, 1)) == ["a", "b"]
    assert store.count_runs() == {"running": 2, "failed": 5}


@pytest.mark.parametrize(
    "name", ["payload", "task", "tenant", "queue", "schedule", "cohort", "flow", "unknown"]
)
@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
def test_a_damaged_field_of_a_run_blocks_no_other(store: MongoStore, name: str, value: Damaged) -> None:
    store.add_runs([RunRecord(id=key, task="work", run_at=n) for n, key in enumerate("abc")])
    damage(store, schema.RUNS, "a", {name: value})
    assert {"b", "c"} <= set(claim_all(store, 1))
    assert {"b", "c"} <= {run.id for run in store.find_runs(RunQuery()).items}
    assert sum(store.count_runs().values()) >= 2
    store.count_queues(store.now(), 0)
    store.count_active(store.now())
    store.count_tenants()


@pytest.mark.parametrize("number", [1, 50])
@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
def test_runs_of_damaged_tenants_fail_and_the_others_are_claimed(
    store: MongoStore, value: Damaged, number: int
) -> None:
    names = [f"t{n}" for n in range(number)]
    store.add_runs([RunRecord(id=name, task="work", tenant=name) for name in ("a", "b", *names)])
    for key in "ab":
        damage(store, schema.RUNS, key, {"tenant": value})
    assert sorted(claim_all(store, 1)) == sorted(names)
    assert store.count_runs() == {"running": number, "failed": 2}


@each_id
@each_limit
def test_running_runs_with_damaged_ids_end_with_their_leases(
    store: MongoStore, clock: VirtualClock, odd: Callable[[int], Any], limit: int
) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    claim(store)
    add_damaged_runs(store, odd, 20, state="running", worker="gone", lease_until=clock.now - 1, attempt=1)
    clock.advance("1m")
    found = [run.id for _ in range(-(-21 // limit)) for run in store.lost_runs(clock.now, limit).runs]
    assert found[:1] == ["a"]
    assert store.count_runs() == {"running": 1, "failed": 20}


@each_id
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_pages_of_runs_pass_over_damaged_ids(store: MongoStore, odd: Callable[[int], Any], size: int) -> None:
    names = ["a", "default/a", "default/é", "default/\ufffd", "default/😀", "e"]
    store.add_runs([RunRecord(id=name, task="work") for name in names])
    add_damaged_runs(store, odd, 5)
    assert [run.id for run in every_run(store, RunQuery(limit=size))] == sorted(names)
    since = RunQuery(limit=size, states=("queued",), queue="default", tenant="default")
    assert [run.id for run in every_run(store, since)] == sorted(names)


@each_id
@each_limit
def test_ended_runs_with_damaged_ids_are_purged(
    store: MongoStore, clock: VirtualClock, odd: Callable[[int], Any], limit: int
) -> None:
    add_damaged_runs(store, odd, 20, state="failed", finished_at=clock.now - 5)
    # The text of a damaged id is not the id of another run.
    store.add_runs(
        [
            RunRecord(id="a", task="work", state="failed", attempt=1, finished_at=clock.now),
            RunRecord(id=r"default/\xff01", task="work", attempt=1),
        ]
    )
    store.append_log([LogChunk(run=r"default/\xff01", attempt=1, seq=0, text="x", at=clock.now)])
    for _ in range(21):
        store.purge(clock.now + 1, limit)
    assert store.count_runs() == {"queued": 1}
    assert len(store.read_log(r"default/\xff01")) == 1


def test_an_active_run_with_a_damaged_id_counts_for_its_schedule(
    store: MongoStore, clock: VirtualClock
) -> None:
    add_schedules(store, "a", overlap="cancel_running")
    add_schedules(store, "b")
    add_damaged_runs(store, IDS["high"], 1, schedule="a", state="running", worker="w", lease_until=2**40)
    clock.advance("1m")
    done = store.fire_due(clock.now, 10, plan)
    assert [planned.schedule.name for planned in done.planned] == ["a", "b"]
    assert plain(store).runs.count_documents({"state": "running", "cancel_requested": True}) == 1


# Tenants, records and logs.


@pytest.mark.parametrize("damaged", [b"b\x80", b"b\xff", b"\xff", b"\x80"])
def test_the_search_for_tenants_ends_after_damaged_ones(store: MongoStore, damaged: bytes) -> None:
    store.add_runs([RunRecord(id=name, task="work", tenant=name, state="failed") for name in "abc"])
    run = run_document(RunRecord(id="x", task="work", state="failed"))
    insert(store, schema.RUNS, {**run, "tenant": not_utf_8(damaged)})
    assert {"a", "b", "c"} <= {counts.tenant for counts in store.count_tenants()}


@pytest.mark.parametrize("place_of", ["key", "tenant"])
@pytest.mark.parametrize("damaged", [b"b\x80", b"b\xff", b"\xff"])
def test_records_with_damaged_ids_are_passed_over(
    store: MongoStore, clock: VirtualClock, damaged: bytes, place_of: str
) -> None:
    for name in "abc":
        assert store.put_record(Record(kind="note", tenant=name, key=name, version=1, body="{}"))
    for n in range(3):
        identity = {"kind": "note", "tenant": "b", "key": "b"} | {place_of: not_utf_8(damaged + b"%d" % n)}
        record = record_document(Record(kind="note", tenant="b", key="b", version=1, body="{}"))
        raw = bytes(document(identity).raw)
        insert(store, schema.RECORDS, {**record, "_id": Damaged(0x03, raw), "expires": clock.now + 5})
    searches: list[dict[str, Any]] = [
        {},
        {"limit": 1},
        {"limit": 3},
        {"start": "a"},
        {"start": "b", "limit": 2},
    ]
    for words in searches:
        found = [record.key for record in store.find_records("note", **words)]
        wanted = [name for name in "abc" if name >= words.get("start", "")]
        assert found == wanted[: words.get("limit")]
    clock.advance("1m")
    store.purge(clock.now, 10)
    assert plain(store).records.count_documents({}) == 3


def test_a_damaged_line_hides_no_other(store: MongoStore) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    store.append_log([LogChunk(run="a", attempt=1, seq=n, text=str(n), at=n) for n in range(3)])
    identity = plain(store).logs.find_one_and_delete({"text": "1"})["_id"]
    insert(store, schema.LOGS, {"_id": identity, "text": not_binary(b"x"), "at": 1})
    assert [chunk.text for chunk in store.read_log("a")] == ["0", "2"]


# Reading.


def test_a_document_is_read_without_its_damaged_values(store: MongoStore) -> None:
    whole = {"_id": 1, "a": 1.5, "odd": not_binary(b"x"), "b": "x", "c": [1], "d": {"e": None}, "f": 2**40}
    more = {"pattern": Damaged(0x0B, b"a\0i\0"), "bool": True, "text": not_utf_8(b"\xff")}
    insert(store, "things", {**whole, **more})
    session = store._connections.session()
    try:
        (found,) = session.find("find", "things", {})
    finally:
        plain(store).things.drop()
    assert found.pop("pattern").pattern == "a"
    assert found == {
        "_id": 1,
        "a": 1.5,
        "b": "x",
        "c": [1],
        "d": {"e": None},
        "f": 2**40,
        "bool": True,
        "text": "\ufffd",
    }


def test_conditions_of_ids_are_plain_unless_one_is_damaged() -> None:
    assert damaged_ids.exactly("a") == "a"
    assert damaged_ids.among(["a", 1]) == {"$in": ["a", 1]}
    assert damaged_ids.after("a", lt="b") == {"$gt": "a", "$lt": "b"}
    odd = damaged_ids.DamagedId.of(*not_utf_8(b"a\xff"))
    assert odd == r"a\xff"
    assert damaged_ids.exactly(odd) == document({"$eq": not_utf_8(b"a\xff")})
    assert damaged_ids.after(odd, lt="b") == document({"$gt": not_utf_8(b"a\xff"), "$lt": "b"})


def test_healthy_documents_are_read_once(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_reading, "_read_alone", None)
    store.add_runs([RunRecord(id=name, task="work") for name in ("a", "é", "😀")])
    assert len(claim(store)) == 3

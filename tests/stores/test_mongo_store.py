"""Properties of the MongoDB store alone: conflicts, settings, documents. tests/contract has the others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.hello import Hello
from pymongo.monitoring import ServerHeartbeatStartedEvent, ServerHeartbeatSucceededEvent

from evenbeat.core.records import FORMAT, CatchUp, LogChunk, Record, RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue, SchemaTooNew, StoreUnavailable, TooLarge
from evenbeat.observe.run_logs import chunk_of
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores import batching
from evenbeat.stores.base import LARGE_FIELDS, Claim, EndedRuns, Fired, Purged, RunQuery, ScheduleQuery, Write
from evenbeat.stores.mongo import MongoStore, abandoned, claims, firing, history, location, purging, schema
from evenbeat.stores.mongo import schedules as schedule_documents
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.waking import CursorReceiver
from evenbeat.stores.server_clock import ServerClock
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place
from tests.store_calls import (
    CommandLog,
    Crash,
    add_schedules,
    claim,
    every_call,
    schedule_names,
    wait_until_receiving,
    with_due_schedules,
)
from tests.stores import on_mongo
from tests.stores.on_mongo import COLLECTIONS, plain

MINUTE = 60_000
place, clock, make, store = on_mongo.place, on_mongo.clock, on_mongo.make, on_mongo.store


def dump(store: MongoStore) -> dict[str, list[Document]]:
    """Return all documents, without fields that have no meaning."""
    unimportant = {"touched": 0}
    found = {name: list(plain(store)[name].find({}, unimportant)) for name in COLLECTIONS}
    for document in found[schema.SKIPPED]:
        del document["_id"]
    return {name: sorted(documents, key=repr) for name, documents in found.items()}


def restore(store: MongoStore, kept: dict[str, list[Document]]) -> None:
    for name, documents in kept.items():
        plain(store)[name].delete_many({})
        if documents:
            plain(store)[name].insert_many([dict(document) for document in documents])


# Opening and closing.


def test_options_of_the_url_that_weaken_the_promise_are_overridden(place: str) -> None:
    joined = "&" if "?" in place else "?"
    weak = (
        "w=1&journal=false&readPreference=secondary&retryWrites=true&retryReads=true&readConcernLevel=local"
    )
    store = MongoStore(f"{place}{joined}{weak}&socketTimeoutMS=0&timeoutMS=100000")
    store.open()
    client = plain(store).client
    assert client.write_concern.document == {"w": "majority", "j": True, "wtimeout": 5000}
    assert client.read_concern.level == "majority"
    assert client.read_preference.mode == 0
    assert client.options.retry_writes is False
    assert client.options.retry_reads is False
    assert client.options.timeout is None
    assert client.options.pool_options.socket_timeout == 6.0
    store.close()


def test_a_password_is_shown_nowhere() -> None:
    store = MongoStore("mongodb://ann:secret@127.0.0.1:9/jobs?replicaSet=rs0", timeout=0.05)
    with pytest.raises(StoreUnavailable) as caught:
        store.open()
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("mongodb://ann:***@127.0.0.1:9/jobs: ")
    assert "is the server up" in str(caught.value)


@pytest.mark.parametrize("url", ["mongodb://h/a.b", "mongodb://h/" + "x" * 64, "http://h/a", "mongodb:///a"])
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue):
        MongoStore(url)


def test_an_option_that_does_not_exist_is_refused_in_words(place: str) -> None:
    with pytest.raises(InvalidValue, match="directConnection"):
        MongoStore("mongodb://a,b/x?directConnection=true").open()


def test_the_database_is_the_path_of_the_url() -> None:
    assert location.read_location("mongodb://a:1,b:2/jobs?replicaSet=rs0").database == "jobs"
    assert location.read_location("mongodb://a").database == "evenbeat"
    # The database of the path knows the user, unless authSource names another.
    assert location.read_location("mongodb://u:p@a/jobs").server == "mongodb://u:p@a/jobs"


def test_two_installations_share_a_server_and_see_nothing_of_each_other(
    store: MongoStore, mongo: str, clock: VirtualClock
) -> None:
    other = MongoStore(mongo, clock)
    other.open()
    add_schedules(store, "ours")
    add_schedules(other, "theirs")
    clock.advance("1m")
    assert [planned.schedule.name for planned in other.fire_due(clock.now, 10, plan).planned] == ["theirs"]
    assert schedule_names(store) == ["ours"]
    assert store.count_runs() == {}
    other.close()


OPENER = """
import sys
from evenbeat.stores.mongo import MongoStore
store = MongoStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
store.open()
print(store.count_runs())
store.close()
"""


def test_many_processes_open_a_new_database_at_once(mongo: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, mongo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in started] == ["{}\n"] * 4
    assert [process.returncode for process in started] == [0] * 4


def test_many_threads_open_a_new_database_at_once(mongo: str) -> None:
    stores = [MongoStore(mongo) for _ in range(6)]
    errors: list[BaseException] = []

    def work(store: MongoStore) -> None:
        try:
            store.open()
            store.count_runs()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert stores[0].schema().found == schema.KNOWN
    for store in stores:
        store.close()


def test_a_schema_that_is_up_to_date_is_known_by_one_read(make: Callable[..., MongoStore]) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    watch.on = True
    store.open()
    assert [name for name in watch.seen if name != "check server"] == ["find schema version"]


def test_an_interrupted_first_opening_is_finished_by_the_next(mongo: str) -> None:
    watch = CommandLog()
    whole = MongoStore(mongo, on_command=watch)
    whole.open()
    database = plain(whole)
    for position in range(len(watch.seen)):
        database.client.drop_database(database.name)
        broken = MongoStore(mongo, on_command=CommandLog(position))
        with pytest.raises(Crash):
            broken.open()
        again = MongoStore(mongo)
        again.open()
        assert again.count_runs() == {}
        assert again.schema().found == schema.KNOWN
        again.close()
    whole.close()


def test_the_schema_is_read_without_opening_the_store_and_without_creating_anything(mongo: str) -> None:
    store = MongoStore(mongo)
    found = store.schema()
    assert (found.found, found.known) == (0, schema.KNOWN)
    for index in schema.INDEXES[1]:
        assert f"db.{index.collection}.createIndex(" in found.script
        assert f'"name": "{index.name}"' in found.script
    with MongoClient[Document](mongo) as client:
        assert location.read_location(mongo).database not in client.list_database_names()
    store.open()
    assert store.schema() == (schema.KNOWN, schema.KNOWN, "")
    store.close()


def test_a_newer_schema_is_refused(mongo: str) -> None:
    store = MongoStore(mongo)
    store.open()
    plain(store).meta.update_one({"_id": "schema"}, {"$set": {"version": 99}})
    with pytest.raises(SchemaTooNew) as caught:
        store.open()
    assert (caught.value.found, caught.value.known) == (99, schema.KNOWN)
    assert store.schema().found == 99
    store.close()


def test_the_last_store_to_close_ends_every_thread() -> None:
    before = set(threading.enumerate())
    with own_place(server_url("mongo")) as url:
        # With another timeout: a client that it does not share.
        store = MongoStore(url, timeout=4.0)
        store.open()
        store.wait(0)
        store.close()
    left = [thread for thread in set(threading.enumerate()) - before if "pymongo" not in thread.name]
    assert left == []


def test_the_server_is_described(store: MongoStore) -> None:
    found = {setting.name: setting for setting in store.server()}
    assert found["replSet"].value == "rs0"
    assert found["version"].value.startswith(("6.", "7.", "8."))
    assert found["storageEngine"].value == "wiredTiger"
    assert found["writeConcernMajorityJournalDefault"].value == "true"
    assert all(setting.level == "ok" for setting in found.values())
    store.close()
    assert {setting.name for setting in store.server()} == set(found)


def test_without_a_clock_the_servers_decides(place: str, store: MongoStore) -> None:
    own = MongoStore(place)
    own.open()
    own.add_runs([RunRecord(id="a", task="work")])
    (held,) = own.claim_runs(Claim(worker="w", token="t", limit=1, now=1 << 60, lease=1000)).runs
    assert held.started_at is not None
    assert abs(held.started_at - own.now()) < MINUTE
    assert held.lease_until == held.started_at + 1000
    own.close()


def test_the_driver_s_heartbeats_set_the_clock(mongo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_HEARTBEAT", 500)
    watch = CommandLog()
    store = MongoStore(mongo, on_command=watch)
    store.open()
    watch.seen.clear()
    right = store.now()
    # As after a change of the server's clock: the estimate is an hour late.
    assert store._connections.clock._ahead is not None
    store._connections.clock._ahead -= 60 * MINUTE
    deadline = time.monotonic() + 60
    while store.now() < right:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert watch.seen == []
    store.close()


def test_only_the_primary_s_heartbeats_set_the_clock() -> None:
    clock = ServerClock(lambda: 0)
    heartbeats = location.Heartbeats()
    heartbeats.clocks.add(clock)
    now = clock.now()

    def beat(instant: int, **hello: Any) -> None:
        heartbeats.started(ServerHeartbeatStartedEvent(("host", 1)))
        answer = Hello({"ok": 1, "localTime": DatetimeMS(instant).as_datetime(), **hello})
        heartbeats.succeeded(ServerHeartbeatSucceededEvent(0.0, answer, ("host", 1)))

    beat(now + 60 * MINUTE, secondary=True, setName="rs0")
    assert clock.now() < now + MINUTE
    beat(now + 60 * MINUTE, isWritablePrimary=True, setName="rs0")
    assert clock.now() >= now + 59 * MINUTE


# Values.


def test_a_value_that_mongodb_cannot_store_is_refused_as_invalid(store: MongoStore) -> None:
    for bad in (
        RunRecord(id="a", task="work", error="\ud800"),
        RunRecord(id="a", task="work", run_at=1 << 70),
        RunRecord(id="a", task="work", priority=77),
        RunRecord(id="\ud800", task="work"),
    ):
        for batch in ([bad], [RunRecord(id="b", task="work"), bad]):
            with pytest.raises(InvalidValue):
                store.add_runs(batch)
    large = RunRecord(id="a", task="work", result="x" * (17 << 20))
    for batch in ([large], [RunRecord(id="b", task="work"), large]):
        with pytest.raises(TooLarge):
            store.add_runs(batch)
    assert store.count_runs() == {}


def test_more_than_a_transaction_may_hold_is_settled(store: MongoStore) -> None:
    store.add_runs([RunRecord(id=f"r{at}", task="work") for at in range(100)])
    text = f'"{"x" * 700_000}"'
    ends = [attempts.succeeded(held, text, store.now(), held.id) for held in claim(store, limit=100)]
    # The server of the tests, with a cache of 256 MB, refuses this in one transaction.
    with pytest.raises(TooLarge, match="give the server a larger cache"):
        store._settle(ends)
    assert store.settle_runs(ends) == [True] * 100
    assert store.count_runs() == {"succeeded": 100}


def test_a_batch_is_halved_if_the_server_refuses_its_size(
    store: MongoStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_schedules(store, "a", "b", "c", "d")
    clock.advance("1m")
    sizes: list[int] = []
    fire = firing.fire

    def refusing(session: Any, batch: firing.Batch, *rest: Any) -> Any:
        sizes.append(batch.selection.limit)
        if batch.selection.limit > 2:
            raise TooLarge("too large")
        return fire(session, batch, *rest)

    monkeypatch.setattr(firing, "fire", refusing)
    assert len(store.fire_due(clock.now, 8, plan).planned) == 2
    assert sizes == [8, 4, 2]


@pytest.mark.parametrize("code", [257, 388, 10334, 17419])
def test_errors_of_size_are_distinguished_and_the_first_of_a_bulk_is_shown(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        errors = [{"code": code, "errmsg": "first"}, {"code": 1, "errmsg": "second"}]
        raise BulkWriteError({"writeErrors": errors})

    monkeypatch.setattr(Collection, "bulk_write", refuse)
    add_schedules(store, "a")
    store.add_runs([RunRecord(id=name, task="work", schedule="a") for name in "ab"])
    ends = [attempts.succeeded(held, None, store.now(), held.id) for held in claim(store)]
    with pytest.raises(TooLarge, match="first"):
        store.settle_runs(ends)
    code = 1
    with pytest.raises(StoreUnavailable, match=r": first$"):
        store.settle_runs(ends)


def test_joining_a_transaction_of_another_database_is_refused(store: MongoStore) -> None:
    with pytest.raises(InvalidValue, match="after the commit"):
        store.add_runs_within(object(), [])


# Other transactions.


def test_a_write_that_meets_another_transaction_does_not_wait_and_changes_nothing(
    store: MongoStore, make: Callable[..., MongoStore]
) -> None:
    impatient = make(lock_timeout=0.001)
    add_schedules(store, "a", "b")
    row = store.find_schedules(ScheduleQuery(name="a")).items[0]
    change = changes.change(row, {"payload": "1"}, store.now())
    assert change is not None
    with store._connections.session().transaction() as other:
        other.update("hold", schema.SCHEDULES, {"_id": "default/a"}, {"$inc": {"touched": 1}})
        with pytest.raises(StoreUnavailable, match="other clients write the same"):
            impatient.put_schedules([Write(change, row.version)])
        assert schedule_names(impatient) == ["a", "b"]  # readers do not wait
    assert impatient.put_schedules([Write(change, row.version)])[0].accepted


def test_a_write_starts_anew_when_the_other_transaction_is_over(
    make: Callable[..., MongoStore], store: MongoStore
) -> None:
    add_schedules(store, "a")
    row = store.find_schedules(ScheduleQuery(name="a")).items[0]
    change = changes.change(row, {"payload": "1"}, store.now())
    assert change is not None
    holding, over = threading.Event(), threading.Event()

    def hold() -> None:
        with store._connections.session().transaction() as other:
            other.update("hold", schema.SCHEDULES, {"_id": "default/a"}, {"$inc": {"touched": 1}})
            holding.set()
            over.wait(60)

    def met(name: str) -> None:
        tries.append(name)
        if tries.count("find schedules") == 2:
            over.set()
            thread.join()

    tries: list[str] = []
    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(60)
    assert make(on_command=met).put_schedules([Write(change, row.version)])[0].accepted


def test_nodes_that_fire_at_once_take_different_schedules(
    store: MongoStore, make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    other = make()
    add_schedules(store, *(f"s{at:02}" for at in range(10)))
    clock.advance("1m")
    meanwhile: list[list[str]] = []

    def planning(row: ScheduleRecord, *rest: Any) -> Any:
        if not meanwhile:
            meanwhile.append([])
            fired = other.fire_due(clock.now, 4, plan)
            meanwhile[0] = [planned.schedule.name for planned in fired.planned]
            assert fired.next_wake is not None
            assert fired.next_wake <= clock.now
        return plan(row, *rest)

    fired = store.fire_due(clock.now, 4, planning)
    assert [planned.schedule.name for planned in fired.planned] == ["s00", "s01", "s02", "s03"]
    assert meanwhile == [["s04", "s05", "s06", "s07"]]
    assert len(store.find_runs(RunQuery()).items) == 8


def test_a_node_that_finds_all_due_schedules_reserved_retries_soon(
    store: MongoStore, make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    add_schedules(store, "a", "b")
    clock.advance("1m")
    answers: list[Any] = []

    def planning(row: ScheduleRecord, *rest: Any) -> Any:
        if not answers:
            answers.append(None)
            answers[0] = make().fire_due(clock.now, 10, plan)
        return plan(row, *rest)

    assert len(store.fire_due(clock.now, 10, planning).planned) == 2
    assert answers[0].planned == ()
    assert answers[0].next_wake == clock.now


def test_a_node_tries_a_reserved_batch_again_with_every_third_call(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    add_schedules(store, "a", "b")
    clock.advance("1m")
    session = store._connections.session()
    first = firing.earliest(session)
    assert first is not None
    with firing.reserved(session, first, clock.now):
        watch.on = True
        for _ in range(4):
            assert store.fire_due(clock.now, 10, plan) == Fired((), clock.now)
        watch.on = False
    assert watch.seen.count("reserve batch") == 2
    assert watch.seen.count("take batch") == 0
    fired = [len(store.fire_due(clock.now, 10, plan).planned) for _ in range(3)]
    assert sorted(fired) == [0, 0, 2]
    while plain(store).meta.find_one({"_id": f"firing {first.id}"}):
        threading.Event().wait(0.01)  # deleting a note does not wait for an answer


def test_a_reservation_from_before_the_clock_was_set_back_is_ignored(
    store: MongoStore, clock: VirtualClock
) -> None:
    add_schedules(store, "a")
    clock.advance("1m")
    first = firing.earliest(store._connections.session())
    assert first is not None
    hour = {"_id": f"firing {first.id}", "until": clock.now + 60 * MINUTE}
    plain(store).meta.insert_one(hour)
    assert len(store.fire_due(clock.now, 10, plan).planned) == 1


def test_a_reservation_ends_by_itself(store: MongoStore, clock: VirtualClock) -> None:
    add_schedules(store, "a")
    clock.advance("1m")
    session = store._connections.session()
    first = firing.earliest(session)
    assert first is not None
    with firing.reserved(session, first, clock.now):
        clock.advance("500ms")
        assert len(store.fire_due(clock.now, 10, plan).planned) == 1


def test_a_claim_takes_unlocked_runs_and_does_not_wait_for_locked_ones(store: MongoStore) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    with store._connections.session().transaction() as other:
        other.update("hold", schema.RUNS, {"_id": "b"}, {"$set": {"cancel_requested": True}})
        first = claim(store, "first")
        assert [run.id for run in first] in (["a"], ["a", "c"])
        assert claim(store, "first") == first
    assert {run.id: run.cancel_requested for run in claim(store, "second")}["b"] is True
    assert store.count_runs() == {"running": 3}


def test_a_heartbeat_that_meets_a_transaction_starts_anew_when_it_is_over(store: MongoStore) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    (held,) = claim(store)
    impatient = attempts.heartbeat(held, MINUTE, "beat")
    tries: list[bool] = []
    thread = threading.Thread(target=lambda: tries.extend(store.settle_runs([impatient])))
    with store._connections.session().transaction() as other:
        other.update("hold", schema.RUNS, {"_id": "a"}, {"$set": {"cancel_requested": True}})
        thread.start()
        thread.join(0.5)
        assert tries == []
    thread.join(60)
    assert tries == [True]


@pytest.mark.parametrize("overlap", ["queue", "skip"])
def test_a_run_that_ends_while_its_schedule_is_fired_is_not_overlooked(
    store: MongoStore, make: Callable[..., MongoStore], clock: VirtualClock, overlap: str
) -> None:
    # plan is given an active run, which ends before the plan is written: the tick must not wait for it.
    # Another schedule is before it: the first one of a batch is reserved from the beginning.
    add_schedules(store, "before", overlap=overlap)
    add_schedules(store, "single", overlap=overlap)
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    (held,) = (run for run in claim(store) if run.schedule == "single")
    clock.advance("1m")
    ended: list[bool] = []

    def planning(row: ScheduleRecord, now: int, active: Any) -> Any:
        if row.name == "single" and not ended:
            assert len(active) == 1
            ended.extend(make().settle_runs([attempts.succeeded(held, None, clock.now, "end")]))
        return plan(row, now, active)

    fired = {planned.schedule.name: planned for planned in store.fire_due(clock.now, 10, planning).planned}
    assert ended == [True]
    # Planned again, after the run has ended.
    assert fired == {} or "single" not in fired or len(fired["single"].runs) == 1
    while "single" not in fired:
        fired = {planned.schedule.name: planned for planned in store.fire_due(clock.now, 10, plan).planned}
    assert len(fired["single"].runs) == 1


def test_a_pause_that_comes_while_a_schedule_is_fired_is_kept(
    store: MongoStore, make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    add_schedules(store, "a", "b")
    clock.advance("1m")
    accepted: list[bool] = []

    def planning(row: ScheduleRecord, *rest: Any) -> Any:
        if row.name == "b" and not accepted:
            change = changes.pause(row, clock.now)
            assert change is not None
            accepted.append(make().put_schedules([Write(change, row.version)])[0].accepted)
        return plan(row, *rest)

    assert [planned.schedule.name for planned in store.fire_due(clock.now, 10, planning).planned] == ["a"]
    assert accepted == [True]
    assert [row.state for row in store.find_schedules(ScheduleQuery()).items] == ["active", "paused"]


DYING = """
import os, sys
from evenbeat.rules.firing import plan
from evenbeat.stores.mongo import MongoStore

def die(name):
    if name == "commit":
        os.kill(os.getpid(), 9)

store = MongoStore(sys.argv[1], clock=lambda: int(sys.argv[2]), on_command=die)
store.open()
store.fire_due(store.now(), 10, plan)
"""


def test_the_transaction_of_a_killed_process_is_ended_by_the_next_node_that_meets_it(
    store: MongoStore, clock: VirtualClock, place: str
) -> None:
    add_schedules(store, "a", "b")
    clock.advance("1m")
    done = subprocess.run([sys.executable, "-c", DYING, place, str(clock.now)], check=False)
    assert done.returncode == -9
    # The server keeps the transaction open: its schedules are locked, and its writes are invisible.
    assert store.fire_due(clock.now, 10, plan).planned == ()
    assert store.count_runs() == {}
    fired: list[str] = []
    while not fired:
        answer = store.fire_due(clock.now, 10, plan)
        fired = [planned.schedule.name for planned in answer.planned]
        threading.Event().wait(0.05)
        clock.advance("50ms")  # the reservation of the dead process ends, too
    assert fired == ["a", "b"]
    assert store.count_runs() == {"queued": 2}


def test_a_transaction_that_is_merely_young_is_left_alone(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "IDLE", 600.0)
    add_schedules(store, "a")
    with store._connections.session().transaction() as other:
        other.update("hold", schema.SCHEDULES, {"_id": "default/a"}, {"$inc": {"touched": 1}})
        assert abandoned.end_abandoned(store._connections.session()) == 0
    assert plain(store).schedules.find_one()["touched"] == 1


# Crashes at each command.


def purge(store: MongoStore) -> Purged:
    return store.purge(store.now() + 1, 100)


def test_a_purge_that_dies_at_any_command_is_finished_by_the_next(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    first = make()
    with_due_schedules(first, clock)
    for held in claim(first):
        lines = [LogChunk(run=held.id, attempt=1, seq=at, text="x", at=clock.now) for at in range(3)]
        first.append_log(lines)
        first.settle_runs([attempts.succeeded(held, None, clock.now, held.id)])
    first.put_record(Record(kind="k", key="x", body="", expires=clock.now + 1))
    clock.advance("1s")
    before = dump(first)
    assert len(before[schema.RUNS]) > 0
    watch = CommandLog(on=False)
    whole = make(on_command=watch)
    watch.on = True
    purge(whole)
    after = dump(first)
    assert not after[schema.LOGS] + after[schema.RUNS] + after[schema.SKIPPED] + after[schema.RECORDS]
    for position in range(len(watch.seen)):
        restore(first, before)
        crashing = CommandLog(position, on=False)
        store = make(on_command=crashing)
        crashing.on = True
        with pytest.raises(Crash):
            purge(store)
        left = dump(first)
        # A run exists until its log is deleted: after a crash in between, the next purge finds the rest by
        # the run.
        logged = {line["_id"]["run"] for line in left[schema.LOGS]}
        assert logged <= {run["_id"] for run in left[schema.RUNS]}
        purge(store)
        assert dump(first) == after
        store.close()


def test_a_purge_of_long_logs_stops_in_between_and_goes_on_with_the_next(
    store: MongoStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "_FOR_ALL_LINES", 0.0)
    monkeypatch.setattr(purging, "_RUNS_AT_ONCE", 2)
    over = [
        RunRecord(id=f"r{at}", task="work", state="failed", attempt=2, finished_at=clock.now)
        for at in range(5)
    ]
    store.add_runs(over)
    store.append_log(
        [
            LogChunk(run=run.id, attempt=attempt, seq=at, text="x", at=clock.now)
            for run in over
            for attempt in (1, 2)
            for at in range(10)
        ]
    )
    assert [store.purge(clock.now + 1, 100).deleted for _ in range(4)] == [2, 2, 1, 0]
    assert plain(store).logs.count_documents({}) == 0


def test_a_run_that_is_retried_while_it_is_purged_stays_and_keeps_what_it_logs(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    other = make()
    failed = RunRecord(id="a", task="work", state="failed", attempt=1, finished_at=clock.now)
    other.add_runs([failed])

    def retry(name: str) -> None:
        if name == "delete logs":
            again = attempts.retried(failed, "again")
            assert again is not None
            assert other.settle_runs([again]) == [True]
            other.append_log([LogChunk(run="a", attempt=2, seq=0, text="new", at=clock.now)])

    store = make(on_command=retry)
    assert store.purge(clock.now + 1, 10).deleted == 0
    assert [run.state for run in other.find_runs(RunQuery()).items] == ["queued"]
    assert [chunk.text for chunk in other.read_log("a")] == ["new"]


def test_lines_that_are_written_while_their_run_is_purged_go_with_it(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    other = make()
    lines = [LogChunk(run="a", attempt=1, seq=seq, text="late", at=clock.now) for seq in range(2)]

    def log(name: str) -> None:
        if name == "delete runs":
            # The run still exists.
            other.append_log(lines[:1])
            assert other.read_log("a") == lines[:1]

    other.add_runs([RunRecord(id="a", task="work", state="failed", attempt=1, finished_at=clock.now)])
    assert make(on_command=log).purge(clock.now + 1, 10).deleted == 1
    assert plain(other).logs.count_documents({}) == 0


def test_lines_whose_run_is_purged_while_they_are_written_are_not_kept(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    other = make()
    other.add_runs([RunRecord(id="a", task="work", state="failed", attempt=1, finished_at=clock.now)])

    def purge(name: str) -> None:
        if name == "insert logs":
            assert other.purge(clock.now + 1, 10).deleted == 1

    make(on_command=purge).append_log([LogChunk(run="a", attempt=1, seq=0, text="late", at=clock.now)])
    assert plain(other).logs.count_documents({}) == 0


def failed_at(made: int, ended: int) -> RunRecord:
    return RunRecord(id="a", task="work", state="failed", attempt=1, created_at=made, finished_at=ended)


def test_lines_whose_id_is_given_again_while_they_are_written_are_not_of_the_later_run(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    other = make()
    earlier, later = failed_at(clock.now, clock.now), failed_at(clock.now + 2, clock.now + 2)
    other.add_runs([earlier])

    def purge_and_add(name: str) -> None:
        if name == "insert logs":
            assert other.purge(clock.now + 1, 10).deleted == 1
            other.add_runs([later])

    make(on_command=purge_and_add).append_log([chunk_of(earlier, 1, "late", clock.now)])
    assert other.read_log("a") == []
    assert plain(other).logs.count_documents({}) == 0
    # A process that dies before it looks for the run leaves a line behind, which belongs to no run any more.
    dying = CommandLog(crash_at=2, on=False)
    writer = make(on_command=dying)
    dying.on = True
    with pytest.raises(Crash):
        writer.append_log([chunk_of(earlier, 1, "late", clock.now)])
    assert dying.seen == ["insert logs", "committed", "find present"]
    assert plain(other).logs.count_documents({}) == 1
    other.append_log([chunk_of(later, 1, "own", clock.now)])
    assert [line.text for line in other.read_log("a")] == ["own"]


def test_a_purge_that_was_paused_keeps_the_lines_of_a_later_run_of_the_id(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    earlier, later = failed_at(clock.now, clock.now), failed_at(clock.now + 2, clock.now + 2)
    commands = ["find old", "delete logs", "delete runs", "find present", "delete logs"]
    for position in range(len(commands)):
        other = make()
        other.add_runs([earlier])
        other.append_log([chunk_of(earlier, 1, "old", clock.now)])
        seen: list[str] = []

        def go_on(name: str, at: int = position, seen: list[str] = seen, other: MongoStore = other) -> None:
            if name not in commands:
                return
            seen.append(name)
            if len(seen) == at + 1:
                other.purge(clock.now + 1, 10)
                other.add_runs([later])
                other.append_log([chunk_of(later, 1, "own", clock.now)])

        make(on_command=go_on).purge(clock.now + 1, 10)
        assert seen == commands[: max(len(seen), position + 1)]
        assert [line.text for line in other.read_log("a")] == ["own"]
        while other.purge(clock.now + 3, 10).deleted:
            pass
        assert plain(other).logs.count_documents({}) == 0


# Documents that cannot be read.


def test_a_running_run_without_a_lease_is_lost(store: MongoStore, clock: VirtualClock) -> None:
    store.add_runs(
        [RunRecord(id="a", task="work", state="running", attempt=1), RunRecord(id="b", task="work")]
    )
    claim(store)
    clock.advance("30s")
    assert [run.id for run in store.lost_runs(clock.now, 10).runs] == ["a", "b"]
    assert [run.id for run in store.lost_runs(clock.now, 1).runs] == ["a"]


@pytest.mark.parametrize("damage", [{"payload": 1}, {"lease_until": "soon"}, {"execution": 5}])
def test_a_running_run_with_an_unreadable_lease_ends_as_failed(
    store: MongoStore, clock: VirtualClock, damage: Document
) -> None:
    store.add_runs([RunRecord(id=name, task="work") for name in "ab"])
    claim(store)
    plain(store).runs.update_one({"_id": "a"}, {"$set": damage})
    if "lease_until" not in damage:
        assert store.lost_runs(clock.now, 10).runs == ()
        assert store.count_runs() == {"running": 2}
    clock.advance("30s")
    assert [run.id for run in store.lost_runs(clock.now, 10).runs] == ["b"]
    assert store.count_runs() == {"running": 1, "failed": 1}
    (note,) = store.find_records("quarantine")
    assert note.key == "a"


def test_an_unreadable_running_run_that_ended_has_no_lease_when_it_is_readable_again(
    store: MongoStore, clock: VirtualClock
) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    claim(store)
    before = plain(store).runs.find_one({"_id": "a"})["payload"]
    plain(store).runs.update_one({"_id": "a"}, {"$set": {"payload": 1}})
    clock.advance("30s")
    assert store.lost_runs(clock.now, 10).runs == ()
    plain(store).runs.update_one({"_id": "a"}, {"$set": {"payload": before}})
    (run,) = store.find_runs(RunQuery(ids=("a",))).items
    assert (run.state, run.lease_until) == ("failed", None)


def test_an_unreadable_running_run_of_a_newer_format_is_left_alone(
    store: MongoStore, clock: VirtualClock
) -> None:
    store.add_runs([RunRecord(id="a", task="work")])
    claim(store)
    plain(store).runs.update_one({"_id": "a"}, {"$set": {"payload": 1, "format": FORMAT + 1}})
    clock.advance("30s")
    assert store.lost_runs(clock.now, 10) == ((), None)
    assert store.count_runs() == {"running": 1}


def test_a_claim_under_contention_takes_as_many_runs_as_it_wants_from_a_wider_window(
    store: MongoStore, clock: VirtualClock
) -> None:
    names = list("abcdef")
    store.add_runs([RunRecord(id=name, task="work", run_at=clock.now) for name in names])
    session, chosen = store._connections.session(), set()
    for at in range(60):
        wanted = Claim(worker="w", token=f"t{at}", limit=2, now=clock.now, lease=1_000)
        chosen.add("".join(claims.read_candidates(session, wanted, clock.now, 3, "default").ids))
    assert chosen == {"ab", "bc", "cd", "de", "ef"}


def test_people_read_documents_with_the_fields_of_the_model(store: MongoStore) -> None:
    add_schedules(store, "report", trigger="0 9 * * *", payload='{"team":"ops"}')
    document = plain(store).schedules.find_one()
    assert document["_id"] == "default/report"
    assert (document["trigger"], document["catch_up"]["kind"], document["state"]) == (
        "0 9 * * *",
        "latest",
        "active",
    )
    assert "paused_until" not in document


def test_workers_that_meet_at_statistics_count_in_documents_of_their_own(
    store: MongoStore, make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    add_schedules(store, "a", trigger="every 1s", catch_up=CatchUp("all", grace=MINUTE))
    clock.advance("4s")
    store.fire_due(clock.now, 10, plan)
    one, two, three, four = claim(store)
    assert store.settle_runs([attempts.succeeded(one, None, clock.now, "1")]) == [True]
    clock.advance("1s")
    other = make()
    # Another worker has the statistics in a transaction all the time, as if it were always a bit faster.
    with store._connections.session().transaction() as busy:
        busy.update("count", schema.STATISTICS, {"_id": "default/a"}, {"$inc": {"run_count": 1}})
        assert other.settle_runs([attempts.failed(two, "boom", clock.now, "2")]) == [True]
    clock.advance("1s")
    assert store.settle_runs([attempts.failed(three, "", clock.now, "3")]) == [True]
    assert other.settle_runs([attempts.succeeded(four, None, clock.now, "4")]) == [True]
    assert plain(store).statistics.count_documents({}) == 2
    (found,) = store.statistics([("default", "a")])
    assert (found.run_count, found.success_count, found.failure_count) == (5, 2, 2)
    assert (found.last_run, found.last_failure, found.last_error) == (clock.now, clock.now, "")


# Waking up.


def test_a_receiver_that_lost_its_cursor_reconnects_and_ends_one_wait(store: MongoStore) -> None:
    store.wait(0)
    wait_until_receiving(store)
    listener = store._waker._listener
    assert listener is not None
    assert isinstance(listener.receiver, CursorReceiver)
    plain(store).command({"killCursors": schema.HINTS, "cursors": [listener.receiver.cursor]})
    assert store.wait(60) is True
    wait_until_receiving(store)


def test_a_wait_takes_a_second_while_the_server_is_away(place: str) -> None:
    store = MongoStore("mongodb://127.0.0.1:9/x", timeout=0.05)
    store._connections._opened = store._waker._opened = True
    assert store.wait(60) is True
    store.hint()
    store.close()


# Plans.


def stages(plan: Any) -> list[str]:
    """Return the stages of a query plan, with their indexes."""
    found: list[str] = []
    if isinstance(plan, dict):
        if "stage" in plan:
            found.append(f"{plan['stage']} {plan.get('indexName', '')}".strip())
        for key, value in plan.items():
            if key != "rejectedPlans":
                found += stages(value)
    elif isinstance(plan, list):
        for value in plan:
            found += stages(value)
    return found


class Explaining:
    """Notes every find, aggregate and count that a call sends."""

    def __init__(self, store: MongoStore) -> None:
        self.plans: list[tuple[str, list[str]]] = []
        self._store = store
        self._session = store._connections.session()

    def __enter__(self) -> Explaining:
        vars(self._session).update(find=self._find, aggregate=self._aggregate)
        return self

    def __exit__(self, *_: object) -> None:
        del vars(self._session)["find"], vars(self._session)["aggregate"]

    def _find(self, name: str, collection: str, where: Document, **options: Any) -> list[Document]:
        command = {"find": collection, "filter": where}
        for key, theirs in {"fields": "projection", "limit": "limit", "hint": "hint", "skip": "skip"}.items():
            if options.get(key):
                command[theirs] = options[key]
        for key, theirs in {"sort": "sort", "start": "min"}.items():
            if options.get(key):
                command[theirs] = dict(options[key])
        self._explain(name, command)
        return type(self._session).find(self._session, name, collection, where, **options)

    def _aggregate(self, name: str, collection: str, pipeline: Any, **options: Any) -> list[Document]:
        command = {"aggregate": collection, "pipeline": pipeline, "cursor": {}}
        if options.get("hint"):
            command["hint"] = options["hint"]
        self._explain(name, command)
        return type(self._session).aggregate(self._session, name, collection, pipeline, **options)

    def _explain(self, name: str, command: Document) -> None:
        answer = plain(self._store).command({"explain": command, "verbosity": "queryPlanner"})
        self.plans.append((name, stages(answer)))


def test_no_question_reads_a_whole_collection_or_sorts_it(store: MongoStore, clock: VirtualClock) -> None:
    add_schedules(store, *(f"s{at}" for at in range(50)), overlap="queue")
    clock.advance("1m")
    store.fire_due(clock.now, 100, plan)
    claim(store, limit=20)
    session = store._connections.session()
    wanted = Claim(
        worker="w",
        token="t",
        limit=5,
        now=clock.now,
        lease=1,
        queues=("default", "b"),
        tasks=frozenset({"work"}),
    )
    with Explaining(store) as explaining:
        firing.earliest(session)
        firing.earliest(session, clock.now, 10)
        firing._active(session, [("default", "s1")])
        claims.read_candidates(session, wanted, clock.now, 1, "default")
        claims.held(session, wanted, ["default"])
        claims.lost(session, clock.now, 5)
        store.purge(clock.now - MINUTE, 5)
        store.purge(clock.now - MINUTE, 5, EndedRuns(tenant="acme", since=5))
        store.purge(clock.now - MINUTE, 5, EndedRuns(spared=("acme",), states=("failed",)))
        for tenant in ("acme", None):
            store.ended_at(5, tenant, ("succeeded", "failed", "cancelled"))
            store.ended_at(5, tenant, ("failed",))
        schedule_documents.find(session, ScheduleQuery(limit=5))
        schedule_documents.find(session, ScheduleQuery(limit=5, tenant="default", name="s1"))
        schedule_documents.find(session, ScheduleQuery(keys=(("default", "s1"), ("acme", "s2"))))
        schedule_documents.find(session, ScheduleQuery(limit=5, wakes_before=clock.now))
        schedule_documents.find(session, ScheduleQuery(limit=5, changed_since=clock.now))
        for query in (
            RunQuery(),
            RunQuery(ids=("a",)),
            RunQuery(worker="w", states=("running",), cancel_requested=True),
            RunQuery(tenant="default", schedule="s1", states=("queued", "running")),
            RunQuery(tenant="default", schedule="s1"),
            RunQuery(since=clock.now, until=clock.now + MINUTE, task="work"),
            RunQuery(states=("failed",), since=clock.now),
            RunQuery(retrying=True),
            RunQuery(finished_since=clock.now, tenant="default", schedule="s1"),
        ):
            history.find(session, query)
        history.count(session, None)
        history.count_queues(session, clock.now, clock.now)
        history.skipped(session, "default", "s1", 5, None, None)
        history.skipped(session, "default", "s1", 5, clock.now, clock.now + MINUTE)
        store.read_log("a")
        store.get_record("k", "t", "x")
        store.find_records("k")
        store.find_records("k", "t", start="a", end="b", limit=5)
        store.find_records("k", start="a", end="b")
        store.statistics([("default", "s1")])
    assert len(explaining.plans) >= 24
    for name, found in explaining.plans:
        assert not [stage for stage in found if stage.startswith("COLLSCAN")], (name, found)
        if name in (
            "find next wake",
            "find next due",
            "find claimable",
            "find skipped",
            "find log",
            "find ends",
        ):
            assert not [stage for stage in found if stage.startswith("SORT") and "MERGE" not in stage], found
        if name in ("find next wake", "find next due", "count runs", "find ends"):
            assert "FETCH" not in found, (name, found)


def test_a_claim_for_few_tasks_does_not_read_runs_of_other_tasks(
    store: MongoStore, clock: VirtualClock
) -> None:
    store.add_runs([RunRecord(id=f"r{at}", task="other") for at in range(500)])
    wanted = Claim(
        worker="w",
        token="t",
        limit=5,
        now=clock.now,
        lease=1,
        tasks=frozenset({"work", "play"}),
        queues=("default", "b"),
    )
    read: list[int] = []
    session = store._connections.session()

    def aggregate(name: str, collection: str, pipeline: Any, **options: Any) -> list[Document]:
        command = {"aggregate": collection, "pipeline": pipeline, "cursor": {}, "hint": options["hint"]}
        answer = plain(store).command({"explain": command, "verbosity": "executionStats"})
        read.append(max(keys_examined(answer)))
        return type(session).aggregate(session, name, collection, pipeline, **options)

    vars(session)["aggregate"] = aggregate
    assert claims.read_candidates(session, wanted, clock.now, 1, "default") == ([], None, True)
    del vars(session)["aggregate"]
    assert read[0] < 100


def keys_examined(plan: Any) -> list[int]:
    if isinstance(plan, dict):
        own = [int(plan["totalKeysExamined"])] if "totalKeysExamined" in plan else []
        return own + [count for value in plan.values() for count in keys_examined(value)]
    return [count for value in plan for count in keys_examined(value)] if isinstance(plan, list) else []


class Examining:
    """Counts the index keys that each find of a call examines."""

    def __init__(self, store: MongoStore) -> None:
        self.keys: list[int] = []
        self._store = store
        self._session = store._connections.session()

    def __enter__(self) -> Examining:
        vars(self._session).update(find=self._find)
        return self

    def __exit__(self, *_: object) -> None:
        del vars(self._session)["find"]

    def _find(self, name: str, collection: str, where: Document, **options: Any) -> list[Document]:
        command = {"find": collection, "filter": where, "sort": dict(options.get("sort") or {})}
        command |= {key: options[key] for key in ("limit", "hint") if options.get(key)}
        answer = plain(self._store).command({"explain": command, "verbosity": "executionStats"})
        self.keys.append(max(keys_examined(answer)))
        return type(self._session).find(self._session, name, collection, where, **options)


def test_searches_examine_only_matches(store: MongoStore, clock: VirtualClock) -> None:
    add_schedules(store, *(f"s{at:03}" for at in range(200)), trigger="@daily")
    add_schedules(store, "soon")
    notes = [
        Record(kind="audit", tenant=tenant, key=f"{at:04}", body="")
        for tenant in ("a", "b", "default")
        for at in range(200)
    ]
    store.add_runs([RunRecord(id=f"r{at:03}", task="work", created_at=clock.now) for at in range(200)])
    held = claim(store, limit=200)
    ends = [attempts.succeeded(run, None, clock.now, run.id) for run in held[:195]]
    ends[0] = replace(ends[0], records=tuple(notes))
    assert all(store.settle_runs(ends))
    clock.advance("1s")
    assert all(store.settle_runs([attempts.succeeded(run, None, clock.now, run.id) for run in held[195:]]))
    add_schedules(store, "new", trigger="@yearly")
    with Examining(store) as examining:
        assert len(store.find_records("audit", "b", start="0100", end="0103")) == 3
        assert len(store.find_records("audit", "b", start="0100", limit=3)) == 3
        assert len(store.find_records("audit", start="0100", end="0103")) == 9
        assert len(store.find_records("audit", start="0100", end="0103", limit=4)) == 4
        changed = store.find_schedules(ScheduleQuery(changed_since=clock.now))
        assert [found.name for found in changed.items] == ["new"]
        late = store.find_schedules(ScheduleQuery(wakes_before=clock.now + MINUTE))
        assert [found.name for found in late.items] == ["soon"]
        chosen = (("default", "s150"), ("default", "s007"))
        assert [found.name for found in store.find_schedules(ScheduleQuery(keys=chosen)).items] == [
            "s007",
            "s150",
        ]
        ended = store.find_runs(RunQuery(finished_since=clock.now)).items
        assert [run.id for run in ended] == sorted(run.id for run in held[195:])
    assert max(examining.keys) < 10


def test_a_search_by_keys_finds_damaged_documents_in_their_order(store: MongoStore) -> None:
    add_schedules(store, "a", "b", "c")
    plain(store)[schema.SCHEDULES].update_one({"_id": "default/b"}, {"$unset": {"name": "", "tenant": ""}})
    keys = tuple(("default", name) for name in "cbad")
    first = store.find_schedules(ScheduleQuery(keys=keys, limit=2))
    assert [(row.name, bool(row.damage)) for row in first.items] == [("a", False), ("b", True)]
    rest = store.find_schedules(ScheduleQuery(keys=keys, limit=2, cursor=first.cursor))
    assert [row.name for row in rest.items] == ["c"]


def test_unreadable_records_do_not_count_for_a_limit(store: MongoStore) -> None:
    for name in "abc":
        assert store.put_record(Record(kind="audit", key=name, body=""))
    plain(store)[schema.RECORDS].update_one({"_id.key": "a"}, {"$set": {"version": "many"}})
    plain(store)[schema.RECORDS].insert_one({"_id": {"kind": "audit", "owner": "by hand"}})
    assert [record.key for record in store.find_records("audit", limit=1)] == ["b"]
    assert [record.key for record in store.find_records("audit", "default", limit=2)] == ["b", "c"]
    assert [record.key for record in store.find_records("audit", start="b", limit=2)] == ["b", "c"]


def test_records_cost_one_command_and_are_read_only_after_a_duplicate(
    make: Callable[..., MongoStore], clock: VirtualClock
) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    first, second, third = claim(store)
    note = Record(kind="audit", key="1", body="ended", expires=clock.now + MINUTE)

    def settle(run: RunRecord, *records: Record) -> list[str]:
        watch.seen.clear()
        watch.on = True
        assert store.settle_runs(
            [replace(attempts.succeeded(run, None, clock.now, run.id), records=records)]
        ) == [True]
        watch.on = False
        return watch.seen

    written = ["update runs", "insert records", "commit", "committed"]
    assert settle(first, note) == written
    again = ["update runs", "insert records", "update runs", "find present records"]
    other = replace(note, key="2")
    assert settle(second, replace(note, body="other"), other) == [*again, *written[1:]]
    assert store.find_records("audit") == [note, other]
    clock.advance("1m")
    fresh = replace(note, expires=None)
    assert settle(third, fresh) == [*again, "replace records", "commit", "committed"]
    assert store.find_records("audit") == [fresh]
    assert settle(third, replace(note, key="3"))[-1] == "committed"  # a repetition
    assert store.find_records("audit") == [fresh]


def test_records_count_for_the_size_of_a_transaction(
    make: Callable[..., MongoStore], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BYTES", 1000)
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    notes = [(Record(kind="audit", key=name, body="x" * 600),) for name in "abc"]
    made = [ScheduleRecord(name=name, task="work", trigger="@daily") for name in "abc"]
    watch.on = True
    plans = [changes.create(entry, 0)._replace(records=note) for entry, note in zip(made, notes, strict=True)]
    store.put_schedules([Write(planned, None) for planned in plans])
    assert watch.seen.count("committed") == 3
    assert len(store.find_records("audit")) == 3


def test_a_schedule_without_tags_or_with_odd_ones_is_damaged(store: MongoStore) -> None:
    add_schedules(store, "a", "b", tags="x", description="kept")
    documents = plain(store)[schema.SCHEDULES]
    documents.update_one({"_id": "default/a"}, {"$unset": {"tags": ""}})
    documents.update_one({"_id": "default/b"}, {"$set": {"tags": ["x"]}})
    for row in store.find_schedules(ScheduleQuery()).items:
        assert "tags" in row.damage
        assert (row.tags, row.description) == ("", "kept")


def test_an_idle_node_asks_one_question(make: Callable[..., MongoStore], clock: VirtualClock) -> None:
    watch = CommandLog(on=False)
    store = make(on_command=watch)
    add_schedules(store, "a")
    watch.on = True
    store.fire_due(clock.now, 10, plan)
    assert watch.seen == ["find next wake"]
    watch.seen.clear()
    claim(store)
    assert watch.seen == ["find next due"]
    watch.seen.clear()
    store.lost_runs(clock.now, 500)
    assert watch.seen == ["find lost"]
    watch.seen.clear()
    assert store.purge(clock.now, 500).deleted == 0
    assert watch.seen == ["find old"]
    watch.seen.clear()
    present = Record(kind="node", key="n", body="", expires=clock.now + MINUTE)
    assert store.put_record(present)
    assert store.put_record(replace(present, version=2), 1)
    assert watch.seen == ["put record", "committed"] * 2


@pytest.mark.long
def test_no_error_of_the_driver_reaches_the_caller() -> None:
    store = MongoStore("mongodb://127.0.0.1:9/x", VirtualClock(), timeout=0.02)
    store._connections._opened = True
    run = RunRecord(id="a", task="work", attempt=1)
    calls = (store.open, store.schema, store.server, lambda: store.add_runs([run, replace(run, id="b")]))
    for call in (*calls, *every_call(store).values()):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        assert isinstance(caught.value.__cause__, PyMongoError)
    store.close()


def test_fields_that_a_search_leaves_out_are_not_sent(store: MongoStore) -> None:
    """The server counts the bytes that it sends, for all of its clients."""
    payload = '"' + "x" * 100_000 + '"'
    store.add_runs([RunRecord(id=f"r{at}", task="work", payload=payload) for at in range(20)])

    def total() -> int:
        return int(plain(store).client.admin.command("serverStatus")["network"]["bytesOut"])

    def sent(query: RunQuery) -> int:
        before = total()
        assert len(store.find_runs(query).items) == 20
        return total() - before

    assert sent(RunQuery()) > 2_000_000
    assert sent(RunQuery(without=LARGE_FIELDS)) < 500_000

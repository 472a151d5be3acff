"""Unique runs on every database: threads, processes, a writer that dies between its two writes, retries."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, RunRefused, Scheduler, StoreUnavailable
from evenbeat.app.unique_runs import UniqueRuns
from evenbeat.core.instants import LAST
from evenbeat.core.records import Record, RunRecord
from evenbeat.node.unique_records import UniqueRecords
from evenbeat.rules import attempts, unique_ends
from evenbeat.rules.unique_runs import ADD_WINDOW, GIVEN_UP_AFTER, KIND, holder_of, record_key
from evenbeat.stores.base import Claim, RunQuery, Store
from tests.lengths import some

ROOT = Path(__file__).parents[2]
THREADS = 8
# Enqueues one key from several threads at the same moment, and prints the ids that it was answered.
ENQUEUER = """
import json, sys, threading, time
from evenbeat import Scheduler
app = Scheduler(sys.argv[1])
app.runs.count()  # opens the store
answers, start = [], float(sys.argv[2])

def enqueue():
    time.sleep(max(0, start - time.time()))
    answers.append(app.enqueue("work", {"order": 42}, unique="payload").id)

threads = [threading.Thread(target=enqueue) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
app.close()
print(json.dumps(answers))
"""
# Dies between the record and its run.
DYING = """
import os, sys
from evenbeat import Scheduler
from evenbeat.stores.urls import open_url
app = Scheduler(open_url(sys.argv[1]))
app.store.add_runs = lambda *_, **__: os._exit(9)
app.enqueue("work", {"order": 42}, unique="payload")
"""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/evenbeat.db"
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(request.param))


@pytest.fixture
def app(url: str) -> Iterator[Scheduler]:
    app = Scheduler(url)
    app.runs.count()
    yield app
    app.close()


EVERY_STORE = pytest.mark.parametrize(
    "url", ["memory", "sqlite", "postgres", "valkey", "mongo"], indirect=True
)
WITH_PROCESSES = pytest.mark.parametrize(
    "url", some(("sqlite", "postgres", "valkey", "mongo"), "sqlite", "valkey"), indirect=True
)


def active(app: Scheduler) -> list[str]:
    return [run.id for run in app.store.find_runs(RunQuery(states=("queued", "running"))).items]


def end(store: Store, outcome: str = "succeeded") -> str:
    """Claim the run that waits, and end it."""
    claim = Claim(worker="w", token=f"c{time.time_ns()}", limit=1, now=store.now(), lease=60_000, tasks=None)
    (run,) = store.claim_runs(claim).runs
    if outcome == "succeeded":
        transition = attempts.succeeded(run, None, store.now(), f"end.{run.attempt}")
    else:
        transition = attempts.failed(run, "it failed", store.now(), f"end.{run.attempt}")
    assert store.settle_runs([transition]) == [True]
    return run.id


@EVERY_STORE
def test_while_one_is_active_a_second_call_answers_it(app: Scheduler) -> None:
    first = app.enqueue("work", {"a": 1, "b": [2, {"c": 3, "d": 4}]}, unique="payload")
    again = app.enqueue("work", {"b": [2, {"d": 4, "c": 3}], "a": 1}, unique="payload", delay="1h", queue="x")
    assert (again.id, again.queue, again.run_at) == (first.id, "default", first.run_at)
    assert first.unique_key is not None
    assert first.unique_key.startswith("payload ")
    others = {
        app.enqueue("work", {"a": 2}, unique="payload").id,
        app.enqueue("other", {"a": 1, "b": [2, {"c": 3, "d": 4}]}, unique="payload").id,
        app.enqueue("work", {"a": 1, "b": [2, {"c": 3, "d": 4}]}, unique="payload", tenant="acme").id,
        app.enqueue("work", {"a": 1, "b": [2, {"c": 3, "d": 4}]}).id,
        app.enqueue("work", unique="ключ 😀").id,
    }
    assert len(others | {first.id}) == 6
    assert app.enqueue("work", {"z": 0}, unique="ключ 😀").id in others
    found = app.runs.get(first.id)
    assert (found.unique_key, found.payload) == (first.unique_key, {"a": 1, "b": [2, {"c": 3, "d": 4}]})


@EVERY_STORE
def test_when_it_has_ended_the_key_is_free(app: Scheduler) -> None:
    first = app.enqueue("work", unique="order-42").id
    assert end(app.store) == first
    second = app.enqueue("work", unique="order-42").id
    assert second != first
    assert app.runs.cancel(second).state == "cancelled"
    third = app.enqueue("work", unique="order-42").id
    assert third not in (first, second)
    assert active(app) == [third]


def purge(app: Scheduler) -> None:
    """Delete all runs that have ended."""
    while (purged := app.store.purge(LAST, 100)).deleted or purged.until < LAST:
        pass


@EVERY_STORE
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_the_id_of_a_purged_run_is_not_given_again(app: Scheduler, how: str) -> None:
    seen: set[str] = set()
    for _ in range(3):
        run = app.enqueue("work", unique="order-42")
        assert run.id not in seen
        seen.add(run.id)
        if how == "cancelled":
            app.runs.cancel(run.id)
        else:
            assert end(app.store, how) == run.id
        purge(app)
    assert active(app) == []


@EVERY_STORE
def test_the_id_of_a_record_whose_writer_died_is_given_once(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(app.store, "add_runs", _no_answer)
        with pytest.raises(StoreUnavailable):
            app.enqueue("work", unique="order-42")
    (record,) = app.store.find_records(KIND)
    # Another call adds the run, later.
    first = app.enqueue("work", unique="order-42")
    assert first.id == record.body
    assert end(app.store) == first.id
    purge(app)
    assert app.enqueue("work", unique="order-42").id != first.id


def _no_answer(*_: object, **__: object) -> list[bool]:
    raise StoreUnavailable("no answer")


@EVERY_STORE
@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled"])
def test_a_chosen_id_of_a_purged_run_is_given_to_nobody_who_did_not_choose_it(
    app: Scheduler, how: str
) -> None:
    def end_and_purge(run_id: str) -> None:
        if how == "cancelled":
            app.runs.cancel(run_id)
        else:
            assert end(app.store, how) == run_id
        purge(app)

    assert app.enqueue("work", id="order-42-a", unique="k").id == "order-42-a"
    end_and_purge("order-42-a")
    assert app.enqueue("work", id="order-42-b", unique="k").id == "order-42-b"
    end_and_purge("order-42-b")
    made = app.enqueue("work", unique="k").id
    assert made not in ("order-42-a", "order-42-b")
    end_and_purge(made)
    # Choosing it again is up to the user, also several times.
    for _ in range(3):
        assert app.enqueue("work", id="order-42-a", unique="k").id == "order-42-a"
        assert app.enqueue("work", id="order-42-b", unique="k").id == "order-42-a"
        end_and_purge("order-42-a")
    assert app.enqueue_many(["work"], ids=["order-42-b"], unique="k") == ["order-42-b"]


@EVERY_STORE
def test_a_chosen_id_that_is_given_again_by_a_writer_who_dies_is_added_by_the_next_call(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of an earlier run of the id must not count for the later one: its writer may only be slow."""
    assert app.enqueue("work", id="mine", unique="k").id == "mine"
    assert end(app.store) == "mine"
    purge(app)
    with monkeypatch.context() as patched:
        patched.setattr(app.store, "add_runs", _no_answer)
        with pytest.raises(StoreUnavailable):
            app.enqueue("work", id="mine", unique="k")
    assert app.enqueue("work", id="other", unique="k").id == "mine"
    assert end(app.store) == "mine"
    purge(app)
    assert app.enqueue("work", id="other", unique="k").id == "other"


def test_a_chosen_id_whose_run_ends_during_the_call_is_answered_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Scheduler("memory://")
    store, get = app.store, app.store.get_record
    with monkeypatch.context() as patched:
        patched.setattr(store, "add_runs", _no_answer)
        with pytest.raises(StoreUnavailable):
            app.enqueue("work", id="mine", unique="k")
    before = store.find_records(KIND)

    def meanwhile(kind: str, tenant: str, key: str) -> Record | None:
        if kind == unique_ends.KIND:
            # The call has found no run. Now another one adds it, and it ends.
            monkeypatch.setattr(store, "get_record", get)
            assert app.enqueue("work", unique="k").id == "mine"
            assert end(store) == "mine"
        return get(kind, tenant, key)

    monkeypatch.setattr(store, "get_record", meanwhile)
    run = app.enqueue("work", id="mine", unique="k")
    assert (run.id, run.state) == ("mine", "succeeded")
    # A record of a second run of the id, which does not exist, would let others add it after the purge.
    assert store.find_records(KIND) == before
    app.close()


class Stopped:
    """Stops the next caller of ``add_runs`` until the instant from which the store refuses its runs."""

    def __init__(
        self, app: Scheduler, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]
    ) -> None:
        self._app, self._add, self._meanwhile = app, app.store.add_runs, meanwhile
        self._monkeypatch = monkeypatch
        self.stopped: list[str] = []
        monkeypatch.setattr("evenbeat.app.unique_runs.ADD_WINDOW", 50)
        monkeypatch.setattr(app.store, "add_runs", self)

    def __call__(self, runs: list[RunRecord], before: int | None = None) -> list[bool]:
        self._monkeypatch.setattr("evenbeat.app.unique_runs.ADD_WINDOW", ADD_WINDOW)
        self._monkeypatch.setattr(self._app.store, "add_runs", self._add)
        self.stopped += [run.id for run in runs]
        self._meanwhile()
        awake_at = self._app.store.now() + 60
        while self._app.store.now() < awake_at:
            self._app.store.wait(0.01)
        return self._add(runs, before)


@EVERY_STORE
@pytest.mark.parametrize("number", [1, 4])
def test_a_writer_that_was_stopped_adds_no_run_that_has_ended_and_was_purged(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls = [("work", {"order": order}) for order in range(number)]
    executed: list[str] = []

    def others() -> None:
        for task, payload in calls:
            app.enqueue(task, payload, unique="payload")
        executed.extend(end(app.store) for _ in calls)
        purge(app)

    stop = Stopped(app, monkeypatch, others)
    if number == 1:
        ids = [app.enqueue(*calls[0], unique="payload").id]
    else:
        ids = app.enqueue_many([*calls, calls[0]], unique="payload")
        assert ids.pop() == ids[0]
    assert sorted(executed) == sorted(stop.stopped)
    assert not set(ids) & set(executed), "no id is given twice"
    assert sorted(active(app)) == sorted(ids)
    assert len(set(ids)) == number


@EVERY_STORE
def test_a_writer_that_was_stopped_adds_its_run_if_nobody_else_has(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="plain")
    def plain() -> None: ...

    @app.task(name="unique", unique="payload")
    def unique() -> None: ...

    stop = Stopped(app, monkeypatch, lambda: None)
    run = app.enqueue("work", unique="order-42")
    assert [run.id] == stop.stopped == active(app)
    app.runs.cancel(run.id)
    stop = Stopped(app, monkeypatch, lambda: None)
    mixed = app.enqueue_many([plain.bind(), unique.bind(), plain.bind()])
    assert sorted(mixed) == sorted(stop.stopped) == sorted(active(app))


@EVERY_STORE
def test_a_chosen_id_is_not_executed_twice_for_one_call_of_a_writer_that_was_stopped(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others() -> None:
        assert app.enqueue("work", unique="order-42").id == "mine"
        assert end(app.store) == "mine"
        purge(app)

    Stopped(app, monkeypatch, others)
    assert app.enqueue("work", id="mine", unique="order-42").id == "mine"
    assert active(app) == []
    Stopped(app, monkeypatch, others)
    assert app.enqueue_many(["work"], ids=["mine"], unique="order-42") == ["mine"]
    assert active(app) == []
    # A new call may choose it again.
    assert app.enqueue("work", id="mine", unique="order-42").id == "mine"
    assert active(app) == ["mine"]


@EVERY_STORE
def test_a_store_that_always_refuses_is_given_up(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.app.unique_runs.ADD_WINDOW", -60_000)
    for enqueue in (app.enqueue, lambda task, unique: app.enqueue_many([task] * 3, unique=unique)):
        with pytest.raises(StoreUnavailable, match="clock"):
            enqueue("work", unique="order-42")
    assert active(app) == []


@EVERY_STORE
def test_of_many_threads_all_are_answered_one_run(app: Scheduler) -> None:
    for number in range(5):
        answers: list[str] = []
        ready = threading.Barrier(THREADS)

        def enqueue(key: str, answers: list[str] = answers, ready: threading.Barrier = ready) -> None:
            ready.wait()
            answers.append(app.enqueue("work", unique=key).id)

        threads = [threading.Thread(target=enqueue, args=(f"order-{number}",)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == THREADS
        assert len(set(answers)) == 1
        assert active(app) == answers[:1]
        end(app.store)


@WITH_PROCESSES
def test_of_many_processes_all_are_answered_one_run(app: Scheduler, url: str) -> None:
    words = [sys.executable, "-c", ENQUEUER, url, str(time.time() + 2)]
    processes = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [answer for each in processes for answer in json.loads(each.communicate(timeout=60)[0])]
    assert len(answers) == 8
    assert active(app) == list(set(answers))


@WITH_PROCESSES
def test_a_process_that_dies_between_the_two_writes_leaves_a_key_that_can_be_used(
    app: Scheduler, url: str
) -> None:
    died = subprocess.run([sys.executable, "-c", DYING, url], cwd=ROOT, timeout=60, check=False)
    assert died.returncode == 9
    (record,) = app.store.find_records(KIND)
    assert active(app) == []
    run = app.enqueue("work", {"order": 42}, unique="payload")
    assert (run.id, active(app)) == (record.body, [record.body])


@EVERY_STORE
def test_a_slow_writer_and_its_successor_make_one_run(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, add, answers = app.store, app.store.add_runs, []

    def slow(runs: list[RunRecord], before: int | None = None) -> list[bool]:
        monkeypatch.setattr(store, "add_runs", add)
        answers.append(app.enqueue("work", {"by": "successor"}, unique="order-42"))
        assert end(store) == runs[0].id
        # A third one takes the key, while the slow one has not added its run.
        answers.append(app.enqueue("work", unique="order-42"))
        return add(runs, before)

    monkeypatch.setattr(store, "add_runs", slow)
    slow_answer = app.enqueue("work", {"by": "slow"}, unique="order-42")
    assert (slow_answer.id, slow_answer.state) == (answers[0].id, "succeeded")
    assert slow_answer.payload == {"by": "successor"}
    assert active(app) == [answers[1].id]


@EVERY_STORE
def test_a_failed_run_takes_its_key_before_it_is_retried(app: Scheduler) -> None:
    first = app.enqueue("work", unique="order-42").id
    end(app.store, "failed")
    second = app.enqueue("work", unique="order-42").id
    with pytest.raises(RunRefused) as refused:
        app.runs.retry(first)
    assert f"run {second} of the same key is active" in str(refused.value)
    bulk = app.runs.retry_all(ids=[first])
    assert (bulk.done, [second in each.why for each in bulk.refused]) == (0, [True])
    end(app.store, "failed")
    assert app.runs.retry(first).state == "queued"
    assert app.enqueue("work", unique="order-42").id == first
    with pytest.raises(RunRefused, match=f"run {first} of the same key"):
        app.runs.retry(second)
    end(app.store, "failed")
    assert app.runs.retry_all(ids=[second]).done == 1
    assert active(app) == [second]


@EVERY_STORE
def test_who_finds_a_pending_retry_applies_it(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    store, settle = app.store, app.store.settle_runs
    first = app.enqueue("work", unique="order-42").id
    end(store, "failed")
    answers: list[str] = []

    def slow(transitions: Any) -> list[bool]:
        monkeypatch.setattr(store, "settle_runs", settle)
        answers.append(app.enqueue("work", unique="order-42").id)
        return settle(transitions)

    monkeypatch.setattr(store, "settle_runs", slow)
    assert app.runs.retry(first).state == "queued"
    assert answers == active(app) == [first]
    assert app.runs.get(first).attempt == 2, "applied once"


@EVERY_STORE
def test_a_batch_with_keys_that_repeat(app: Scheduler) -> None:
    present = app.enqueue("work", {"n": 2}, unique="payload").id
    calls = [("work", {"n": number % 4}) for number in range(10)]
    ids = app.enqueue_many(calls, unique="payload")
    assert ids == [ids[number % 4] for number in range(10)]
    assert ids[2] == present
    assert sorted(active(app)) == sorted(set(ids))
    assert len(set(ids)) == 4


@EVERY_STORE
def test_an_id_of_ones_own_and_a_key(app: Scheduler) -> None:
    first = app.enqueue("work", id="mine", unique="order-42")
    assert first.id == "mine"
    assert app.enqueue("work", id="other", unique="order-42").id == "mine"
    end(app.store)
    again = app.enqueue("work", id="mine", unique="order-42")
    assert (again.id, again.state) == ("mine", "succeeded")
    assert app.enqueue("work", id="other", unique="order-42").id == "other"


@EVERY_STORE
def test_a_run_that_has_expired_in_the_queue_does_not_keep_its_key(app: Scheduler) -> None:
    first = app.enqueue("work", unique="order-42", expires="1ms")
    deadline = app.store.now() + 10
    while app.store.now() < deadline:
        app.store.wait(0.01)
    second = app.enqueue("work", unique="order-42")
    assert active(app) == [second.id]
    ended = app.runs.get(first.id)
    assert ended.state == "cancelled"
    assert ended.error is not None
    assert ended.error.startswith("expired: ")


def holders(store: Store) -> set[str]:
    """Return the runs that the records name."""
    return {holder.run for record in store.find_records(KIND) if (holder := holder_of(record))}


@EVERY_STORE
def test_records_of_ended_runs_are_deleted_and_all_others_stay(app: Scheduler) -> None:
    store = app.store
    ended = app.enqueue("work", unique="ended").id
    assert end(store) == ended
    waits = app.enqueue("work", unique="waits", tenant="acme", delay="52w").id
    unadded = RunRecord(id="unadded", task="work", unique_key="unadded")
    UniqueRuns(store).resolve([unadded])
    assert holders(store) == {ended, waits, "unadded"}
    UniqueRecords(store, 86_400_000).step(store.now())
    assert holders(store) == {waits, "unadded"}
    UniqueRecords(store, 86_400_000).step(store.now() + GIVEN_UP_AFTER + 1_000)
    assert holders(store) == {waits}


@EVERY_STORE
def test_more_records_than_one_part_holds(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.node.unique_records._AT_ONCE", 4)
    runs = [
        app.enqueue("work", {"n": number}, unique="payload", tenant=f"t{number % 3}") for number in range(30)
    ]
    for run in runs[10:]:
        app.runs.cancel(run.id, tenant=run.tenant)
    duty, now = UniqueRecords(app.store, 86_400_000), app.store.now()
    steps = 0
    while True:
        again = duty.step(now)
        steps += 1
        if again > now + 1_000:
            break
    assert steps > 10
    assert {record.body for record in app.store.find_records(KIND)} == {run.id for run in runs[:10]}


@EVERY_STORE
def test_a_damaged_record_is_replaced(app: Scheduler) -> None:
    key = record_key(RunRecord(id="x", task="work", unique_key="order-42"))
    for body in ("", " 1", "run x", " at:1", "run at:", "run at:x"):
        assert app.store.put_record(Record(kind=KIND, key=key, body=body, version=7))
        run = app.enqueue("work", unique="order-42")
        assert run.state == "queued"
        app.runs.cancel(run.id)
        UniqueRecords(app.store, 86_400_000).step(app.store.now())
        assert app.store.find_records(KIND) == []


def test_an_old_record_of_a_missing_run_is_renewed_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Scheduler("memory://")
    store = app.store
    now = store.now()
    UniqueRuns(store).resolve([RunRecord(id="unadded", task="work", unique_key="order-42")])
    (before,) = store.find_records(KIND)
    monkeypatch.setattr(store, "now", lambda: now + GIVEN_UP_AFTER - 10_000)
    assert app.enqueue("work", unique="order-42").id == "unadded"
    (after,) = store.find_records(KIND)
    assert (after.body, after.version > before.version) == (before.body, True)
    UniqueRuns(store).resolve([RunRecord(id="unadded-2", task="work", unique_key="order-43")])
    monkeypatch.setattr(store, "now", lambda: now + 2 * GIVEN_UP_AFTER)
    assert app.enqueue("work", unique="order-43").id != "unadded-2"
    app.close()


@pytest.mark.parametrize("unique", ["", "x" * 201, "a\nb", "\ud800", 0, -1, 2**63, True, ["a"]])
def test_wrong_keys_are_refused(unique: Any) -> None:
    app = Scheduler("memory://")
    with pytest.raises(InvalidValue) as refused:
        app.enqueue("work", unique=unique)
    assert refused.value.field == "unique"
    with pytest.raises(InvalidValue) as refused:
        app.task(name="work", unique=unique)
    assert refused.value.field == "unique"
    assert app.runs.list() == []
    app.close()


def test_a_task_says_that_its_runs_are_unique() -> None:
    app = Scheduler("memory://")

    @app.task(unique="payload")
    def work(order: int) -> None: ...

    first = work.enqueue(42)
    assert work.enqueue(42).id == first.id
    assert work.enqueue(43).id != first.id
    assert app.enqueue(work.bind(42), unique=False).id != first.id
    assert app.enqueue(work.bind(42), unique="mine").unique_key == "mine"
    assert len(set(app.enqueue_many([work.bind(42), work.bind(42)]))) == 1
    app.close()


def test_the_record_has_no_expiry_while_its_run_may_be_active() -> None:
    app = Scheduler("memory://")
    app.enqueue("work", unique="k")
    (record,) = app.store.find_records(KIND)
    assert record.expires is None
    assert replace(record, expires=1) != record
    app.close()

"""The promises of mongodb-cron, the model of the processor, on a real MongoDB.

The tests take real time, since a handler takes two seconds of it. So all scenes run in the same six seconds,
each in a collection of its own, and each test checks one of them. The scenes begin in the middle of a second:
half a second later, documents are due. A busy machine misses ticks: the tests compare the ticks with each
other, not with a clock.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from evenbeat.core.instants import Instant, from_ms
from evenbeat.documents import Document, MongoDocuments, Processor
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG

SECOND = 1000
EVERY_SECOND = "* * * * * *"
# Seconds after which a test stops waiting.
PATIENCE = 60.0
# Milliseconds from the end of a handler to the tick after it at most, on a busy machine.
BUSY = 10_000

Orders = Collection[dict[str, Any]]


class Scene:
    """A collection, its processors, and a record of their calls."""

    def __init__(self, database: Database[dict[str, Any]], name: str) -> None:
        self.orders: Orders = database[name]
        self._began: list[tuple[Any, Instant, Instant]] = []
        self.began = self._began
        """The id of a document, when it was due, and when its handler began."""
        self.ended: list[Instant] = []
        """When the handlers ended, in the order in which they did."""
        self.calls: list[str] = []
        self.processors: list[Processor] = []
        self.idle = threading.Event()

    def add(self, due: Instant | None, **fields: Any) -> None:
        self.orders.insert_one({"sleepUntil": None if due is None else from_ms(due), **fields})

    def processor(self, takes: float = 0, condition: dict[str, Any] | None = None, **words: Any) -> None:
        documents = MongoDocuments(
            self.orders,
            sleep_until="sleepUntil",
            interval="interval",
            repeat_until="repeatUntil",
            auto_remove="autoRemove",
            condition=condition,
        )

        def handle(document: Document) -> None:
            self.calls.append("document")
            due = document["sleepUntil"].replace(tzinfo=UTC)
            self._began.append((document.id, round(due.timestamp() * SECOND), documents.now()))
            threading.Event().wait(takes)
            self.ended.append(documents.now())

        def idle() -> None:
            self.calls.append("idle")
            self.idle.set()

        self.processors.append(
            Processor(
                documents,
                handle,
                on_idle=idle,
                on_start=lambda: self.calls.append("start"),
                on_stop=lambda: self.calls.append("stop"),
                **words,
            )
        )

    @property
    def ids(self) -> list[Any]:
        return [one for one, _, _ in self.began]

    def document(self, key: Any) -> dict[str, Any] | None:
        return self.orders.find_one({"_id": key})


class Scenes(dict[str, Scene]):
    """All scenes after their six seconds."""

    began: Instant
    """When the six seconds began: a full second, half a second before the processors were started."""


@pytest.fixture(scope="module")
def scenes() -> Iterator[Scenes]:
    with (
        own_place(server_url("mongo")) as url,
        MongoClient[dict[str, Any]](url) as client,
        ExitStack() as stack,
    ):
        database = client.get_default_database()
        clock = MongoDocuments(database["clock"])
        made = Scenes()
        # Leave time to create the collections, and half a second to start the processors.
        made.began = began = (clock.now() // SECOND + 3) * SECOND
        for prepare in (
            _waiting,
            _recurring,
            _slow,
            _overdue,
            _ending,
            _removing,
            _conditioned,
            _hooked,
            _yearly,
        ):
            scene = made[prepare.__name__.strip("_")] = Scene(database, prepare.__name__)
            scene.orders.create_index("sleepUntil")
            prepare(scene, began)
        _wait(clock, began + SECOND // 2)
        for scene in made.values():
            for processor in scene.processors:
                processor.start()
                stack.callback(processor.stop)
        hooked = made["hooked"]
        assert hooked.idle.wait(PATIENCE)
        hooked.idle.clear()
        hooked.add(clock.now(), _id="second")
        hooked.processors[0].hint()
        assert hooked.idle.wait(PATIENCE)
        _wait(clock, began + SECOND // 2 + 6 * SECOND)
        _wait_until(lambda: len(made["slow"].began) >= 3 and len(made["overdue"].began) >= 3)
        _wait_until(lambda: made["removing"].document("recurring") is None)
        _wait_until(lambda: (made["ending"].document(1) or {}).get("sleepUntil") is None)
        for scene in made.values():
            scene.began = list(scene.began)  # calls that begin while they are stopped are ignored
        for scene in made.values():
            for processor in scene.processors:
                processor.stop()
        yield made


def _wait(clock: MongoDocuments, until: Instant) -> None:
    while (left := until - clock.now()) > 0:
        threading.Event().wait(left / SECOND)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.05)


def _waiting(scene: Scene, began: Instant) -> None:
    """Documents that are not jobs, or not due yet; two processors, of which the second has nothing to do."""
    scene.add(None, _id="null")
    scene.orders.insert_one({"_id": "missing"})
    scene.add(began + 600 * SECOND, _id="locked by others")
    scene.add(began + 3_250, _id="later")
    scene.add(began - SECOND, _id="locked by us")
    scene.processor(takes=2)
    scene.processor(takes=2)


def _recurring(scene: Scene, began: Instant) -> None:
    scene.add(began, _id=1, interval=EVERY_SECOND)
    scene.processor()


def _slow(scene: Scene, began: Instant) -> None:
    scene.add(began, _id=1, interval=EVERY_SECOND)
    scene.processor(takes=2)


def _overdue(scene: Scene, began: Instant) -> None:
    scene.add(began - 10 * 86_400 * SECOND, _id=1, interval=EVERY_SECOND)
    scene.processor(takes=2)


def _ending(scene: Scene, began: Instant) -> None:
    scene.add(began, _id=1, interval=EVERY_SECOND, repeatUntil=from_ms(began + 4 * SECOND))
    scene.processor(reprocess_delay="1s")


def _removing(scene: Scene, began: Instant) -> None:
    scene.add(began, _id="once", autoRemove=True)
    scene.add(began, _id="kept")
    until = from_ms(began + 2 * SECOND)
    scene.add(began, _id="recurring", interval=EVERY_SECOND, repeatUntil=until, autoRemove=True)
    scene.processor()


def _conditioned(scene: Scene, began: Instant) -> None:
    scene.add(began, _id="yes", active=True)
    scene.add(began, _id="no", active=False)
    scene.add(began, _id="unsaid")
    scene.processor(condition={"active": True})


def _hooked(scene: Scene, began: Instant) -> None:
    scene.add(began, _id="first")
    scene.processor()


def _yearly(scene: Scene, began: Instant) -> None:
    due = _anniversary(began)
    interval = f"{due.second} {due.minute} {due.hour} {due.day} {due.month} *"
    scene.orders.insert_one({"_id": 1, "sleepUntil": due, "interval": interval})
    scene.processor()


def _anniversary(began: Instant) -> datetime:
    moment = from_ms(began) - timedelta(hours=1)
    # The next 29 February may be more than a year away.
    return moment - timedelta(days=1) if (moment.month, moment.day) == (2, 29) else moment


def test_a_document_without_a_time_is_not_a_job(scenes: Scenes) -> None:
    assert scenes["waiting"].document("null") == {"_id": "null", "sleepUntil": None}
    assert not {"null", "missing"} & set(scenes["waiting"].ids)


def test_a_locked_document_is_not_processed(scenes: Scenes) -> None:
    ids = scenes["waiting"].ids
    assert "locked by others" not in ids
    assert ids.count("locked by us") == 1


def test_no_document_is_processed_before_it_is_due(scenes: Scenes) -> None:
    (began,) = [began for key, _, began in scenes["waiting"].began if key == "later"]
    assert began >= scenes.began + 3_250
    assert all(began >= due for scene in scenes.values() for _, due, began in scene.began)


def test_a_document_that_is_done_is_not_a_job_any_more(scenes: Scenes) -> None:
    assert scenes["removing"].document("kept") == {"_id": "kept", "sleepUntil": None}


def test_a_recurring_document_is_processed_at_each_tick(scenes: Scenes) -> None:
    ticks = [due - scenes.began for _, due, _ in scenes["recurring"].began]
    assert len(ticks) >= 3  # seven on an idle machine
    assert ticks[0] == 0
    assert ticks == sorted(set(ticks))
    assert all(tick % SECOND == 0 for tick in ticks)


def test_a_document_that_takes_two_seconds_runs_again_at_the_first_tick_after_its_end(scenes: Scenes) -> None:
    # On an idle machine it begins in the middle of a second, ends two seconds later, and runs half a second
    # after that: at 0, 3 and 6.
    assert scenes["slow"].began[0][1] == scenes.began
    check_pauses(scenes["slow"])


def test_ten_missed_days_are_one_run(scenes: Scenes) -> None:
    assert scenes["overdue"].began[0][1] == scenes.began - 10 * 86_400 * SECOND
    check_pauses(scenes["overdue"])


def check_pauses(scene: Scene) -> None:
    """Check that each tick is the first full second after the end of the handler before it.

    The processor reads the clock a moment after the handler did, so it may be one second more.
    """
    dues = [due for _, due, _ in scene.began]
    assert len(dues) >= 3
    for due, ended in zip(dues[1:], scene.ended, strict=False):
        assert due % SECOND == 0
        assert ended < due <= ended + BUSY


def test_it_recurs_until_repeat_until_inclusively(scenes: Scenes) -> None:
    ticks = [due - scenes.began for _, due, _ in scenes["ending"].began]
    assert ticks[0] == 0
    # With a second of delay, every other tick.
    assert all(later - earlier >= 2 * SECOND for earlier, later in pairwise(ticks))
    assert set(ticks) <= {tick * SECOND for tick in range(5)}
    document = scenes["ending"].document(1)
    assert document is not None
    assert document["sleepUntil"] is None


def test_a_document_is_removed_if_auto_remove_is_set(scenes: Scenes) -> None:
    counts = Counter(scenes["removing"].ids)
    assert 1 <= counts.pop("recurring") <= 3  # three on an idle machine
    assert counts == {"once": 1, "kept": 1}
    assert [document["_id"] for document in scenes["removing"].orders.find()] == ["kept"]


def test_only_documents_that_meet_the_condition_are_processed(scenes: Scenes) -> None:
    assert scenes["conditioned"].ids == ["yes"]


def test_hooks_are_called_and_on_idle_once_each_time(scenes: Scenes) -> None:
    assert scenes["hooked"].calls == ["start", "document", "idle", "document", "idle", "stop"]


def test_a_yearly_document_is_due_in_a_year(scenes: Scenes) -> None:
    scene = scenes["yearly"]
    document = scene.document(1)
    assert scene.ids == [1]
    assert document is not None
    due = _anniversary(scenes.began)
    assert document["sleepUntil"].replace(tzinfo=UTC) == due.replace(year=due.year + 1)


@LONG
def test_a_hundred_processors_process_ten_thousand_documents_once(mongo: str) -> None:
    """In four processes, which all try the same documents: none is processed twice, and none is left."""
    count, processes, processors, concurrency = 10_000, 4, 25, 4
    command = [sys.executable, "-m", "tests.documents.swarm", mongo, str(processors), str(concurrency)]
    with MongoClient[dict[str, Any]](mongo) as client, ExitStack() as stack:
        orders = client.get_default_database()["orders"]
        orders.create_index("sleep_until")
        swarm = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(processes)
        ]
        for one in swarm:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        now = from_ms(MongoDocuments(orders).now())
        orders.insert_many([{"_id": number, "sleep_until": now} for number in range(count)])
        while orders.find_one({"sleep_until": {"$ne": None}}) is not None:
            threading.Event().wait(0.2)
        done: Counter[int] = Counter()
        for one in swarm:
            done.update(int(number) for number in one.communicate()[0].split())
    assert done == dict.fromkeys(range(count), 1)

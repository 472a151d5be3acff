"""MongoDB servers of the wrong kind, and servers that die or step down: real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, RunQuery, Write
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.mongo.location import ClientReference, read_location
from evenbeat.stores.server_clock import ServerClock
from evenbeat.testing import VirtualClock
from tests.certificates import self_signed
from tests.lengths import LONG
from tests.missing import skipped_without
from tests.servers import Mongo


class Standalone(Mongo):
    """A server that is not a member of a replica set."""

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--replSet")
        return command[:at] + command[at + 2 :]

    def _ready(self) -> None:
        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=1000) as client:
            client.admin.command("ping")


class Secure(Mongo):
    """A server that accepts only TLS connections, with a self-signed certificate."""

    def __init__(self) -> None:
        super().__init__()
        self.certificate = self.make_certificate("server")

    def make_certificate(self, name: str) -> Path:
        """The certificate and its key, in one file."""
        made, key = self_signed(self.folder, name, addresses=("127.0.0.1",))
        made.write_text(made.read_text() + key.read_text())
        if self._user is not None:
            os.chown(made, *self._user)
        return made

    def url_at(self, port: int) -> str:
        return f"{super().url_at(port)}&tls=true&tlsCAFile={self.certificate}"

    def _command(self) -> list[str]:
        return [
            *super()._command(),
            "--tlsMode",
            "requireTLS",
            "--tlsCertificateKeyFile",
            str(self.certificate),
            "--tlsCAFile",
            str(self.certificate),
            "--tlsAllowConnectionsWithoutCertificates",
        ]


class Starting(Mongo):
    """A server that knows no replica set before ``finish``, like one that is just starting."""

    def _ready(self) -> None:
        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=1000) as client:
            client.admin.command("ping")

    def finish(self) -> None:
        self._await(super()._ready)


M = TypeVar("M", bound=Mongo)


def run_server(kind: type[M]) -> Iterator[M]:
    with skipped_without("mongo"):
        server = kind()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def standalone() -> Iterator[Mongo]:
    yield from run_server(Standalone)


@pytest.fixture
def server() -> Iterator[Mongo]:
    yield from run_server(Mongo)


@pytest.fixture
def starting() -> Iterator[Starting]:
    yield from run_server(Starting)


@pytest.fixture
def secure() -> Iterator[Secure]:
    yield from run_server(Secure)


def repeated(call: Callable[[], Any]) -> Any:
    """Call until the store is available, as the loops do."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except StoreUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_standalone_server_is_refused_and_the_message_says_what_to_do(standalone: Mongo) -> None:
    for url in (standalone.url, f"mongodb://127.0.0.1:{standalone.port}/jobs"):
        store = MongoStore(url)
        with pytest.raises(StoreUnavailable, match=r"--replSet rs0 and run rs\.initiate\(\)"):
            store.open()
        assert store.server()[0].level == "fail"
        with pytest.raises(StoreUnavailable, match="not open"):
            store.count_runs()
        store.close()
    with MongoClient[dict[str, object]](standalone.url) as client:
        assert not {"evenbeat", "jobs"} & set(client.list_database_names())


@LONG
def test_acknowledged_writes_outlive_a_killed_server(server: Mongo) -> None:
    clock = VirtualClock()
    store = MongoStore(server.url, clock, timeout=2.0)
    store.open()
    planned = changes.create(ScheduleRecord(name="a", task="work", trigger="every 1m"), clock.now)
    assert store.put_schedules([Write(planned, None)])[0].accepted
    for turn in range(2):
        clock.advance("1m")
        (planned,) = store.fire_due(clock.now, 10, plan).planned
        token = f"claim-{turn}"
        wanted = Claim(worker="w", token=token, limit=10, now=clock.now, lease=600_000)
        (held,) = store.claim_runs(wanted).runs
        assert store.put_record(Record(kind="k", key=f"r{turn}", body="x"))
        assert store.add_runs([RunRecord(id=f"later-{turn}", task="work", run_at=clock.now + (1 << 40))]) == [
            True
        ]
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.settle_runs([attempts.succeeded(held, None, clock.now, f"end-{turn}")])
        assert store.wait(30) is True  # the store can't listen: it returns soon
        server.start()
        # The reply to the claim might be lost, too: it is repeated, and so is the end.
        assert repeated(partial(store.claim_runs, wanted)).runs == (held,)
        end = attempts.succeeded(held, None, clock.now, f"end-{turn}")
        for _ in range(2):
            assert repeated(partial(store.settle_runs, [end])) == [True]
        assert planned.runs[0].id == held.id
    assert store.count_runs() == {"succeeded": 2, "queued": 2}
    assert [record.key for record in store.find_records("k")] == ["r0", "r1"]
    assert store.statistics([("default", "a")])[0].run_count == 2
    store.close()


def test_connections_from_the_start_of_a_server_are_replaced(starting: Starting) -> None:
    early, store = MongoStore(starting.url), MongoStore(starting.url)
    with pytest.raises(StoreUnavailable, match="replica set"):
        early.open()
    reference = ClientReference(read_location(starting.url), 5.0, ServerClock(lambda: 0))
    # The driver believes for the whole life of this connection that the server knows no sessions.
    reference.client().admin.command("ping")
    starting.finish()
    repeated(store.open)
    planned = changes.create(ScheduleRecord(name="a", task="work", trigger="every 1m"), store.now())
    assert repeated(partial(store.put_schedules, [Write(planned, None)]))[0].accepted
    reference.give_back()
    store.close()


def test_a_primary_that_steps_down_and_comes_back_is_found_again(server: Mongo) -> None:
    clock = VirtualClock()
    # Without directConnection, as in production: the client knows the set and finds its primary.
    store = MongoStore(f"mongodb://127.0.0.1:{server.port}/jobs?replicaSet=rs0", clock)
    store.open()
    planned = changes.create(ScheduleRecord(name="a", task="work", trigger="every 1m"), clock.now)
    assert store.put_schedules([Write(planned, None)])[0].accepted
    assert store.wait(0) is False
    clock.advance("1m")
    with MongoClient[dict[str, object]](server.url) as client:
        try:
            client.admin.command({"replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 0, "force": True})
        except PyMongoError as error:
            raise AssertionError("the server did not step down") from error
    fired = repeated(lambda: store.fire_due(clock.now, 10, plan))
    assert len(fired.planned) == 1
    assert len(store.find_runs(RunQuery()).items) == 1
    # Hints end waits again.
    other = MongoStore(f"mongodb://127.0.0.1:{server.port}/jobs?replicaSet=rs0", clock)
    other.open()
    while store.wait(0.2):
        pass
    other.hint()
    assert store.wait(30) is True
    other.close()
    store.close()


@LONG
def test_a_store_works_over_tls_and_refuses_a_server_with_an_untrusted_certificate(secure: Secure) -> None:
    url = secure.url.replace("/?", "/jobs?")
    store, other = MongoStore(url), MongoStore(url)
    store.open()
    other.open()
    large = '"' + "x" * 200_000 + '"'  # more than one record of TLS
    assert store.add_runs([RunRecord(id="a", task="work", payload=large)]) == [True]
    wanted = Claim(worker="w", token="t", limit=1, now=store.now(), lease=60_000)
    (held,) = other.claim_runs(wanted).runs
    assert held.payload == large
    assert other.settle_runs([attempts.succeeded(held, None, store.now(), "end")]) == [True]
    assert store.count_runs() == {"succeeded": 1}
    assert store.wait(0) is False
    other.hint()
    assert store.wait(60) is True
    other.close()
    store.close()
    stranger = str(secure.make_certificate("stranger"))
    for distrusting in (url.replace(str(secure.certificate), stranger), url.split("&tlsCAFile")[0]):
        store = MongoStore(distrusting, timeout=1.0)
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            store.open()
        store.close()
    unencrypted = MongoStore(url.split("&tls=")[0], timeout=1.0)
    with pytest.raises(StoreUnavailable):
        unencrypted.open()
    unencrypted.close()

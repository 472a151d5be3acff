"""Properties of the Redis store alone: scripts, keys, memory, restarts, clusters. tests/contract has the
others."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import redis
from msgspec.structs import replace
from redis.exceptions import MovedError, ResponseError

from evenbeat.app import locks
from evenbeat.core.instants import FIRST, LAST, write_instant
from evenbeat.core.records import FORMAT, LogChunk, Record, RunRecord, ScheduleRecord
from evenbeat.documents import RedisDocuments
from evenbeat.errors import EvenbeatError, InvalidValue, SchemaTooNew, StoreUnavailable, TooLarge
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.stores import batching
from evenbeat.stores.base import LARGE_FIELDS, Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.redis import RedisStore, runs, schedules
from evenbeat.stores.redis.location import read_location
from evenbeat.stores.redis.scripts import script
from evenbeat.stores.redis.session import translated
from evenbeat.stores.urls import open_url
from evenbeat.testing import VirtualClock
from tests import servers
from tests.contract.adapters import RedisAdapter
from tests.contract.redis_indexes import differences
from tests.damage import can_be_found_and_written_anew
from tests.faults.fleet import wait_until
from tests.missing import skipped_without
from tests.store_calls import CommandLog, Crash, add_schedules, claim, every_call, schedule_names
from tests.stores import on_redis
from tests.stores.on_redis import Make

MINUTE = 60_000
clock, make, store, client = on_redis.clock, on_redis.make, on_redis.store, on_redis.client


@contextmanager
def own_server(**settings: str) -> Iterator[servers.Valkey]:
    """A server that a test may change, kill and fill up."""
    with skipped_without("valkey"):
        server = servers.Valkey({name.replace("_", "-"): value for name, value in settings.items()})
        server.start()
    try:
        yield server
    finally:
        server.stop()


def key(store: RedisStore, rest: str) -> str:
    return store.location.base + rest


# Locations.


def test_the_location_is_read_from_a_url() -> None:
    plain = read_location("redis://host:6379/2")
    assert (plain.url, plain.prefix, plain.meta) == ("redis://host:6379/2", "evenbeat", "{evenbeat}:meta")
    chosen = read_location("valkeys://u:p@host/0?prefix=my-app&ssl_cert_reqs=none")
    assert (chosen.url, chosen.prefix) == ("rediss://u:p@host:6379/0?ssl_cert_reqs=none", "my-app")
    assert read_location("redis://host?prefix=a", prefix="b").prefix == "b"
    assert isinstance(open_url("valkey://127.0.0.1:1/0"), RedisStore)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host?prefix=a:b",
        "redis://host?prefix=",
        "redis://host?prefix={a}",
        "redis://",
        "redis:///0",
        "redis://host/jobs",
        "redis://host:99999",
        "http://host",
        "redis://host:x",
        "redis://a,b/0",
        "redis+sentinel://host:26379",
        "redis+sentinel://host/jobs/x",
        "redis+sentinel:///jobs",
        "redis+cluster://host/1",
        "redis+cluster://",
        "redis+cluster://a,,b",
        "redis+proxy://host",
        "redis+://host",
        "redis+cluster://host?sentinel_password=x",
    ],
)
def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue):
        RedisStore(url)


def test_a_password_is_never_shown() -> None:
    for url in ("redis://me:s3cret@127.0.0.1:1/0", "redis://127.0.0.1:1/0?password=s3cret"):
        store = RedisStore(url, timeout=1)
        with pytest.raises(StoreUnavailable) as caught:
            store.open()
        assert "s3cret" not in str(caught.value)
        assert "127.0.0.1:1" in str(caught.value)
        assert "reached" in str(caught.value)
    with pytest.raises(InvalidValue) as refused:
        RedisStore("redis://me:s3cret@host/jobs")
    assert "s3cret" not in f"{refused.value} {refused.value.value}"


# Opening and closing.


def test_the_schema_is_read_without_creating_anything(valkey: str, client: Any) -> None:
    store = RedisStore(valkey)
    found = store.schema()
    assert (found.found, found.known) == (0, 2)
    assert found.script == f"HSET {store.location.meta} schema 2\n"
    assert list(client.scan_iter(key(store, "*"))) == []
    store.open()
    assert store.schema() == (2, 2, "")
    store.close()
    assert store.schema().found == 2


def test_a_layout_that_was_never_released_is_refused_and_left_alone(make: Make, client: Any) -> None:
    store = make()
    store.close()
    client.hset(store.location.meta, "schema", "1")
    with pytest.raises(StoreUnavailable, match=r"layout 1 .* uses 2; give another prefix, or delete"):
        store.open()
    assert store.schema().script.startswith("# the keys have layout 1")
    assert client.hget(store.location.meta, "schema") == "1"
    with pytest.raises(StoreUnavailable, match="not open"):
        store.count_runs()


@pytest.mark.parametrize("version", ["99", "soon"])
def test_a_newer_schema_is_refused_and_nonsense_is_named(make: Make, client: Any, version: str) -> None:
    store = make()
    store.close()
    client.hset(store.location.meta, "schema", version)
    if version == "99":
        with pytest.raises(SchemaTooNew) as caught:
            store.open()
        assert (caught.value.found, caught.value.known) == (99, 2)
    else:
        with pytest.raises(StoreUnavailable, match="not a number"):
            store.open()
    with pytest.raises(StoreUnavailable, match="not open"):
        store.count_runs()


def test_an_interrupted_opening_leaves_the_store_closed_and_can_be_repeated(valkey: str) -> None:
    watch = CommandLog()
    whole = RedisStore(valkey, on_command=watch)
    whole.open()
    whole.close()
    for position in range(len(watch.seen)):
        broken = RedisStore(valkey, on_command=CommandLog(position))
        with pytest.raises(Crash):
            broken.open()
        with pytest.raises(StoreUnavailable, match="not open"):
            broken.count_runs()
        again = RedisStore(valkey)
        again.open()
        assert again.count_runs() == {}
        again.close()


def test_two_installations_on_one_server_do_not_see_each_other(make: Make) -> None:
    ours, others = make(), make(prefix="test_another_one")
    try:
        add_schedules(ours, "a")
        add_schedules(others, "b")
        ours.add_runs([RunRecord(id="a", task="work")])
        assert (schedule_names(ours), schedule_names(others)) == (["a"], ["b"])
        assert claim(others) == []
        assert others.count_runs() == {}
    finally:
        with redis.Redis.from_url(others.location.url) as client:
            client.delete(*client.scan_iter(key(others, "*")))


# Settings that guarantees depend on.


def levels(store: RedisStore) -> dict[str, str]:
    return {setting.name: setting.level for setting in store.server()}


def test_a_safe_server_is_all_right(store: RedisStore) -> None:
    found = levels(store)
    assert set(found.values()) == {"ok"}
    assert {"valkey_version", "role", "maxmemory-policy", "appendonly", "appendfsync", "time"} <= set(found)


def test_a_server_that_evicts_keys_is_refused() -> None:
    with own_server(maxmemory="50mb", maxmemory_policy="allkeys-lru") as server:
        store = RedisStore(server.url)
        with pytest.raises(StoreUnavailable, match=r"maxmemory-policy is allkeys-lru.*noeviction"):
            store.open()
        assert levels(store)["maxmemory-policy"] == "fail"


def test_a_server_that_may_forget_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with own_server(appendfsync="everysec") as server:
        store = RedisStore(server.url)
        store.open()
        assert "appendfsync is everysec: a crash of the machine loses 1 to 2 s" in caplog.text
        assert levels(store)["appendfsync"] == "warn"
        with redis.Redis.from_url(server.url) as client:
            client.config_set("appendonly", "no")
            assert levels(store)["appendonly"] == "warn"
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 1000)
            assert levels(store)["maxmemory"] == "warn"
        store.close()


def test_a_server_that_does_not_let_its_settings_be_read_is_warned_of() -> None:
    with own_server() as server, redis.Redis.from_url(server.url) as client:
        client.execute_command(
            "ACL SETUSER app on >s3cret ~{evenbeat}:* &{evenbeat}:* +@all -@admin -@dangerous +info"
        )
        url = server.url.replace("redis://", "redis://app:s3cret@")
        store = RedisStore(url)
        store.open()
        found = {setting.name: setting for setting in store.server()}
        assert (found["appendfsync"].level, found["appendfsync"].value) == ("warn", "unknown")
        assert "cannot read it" in (found["appendfsync"].hint or "")
        # INFO is still readable.
        assert (found["maxmemory-policy"].level, found["appendonly"].level) == ("ok", "ok")
        # The scripts need Evenbeat's own keys, and no others.
        add_schedules(store, "a")
        assert store.add_runs([RunRecord(id="r", task="work")]) == [True]
        assert [held.id for held in claim(store)] == ["r"]
        assert store.wait(0) is False
        store.close()


def test_a_replica_is_refused_and_its_primary_warns_of_failovers() -> None:
    with own_server() as primary, own_server(replicaof=f"127.0.0.1 {primary.port}") as replica:
        store = RedisStore(replica.url)
        with pytest.raises(StoreUnavailable, match=r"role is slave.*name the primary"):
            store.open()
        with redis.Redis.from_url(primary.url) as client:
            while not client.info("replication")["connected_slaves"]:
                pass
        found = {setting.name: setting for setting in RedisStore(primary.url).server()}
        assert found["connected_slaves"].level == "ok"
        assert "failover loses" in (found["connected_slaves"].hint or "")


def test_a_cluster_node_without_the_keys_names_the_one_that_has_them() -> None:
    error = translated(read_location("redis://me:s3cret@host"), MovedError("1234 10.0.0.7:7001"))
    assert str(error) == (
        "redis://me:***@host: this node of a cluster does not have the keys, 10.0.0.7:7001 has "
        "(write redis+cluster://, which finds them)"
    )


# Time.


def test_without_a_clock_of_ours_the_servers_decides(make: Make, client: Any) -> None:
    store = make(clock=None)
    seconds, micros = client.time()
    assert abs(store.now() - (seconds * 1000 + micros // 1000)) < 60_000
    store.add_runs([RunRecord(id="a", task="work", run_at=store.now() - 1)])
    before = store.now()
    (held,) = claim(store)
    assert held.started_at is not None
    assert before <= held.started_at + 1
    assert held.lease_until == held.started_at + 30_000
    # A node whose clock is ahead by an hour claims, fires and reaps nothing that is not due.
    ahead = store.now() + 60 * MINUTE
    store.add_runs([RunRecord(id="b", task="work", run_at=ahead - MINUTE)])
    wanted = Claim(worker="w", token="d", limit=10, now=ahead, lease=1000)
    assert store.claim_runs(wanted).runs == ()
    assert store.lost_runs(ahead, 10).runs == ()
    add_schedules(store, "s")
    assert store.fire_due(ahead, 10, plan).planned == ()


def test_a_lock_can_be_read_with_redis_cli_and_goes_by_itself(make: Make, client: Any, valkey: str) -> None:
    store = make(clock=None)
    key = f"{read_location(valkey).base}schedule_lock:import"
    assert locks.try_acquire(store, "import", "90s", "mine", description="new prices")
    body = json.loads(client.hget(key, "body"))
    assert (body["holder"], body["description"]) == (locks.this_process(), "new prices")
    assert abs(datetime.fromisoformat(body["created_at"]).timestamp() * 1000 - store.now()) < 60_000
    assert 20_000 < client.pttl(key) <= 90_000
    assert locks.extend(store, "import", "1h", "mine")
    assert 3_000_000 < client.pttl(key) <= 3_600_000
    stale = store.get_record("lock", "default", "import")
    assert stale is not None

    # As Redis does when it expires: a late write matches nothing, and does not affect the next holder.
    assert client.pexpire(key, 0)
    assert locks.holder(store, "import") is None
    assert not locks.extend(store, "import", "30s", "mine")
    assert not store.put_record(replace(stale, version=stale.version + 1), expect=stale.version)
    assert locks.try_acquire(store, "import", "90s", "theirs")
    assert not store.put_record(stale)
    assert not store.delete_record("lock", "default", "import", stale.version)
    assert locks.extend(store, "import", "90s", "theirs")
    assert store.purge(store.now(), 100).deleted == 0
    assert locks.release(store, "import", "theirs")
    # Other records stay until they are purged.
    assert store.put_record(Record(kind="node", key="n", body="{}", expires=store.now() + 60_000))
    assert client.pttl(f"{read_location(valkey).base}records:node:n") == -1


def test_instants_are_written_and_read_alike_by_the_scripts(client: Any) -> None:
    folder = files("evenbeat.stores.redis") / "lua"
    body = """
    local answers = {}
    for at, ms in ipairs(request) do answers[at] = { text(ms), string.format('%.0f', instant(text(ms))) } end
    return answers"""
    text_of_script = (folder / "prelude.lua").read_text() + body
    chance = random.Random(7)
    some = [FIRST, LAST, FIRST - 1, LAST + 1, 0, -1, 1, 999, 1000, 951_782_400_000, 951_868_799_999, 1 << 52]
    some += [chance.randint(FIRST, LAST) for _ in range(2000)]
    some += [chance.randint(FIRST, LAST) // 1000 * 1000 for _ in range(500)]
    answers = client.eval(text_of_script, 1, "{x}:meta", "0", msgspec.msgpack.encode(some))
    for instant, (text, back) in zip(some, answers, strict=True):
        assert text == (write_instant(instant) if FIRST <= instant <= LAST else str(instant))
        assert int(back) == instant


# Restarts, lost scripts, lost replies.


def test_scripts_that_the_server_forgot_are_sent_again(store: RedisStore, client: Any) -> None:
    add_schedules(store, "a")
    client.script_flush()
    add_schedules(store, "b")
    assert schedule_names(store) == ["a", "b"]


def test_all_that_was_acknowledged_is_there_after_the_server_was_killed() -> None:
    with own_server() as server:
        store = RedisStore(server.url, timeout=2)
        store.open()
        for turn in range(3):
            add_schedules(store, f"s{turn}")
            assert store.add_runs([RunRecord(id=f"r{turn}", task="work")]) == [True]
            assert [held.id for held in claim(store, f"c{turn}")] == [f"r{turn}"]
            server.kill()
            with pytest.raises(StoreUnavailable, match="try again"):
                store.count_runs()
            server.start()
            assert store.count_runs() == {"running": turn + 1}
            assert schedule_names(store) == [f"s{at}" for at in range(turn + 1)]
            assert differences(server.url) == {}
        store.close()


class Proxy:
    """A proxy that drops the next reply of the server on request."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.swallow = False
        self.requests = 0
        self._open: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            for source, target, is_reply in ((near, far, False), (far, near, True)):
                thread = threading.Thread(target=self._pass, args=(source, target, is_reply), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: Any, target: Any, is_reply: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if is_reply and self.swallow:
                    self.swallow = False
                    break
                self.requests += b"EVAL" in data
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(20)


def test_a_call_whose_reply_is_lost_is_not_repeated_by_the_driver_and_may_be_by_us(
    valkey: str, clock: VirtualClock, client: Any
) -> None:
    for entry in (files("evenbeat.stores.redis") / "lua").iterdir():
        if entry.name != "prelude.lua":
            client.script_load(script(entry.name.removesuffix(".lua")).text)
    batching = urlsplit(valkey)
    proxy = Proxy(batching.port or 6379)
    store = RedisStore(batching._replace(netloc=f"127.0.0.1:{proxy.port}").geturl(), clock, timeout=10)
    try:
        store.open()
        add_schedules(store, "a", "b")
        clock.advance("1m")
        created = changes.create(ScheduleRecord(name="c", task="work", trigger="every 1m"), clock.now)
        node = Record(kind="node", key="n", body="{}", version=7)
        chunk = LogChunk(run="r", attempt=1, seq=0, text="x", at=clock.now)
        held: list[RunRecord] = []
        ticks = [f"default/{name}/1/{clock.now}" for name in "ab"]

        def settled() -> object:
            return store.settle_runs(
                [attempts.succeeded(run, None, clock.now, f"t-{run.id}") for run in held]
            )

        calls: list[tuple[Callable[[], object], object]] = [
            (lambda: [found.accepted for found in store.put_schedules([Write(created, None)])], [True]),
            (lambda: store.add_runs([RunRecord(id="r", task="work")]), [False]),
            (lambda: store.fire_due(clock.now, 10, plan).planned, ()),
            (lambda: sorted(run.id for run in claim(store)), [*ticks, "r"]),
            (settled, [True] * 3),
            (lambda: store.put_record(node), True),
            (lambda: store.append_log([chunk]), None),
            (lambda: store.delete_record("node", "default", "n", 7), False),
        ]
        for call, repeated in calls:
            if call is settled:
                held += claim(store)
            # The scripts are known: one request is one try.
            sent = proxy.requests
            proxy.swallow = True
            with pytest.raises(StoreUnavailable):
                call()
            assert proxy.requests == sent + 1
            if call is calls[2][0]:
                # Reserved, and not planned: the lost reply is that of the first of two commands.
                assert len(store.fire_due(clock.now, 10, plan).planned) == 2
            assert call() == repeated
        assert store.count_runs() == {"succeeded": 3}
        assert [figures.run_count for figures in store.statistics([("default", "a")])] == [1]
        assert differences(valkey) == {}
    finally:
        store.close()
        proxy.close()


def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = RedisStore(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout=0.05)
        with pytest.raises(StoreUnavailable, match=r"imeout"):
            store.open()
        with pytest.raises(StoreUnavailable):
            store.schema()


# Memory.


def test_a_server_without_memory_refuses_new_work_and_lets_existing_work_end(clock: VirtualClock) -> None:
    with own_server() as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        store = RedisStore(server.url, clock)
        store.open()
        add_schedules(store, *(f"s{at:03}" for at in range(50)))
        add_schedules(store, "single", overlap="queue")
        store.add_runs([RunRecord(id=f"r{at}", task="work") for at in range(5)])
        held = claim(store, "first", limit=2)
        clock.advance("1m")
        client.config_set("maxmemory", "1mb")
        adapter = RedisAdapter(server.url, clock)
        before = adapter.dump()
        refused: list[Callable[[], object]] = [
            lambda: store.fire_due(clock.now, 100, plan),
            lambda: store.add_runs([RunRecord(id=f"n{at}", task="work") for at in range(100)]),
            lambda: add_schedules(store, "more"),
            lambda: store.put_record(Record(kind="node", key="n", body="{}")),
            lambda: store.append_log([LogChunk(run="r0", attempt=1, seq=0, text="x", at=0)]),
        ]
        for call in refused:
            with pytest.raises(StoreUnavailable, match="maxmemory is reached, and nothing was written"):
                call()
        assert adapter.dump() == before
        adapter.close()
        # Running work can end, and makes room.
        following = (RunRecord(id="next", task="work"),)
        ends = [attempts.succeeded(run, "1", clock.now, f"t-{run.id}", adds=following) for run in held]
        assert store.settle_runs(ends) == [True, True]
        assert len(claim(store, "second")) == 4
        assert store.purge(clock.now + 1, 100).deleted == 2
        assert differences(server.url) == {}
        client.config_set("maxmemory", "0")
        assert len(store.fire_due(clock.now, 100, plan).planned) == 51
        assert differences(server.url) == {}
        store.close()


def test_a_value_that_is_too_large_for_the_server_is_refused_alone() -> None:
    with own_server(proto_max_bulk_len="1mb") as server:
        store = RedisStore(server.url)
        store.open()
        large = RunRecord(id="a", task="work", payload=f'"{"x" * 1_500_000}"')
        for _ in range(2):
            # The server ends the connection while the rest is still being sent: its reason may get lost.
            with pytest.raises((TooLarge, StoreUnavailable)):
                store.add_runs([large])
        # The connection that the server is ending may be used once more, before this is noticed.
        with suppress(StoreUnavailable):
            store.count_runs()
        assert store.count_runs() == {}
        assert store.add_runs([replace(large, payload="1")]) == [True]
        store.close()
        documents = RedisDocuments(server.url, "order:*")
        with pytest.raises((InvalidValue, StoreUnavailable)):
            documents.put("order:1", {"x": large.payload})
        documents.close()


def test_a_refusal_because_of_size_is_distinguished_from_a_server_that_is_away() -> None:
    address = read_location("redis://127.0.0.1:6379/0")
    refused = translated(address, ResponseError("Protocol error: invalid bulk length"))
    assert isinstance(refused, TooLarge)
    assert "proto-max-bulk-len" in str(refused)
    assert isinstance(translated(address, ConnectionResetError(104, "reset")), StoreUnavailable)


def test_a_value_that_redis_cannot_store_is_refused_as_invalid(store: RedisStore) -> None:
    for bad in (
        RunRecord(id="a", task="work", error="\ud800"),
        RunRecord(id="a", task="work", payload='"\ud800"'),
        RunRecord(id="a", task="work", run_at=1 << 70),
        RunRecord(id="a", task="work", created_at=(1 << 53) + 1),
        RunRecord(id="a", task="work", priority=77),
        RunRecord(id="\ud800", task="work"),
    ):
        with pytest.raises(InvalidValue):
            store.add_runs([bad])
    with pytest.raises(InvalidValue):
        store.put_record(Record(kind="a kind", key="k", body=""))
    assert store.count_runs() == {}


def test_joining_a_transaction_of_another_database_is_refused(store: RedisStore) -> None:
    with pytest.raises(InvalidValue, match="after the commit"):
        store.add_runs_within(object(), [])


# Nodes that work at the same time.


def test_two_nodes_that_fire_at_once_get_different_rows(make: Make, clock: VirtualClock) -> None:
    one, other = make(), make()
    add_schedules(one, *(f"s{at}" for at in range(10)))
    clock.advance("1m")
    theirs: list[Planned] = []

    def meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        if not theirs:
            theirs.extend(other.fire_due(clock.now, 5, plan).planned)
            # The other schedules are reserved: there is nothing to fire, although more is due.
            rest = other.fire_due(clock.now, 5, plan)
            assert (rest.planned, rest.next_wake) == ((), clock.now)
        return plan(row, now, active)

    ours = one.fire_due(clock.now, 5, meanwhile).planned
    assert len(ours) == len(theirs) == 5
    assert {entry.schedule.name for entry in ours} | {entry.schedule.name for entry in theirs} == {
        f"s{at}" for at in range(10)
    }


@pytest.mark.parametrize("wait", ["by looking", "by time"])
def test_schedules_that_a_dead_node_had_reserved_are_fired_by_another(
    make: Make, clock: VirtualClock, wait: str
) -> None:
    watch = CommandLog(on=False)
    dying, other = make(on_command=watch), make()
    add_schedules(other, "a", "b")
    clock.advance("1m")
    watch.on, watch.crash_at = True, 1
    with pytest.raises(Crash):
        dying.fire_due(clock.now, 10, plan)
    assert watch.seen == ["take due", "fire"]
    assert other.fire_due(clock.now, 10, plan).planned == ()
    if wait == "by time":
        clock.now += schedules.RESERVATION_MS
    else:
        for _ in range(schedules.TRIES_BEFORE_TAKEOVER - 1):
            assert other.fire_due(clock.now, 10, plan).planned == ()
    assert len(other.fire_due(clock.now, 10, plan).planned) == 2
    # The dead node was only slow: it finds nothing to fire any more.
    watch.on = False
    assert dying.fire_due(clock.now, 10, plan).planned == ()
    assert len(other.find_runs(RunQuery()).items) == 2


def test_a_row_that_changes_while_it_is_planned_is_not_fired(make: Make, clock: VirtualClock) -> None:
    store, other = make(), make()
    add_schedules(store, "a", "b")
    clock.advance("1m")

    def meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        if row.name == "a":
            pause = changes.pause(row, clock.now)
            assert pause is not None
            assert other.put_schedules([Write(pause, row.version)])[0].accepted
        return plan(row, now, active)._replace(records=(Record(kind="signal", key=row.name, body=""),))

    done = store.fire_due(clock.now, 10, meanwhile)
    assert [entry.schedule.name for entry in done.planned] == ["b"]
    assert done.lost == (("default", "a"),)
    assert [record.key for record in store.find_records("signal")] == ["b"]
    (row,) = store.find_schedules(ScheduleQuery(name="a")).items
    assert row.state == "paused"


def test_a_run_that_ends_while_its_successor_is_planned_wakes_it(make: Make, clock: VirtualClock) -> None:
    store, other = make(), make()
    add_schedules(store, "a", overlap="queue")
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    (held,) = claim(store)
    clock.advance("1m")

    def meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        assert len(active) == 1
        assert other.settle_runs([attempts.succeeded(held, None, clock.now, "end")]) == [True]
        return plan(row, now, active)

    missed = store.fire_due(clock.now, 10, meanwhile)
    assert (missed.planned, missed.next_wake) == ((), clock.now)
    (planned,) = store.fire_due(clock.now, 10, plan).planned
    assert len(planned.runs) == 1


def test_a_node_that_runs_out_of_memory_while_it_reads_a_row_quarantines_nothing(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> ScheduleRecord:
        raise MemoryError

    add_schedules(store, "a")
    clock.advance("1m")
    with monkeypatch.context() as machine:
        machine.setattr(schedules, "schedule_of", exhausted)
        with pytest.raises(MemoryError):
            store.fire_due(clock.now, 10, plan)
    assert store.find_records("quarantine") == []
    assert len(store.fire_due(clock.now, 10, plan).planned) == 1


def test_large_batches_go_in_parts_and_answer_as_one(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "BATCH", 10)
    monkeypatch.setattr(schedules, "READ_LIMIT", 7)
    monkeypatch.setattr(runs, "BATCH", 10)
    add_schedules(store, *(f"s{at:02}" for at in range(35)))
    assert len(schedule_names(store)) == 35
    assert schedule_names(store) == sorted(schedule_names(store))
    # A page that is as long as what one script reads is not the last one.
    page = store.find_schedules(ScheduleQuery(limit=7))
    assert (len(page.items), page.cursor is None) == (7, False)
    clock.advance("1m")
    fired = store.fire_due(clock.now, 32, plan)
    assert (len(fired.planned), fired.next_wake) == (32, clock.now)
    fired = store.fire_due(clock.now, 32, plan)
    assert (len(fired.planned), fired.next_wake) == (3, clock.now + MINUTE)
    added = [RunRecord(id=f"r{at:02}", task="work") for at in range(25)]
    assert store.add_runs([*added, added[0]]) == [True] * 25 + [False]
    held = claim(store, "all", limit=45)
    assert len({run.id for run in held}) == 45
    assert {run.id for run in claim(store, "all", limit=45)} == {run.id for run in held}
    ends = [attempts.succeeded(run, None, clock.now, run.id) for run in held]
    assert store.settle_runs([*ends, *ends[:3]]) == [True] * 48
    assert store.count_runs() == {"queued": 15, "succeeded": 45}


def test_an_idle_node_sends_one_small_command_that_writes_nothing(
    make: Make, clock: VirtualClock, client: Any
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    add_schedules(store, "a")
    store.add_runs([RunRecord(id="future", task="work", run_at=clock.now + MINUTE)])
    watch.seen.clear()
    written = client.info("persistence")["rdb_changes_since_last_save"]
    assert store.fire_due(clock.now, 500, plan).next_wake == clock.now + MINUTE
    assert claim(store) == []
    assert watch.seen == ["take due", "claim"]
    assert client.info("persistence")["rdb_changes_since_last_save"] == written


def test_runs_of_many_tasks_and_queues_are_claimed_in_the_order_of_bytes(store: RedisStore) -> None:
    ids = ["B", "a", "é", "Z", "_", "😀", "ab", "a-"]
    store.add_runs(
        [
            RunRecord(id=run_id, task=f"task{at}", queue=f"q{at % 2}", run_at=5, priority=5 if at < 7 else 6)
            for at, run_id in enumerate(ids)
        ]
    )
    held = [run.id for run in claim(store, limit=20, queues=("q0", "q1"))]
    assert held == ["a-", *sorted(ids[:7], key=str.encode)]


def test_foreign_tasks_at_the_head_of_a_queue_cost_a_claim_nothing(store: RedisStore, client: Any) -> None:
    store.add_runs([RunRecord(id=f"f{at:04}", task="foreign", run_at=1) for at in range(1000)])
    store.add_runs([RunRecord(id="mine", task="work", run_at=2)])
    client.config_resetstat()
    assert [run.id for run in claim(store, tasks=frozenset({"work"}))] == ["mine"]
    assert client.info("commandstats")["cmdstat_hgetall"]["calls"] <= 2


# Rows that cannot be read.


def test_a_schedule_whose_hash_is_missing_is_noted_and_not_read_again(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add_schedules(store, "a", "b")
    client.delete(key(store, "schedules:b"))
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, plan)
    assert ([row.schedule.name for row in fired.planned], fired.quarantined) == (["a"], (("default", "b"),))
    assert store.fire_due(clock.now, 10, plan).next_wake == clock.now + MINUTE
    can_be_found_and_written_anew(store, "b")


def test_a_run_whose_hash_is_gone_does_not_block_its_queue(store: RedisStore, client: Any) -> None:
    store.add_runs([RunRecord(id="a", task="work"), RunRecord(id="b", task="work")])
    client.delete(key(store, "runs:a"))
    assert [held.id for held in claim(store)] == ["b"]
    assert client.exists(key(store, "ready:default:5:default:work")) == 0


def test_a_run_of_a_newer_format_waits_for_a_node_that_knows_it(store: RedisStore, client: Any) -> None:
    store.add_runs([RunRecord(id="new", task="work", format=FORMAT + 1), RunRecord(id="old", task="work")])
    assert [held.id for held in claim(store)] == ["old"]
    assert client.zrange(key(store, f"ready.{FORMAT + 1}:default:5:default:work"), 0, -1) == ["new"]


# Clusters.


def exercise(store: RedisStore, clock: VirtualClock) -> None:
    """Do everything that creates keys."""
    add_schedules(store, "a", trigger="every 10s")
    add_schedules(store, "b", tenant="acme", overlap="queue")
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    held = claim(store)
    store.append_log([LogChunk(run=held[0].id, attempt=1, seq=0, text="x", at=clock.now)])
    store.settle_runs(
        [attempts.succeeded(held[0], None, clock.now, "t"), attempts.released(held[1], clock.now, "u")]
    )
    store.put_record(Record(kind="lock", key="import", body="token", expires=clock.now + MINUTE))
    store.put_record(Record(kind="node", tenant="acme", key="n", body="{}"))
    store.add_runs([RunRecord(id="é", task="tâche", queue="q", tenant="acme")])


def test_all_keys_are_in_one_slot_of_a_cluster(store: RedisStore, clock: VirtualClock, client: Any) -> None:
    exercise(store, clock)
    found = list(client.scan_iter(key(store, "*"), count=1000))
    assert len(found) > 20
    assert len({client.execute_command("CLUSTER KEYSLOT", name) for name in found}) == 1


def test_a_node_of_a_cluster_that_has_the_slot_will_do(clock: VirtualClock) -> None:
    settings = {"cluster_enabled": "yes", "cluster_port": str(servers.free_port())}
    with own_server(**settings) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            pass
        store = RedisStore(server.url, clock)
        store.open()
        exercise(store, clock)
        assert {setting.name: setting.level for setting in store.server()}["cluster_enabled"] == "warn"
        assert store.count_runs() == {"queued": 2, "succeeded": 1}
        assert store.find_runs(RunQuery(tenant="acme")).items
        assert store.purge(clock.now + 1, 100).deleted > 0
        assert store.wait(0) is False
        store.hint()
        assert differences(server.url) == {}
        slot = client.execute_command("CLUSTER KEYSLOT", store.location.meta)
        client.execute_command("CLUSTER DELSLOTS", slot)
        with pytest.raises(StoreUnavailable, match=r"a part of the cluster is missing|CLUSTERDOWN"):
            store.count_runs()
        store.close()


# Waking up.


def test_a_wait_is_short_while_the_server_is_away_and_one_ends_after_a_reconnect(clock: VirtualClock) -> None:
    with own_server() as server:
        store = RedisStore(server.url, clock, timeout=1)
        store.open()
        assert store.wait(0) is False
        server.kill()
        assert store.wait(60) is True
        assert store.wait(60) is True  # the server is still away
        server.start()
        wait_until(lambda: store._waker.is_receiving, "the store does not connect again")
        assert store.wait(0) is True  # hints may have been lost
        assert store.wait(0) is False
        store.hint()
        store.close()


# People with redis-cli.


def test_a_person_reads_a_schedule_its_runs_and_its_lock(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add_schedules(store, "report", trigger="0 9 * * *", payload='{"team":"ops"}')
    found = client.hgetall(key(store, "schedules:report"))
    assert (found["trigger"], found["state"], found["next_run"]) == (
        "0 9 * * *",
        "active",
        "2026-03-02T09:00:00Z",
    )
    clock.now = 1_772_442_000_000
    store.fire_due(clock.now, 10, plan)
    (held,) = claim(store)
    clock.advance("5s")
    store.settle_runs([attempts.failed(held, "boom", clock.now, "t")])
    found = client.hgetall(key(store, "schedules:report"))
    assert found["next_run"] == "2026-03-03T09:00:00Z"
    assert (found["run_count"], found["failure_count"], found["last_error"]) == ("1", "1", "boom")
    assert found["last_run"] == found["last_failure"] == "2026-03-02T09:00:05Z"
    run = client.hgetall(key(store, f"runs:{held.id}"))
    assert (run["state"], run["task"], run["attempt"], run["error"]) == ("failed", "work", "1", "boom")
    assert (run["started_at"], run["finished_at"]) == ("2026-03-02T09:00:00Z", "2026-03-02T09:00:05Z")
    assert store.put_record(Record(kind="lock", key="import", body="token", expires=clock.now + 500))
    lock = client.hgetall(key(store, "schedule_lock:import"))
    assert (lock["body"], lock["expires"]) == ("token", "2026-03-02T09:00:05.500Z")
    add_schedules(store, "report", tenant="acme")
    assert client.hget(key(store, "schedules:acme/report"), "tenant") == "acme"
    assert client.zrange(key(store, "due"), 0, -1) == ["acme report", "default report"]


def test_a_page_goes_on_where_it_ended_also_when_that_run_is_gone(
    store: RedisStore, clock: VirtualClock
) -> None:
    store.add_runs([RunRecord(id=f"r{at}", task="work", created_at=clock.now) for at in range(9)])
    page = store.find_runs(RunQuery(limit=3))
    held = {run.id: run for run in claim(store)}
    store.settle_runs([attempts.succeeded(held[name], None, clock.now, name) for name in ("r1", "r2")])
    clock.advance("1s")
    assert store.purge(clock.now, 10).deleted == 2
    rest = store.find_runs(RunQuery(limit=3, cursor=page.cursor))
    assert [run.id for run in rest.items] == ["r3", "r4", "r5"]


# Searches that read only matches.


def audit(number: int, **fields: Any) -> Record:
    return Record(kind="audit", key=f"{number:04}", body=str(number), **fields)


def test_a_range_of_records_is_read_alone(make: Make) -> None:
    log = CommandLog(on=False)
    store = make(on_command=log)
    per_tenant = [tuple(audit(at, tenant=tenant) for at in range(1100)) for tenant in ("a", "b", "default")]
    made = [changes.create(ScheduleRecord(name=name, task="work", trigger="@daily"), 0) for name in "xyz"]
    writes = [
        Write(planned._replace(records=notes), None) for planned, notes in zip(made, per_tenant, strict=True)
    ]
    assert all(answer.accepted for answer in store.put_schedules(writes))
    log.on = True

    def found(scripts: int, tenant: str | None = None, **bounds: Any) -> list[str]:
        records = store.find_records("audit", tenant, **bounds)
        assert log.seen == ["find records"] * scripts
        log.seen.clear()
        assert records == sorted(records, key=lambda record: (record.tenant, record.key))
        return [record.body for record in records]

    # A script reads up to 500 records. Those before the range, behind it or beyond the limit would take more.
    assert found(1, "b", start="0700", end="0703") == ["700", "701", "702"]
    assert found(1, start="0700", end="0702") == ["700", "701"] * 3
    assert found(1, start="0700", limit=2) == ["700", "701"]
    assert found(1, "b", start="0700", limit=500) == [str(at) for at in range(700, 1100)]
    assert found(2, "b", limit=501) == [str(at) for at in range(501)]
    assert len(found(7)) == 3300


def test_expired_and_unreadable_records_do_not_count_for_a_limit(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    for at in range(6):
        assert store.put_record(audit(at, expires=clock.now + 1000 if at < 2 else None))
    client.hset(key(store, "records:audit:0002"), "version", "many")
    client.hset(key(store, "records:audit:0003"), "expires", "tomorrow")
    clock.advance("1s")
    assert [record.body for record in store.find_records("audit", limit=1)] == ["4"]
    assert [record.body for record in store.find_records("audit", limit=2)] == ["4", "5"]
    assert store.get_record("audit", "default", "0002") is None


def test_records_of_writes_and_transitions_are_purged_when_they_have_expired(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add_schedules(store, "a")
    (row,) = store.find_schedules(ScheduleQuery()).items
    expires = clock.now + 1000
    pause = changes.pause(row, clock.now)
    assert pause is not None
    notes = (audit(1, expires=expires), audit(2))
    (written,) = store.put_schedules([Write(pause._replace(records=notes), row.version)])
    assert written.accepted
    store.add_runs([RunRecord(id="r", task="work")])
    (held,) = claim(store)
    end = attempts.released(held, clock.now, "t")
    assert store.settle_runs([replace(end, records=(audit(3, expires=expires),))]) == [True]
    assert client.zrange(key(store, "expiring"), 0, -1) == ["audit default 0001", "audit default 0003"]
    clock.advance("2s")
    assert store.purge(clock.now, 10).deleted == 2
    assert store.find_records("audit") == [audit(2)]
    assert client.zrange(key(store, "kinds:audit"), 0, -1) == ["default 0002"]
    assert not client.exists(key(store, "expiring"), key(store, "records:audit:0001"))


def test_records_count_for_the_size_of_a_batch(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "BYTES", 1000)
    log = CommandLog(on=False)
    store = make(on_command=log)
    note = Record(kind="audit", key="1", body="x" * 600)
    made = [changes.create(ScheduleRecord(name=name, task="work", trigger="@daily"), 0) for name in "abc"]
    log.on = True
    store.put_schedules([Write(planned._replace(records=(note,)), None) for planned in made])
    assert log.seen == ["put schedules", "committed"] * 3
    log.on = False
    store.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    ends = [replace(attempts.succeeded(run, None, 0, run.id), records=(note,)) for run in claim(store)]
    log.seen.clear()
    log.on = True
    assert store.settle_runs(ends) == [True] * 3
    assert log.seen == ["settle", "committed"] * 3


def test_late_schedules_are_found_among_many_that_wake_up_at_once(
    make: Make, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "MEMBERS_READ", 4)
    log = CommandLog(on=False)
    store = make(on_command=log)
    names = [f"s{at:02}" for at in range(10)]
    add_schedules(store, *names)
    clock.advance("1s")
    add_schedules(store, "t0", "t1", "t2")
    add_schedules(store, "daily", trigger="@daily")
    query = ScheduleQuery(wakes_before=clock.now + MINUTE + 1)
    log.on = True
    assert [row.name for row in store.find_schedules(query).items] == [*names, "t0", "t1", "t2"]
    assert log.seen == ["find due"] * 4 + ["find schedules"]


def test_changed_schedules_are_found_without_reading_the_others(
    make: Make, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "MEMBERS_READ", 4)
    log = CommandLog(on=False)
    store = make(on_command=log)
    add_schedules(store, *(f"s{at:02}" for at in range(10)))
    clock.advance("1m")
    changed = [f"t{at}" for at in range(9)]
    add_schedules(store, *changed)
    log.on = True
    page = store.find_schedules(ScheduleQuery(changed_since=clock.now, limit=5))
    assert [row.name for row in page.items] == changed[:5]
    assert log.seen == ["find changed"] * 3 + ["find schedules"]
    rest = store.find_schedules(ScheduleQuery(changed_since=clock.now, limit=5, cursor=page.cursor))
    assert [row.name for row in rest.items] == changed[5:]


def test_a_search_by_keys_does_not_find_statistics_of_a_schedule_that_does_not_exist(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    add_schedules(store, "a", "b")
    store.add_runs([RunRecord(id="r", task="work", schedule="ghost", run_at=clock.now)])
    (held,) = claim(store)
    assert store.settle_runs([attempts.succeeded(held, None, clock.now, "t")]) == [True]
    assert client.exists(key(store, "schedules:ghost"))
    client.set(key(store, "schedules:b"), "in the way")
    found = store.find_schedules(
        ScheduleQuery(keys=(("default", "ghost"), ("default", "b"), ("default", "a")))
    )
    assert [(row.name, bool(row.damage)) for row in found.items] == [("a", False), ("b", True)]


def test_a_schedule_with_odd_tags_is_damaged_and_keeps_its_other_fields(
    store: RedisStore, client: Any
) -> None:
    add_schedules(store, "a", "b", tags="x", description="kept")
    for name, tags in (("a", '["x"]'), ("b", "null")):
        found = client.hget(key(store, f"schedules:{name}"), "definition")
        client.hset(
            key(store, f"schedules:{name}"), "definition", found.replace('"tags":"x"', f'"tags":{tags}')
        )
    for row in store.find_schedules(ScheduleQuery()).items:
        assert "tags" in row.damage
        assert (row.tags, row.description) == ("", "kept")


def test_runs_that_ended_lately_are_read_alone(make: Make, clock: VirtualClock) -> None:
    log = CommandLog(on=False)
    store = make(on_command=log)
    runs_of = [RunRecord(id=f"r{at:04}", task="work", created_at=clock.now) for at in range(1200)]
    store.add_runs(runs_of)
    held = claim(store, limit=1200)
    assert all(store.settle_runs([attempts.succeeded(run, None, clock.now, run.id) for run in held[:1190]]))
    clock.advance("1s")
    assert all(
        store.settle_runs([attempts.failed(run, "boom", clock.now, run.id) for run in held[1190:1195]])
    )
    log.on = True
    found = store.find_runs(RunQuery(finished_since=clock.now)).items
    assert [run.id for run in found] == sorted(run.id for run in held[1190:1195])
    assert log.seen == ["walk runs", "get runs"]


def test_no_error_of_the_driver_reaches_the_caller(store: RedisStore, client: Any) -> None:
    for name in (
        "schedules",
        "schedules:a",
        "due",
        "firing",
        "runs:a",
        "newest",
        "waiting:default",
        "cohorts:default",
        "held:w",
        "queues",
        "limited",
        "limits",
        "slots",
        "leases",
        "over",
        "counts",
        "skipped:a",
        "skipped",
        "records:k:x",
        "kinds:k",
        "expiring",
        "logs:a",
    ):
        client.set(key(store, name), "in the way")
    calls = every_call(store)
    # A row of another type counts as missing.
    append_log = calls.pop("append_log")
    for name in ("statistics", "get_record"):
        del calls[name]
    for call in calls.values():
        with pytest.raises(EvenbeatError, match="a key has another type"):
            call()
    assert store.statistics([("default", "a")])[0].run_count == 0
    assert store.get_record("k", "default", "x") is None
    append_log()


def test_the_scripts_are_part_of_the_package() -> None:
    found = {entry.name for entry in (files("evenbeat.stores.redis") / "lua").iterdir()}
    assert {"prelude.lua", "fire.lua", "claim.lua", "settle.lua"} <= found


def test_large_payloads_go_in_parts_that_the_server_takes(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batching, runs, schedules):
        monkeypatch.setattr(module, "BYTES", 1000)
    large = '"' + "x" * 600 + '"'
    add_schedules(store, *"abcde", payload=large)
    clock.advance("1m")
    assert len(store.fire_due(clock.now, 10, plan).planned) == 5
    assert store.add_runs([RunRecord(id=name, task="work", payload=large) for name in "vwxyz"]) == [True] * 5
    held = claim(store, "all")
    assert len(held) == 10
    assert {run.payload for run in held} == {large}
    assert claim(store, "all") == sorted(held, key=lambda run: (run.run_at, run.id))
    ends = [attempts.succeeded(run, large, clock.now, run.id) for run in held]
    assert store.settle_runs(ends) == [True] * 10
    assert store.count_runs() == {"succeeded": 10}


def test_fields_that_a_search_leaves_out_are_not_sent(store: RedisStore, client: Any) -> None:
    """The server counts the bytes that it sends, for all of its clients."""
    payload = '"' + "x" * 100_000 + '"'
    store.add_runs([RunRecord(id=f"r{at}", task="work", payload=payload) for at in range(20)])

    def sent(query: RunQuery) -> int:
        before = client.info("stats")["total_net_output_bytes"]
        assert len(store.find_runs(query).items) == 20
        return int(client.info("stats")["total_net_output_bytes"] - before)

    for query in (RunQuery(), RunQuery(ids=tuple(f"r{at}" for at in range(20)))):
        assert sent(query) > 2_000_000
        assert sent(replace(query, without=LARGE_FIELDS)) < 500_000

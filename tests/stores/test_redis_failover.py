"""Another server becomes the primary: behind one address, by sentinels, in a cluster. Documents, too.

Fleets of nodes go through the same in ``tests/faults/scenes/redis_failover.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, TypeVar

import pytest
import redis
from click.testing import CliRunner, Result
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from evenbeat.cli.root import root
from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.documents import RedisDocuments
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, ScheduleQuery, Write
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis.location import Endpoint, read_location
from evenbeat.stores.redis.primary import finder, is_elsewhere
from evenbeat.testing import VirtualClock
from tests import servers
from tests.faults.fleet import wait_until
from tests.faults.scenes.redis_failover import SERVICE, Cluster, Pair, client, replication, start
from tests.missing import skipped_without
from tests.store_calls import WaitingThread

PATTERN = "{shop}:order:*"
_Servers = TypeVar("_Servers", Pair, Cluster)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def pair(stack: ExitStack) -> Pair:
    return started(lambda: Pair(stack))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield started(lambda: Cluster(stack))


def started(make: Callable[[], _Servers]) -> _Servers:
    with skipped_without("valkey"):
        return make()


def opened(stack: ExitStack, url: str) -> RedisStore:
    store = RedisStore(url, timeout=20)
    stack.enter_context(closing(store))
    store.open()
    return store


def claimed(store: RedisStore) -> list[str]:
    claim = Claim(worker="w", token="t", limit=10, now=store.now(), lease=30_000)
    return [run.id for run in store.claim_runs(claim).runs]


def add(store: RedisStore, name: str) -> list[bool]:
    return store.add_runs([RunRecord(id=name, task="work")])


# One address.


def test_a_server_that_was_demoted_is_left_and_its_successor_is_found(stack: ExitStack, pair: Pair) -> None:
    asked: list[str] = []
    store = RedisStore(f"{pair.url}?client_name=ours", timeout=20, on_command=asked.append)
    stack.enter_context(closing(store))
    store.open()
    assert add(store, "before") == [True]
    pair.swap()
    with pytest.raises(StoreUnavailable, match="replica") as caught:
        add(store, "meanwhile")
    assert caught.tb is not None  # which keeps all of its frames, and their connections, alive
    with client(pair.replica) as old:
        wait_until(lambda: "ours" not in [one["name"] for one in old.client_list()], "it is still connected")
    asked.clear()
    store.now()
    assert asked == ["time"]  # the new server has a clock of its own
    assert add(store, "after") == [True]
    assert claimed(store) == ["after", "before"]


def test_a_worker_without_work_notices_that_its_server_is_a_replica(stack: ExitStack, pair: Pair) -> None:
    store = opened(stack, pair.url)
    pair.swap()
    with pytest.raises(StoreUnavailable, match="replica"):
        claimed(store)
    assert claimed(store) == []


@pytest.mark.parametrize("is_waiting", [True, False], ids=["in_a_wait", "between_waits"])
def test_hints_arrive_from_the_new_server(stack: ExitStack, pair: Pair, is_waiting: bool) -> None:
    waiting, other = opened(stack, pair.url), opened(stack, pair.url)
    assert waiting.wait(0) is False
    thread = WaitingThread(waiting, 300) if is_waiting else None
    wait_until(lambda: waiting._waker.is_receiving, "nobody listens")
    pair.swap()
    # No later hint reaches the old server's listeners.
    with client(pair.replica) as asked:
        asked.execute_command("REPLICAOF", "127.0.0.1", 1)
    for store in (waiting, other):
        with pytest.raises(StoreUnavailable):
            add(store, "meanwhile")
    if thread is not None:
        assert thread.is_woken()  # hints may have been lost
    else:
        assert waiting.wait(60) is True
    while waiting.wait(0):
        pass
    other.hint()
    assert waiting.wait(60) is True
    assert waiting.wait(0) is False


def test_errors_of_a_server_that_is_not_the_primary_are_distinguished() -> None:
    elsewhere = [
        redis.ReadOnlyError("You can't write against a read only replica."),
        redis.ResponseError("ERR Error running script: @user_script:9: -READONLY You can't write"),
        redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
        redis.exceptions.MasterDownError("Link with MASTER is down"),
        redis.BusyLoadingError("Redis is loading the dataset in memory"),
        redis.ConnectionError("refused"),
        redis.TimeoutError("silent"),
        OSError("no route"),
    ]
    here = [
        redis.OutOfMemoryError("maxmemory"),
        redis.ResponseError("WRONGTYPE Operation against a key"),
        redis.exceptions.NoScriptError("No matching script"),
        redis.exceptions.NoPermissionError("READ"),
    ]
    assert [is_elsewhere(error) for error in elsewhere] == [True] * len(elsewhere)
    assert [is_elsewhere(error) for error in here] == [False] * len(here)


# Sentinels.


def sentinel_url(sentinel: servers.Server, service: str = SERVICE) -> str:
    return f"redis+sentinel://127.0.0.1:{servers.free_port()},127.0.0.1:{sentinel.port}/{service}"


def test_sentinels_name_the_primary_and_unreachable_ones_are_skipped(stack: ExitStack, pair: Pair) -> None:
    sentinel = servers.Sentinel(SERVICE, pair.primary.port, 1)
    start(stack, sentinel)
    store = opened(stack, sentinel_url(sentinel))
    assert add(store, "a") == [True]
    with client(pair.primary) as asked:
        assert asked.exists("{evenbeat}:runs:a")
    documents = RedisDocuments(sentinel_url(sentinel), PATTERN)
    stack.enter_context(closing(documents))
    documents.open()
    documents.put("{shop}:order:1", {"sleep_until": "2026-01-01T00:00:00Z"})
    assert len(documents.lock_next(1000, 10).found) == 1
    unknown = RedisStore(sentinel_url(sentinel, "mails"), timeout=20)
    with pytest.raises(StoreUnavailable, match=r"no sentinel names a primary.*does not know mails"):
        unknown.open()


def test_a_server_that_sentinels_name_too_late_is_not_taken_for_the_primary(
    stack: ExitStack, pair: Pair
) -> None:
    sentinel = servers.Sentinel(SERVICE, pair.primary.port, 1)
    start(stack, sentinel)
    address = read_location(sentinel_url(sentinel))
    asked: list[str] = []

    class Late:
        """A connection whose server reports that it is a replica."""

        def __init__(self, url: str) -> None:
            asked.append(url)

        def connect(self) -> None: ...
        def disconnect(self) -> None: ...

        def send_command(self, *words: str) -> None:
            self.words = words

        def read_response(self) -> object:
            return "role:slave\r\n" if self.words[0] == "INFO" else ["127.0.0.1", "7"]

    with pytest.raises(redis.ConnectionError, match=r"names 127\.0\.0\.1:7, which is a slave"):
        finder(address, "k", Late).find()  # type: ignore[arg-type]  # all that is asked for
    assert len(asked) == 4  # both sentinels, and what each named


def doctor(url: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(root, ["doctor", url])


def test_doctor_checks_the_server_behind_sentinels_and_shows_no_password(
    stack: ExitStack, pair: Pair
) -> None:
    sentinel = servers.Sentinel(SERVICE, pair.primary.port, 1)
    start(stack, sentinel)
    checked = doctor(sentinel_url(sentinel))
    assert checked.exit_code == 0, checked.output
    assert "all is well" in checked.output
    unknown = sentinel_url(sentinel, "mails").replace("//", "//me:s3cret@")
    checked = doctor(unknown)
    assert checked.exit_code == 1
    assert "does not know mails" in checked.output
    assert "s3cret" not in checked.output


# Clusters.


def test_the_node_with_the_slot_is_found_and_followed(stack: ExitStack, cluster: Cluster) -> None:
    store = opened(stack, cluster.url)
    assert add(store, "before") == [True]
    assert {setting.name: setting.level for setting in store.server()}["cluster_enabled"] == "ok"
    assert store.wait(0) is False
    cluster.hand_over()
    assert add(store, "after") == [True]  # it was redirected, without the caller's noticing
    assert claimed(store) == ["after", "before"]
    while store.wait(0):
        pass
    opened(stack, cluster.url).hint()
    assert store.wait(60) is True


def test_the_error_of_a_node_without_the_keys_names_the_cluster_url(cluster: Cluster) -> None:
    (other, *_) = [node for node in cluster.nodes[:3] if node is not cluster.owner]
    store = RedisStore(other.url, timeout=20)
    with pytest.raises(StoreUnavailable, match=r"redis\+cluster://"):
        store.open()


def test_an_unreachable_cluster_is_reported() -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{servers.free_port()}", timeout=20)
    with pytest.raises(StoreUnavailable, match="no node knows the owner of the keys"):
        store.open()


def test_documents_are_in_the_slot_of_the_hash_tag_of_their_pattern(
    stack: ExitStack, cluster: Cluster
) -> None:
    for name in ("shop", "b", "cd"):  # on different nodes
        documents = RedisDocuments(cluster.url, f"{{{name}}}:order:*")
        stack.enter_context(closing(documents))
        documents.open()
        documents.put(f"{{{name}}}:order:1", {"sleep_until": "2026-01-01T00:00:00Z"})
        assert [found.id for found in documents.lock_next(1000, 10).found] == [f"{{{name}}}:order:1"]
        assert documents.now() > 0


def test_while_the_slot_is_moved_nothing_is_half_written_and_then_it_is_followed(
    stack: ExitStack, cluster: Cluster
) -> None:
    clock = VirtualClock()
    store = RedisStore(f"{cluster.url}?prefix=moving", clock, timeout=20)
    stack.enter_context(closing(store))
    store.open()
    pauses = something_of_everything(store, clock)
    slot = key_slot(store.location.meta.encode())
    found = [node for node in (*cluster.nodes[:3], cluster.replica) if is_owner(node, slot)]
    (source,) = found
    target = next(node for node in (*cluster.nodes[:3], cluster.replica) if is_target(node, source))
    with client(source) as old, client(target) as new:
        old_name, new_name = (asked.execute_command("CLUSTER", "MYID") for asked in (old, new))
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_name)
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new_name)
        keys = old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        # The second row of a call is on the new node already, all others are still on the old one.
        words = ["MIGRATE", "127.0.0.1", target.port, "", 0, 20_000, "KEYS"]
        first = f"{store.location.base}schedules:b"
        old.execute_command(*words, first)
        keys.remove(first)
        for call in (lambda: store.put_schedules(pauses), lambda: add(store, "b"), lambda: claimed(store)):
            with pytest.raises(StoreUnavailable, match="moving our keys"):
                call()
        assert old.hget(f"{store.location.base}schedules:a", "state") == "active"
        assert set(old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)) == set(keys)
        old.execute_command(*words, *keys)
        for asked in (new, old):
            asked.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new_name)
    assert [written.accepted for written in store.put_schedules(pauses)] == [True, True]
    assert add(store, "b") == [True]


def something_of_everything(store: RedisStore, clock: VirtualClock) -> list[Write]:
    """Fill every index that all rows share, and return two writes."""
    wanted = [ScheduleRecord(name=name, task="work", trigger="every 1m") for name in "ab"]
    store.put_schedules([Write(changes.create(entry, clock.now), None) for entry in wanted])
    clock.advance("3m")
    store.fire_due(clock.now, 10, plan)  # also skips two
    claim = Claim(worker="w", token="t", limit=2, now=clock.now, lease=30_000)
    held, _ = store.claim_runs(claim).runs
    store.settle_runs([attempts.succeeded(held, None, clock.now, "t")])
    store.put_record(Record(kind="quarantine", key="k", body="{}", expires=clock.now + 60_000))
    rows = store.find_schedules(ScheduleQuery()).items
    return [Write(changes.pause(row, clock.now), row.version) for row in rows]


def is_owner(node: servers.Server, slot: int) -> bool:
    with client(node) as asked:
        name = asked.execute_command("CLUSTER", "MYID")
        ranges = asked.execute_command("CLUSTER", "SLOTS")
    owners = [owner[2] for first, last, owner, *_ in ranges if first <= slot <= last]
    return owners == [name]


def is_target(node: servers.Server, source: servers.Server) -> bool:
    return node is not source and replication(node)["role"] == "master"


@pytest.mark.parametrize("pattern", ["order:*", "{*}:order:*", "{}:order:*", "{shop:order:*"])
def test_documents_of_many_slots_are_refused_in_a_cluster(pattern: str) -> None:
    with pytest.raises(InvalidValue, match="hash tag"):
        RedisDocuments("redis+cluster://host", pattern)
    with pytest.raises(InvalidValue, match="hash tag"):
        RedisDocuments("redis+cluster://host", PATTERN, index="due")
    RedisDocuments("redis+cluster://host", PATTERN, index="my:{shop}")


# Documents.


@pytest.mark.parametrize("kind", ["url", "client"])
def test_documents_follow_to_the_new_server(stack: ExitStack, pair: Pair, kind: str) -> None:
    given: Any = pair.url
    if kind == "client":
        given = stack.enter_context(
            redis.Redis.from_url(pair.url, retry=Retry(NoBackoff(), 0), socket_timeout=20)
        )
    documents = RedisDocuments(given, PATTERN)
    stack.enter_context(closing(documents))
    documents.open()
    pair.swap()
    with pytest.raises(StoreUnavailable, match="replica"):
        documents.lock_next(1000, 10)  # though nothing is due
    documents.put("{shop}:order:1", {"sleep_until": "2026-01-01T00:00:00Z"})
    assert [found.id for found in documents.lock_next(1000, 10).found] == ["{shop}:order:1"]
    with client(pair.primary) as asked:
        assert asked.exists("{shop}:order:1")


# Addresses.


def test_places_are_read_from_a_url() -> None:
    address = read_location(
        "valkeys+sentinel://me:p%40ss@[::1]:7,two/jobs/3?prefix=p&sentinel_password=s&ssl_cert_reqs=none"
    )
    assert (address.kind, address.service, address.prefix) == ("sentinel", "jobs", "p")
    assert address.endpoints == (Endpoint("::1", 7), Endpoint("two", 26379))
    assert address.url_of(Endpoint("h", 1)) == "rediss://me:p%40ss@h:1/3?ssl_cert_reqs=none"
    assert address.sentinel_url(address.endpoints[0]) == "rediss://:s@[::1]:7/0?ssl_cert_reqs=none"
    assert "p%40ss" not in address.shown
    assert "=s&" not in address.shown
    cluster = read_location("redis+cluster://one,two:2")
    assert (cluster.kind, cluster.endpoints) == ("cluster", (Endpoint("one", 6379), Endpoint("two", 2)))

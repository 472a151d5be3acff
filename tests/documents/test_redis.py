"""Documents in Redis: the index, the scan, and times in Lua, which the contract does not have."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from evenbeat.core.instants import FIRST, Instant, from_ms, write_instant
from evenbeat.documents import Processor, time_formats
from evenbeat.documents.base import HELD, HELD_AT, Change, DocumentLock
from evenbeat.documents.redis import RedisDocuments, documents, patterns
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.testing.clock import VirtualClock
from tests import servers
from tests.conftest import server_url

MINUTE = 60_000
LOCK = 10 * MINUTE
Make = Callable[..., RedisDocuments]


def plain(url: str) -> str:
    return url.partition("?")[0].replace("valkey", "redis", 1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def prefix(valkey: str) -> str:
    (found,) = parse_qs(urlsplit(valkey).query)["prefix"]
    return found


@pytest.fixture
def client(valkey: str) -> Iterator[Any]:
    with redis.Redis.from_url(plain(valkey), decode_responses=True) as client:
        yield client


@pytest.fixture
def make(valkey: str, prefix: str, clock: VirtualClock) -> Iterator[Make]:
    """Makes open stores of the same keys, and closes them at the end."""
    with ExitStack() as stack:

        def open_documents(source: Any = valkey, **options: Any) -> RedisDocuments:
            given = {"clock": clock, "index": f"{prefix}:due", **options}
            made = RedisDocuments(source, f"{prefix}:*", **given)
            stack.callback(made.close)
            made.open()
            return made

        yield open_documents


def keys(documents: RedisDocuments, limit: int = 100) -> list[str]:
    return [str(found.id).partition(":")[2] for found in documents.lock_next(LOCK, limit).found]


@contextmanager
def own_server(**settings: str) -> Iterator[servers.Valkey]:
    server_url("valkey")  # skips the test if there is no server
    server = servers.Valkey({name.replace("_", "-"): value for name, value in settings.items()})
    try:
        server.start()
        yield server
    finally:
        server.stop()


# Times

DATES = [
    "2026-03-01",
    "2024-02-29",
    "1969-12-31",
    "0001-01-03",
    "9999-12-29",
    "2023-02-29",
    "2026-13-01",
    "2026-00-10",
    "2026-04-31",
    "26-03-01",
    "2026-3-1",
    "1900-02-29",
    "2000-02-29",
]
CLOCKS = [
    "",
    "T09:00:00",
    " 09:00",
    "t23:59:59",
    "T09:00:00.1",
    "T09:00:00.123",
    "T09:00:00,123456",
    "T09:00:00.1230000",
    "T09:00:00.0000001",
    "T24:00:00",
    "T09:60:00",
    "T09:00:60",
    "T9:00",
    "T09",
    "x09:00:00",
    "T09:00:00.",
    "  09:00:00",
]
ZONES = ["", "Z", "z", " Z", "+01:00", "-0930", "+14", " +01:00", "+24:00", "+01:60", "+1", "Zulu", "  Z"]
NUMBERS = [
    "0",
    "1773050400",
    "1773050400.123",
    "1773050400123",
    "1773050400.1234",
    "-86400.5",
    "-0.0001",
    "+5",
    " 7 ",
    ".5",
    "5.",
    ".",
    "",
    "-",
    "1e3",
    "1.773050400123E+12",
    "1.5e-3",
    "1e",
    "e3",
    "1e999",
    "0x10",
    "nan",
    "inf",
    "12a",
    "1 2",
    "1,5",
    "001.50",
    "2026-03-01",
    "--1",
    "1.2.3",
    "1-2",
    "1+2",
]


def expected(text: str, form: time_formats.TimeFormat) -> Instant | None:
    try:
        return time_formats.read(text, form)
    except InvalidValue:
        return None


@pytest.mark.parametrize("form", ["text", "seconds", "milliseconds"])
def test_the_server_reads_times_as_python_does(
    make: Make, client: Any, prefix: str, form: time_formats.TimeFormat
) -> None:
    store = make(times=form)
    texts = [date + clock + zone for date in DATES for clock in CLOCKS for zone in (ZONES if clock else [""])]
    texts = (
        texts
        + NUMBERS
        + [f" {text}\n" for text in (*texts[:5], *NUMBERS[:5])]
        + ["1" * 200, f"2026-03-01T09:00:00.{'1' * 200}+05:00"]
    )
    with client.pipeline(transaction=False) as pipeline:
        for place, text in enumerate(texts):
            pipeline.hset(f"{prefix}:{place}", "sleep_until", text)
        pipeline.execute()
    client.set(f"{prefix}:due:scan", "0 0 0 1")
    store._scan_all()
    scores = client.zmscore(f"{prefix}:due", [f"{prefix}:{place}" for place in range(len(texts))])
    for text, score in zip(texts, scores, strict=True):
        assert (None if score is None else int(score)) == expected(text, form), text


@pytest.mark.parametrize(
    ("form", "before", "locked"),
    [
        ("text", "2026-01-01T00:00:00Z", "2026-03-01T09:10:00Z"),
        ("text", "2026-01-01 00:00:00", "2026-03-01 09:10:00"),
        ("text", "2026-01-01T00:00:00.001+01:00", "2026-03-01T10:10:00+01:00"),
        ("text", "2026-01-01t00:00 -0230", "2026-03-01t06:40:00 -0230"),
        ("text", "2026-01-01", "2026-03-01 09:10:00"),
        ("seconds", "1700000000", "1772356200"),
        ("seconds", "1.7e9", "1772356200"),
        ("milliseconds", "1700000000000", "1772356200000"),
    ],
)
def test_a_new_time_keeps_the_style_of_the_old_one(
    make: Make, client: Any, prefix: str, clock: VirtualClock, form: str, before: str, locked: str
) -> None:
    clock.now = time_formats.read("2026-03-01T09:00:00Z", "text") or 0
    store = make(times=form)
    client.hset(f"{prefix}:a", mapping={"sleep_until": before, "x": "1"})
    (found,) = store.lock_next(LOCK, 1).found
    assert found.data["sleep_until"] == before
    assert client.hget(f"{prefix}:a", "sleep_until") == locked
    assert store.update(
        [Change(DocumentLock(found.id, (found.locked_until,)), found.locked_until + MINUTE)]
    ) == [True]
    after = client.hget(f"{prefix}:a", "sleep_until")
    assert time_formats.read(after, store._times) == found.locked_until + MINUTE
    assert len(after) == len(locked)


@pytest.mark.parametrize("instant", [1_500, -1_500, 1_001, -1, 0, 1_767_225_600_120])
def test_seconds_are_written_to_the_millisecond(
    make: Make, client: Any, prefix: str, clock: VirtualClock, instant: Instant
) -> None:
    store = make(times="seconds")
    store.put(f"{prefix}:a", {"sleep_until": "5"})
    (found,) = store.lock_next(LOCK, 1).found
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), instant)]) == [True]
    assert time_formats.read(client.hget(f"{prefix}:a", "sleep_until"), "seconds") == instant


def test_instants_in_the_far_future_differ(make: Make, client: Any, prefix: str, clock: VirtualClock) -> None:
    store = make()
    for key in "ab":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now)})
    found = store.lock_next(LOCK, 2).found
    changes = [
        Change(DocumentLock(one.id, (one.locked_until,)), HELD_AT + place) for place, one in enumerate(found)
    ]
    assert store.update(changes) == [True, True]
    texts = [client.hget(one.id, "sleep_until") for one in found]
    assert texts == ["9999-01-01T00:00:00Z", "9999-01-01T00:00:00.001Z"]


def test_no_document_is_early_by_a_part_of_a_millisecond(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    text = write_instant(clock.now + 1).replace("Z", ".0000001Z" if (clock.now + 1) % 1000 == 0 else "0001Z")
    client.hset(f"{prefix}:a", "sleep_until", text)
    assert store.lock_next(LOCK, 1) == ([], clock.now + 2)
    # Nor does it match a lock that ends at the millisecond.
    assert store.remove([DocumentLock(f"{prefix}:a", (clock.now + 1, clock.now + 2))]) == [False]
    clock.now += 2
    (found,) = store.lock_next(LOCK, 1).found
    assert found.sleep_until == clock.now - 1


def test_the_first_day_of_the_calendar_is_due(make: Make, client: Any, prefix: str) -> None:
    client.hset(f"{prefix}:a", "sleep_until", "0001-01-01T00:00:00+05:00")
    (found,) = make().lock_next(LOCK, 1).found
    assert found.sleep_until == FIRST


def test_the_last_day_of_the_calendar_is_never_due(make: Make, client: Any, prefix: str) -> None:
    client.hset(f"{prefix}:a", "sleep_until", "9999-12-31T23:59:59Z")
    assert make().lock_next(LOCK, 1).found == []


def test_an_invalid_time_is_logged_once(
    make: Make, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(condition={"active": "1"})
    client.hset(f"{prefix}:a", mapping={"sleep_until": "tomorrow", "active": "1"})
    client.hset(f"{prefix}:b", mapping={"sleep_until": "tomorrow", "active": "0"})
    client.hset(f"{prefix}:c", mapping={"sleep_until": "", "active": "1"})
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        assert store.lock_next(LOCK, 5) == ([], None)
        assert store.lock_next(LOCK, 5) == ([], None)
    (record,) = caplog.records
    assert record.getMessage() == (
        'the sleep_until of a document is not a time (text), so it is never due: "tomorrow"'
    )
    assert record.__dict__["document"] == f'"{prefix}:a"'


def test_repeat_until_is_a_time_like_the_others(make: Make, client: Any, prefix: str) -> None:
    for key, until in (("a", "1700000000.5"), ("b", "never")):
        client.hset(f"{prefix}:{key}", mapping={"sleep_until": "1", "repeat_until": until})
    found = make(times="seconds").lock_next(LOCK, 2).found
    assert {str(one.id)[-1]: one.repeat_until for one in found} == {
        "a": from_ms(1_700_000_000_500),
        "b": "never",
    }


# The index


def test_a_document_that_is_due_later_than_its_entry_is_not_locked(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now - 5)})
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now + MINUTE))
    assert store.lock_next(LOCK, 1) == ([], clock.now + MINUTE)
    assert client.zscore(store.index, f"{prefix}:a") == clock.now + MINUTE


def test_a_document_that_is_due_sooner_than_its_entry_is_locked(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now + 60 * MINUTE)})
    assert keys(store) == []
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    assert keys(store) == ["a"]


def test_entries_of_deleted_keys_and_other_types_are_removed_from_the_index(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    for key in "abcdef":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now - 5), "x": 1})
    client.delete(f"{prefix}:a", f"{prefix}:b", f"{prefix}:c")
    client.set(f"{prefix}:b", "text")
    client.rpush(f"{prefix}:c", "list")
    client.hdel(f"{prefix}:d", "sleep_until")
    client.hset(f"{prefix}:e", "sleep_until", "whenever")
    assert keys(store) == ["f"]
    assert client.zrange(store.index, 0, -1) == [f"{prefix}:f"]
    assert client.get(f"{prefix}:b") == "text"


def test_writes_to_a_key_that_has_changed_its_type_are_refused(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now)})
    (found,) = store.lock_next(LOCK, 1).found
    client.set(f"{prefix}:a", "text")
    lock = DocumentLock(found.id, (found.locked_until,))
    assert store.update([Change(lock, None)]) == [False]
    assert store.remove([lock]) == [False]
    assert client.get(f"{prefix}:a") == "text"


def test_a_deleted_index_is_made_again(make: Make, client: Any, prefix: str, clock: VirtualClock) -> None:
    store = make()
    for key in "ab":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now)})
    (found,) = store.lock_next(LOCK, 1).found
    client.delete(store.index, f"{store.index}:scan")
    assert sorted([*keys(store), str(found.id)[-1]]) == ["a", "b"]
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), clock.now)]) == [True]
    assert keys(store) == [str(found.id)[-1]]


def test_entries_of_deleted_documents_are_removed_before_they_are_due(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    for key in "abc":
        store.put(f"{prefix}:{key}", {"sleep_until": HELD})
    client.delete(f"{prefix}:b", f"{prefix}:c")
    store.lock_next(LOCK, 1)
    assert client.zrange(store.index, 0, -1) == [f"{prefix}:a"]


def test_many_outdated_entries_do_not_hide_due_documents(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    """There are more of them than one call of the script visits."""
    store = make()
    stale = {f"{prefix}:gone{number}": clock.now - MINUTE for number in range(2500)}
    client.zadd(store.index, stale)
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now)})
    assert keys(store, 1) == ["a"]
    assert client.zcard(store.index) == 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_its_owner_does_no_document_is_lost_to_the_index(
    make: Make, client: Any, prefix: str, clock: VirtualClock, seed: int
) -> None:
    chance = random.Random(seed)
    store = make(condition={"active": "1"})
    names = [f"{prefix}:k{number}" for number in range(8)]
    held: list[DocumentLock] = []
    for _ in range(300):
        key, due = chance.choice(names), clock.now + chance.randrange(-MINUTE, MINUTE)
        deed = chance.randrange(9)
        if deed == 0:
            client.delete(key)
        elif deed == 1 and client.type(key) != "string":
            client.hset(key, mapping={"sleep_until": write_instant(due), "active": chance.choice("011")})
        elif deed == 2 and client.type(key) != "string":
            client.hdel(key, chance.choice(["sleep_until", "active"]))
        elif deed == 3 and client.type(key) != "string":
            store.put(key, {"sleep_until": from_ms(due), "active": chance.choice("011")})
        elif deed == 4:
            client.set(key, "something else")
        elif deed == 5:
            client.zadd(store.index, {key: due})
        elif deed == 6 and held:
            store.update([Change(held.pop(), due, {"active": chance.choice(["1", None])})])
        elif deed == 7 and held:
            store.remove([held.pop()])
        else:
            for found in store.lock_next(MINUTE, chance.randrange(1, 4)).found:
                assert found.sleep_until <= clock.now
                assert found.data["active"] == "1"
                held.append(DocumentLock(found.id, (found.locked_until,)))
        clock.now += chance.randrange(5000)
    # All due documents are found, and no others.
    for key in names:
        if client.type(key) == "string":
            client.delete(key)
    wanted = set()
    for key in names:
        document = client.hgetall(key)
        instant = time_formats.read(document.get("sleep_until"), "text")
        if instant is not None and instant <= clock.now and document.get("active") == "1":
            wanted.add(key)
    assert {found.id for found in store.lock_next(MINUTE, 100).found} == wanted


def test_stores_with_other_options_have_another_index(valkey: str) -> None:
    plain_one = RedisDocuments(valkey, "order:*")
    assert plain_one.index == "evenbeat:order:*:sleep_until:due"
    other = RedisDocuments(valkey, "order:*", sleep_until="at", condition={"kind": "x", "active": "1"})
    assert other.index == "evenbeat:order:*:at:active=1:kind=x:due"
    numbers = RedisDocuments(valkey, "order:*", times="seconds")
    assert numbers.index == "evenbeat:order:*:sleep_until:due-seconds"
    odd = RedisDocuments(valkey, "{a:b}=*", sleep_until="b:c", condition={"x": "50%=y"})
    assert odd.index == "evenbeat:{a:b}=*:b%3Ac:x=50%25%3Dy:due"


def test_no_two_indexes_have_the_same_key() -> None:
    pieces = ["a", "b", ":", "=", "%3A", "due"]
    texts = [*pieces, *(one + other for one in pieces for other in pieces)]
    few = ["a", "b", "a:b", "a=b", "b=", "a:b=", "a%3Ab"]
    conditions: list[dict[str, str]] = [
        {},
        *({name: value} for name in few for value in few),
        {"a": "b", "b": "a"},
        {"a": "b:b=a"},
    ]
    kinds: list[time_formats.TimeFormat] = ["text", "seconds", "milliseconds"]
    given: list[tuple[str, str, dict[str, str], time_formats.TimeFormat]]
    given = [(pattern, field, {}, kind) for pattern in texts for field in texts for kind in kinds]
    given += [(pattern, field, some, "text") for pattern in few for field in few for some in conditions]
    keys = {str(words): patterns.index_key(*words) for words in given}
    assert len(set(keys.values())) == len(keys)


def test_a_key_of_another_type_is_refused_as_the_index(make: Make, client: Any, prefix: str) -> None:
    client.hset(f"{prefix}:mine", "a", "b")
    with pytest.raises(InvalidValue, match="exists, and is a hash") as caught:
        make(index=f"{prefix}:mine")
    assert caught.value.field == "index"
    # Also if the key is created later; nothing is written then.
    store = make()
    client.hset(f"{prefix}:a", "sleep_until", "2020-01-01")
    client.set(store.index, "text")
    with pytest.raises(StoreUnavailable):
        store.lock_next(LOCK, 1)
    with pytest.raises(StoreUnavailable):
        store.put(f"{prefix}:a", {"sleep_until": None})
    assert client.hget(f"{prefix}:a", "sleep_until") == "2020-01-01"


# The condition


def test_a_document_that_meets_the_condition_later_is_locked_then(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make(condition={"active": "1", "kind": "mail"})
    fields = {"sleep_until": write_instant(clock.now - 1), "active": "1", "kind": "call"}
    client.hset(f"{prefix}:a", mapping=fields)
    assert store.lock_next(LOCK, 1) == ([], None)
    client.hset(f"{prefix}:a", "kind", "mail")
    assert keys(store) == ["a"]


def test_a_document_that_no_longer_meets_the_condition_is_not_locked(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make(condition={"active": "1"})
    for key in "ab":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now), "active": 1})
    client.hset(f"{prefix}:a", "active", "0")
    assert keys(store, 1) == ["b"]
    assert client.hget(f"{prefix}:a", "sleep_until") == write_instant(clock.now)
    store.put(f"{prefix}:a", {"active": "1"})
    assert keys(store, 1) == ["a"]


# Expiry


def test_the_expiry_of_a_document_is_not_changed(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    client.hset(f"{prefix}:a", mapping={"sleep_until": "2020-01-01", "x": "1"})
    client.expireat(f"{prefix}:a", 4_000_000_000)
    (found,) = store.lock_next(LOCK, 1).found
    change = Change(DocumentLock(found.id, (found.locked_until,)), clock.now + 1, {"x": None, "y": "2"})
    assert store.update([change]) == [True]
    assert client.expiretime(f"{prefix}:a") == 4_000_000_000
    client.expireat(f"{prefix}:a", 1)
    clock.advance("1h")
    assert store.lock_next(LOCK, 1) == ([], None)


# The scan of a large database


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_SMALL", 0)


def fill(client: Any, prefix: str, count: int, due: Instant) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.hset(f"{prefix}:{number}", "sleep_until", write_instant(due))
            pipeline.set(f"{prefix}:other{number}", "x")
        pipeline.execute()


def test_a_large_database_is_scanned_whole_at_first_and_then_in_rounds(
    large: None, make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    fill(client, prefix, 2000, clock.now)
    store = make(rescan="1h")
    found = keys(store, 5000)
    while len(found) < 2000:
        more = keys(store, 5000)
        assert more
        found += more
    assert len(set(found)) == 2000
    cursor, began, _, rounds = client.get(f"{store.index}:scan").split()
    assert (cursor, rounds) == ("0", "1")
    # The next round finds a document that was written by HSET; one that was put is seen at once.
    client.hset(f"{prefix}:plain", "sleep_until", write_instant(clock.now))
    assert keys(store) == []
    store.put(f"{prefix}:put", {"sleep_until": from_ms(clock.now)})
    assert keys(store) == ["put"]
    client.set(f"{store.index}:scan", f"0 {int(began) - 3_600_000} 0 1")
    assert keys(store) == ["plain"]


def test_next_due_is_at_once_during_the_first_round(
    large: None, make: Make, client: Any, prefix: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_SCANNING", 0)
    fill(client, prefix, 1000, clock.now + MINUTE)
    store = make()
    calls = 0
    while (taken := store.lock_next(LOCK, 1)).next_due == FIRST:
        assert taken.found == []
        calls += 1
    assert calls > 1
    assert taken.next_due == clock.now + MINUTE
    assert client.zcard(store.index) == 1000


def test_a_scan_that_has_used_its_share_of_time_waits(
    large: None, make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make(rescan=0)
    client.set(f"{store.index}:scan", f"0 0 {client.time()[0] + 50}000 1")
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    assert keys(store) == []
    client.set(f"{store.index}:scan", "0 0 0 1")
    assert keys(store) == ["a"]


def test_the_scan_of_a_small_database_waits_as_well(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    client.set(f"{store.index}:scan", f"0 0 {client.time()[0] + 50}000 1")
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    assert keys(store) == []


def test_a_clock_that_was_set_back_stops_no_scan(
    large: None, make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    client.set(f"{store.index}:scan", "0 9999999999999 9999999999999 1")
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    assert keys(store) == ["a"]


def test_a_poll_without_due_documents_writes_nothing(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now + MINUTE))
    store.lock_next(LOCK, 1)
    before = client.info("persistence")["rdb_changes_since_last_save"]
    store.lock_next(LOCK, 1)
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


def test_busy_processors_scan_a_little(make: Make, client: Any, prefix: str, clock: VirtualClock) -> None:
    store = make()
    for key in "abc":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now - 1)})
    client.hset(f"{prefix}:first", "sleep_until", write_instant(clock.now - MINUTE))
    taken = keys(store, 1)
    while "first" not in taken:
        assert len(taken) < 3
        taken += keys(store, 1)


def test_a_round_continues_where_another_process_has_stopped(
    large: None, make: Make, client: Any, prefix: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_SCANNING", 0)
    fill(client, prefix, 600, clock.now + MINUTE)
    stores = [make(), make()]
    calls = 0
    while client.zcard(f"{prefix}:due") < 600:
        stores[calls % 2].lock_next(LOCK, 1)
        calls += 1
        assert calls < 100


def test_an_invalid_note_is_replaced(make: Make, client: Any, prefix: str, clock: VirtualClock) -> None:
    client.set(f"{prefix}:due:scan", "who wrote this?")
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    assert keys(make()) == ["a"]


# put


def test_put_writes_a_document(make: Make, client: Any, prefix: str, clock: VirtualClock) -> None:
    store = make()
    moment = datetime(2026, 3, 1, 9, tzinfo=UTC) + timedelta(milliseconds=5)
    store.put(f"{prefix}:a", {"sleep_until": moment, "n": 5, "f": 1.5, "b": b"\xff", "gone": None})
    with redis.Redis.from_url(plain(server_url("valkey"))) as raw:
        assert raw.hgetall(f"{prefix}:a") == {
            b"sleep_until": b"2026-03-01T09:00:00.005Z",
            b"n": b"5",
            b"f": b"1.5",
            b"b": b"\xff",
        }
    assert client.zscore(store.index, f"{prefix}:a") == 1_772_355_600_005
    store.put(f"{prefix}:a", {"sleep_until": None})
    assert client.zscore(store.index, f"{prefix}:a") is None
    assert client.hget(f"{prefix}:a", "n") == "5"


def test_put_of_sleep_until_takes_away_the_lock(make: Make, prefix: str, clock: VirtualClock) -> None:
    store = make()
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now)})
    (found,) = store.lock_next(LOCK, 1).found
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now)})
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [False]
    assert keys(store) == ["a"]


def test_put_refuses_a_key_that_does_not_match_the_pattern(make: Make, client: Any, prefix: str) -> None:
    with pytest.raises(InvalidValue, match="does not match") as caught:
        make().put(f"not{prefix}:a", {"sleep_until": "2026-01-01"})
    assert caught.value.field == "key"
    assert not client.exists(f"not{prefix}:a")


PATTERNS = [
    "a*",
    "*",
    "a?c",
    "a[bx]c",
    "a[^b]c",
    "a[a-c]c",
    "a[c-a]c",
    "a\\*c",
    "a[\\]]c",
    "a.c",
    "*c",
    "a**c",
    "a[b",
    "[",
    "a[]c",
    "a[^]c",
    "a\\",
    "a[b-]c",
    "a[^a-c]?",
]
KEYS = [
    "a",
    "abc",
    "axc",
    "a*c",
    "a]c",
    "a.c",
    "ac",
    "abbc",
    "c",
    "ab",
    "a\nc",
    "[",
    "a-c",
    "a\\",
    "é",
    "a^c",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_the_same_keys_as_on_the_server(client: Any, prefix: str, pattern: str) -> None:
    for key in KEYS:
        client.set(f"{prefix}:{key}", "x")
    found = {key.partition(":")[2] for key in client.scan_iter(f"{prefix}:{pattern}", count=10_000)}
    assert {key for key in KEYS if patterns.matcher(pattern).fullmatch(key)} == found


# Values


@pytest.mark.parametrize("options", [{}, {"decode_responses": True}])
def test_bytes_that_are_not_utf_8_are_read_and_written_as_they_are(
    make: Make, valkey: str, prefix: str, clock: VirtualClock, options: dict[str, Any]
) -> None:
    key = f"{prefix}:".encode() + b"\xff\xfe"
    with redis.Redis.from_url(plain(valkey)) as raw, redis.Redis.from_url(plain(valkey), **options) as client:
        raw.hset(key, mapping={b"sleep_until": b"2020-01-01", b"\x80": b"\xf0\x00", b"text": "é".encode()})
        store = make(client)
        (found,) = store.lock_next(LOCK, 1).found
        assert found.data == {"sleep_until": "2020-01-01", "\udc80": "\udcf0\x00", "text": "é"}
        lock = DocumentLock(found.id, (found.locked_until,))
        fields = {"\udc80": None, "copy": found.data["\udc80"], "text": "ü"}
        assert store.update([Change(lock, None, fields)]) == [True]
        assert raw.hgetall(key) == {b"copy": b"\xf0\x00", b"text": "ü".encode()}


@pytest.mark.parametrize("value", [["a"], {"a": 1}, object(), "\ud800"])
def test_values_that_redis_can_not_hold_are_refused_before_the_first_write(
    make: Make, client: Any, prefix: str, clock: VirtualClock, value: object
) -> None:
    store = make()
    for key in "ab":
        store.put(f"{prefix}:{key}", {"sleep_until": from_ms(clock.now)})
    locks = [DocumentLock(found.id, (found.locked_until,)) for found in store.lock_next(LOCK, 2).found]
    with pytest.raises(InvalidValue) as caught:
        store.update([Change(locks[0], None), Change(locks[1], None, {"total": value})])
    assert caught.value.field == "total"
    assert "hold" in str(caught.value)
    assert store.update([Change(lock, None) for lock in locks]) == [True, True]


def test_true_and_false_are_written_as_1_and_0(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make(condition={"active": "1"})
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now), "active": True})
    (found,) = store.lock_next(LOCK, 1).found
    fields = {"auto_remove": True, "active": False}
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), None, fields)]) == [True]
    assert client.hgetall(f"{prefix}:a") == {"auto_remove": "1", "active": "0"}


def test_a_change_of_very_many_fields_is_written(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    store.put(f"{prefix}:a", {"sleep_until": from_ms(clock.now)} | {f"old{n}": n for n in range(10_000)})
    (found,) = store.lock_next(LOCK, 1).found
    assert len(found.data) == 10_001
    fields: dict[str, Any] = {f"old{n}": None for n in range(10_000)} | {f"new{n}": n for n in range(10_000)}
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), clock.now, fields)]) == [True]
    assert client.hlen(f"{prefix}:a") == 10_001


def test_a_document_whose_last_field_is_cleared_is_deleted(make: Make, client: Any, prefix: str) -> None:
    store = make()
    client.hset(f"{prefix}:a", "sleep_until", "2020-01-01")
    (found,) = store.lock_next(LOCK, 1).found
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
    assert not client.exists(f"{prefix}:a")


# The server


def test_scripts_are_sent_again_after_they_were_flushed(
    make: Make, client: Any, prefix: str, clock: VirtualClock
) -> None:
    store = make()
    client.hset(f"{prefix}:a", "sleep_until", write_instant(clock.now))
    client.script_flush()
    (found,) = store.lock_next(LOCK, 1).found
    client.script_flush()
    assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]


def test_without_a_clock_that_of_the_server_is_used(make: Make, client: Any, prefix: str) -> None:
    store = make(clock=None)
    seconds, micros = client.time()
    assert abs(store.now() - (seconds * 1000 + micros // 1000)) < MINUTE
    store.put(f"{prefix}:later", {"sleep_until": from_ms(store.now() + MINUTE)})
    store.put(f"{prefix}:now", {"sleep_until": from_ms(store.now())})
    assert keys(store) == ["now"]


def test_no_document_is_early_after_the_server_s_clock_was_set_back(
    make: Make, client: Any, prefix: str
) -> None:
    store = make(clock=None)
    now = store.now()
    store.put(f"{prefix}:later", {"sleep_until": from_ms(now + 10 * MINUTE)})
    clock = store._server._clock
    assert clock._ahead is not None
    clock._ahead += 20 * MINUTE  # as before it was set back
    assert store.lock_next(LOCK, 5) == ([], now + 10 * MINUTE)
    assert store.now() < now + 10 * MINUTE


@pytest.mark.parametrize("source", ["url", "client"])
def test_a_server_that_is_down_is_unavailable_and_the_error_has_no_password(source: str) -> None:
    port = servers.free_port()
    client = redis.Redis(port=port, password="s3cret", username="me", retry=Retry(NoBackoff(), 0))
    url = f"redis://me:s3cret@127.0.0.1:{port}/0"
    store = RedisDocuments(url if source == "url" else client, "order:*")
    lock = DocumentLock("order:1", (1,))
    calls: list[Callable[[], object]] = [
        store.open,
        store.now,
        lambda: store.lock_next(LOCK, 1),
        lambda: store.update([Change(lock, None)]),
        lambda: store.remove([lock]),
        lambda: store.put("order:1", {"a": "b"}),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="is the server there") as caught:
            call()
        assert "s3cret" not in str(caught.value)
        assert str(port) in str(caught.value)
    assert store.name == "order:*"
    store.close()
    client.close()


def test_it_goes_on_after_a_restart_of_the_server() -> None:
    with own_server() as server, redis.Redis.from_url(server.url) as client:
        store = RedisDocuments(server.url, "order:*")
        store.put("order:1", {"sleep_until": "2020-01-01", "x": "1"})
        (found,) = store.lock_next(LOCK, 1).found
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.lock_next(LOCK, 1)
        server.start()
        assert store.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
        assert client.hgetall("order:1") == {b"x": b"1"}
        store.close()


def test_nothing_is_written_when_the_server_is_out_of_memory() -> None:
    with own_server(maxmemory="100mb") as server, redis.Redis.from_url(server.url) as client:
        store = RedisDocuments(server.url, "order:*")
        for number in range(3):
            store.put(f"order:{number}", {"sleep_until": "2020-01-01", "x": "1"})
        (found,) = store.lock_next(LOCK, 1).found
        before = client.hgetall(found.id)
        client.config_set("maxmemory", "1")
        lock = DocumentLock(found.id, (found.locked_until,))
        calls: list[Callable[[], object]] = [
            lambda: store.update([Change(lock, found.locked_until + 1)]),
            lambda: store.put(found.id, {"x": "2"}),
            lambda: store.lock_next(LOCK, 1),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="maxmemory is reached"):
                call()
        assert client.hgetall(found.id) == before
        client.config_set("maxmemory", "0")
        assert store.update([Change(lock, None)]) == [True]
        assert len(store.lock_next(LOCK, 5).found) == 2
        store.close()


@pytest.mark.parametrize("source", ["url", "cluster"])
def test_a_cluster_needs_one_hash_tag_for_all_keys(source: str) -> None:
    settings = {"cluster_enabled": "yes", "cluster_port": str(servers.free_port())}
    with own_server(**settings) as server, redis.Redis.from_url(server.url) as client, ExitStack() as stack:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            pass
        given: Any = server.url
        if source == "cluster":
            given = redis.RedisCluster.from_url(server.url)
            stack.callback(given.close)
        store = RedisDocuments(given, "{shop}:order:*")
        stack.callback(store.close)
        store.open()
        client.hset("{shop}:order:1", mapping={"sleep_until": "2020-01-01", "x": "1"})
        store.put("{shop}:order:2", {"sleep_until": "2020-01-02"})
        client.hset("{other}:order:1", mapping={"sleep_until": "2020-01-01", "x": "1"})
        found = store.lock_next(LOCK, 5).found
        assert [one.id for one in found] == ["{shop}:order:1", "{shop}:order:2"]
        locks = [DocumentLock(one.id, (one.locked_until,)) for one in found]
        assert store.update([Change(locks[0], None)]) == [True]
        assert store.remove(locks) == [False, True]
        slots = {
            client.execute_command("CLUSTER KEYSLOT", key)
            for key in (store.index, f"{store.index}:scan", "{shop}:order:1")
        }
        assert len(slots) == 1


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_are_supported(make: Make, valkey: str, prefix: str, protocol: int) -> None:
    with redis.Redis.from_url(plain(valkey), protocol=protocol, decode_responses=True) as client:
        store = make(client)
        store.put(f"{prefix}:a", {"sleep_until": "2020-01-01"})
        assert keys(store) == ["a"]
        assert store.lock_next(LOCK, 1).next_due is not None


# Invalid options


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pattern": ""}, "pattern"),
        ({"pattern": None}, "pattern"),
        ({"sleep_until": ""}, "sleep_until"),
        ({"interval": 5}, "interval"),
        ({"condition": {"active": True}}, "condition"),
        ({"condition": {"": "1"}}, "condition"),
        ({"condition": "active = 1"}, "condition"),
        ({"times": "ms"}, "times"),
        ({"index": ""}, "index"),
        ({"rescan": "soon"}, "rescan"),
        ({"client": 5}, "client"),
        ({"client": redis.asyncio.Redis()}, "client"),
        ({"client": "http://host"}, "store"),
    ],
)
def test_invalid_options_are_refused_at_once(options: dict[str, Any], field: str) -> None:
    given = {"client": "redis://host", "pattern": "order:*", **options}
    with pytest.raises(InvalidValue) as caught:
        RedisDocuments(**given)
    assert caught.value.field == field


# A processor


def test_a_processor_processes_hashes(valkey: str, prefix: str, client: Any) -> None:
    seen: list[str] = []
    store = RedisDocuments(valkey, f"{prefix}:*", index=f"{prefix}:due")
    for number in range(200):
        fields = {"sleep_until": "2020-01-01", "auto_remove": "1" if number % 2 else "0"}
        client.hset(f"{prefix}:{number}", mapping=fields)
    idle = threading.Event()
    processor = Processor(store, lambda document: seen.append(document.id), on_idle=idle.set, concurrency=8)
    with processor:
        assert idle.wait(60)
    assert sorted(seen) == sorted(f"{prefix}:{number}" for number in range(200))
    assert client.zcard(f"{prefix}:due") == 0
    assert len(list(client.scan_iter(f"{prefix}:[0-9]*"))) == 100


@pytest.mark.parametrize("script", ["lock", "scan"])
def test_locked_documents_are_returned_if_the_server_disconnects(
    make: Make, client: Any, prefix: str, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    store = make()
    for number in range(150):
        client.hset(f"{prefix}:{number}", "sleep_until", "2026-01-01T00:00:00Z")
    store._scan_all()
    run, calls = store._server.run, 0

    def away_from_the_second_on(name: str, *asked: object) -> Any:
        nonlocal calls
        calls += name == script
        if calls > (script == "lock"):
            raise StoreUnavailable("gone")
        return run(name, *asked)

    monkeypatch.setattr(store._server, "run", away_from_the_second_on)
    assert len(store.lock_next(60_000, 200).found) == (100 if script == "lock" else 150)
    with pytest.raises(StoreUnavailable, match="gone"):
        store.lock_next(60_000, 200)

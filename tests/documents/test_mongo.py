"""Documents in MongoDB: cases that other stores do not have."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient, MongoClient, monitoring
from pymongo.collection import Collection
from pymongo.write_concern import WriteConcern

from evenbeat.core.instants import FIRST, LAST
from evenbeat.documents import Document, MongoDocuments, rules
from evenbeat.documents.base import Change, DocumentLock, Found
from evenbeat.documents.mongo import collection, contention, store
from evenbeat.documents.mongo.collection import UserCollection
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.testing.clock import VirtualClock
from tests import servers
from tests.conftest import server_url
from tests.damaged_bson import Damaged, document, not_binary, not_utf_8
from tests.faults.proxy import Proxy

LOCK = 600_000
Orders = Collection[dict[str, Any]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def orders(mongo: str) -> Iterator[Orders]:
    with MongoClient[dict[str, Any]](mongo) as client:
        yield client.get_default_database()["orders"]


@pytest.fixture
def documents(orders: Orders, clock: VirtualClock) -> MongoDocuments:
    return MongoDocuments(orders, clock=clock)


def insert(orders: Orders, fields: dict[str, Any]) -> None:
    """Insert a document that may have damaged values."""
    orders.insert_one(document(fields))


def due(clock: VirtualClock, ago: int = 0) -> DatetimeMS:
    return DatetimeMS(clock.now - ago)


def lock_of(found: Found) -> DocumentLock:
    return DocumentLock(found.id, (found.locked_until,))


def ids(found: Any) -> list[Any]:
    return [one.id for one in found]


def before_writing(documents: MongoDocuments, then: Callable[[], object]) -> None:
    """Call ``then`` once, after the store has looked and before it locks."""
    _once(documents._collection, "write", then)


def before_reading(documents: MongoDocuments, then: Callable[[], object]) -> None:
    """Call ``then`` once, after the store has locked and before it reads the locked documents."""
    own = documents._collection
    _once(own, "write", lambda: _once(own, "find", then))


def _once(own: UserCollection, method: str, then: Callable[[], object]) -> None:
    def hooked(*words: Any, **more: Any) -> Any:
        delattr(own, method)
        then()
        return getattr(own, method)(*words, **more)

    setattr(own, method, hooked)


# Options


def test_a_value_that_is_not_a_collection_is_refused(mongo: str) -> None:
    with MongoClient[Any](mongo) as client:
        for other in (client, client.shop, "orders", None):
            with pytest.raises(InvalidValue, match=r"is not a pymongo Collection; .*MongoClient\(\)"):
                MongoDocuments(other)  # type: ignore[arg-type]  # the subject of the test


def test_a_collection_of_an_async_client_is_refused() -> None:
    client = AsyncMongoClient[Any]("mongodb://localhost", connect=False)
    with pytest.raises(InvalidValue, match=r'"AsyncCollection" is not .*async def'):
        MongoDocuments(client.shop.orders)  # type: ignore[arg-type]  # the subject of the test


def test_a_collection_without_acknowledged_writes_is_refused(orders: Orders) -> None:
    with pytest.raises(InvalidValue, match="w=0; the server would not answer"):
        MongoDocuments(orders.with_options(write_concern=WriteConcern(w=0)))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"condition": "active"}, "is not a filter"),
        ({"condition": [("active", True)]}, "is not a filter"),
        ({"sleep_until": "_id"}, "can't be changed"),
        ({"sleep_until": "_id.due"}, "can't be changed"),
        ({"sleep_until": "$due"}, "is not the path of a field"),
        ({"interval": "schedule."}, "is not the path of a field"),
        ({"repeat_until": ""}, "is not the path of a field"),
        ({"auto_remove": None}, "is not the path of a field"),
        ({"interval": "sleep_until"}, 'interval "sleep_until" is the same field as sleep_until'),
        ({"sleep_until": "a.b", "interval": "a"}, 'sleep_until "a.b" is inside of "a", which is interval'),
        ({"repeat_until": "auto_remove.x"}, "is inside of"),
    ],
)
def test_invalid_options_are_refused(orders: Orders, words: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        MongoDocuments(orders, **words)


def test_a_condition_that_is_not_a_filter_is_refused_by_open(orders: Orders) -> None:
    with pytest.raises(InvalidValue, match=r"unknown operator: \$nope.*is the condition a filter"):
        MongoDocuments(orders, condition={"total": {"$nope": 1}}).open()


def test_a_view_is_refused_by_open(orders: Orders) -> None:
    orders.database.create_collection("seen", viewOn=orders.name, pipeline=[])
    with pytest.raises(InvalidValue, match="view"):
        MongoDocuments(orders.database["seen"]).open()


def test_its_name_has_no_password(mongo: str) -> None:
    url = mongo.replace("mongodb://", "mongodb://me:secret@") + "&serverSelectionTimeoutMS=3000"
    with MongoClient[Any](url) as client:
        documents = MongoDocuments(client.shop.orders)
        assert documents.name == "shop.orders"
        with pytest.raises(StoreUnavailable) as raised:
            documents.open()
    assert "secret" not in str(raised.value)


def test_the_path_of_sleep_until_is_reserved_and_fields_beside_it_are_not(orders: Orders) -> None:
    documents = MongoDocuments(orders, sleep_until="a.b.due")
    assert documents.reserved == {"_id", "a.b.due"}

    # Fields beside it
    document = Document(Found("x", 1, 2), rules.DocumentPlan(1), lambda: 1, documents.reserved)
    document.update({"a.b.last": 7, "a.c": 8})
    for path in ("a", "a.b", "a.b.due", "a.b.due.x", "_id"):
        with pytest.raises(InvalidValue, match="is the key of the document, or when it is due"):
            document.update({path: 9})


def test_no_field_index_or_collection_is_added(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    documents.open()
    assert orders.database.list_collection_names() == []
    orders.insert_one({"_id": 1, "sleep_until": due(clock)})
    (found,) = documents.lock_next(LOCK, 5).found
    documents.update([Change(lock_of(found), None)])
    documents.close()
    assert orders.find_one() == {"_id": 1, "sleep_until": None}  # the client is still open
    assert orders.database.list_collection_names() == ["orders"]
    assert list(orders.index_information()) == ["_id_"]


def test_a_unique_index_causes_a_warning(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    orders.create_index([("customer", 1), ("sleep_until", 1)], unique=True)
    orders.create_index("number", unique=True, sparse=True)
    orders.create_index("sleep_until", name="plain")
    documents.open()
    assert caplog.records == []
    orders.create_index("sleep_until", name="mine", unique=True, sparse=True)
    documents.open()
    assert "the index mine is unique" in caplog.text
    # The warning is right.
    orders.insert_many([{"_id": n, "customer": n, "number": n, "sleep_until": due(clock, n)} for n in (1, 2)])
    assert ids(documents.lock_next(LOCK, 2).found) == [2]
    assert "duplicate key" in caplog.text


@pytest.mark.parametrize("is_aware", [True, False])
def test_documents_are_returned_as_the_collection_decodes_them(
    orders: Orders, clock: VirtualClock, is_aware: bool
) -> None:
    options = orders.codec_options.with_options(tz_aware=is_aware, tzinfo=UTC if is_aware else None)
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC if is_aware else None)
    orders.insert_one({"_id": 1, "at": {"due": due(clock), "last": due(clock)}, "sold": due(clock)})
    documents = MongoDocuments(
        orders.with_options(codec_options=options), sleep_until="at.due", repeat_until="at.last", clock=clock
    )
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.data == {"_id": 1, "at": {"due": moment, "last": moment}, "sold": moment}
    assert rules.read(found).repeat_until == clock.now


def test_raw_documents_stay_raw_and_show_the_state_before_the_lock(
    orders: Orders, clock: VirtualClock
) -> None:
    options = CodecOptions[RawBSONDocument](document_class=RawBSONDocument)
    orders.insert_one({"_id": {"b": 1, "a": 2}, "sleep_until": due(clock), "of": {"x": [1]}})
    documents = MongoDocuments(orders.with_options(codec_options=options), clock=clock)
    (found,) = documents.lock_next(LOCK, 1).found
    assert isinstance(found.data, RawBSONDocument)
    assert found.data["sleep_until"] == datetime(2026, 3, 1, 12)
    assert list(found.id) == ["b", "a"]
    assert documents.update([Change(lock_of(found), None)]) == [True]


def test_fields_are_set_as_the_operator_does_it(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    orders.insert_one({"_id": 1, "sleep_until": due(clock), "items": [{"n": 1}, {"n": 2}], "name": "x"})
    (found,) = documents.lock_next(LOCK, 1).found
    fields = {"items.1.n": 5, "name": "$items", "of.a": {"$literal": 1}, "gone": None}
    assert documents.update([Change(lock_of(found), None, fields)]) == [True]
    assert orders.find_one() == {
        "_id": 1,
        "sleep_until": None,
        "items": [{"n": 1}, {"n": 5}],
        "name": "$items",
        "of": {"a": {"$literal": 1}},
        "gone": None,
    }


def test_it_uses_the_clock_of_the_server(orders: Orders) -> None:
    documents = MongoDocuments(orders)
    documents.open()

    def server() -> int:
        now: datetime = orders.database.command("hello")["localTime"]
        return round(now.replace(tzinfo=UTC).timestamp() * 1000)

    earliest = server()
    now = documents.now()
    # Behind the server's by no more than the time of a reply.
    assert now <= server()
    assert now >= earliest - 1000


@pytest.mark.parametrize("limit", [1, 5])
def test_no_document_is_early_after_the_server_s_clock_was_set_back(orders: Orders, limit: int) -> None:
    documents = MongoDocuments(orders)
    documents.open()
    now = documents.now()
    orders.insert_many(
        [
            {"_id": "later", "sleep_until": DatetimeMS(now + 600_000)},
            {"_id": "old", "sleep_until": DatetimeMS(now - 1000)},
        ]
    )
    clock = documents._collection.clock
    assert clock._ahead is not None
    clock._ahead += 1_200_000  # as before it was set back
    if limit == 1:
        orders.update_one({"_id": "old"}, {"$set": {"sleep_until": None}})
        assert documents.lock_next(LOCK, limit) == ([], now + 600_000)
    else:
        taken = documents.lock_next(LOCK, limit)
        assert ids(taken.found) == ["old"]
        assert taken.next_due is not None
        assert taken.next_due < now + 600_000  # look again, at once
        assert documents.lock_next(LOCK, limit) == ([], now + 600_000)
    assert documents.now() < now + 600_000
    assert documents._contention.window(1) == 1  # it was not contention


def test_a_server_whose_clock_was_set_back_is_not_queried_without_a_pause(orders: Orders) -> None:
    documents = MongoDocuments(orders)
    documents._collection.clock._ask = lambda: LAST - 1000
    orders.insert_one({"sleep_until": DatetimeMS(LAST - 2000)})
    taken = documents.lock_next(LOCK, 1)
    assert taken.found == []
    assert taken.next_due is not None
    assert taken.next_due > LAST - 1000


# Values in documents


@pytest.mark.parametrize(
    "value",
    [
        lambda clock: [due(clock, 9)],
        lambda clock: [[due(clock, 9)]],
        lambda _: [],
        lambda _: "2020-01-01T00:00:00Z",
        lambda _: 0,
        lambda _: Timestamp(1, 1),
        lambda clock: {"date": due(clock, 9)},
        lambda _: None,
    ],
)
@pytest.mark.parametrize("has_index", [True, False])
def test_a_document_without_a_date_is_not_a_job_and_blocks_no_other(
    orders: Orders,
    documents: MongoDocuments,
    clock: VirtualClock,
    value: Callable[[VirtualClock], Any],
    has_index: bool,
) -> None:
    if has_index:
        orders.create_index("sleep_until")
    odd = {"_id": "odd", "sleep_until": value(clock)}
    orders.insert_many([odd, {"_id": "job", "sleep_until": due(clock)}, {"_id": "none"}])
    assert ids(documents.lock_next(LOCK, 1).found) == ["job"]
    assert documents.lock_next(LOCK, 1).next_due == clock.now + LOCK
    assert orders.find_one(odd) is not None


def test_a_document_with_an_array_of_dates_is_not_a_job(orders: Orders, clock: VirtualClock) -> None:
    orders.create_index("plan.0.due")
    documents = MongoDocuments(orders, sleep_until="plan.0.due", clock=clock)
    odd = {"_id": "odd", "plan": [{"due": due(clock, 9)}, {"due": due(clock, 5)}]}
    # A path through an array looks like one through a document.
    orders.insert_many([odd, {"_id": "job", "plan": {"0": {"due": due(clock), "x": 1}, "y": 2}}])
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.id == "job"
    assert documents.update([Change(lock_of(found), None)]) == [True]
    assert orders.find_one({"_id": "job"}) == {"_id": "job", "plan": {"0": {"due": None, "x": 1}, "y": 2}}
    assert documents.lock_next(LOCK, 1) == ([], None)


def test_times_outside_of_python_s_years_are_due_as_well(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    options = orders.codec_options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    lenient = MongoDocuments(orders.with_options(codec_options=options), clock=clock)
    orders.insert_many(
        [
            {"_id": "ancient", "sleep_until": DatetimeMS(-(2**60)), "interval": "every 10m"},
            {"_id": "far", "sleep_until": DatetimeMS(2**60)},
            {"_id": "now", "sleep_until": due(clock)},
            {"_id": "endless", "sleep_until": due(clock, -1), "repeat_until": DatetimeMS(2**60)},
        ]
    )
    taken = documents.lock_next(LOCK, 3)
    assert ids(taken.found) == ["ancient", "now"]
    ancient = taken.found[0]
    assert ancient.sleep_until == FIRST
    assert ancient.data["sleep_until"] == DatetimeMS(-(2**60))
    upcoming = rules.after_success(rules.read(ancient), clock.now, rules.Policy())
    assert isinstance(upcoming, int)
    assert clock.now <= upcoming <= clock.now + 600_000
    assert documents.update([Change(lock_of(one), None) for one in taken.found]) == [True, True]
    clock.now += 1
    (endless,) = lenient.lock_next(LOCK, 1).found
    assert rules.read(endless).repeat_until == LAST
    orders.delete_one({"_id": "endless"})
    assert documents.lock_next(LOCK, 1) == ([], 2**60)


@pytest.mark.parametrize("until", [5, 5.0, 1_900_000_000_000])
def test_a_number_as_repeat_until_is_refused(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock, until: object
) -> None:
    orders.insert_one({"sleep_until": due(clock), "interval": "every 1m", "repeat_until": until})
    (found,) = documents.lock_next(LOCK, 1).found
    with pytest.raises(InvalidValue, match=r"repeat_until .* is not a time"):
        rules.read(found)


@pytest.mark.parametrize("value", ["2026-03-01T09:00:00", 5, 5.5, 2**40, Decimal128("5"), Timestamp(5, 1)])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_text_or_number_instead_of_a_date_causes_a_warning(
    orders: Orders, caplog: pytest.LogCaptureFixture, value: object, is_indexed: bool
) -> None:
    documents = MongoDocuments(orders, condition={"active": True})
    if is_indexed:
        orders.create_index("sleep_until")
    orders.insert_many(
        [
            {"_id": number, "sleep_until": value, "active": True}
            for number, value in enumerate(["", None, datetime(2026, 3, 1)])
        ]
    )
    orders.insert_one({"_id": "not ours", "sleep_until": value})
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        documents.open()
        assert not caplog.messages
        orders.insert_one({"_id": "x", "sleep_until": value, "active": True})
        documents.open()
    (message,) = caplog.messages
    assert message.startswith('document "x" is never due: its sleep_until is ')
    assert message.endswith("; store a date, not a text or a number")


def test_the_query_behind_that_warning_uses_an_index_and_a_short_timeout(
    orders: Orders, documents: MongoDocuments, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.create_index("sleep_until", sparse=True)
    orders.insert_many([{"sleep_until": datetime(2026, 3, 1)} for _ in range(50)])
    explained = orders.database.command(
        "explain", {"find": orders.name, "filter": documents._queries.not_a_date()}
    )
    assert explained["executionStats"]["totalKeysExamined"] < 10
    assert explained["executionStats"]["totalDocsExamined"] == 0
    monkeypatch.setattr(collection, "_GLIMPSE_TIMEOUT", 1e-9)
    orders.insert_one({"sleep_until": "soon"})
    documents.open()


class _Exploding(TypeDecoder):
    bson_type = Decimal128

    def transform_bson(self, value: Any) -> Any:
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("value", "salvaged"),
    [
        (DatetimeMS(2**60), DatetimeMS(2**60)),
        (Decimal128("1"), Decimal128("1")),
        (not_binary(b"x"), None),
        (not_utf_8(b"M\xfcller"), "M\ufffdller"),
    ],
    ids=["date", "decoder", "binary", "text"],
)
def test_a_document_that_can_not_be_read_is_reported_and_blocks_no_other(
    orders: Orders, clock: VirtualClock, value: Any, salvaged: Any
) -> None:
    options = orders.codec_options.with_options(type_registry=TypeRegistry([_Exploding()]))
    insert(orders, {"_id": 1, "sleep_until": due(clock, 2), "value": value, "interval": "* * * * *"})
    insert(orders, {"_id": 2, "sleep_until": due(clock, 1)})
    documents = MongoDocuments(orders.with_options(codec_options=options), clock=clock)
    bad, good = documents.lock_next(LOCK, 5).found
    assert rules.read(good).sleep_until == clock.now - 1
    with pytest.raises(InvalidValue, match="the document can't be read: "):
        rules.read(bad)
    assert bad.data.get("value") == salvaged
    assert documents.update([Change(lock_of(bad), clock.now + 1)]) == [True]


UNREADABLE_IDS: dict[str, Callable[[int], Any]] = {
    "text": lambda n: not_utf_8(b"\xff%d" % n),
    "binary": lambda n: not_binary(b"%d" % n),
    "inside": lambda n: Damaged(0x03, bytes(document({"n": n, "text": not_utf_8(b"\xff")}).raw)),
    "pointer": lambda n: Damaged(0x0C, not_utf_8(b"db.orders").raw + b"%012d" % n),
}
"""Values of ``_id`` that the driver can't read, or does not write as it has read them."""

unreadable_ids = pytest.mark.parametrize("odd", UNREADABLE_IDS.values(), ids=UNREADABLE_IDS)


@unreadable_ids
@pytest.mark.parametrize("ago", [9, 0, -9], ids=["first", "equal", "later"])
def test_documents_whose_ids_can_not_be_read_are_logged_and_block_no_other(
    orders: Orders,
    documents: MongoDocuments,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    odd: Callable[[int], Any],
    ago: int,
) -> None:
    for n in range(3):
        insert(orders, {"_id": odd(n), "sleep_until": due(clock, ago)})
        insert(orders, {"_id": n, "sleep_until": due(clock)})
    taken = [documents.lock_next(LOCK, 1) for _ in range(3)]
    assert sorted(ids(one for some in taken for one in some.found)) == [0, 1, 2]
    clock.now += 10
    assert documents.lock_next(LOCK, 1) == ([], clock.now - 10 + LOCK)
    assert "documents have an _id that can't be read, and are skipped" in caplog.text
    # They stay as they were.
    assert orders.count_documents({"sleep_until": DatetimeMS(clock.now - 10 - ago)}) == 3


@unreadable_ids
@pytest.mark.parametrize("limit", [1, 4, 50])
def test_more_unreadable_ids_than_a_batch_block_no_other(
    orders: Orders,
    documents: MongoDocuments,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    odd: Callable[[int], Any],
    limit: int,
) -> None:
    for n in range(100):
        insert(orders, {"_id": odd(n), "sleep_until": due(clock, 9)})
    orders.insert_many([{"_id": n, "sleep_until": due(clock)} for n in range(3)])
    found: list[Any] = []
    for _ in range(4):
        taken = documents.lock_next(LOCK, limit)
        found += ids(taken.found)
        # A call that has not seen all of them does not make the processor wait.
        assert len(found) == 3 or taken.found or taken.next_due == clock.now
    assert sorted(found) == [0, 1, 2]
    messages = len(caplog.records)
    assert caplog.records[-1].__dict__["count"] == 100
    for _ in range(3):
        assert documents.lock_next(LOCK, limit) == ([], clock.now + LOCK)
    assert len(caplog.records) == messages  # once is enough


def test_an_unreadable_id_that_is_due_later_does_not_stop_the_search_for_the_next_document(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    insert(orders, {"_id": not_binary(b"x"), "sleep_until": due(clock, -5)})
    assert documents.lock_next(LOCK, 1) == ([], clock.now + 5)


def test_ids_of_all_types(orders: Orders, documents: MongoDocuments, clock: VirtualClock) -> None:
    kinds: list[Any] = [
        1,
        1.5,
        "1",
        True,
        None,
        datetime(2026, 1, 1),
        DatetimeMS(2**60),
        Binary(bytes(16), 4),
        {"a": {"b": 1}},
        {"b": 1, "a": 1},
        {"a": 1, "b": 1},
        Decimal128("NaN"),
    ]
    orders.insert_many([{"_id": kind, "sleep_until": due(clock, n)} for n, kind in enumerate(kinds)])
    found = documents.lock_next(LOCK, 100).found
    assert len(found) == len(kinds)
    assert documents.update([Change(lock_of(one), None) for one in found[:9]]) == [True] * 9
    assert documents.remove([lock_of(one) for one in found[9:]]) == [True] * (len(kinds) - 9)


def test_more_documents_are_locked_than_one_query_reads(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    orders.insert_many([{"_id": number, "sleep_until": due(clock, number)} for number in range(2500)])
    found = documents.lock_next(LOCK, 3000).found
    assert ids(found) == list(range(2499, -1, -1))
    orders.delete_many({"_id": {"$lt": 10}})
    answers = documents.update([Change(lock_of(one), None) for one in found])
    assert answers == [True] * 2490 + [False] * 10


# Contention


def test_two_stores_in_the_same_millisecond_lock_different_documents(
    orders: Orders, clock: VirtualClock
) -> None:
    one, other = MongoDocuments(orders, clock=clock), MongoDocuments(orders, clock=clock)
    orders.insert_many([{"_id": number, "sleep_until": due(clock, -number + 9)} for number in range(6)])
    taken: list[Any] = []
    before_writing(one, lambda: taken.extend(ids(other.lock_next(LOCK, 3).found)))
    mine = one.lock_next(LOCK, 6)
    assert taken == [0, 1, 2]
    assert ids(mine.found) == [3, 4, 5]
    assert mine.next_due == clock.now  # more may be due than were read


def test_a_store_whose_candidates_are_all_taken_searches_again(orders: Orders, clock: VirtualClock) -> None:
    one, other = MongoDocuments(orders, clock=clock), MongoDocuments(orders, clock=clock)
    orders.insert_many([{"_id": number, "sleep_until": due(clock, -number + 9)} for number in range(4)])
    before_writing(one, lambda: other.lock_next(LOCK, 2))
    assert len(one.lock_next(LOCK, 2).found) == 2
    assert one.lock_next(LOCK, 2) == ([], clock.now + LOCK)


def test_next_due_is_known_if_others_took_the_last_document(orders: Orders, clock: VirtualClock) -> None:
    one, other = MongoDocuments(orders, clock=clock), MongoDocuments(orders, clock=clock)
    orders.insert_one({"sleep_until": due(clock)})
    before_writing(one, lambda: other.lock_next(LOCK, 1))
    assert one.lock_next(LOCK, 2) == ([], clock.now + LOCK)


def test_next_due_is_now_if_not_all_due_documents_were_tried(orders: Orders, clock: VirtualClock) -> None:
    one, other = MongoDocuments(orders, clock=clock), MongoDocuments(orders, clock=clock)
    one._contention.record(1, 1)
    orders.insert_many([{"_id": number, "sleep_until": due(clock)} for number in range(4)])
    before_writing(one, lambda: orders.delete_many({"_id": {"$in": ids(other.lock_next(LOCK, 2).found)}}))
    taken = one.lock_next(LOCK, 3)
    assert len(taken.found) in (1, 2)  # of four it had chosen three at random
    assert taken.next_due == clock.now


def test_changes_of_the_owner_before_the_lock_are_respected(orders: Orders, clock: VirtualClock) -> None:
    documents = MongoDocuments(orders, condition={"active": True}, clock=clock)
    orders.insert_many([{"_id": key, "sleep_until": due(clock), "active": True} for key in "abcde"])

    def change() -> None:
        orders.delete_one({"_id": "a"})
        orders.update_one({"_id": "b"}, {"$set": {"active": False}})
        orders.update_one({"_id": "c"}, {"$set": {"note": "new"}})
        orders.update_one({"_id": "d"}, {"$set": {"sleep_until": due(clock, -60_000)}})

    before_writing(documents, change)
    found = documents.lock_next(LOCK, 5).found
    assert sorted(ids(found)) == ["c", "e"]
    assert {one.id: one.data.get("note") for one in found} == {"c": "new", "e": None}
    left = {one["_id"]: one["sleep_until"] for one in orders.find()}
    now = datetime(2026, 3, 1, 12)
    assert (left["b"], left["d"]) == (now, now.replace(minute=1))


def test_changes_of_the_owner_after_the_lock_are_respected(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    orders.insert_many([{"_id": key, "sleep_until": due(clock)} for key in "abc"])

    def change() -> None:
        orders.delete_one({"_id": "a"})
        orders.update_one({"_id": "b"}, {"$set": {"sleep_until": None}})

    before_reading(documents, change)
    assert ids(documents.lock_next(LOCK, 5).found) == ["c"]


def test_a_document_that_is_inserted_again_and_locked_by_others_is_not_returned(
    orders: Orders, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """All within a millisecond: it becomes inactive, so it is not locked; it becomes active again; and
    another store locks it until the same instant."""
    words: dict[str, Any] = {"condition": {"active": True}, "clock": clock}
    one, other = MongoDocuments(orders, **words), MongoDocuments(orders, **words)
    orders.insert_many([{"_id": key, "sleep_until": due(clock), "active": True} for key in "ab"])
    theirs: list[Any] = []

    def back() -> None:
        orders.update_one({"_id": "a"}, {"$set": {"active": True}})
        theirs.extend(ids(other.lock_next(LOCK, 5).found))

    before_writing(one, lambda: orders.update_one({"_id": "a"}, {"$set": {"active": False}}))
    find, looks = one._collection.find, []

    def hooked(*words: Any, **more: Any) -> Any:
        looks.append(words)
        if len(looks) == 2:  # the query for locked documents
            back()
        return find(*words, **more)

    one._collection.find = hooked  # type: ignore[method-assign]  # a moment that a test can't hit otherwise
    assert one.lock_next(LOCK, 5).found == []
    assert theirs == ["a"]
    assert "not processed until their lock ends" in caplog.text


def test_the_window_grows_with_the_share_of_lost_candidates() -> None:
    others = contention.CandidateWindow()
    assert others.window(10) == 10
    others.record(10, 2)  # not more than a fifth
    assert others.window(10) == 10
    for _ in range(6):
        others.record(10, 3)
    assert others.window(10) == 160
    assert others.window(1) == 128
    assert others.window(10_000) == 20_000
    assert others.window(100_000) == 100_000
    for _ in range(6):
        others.record(10, 1)
    assert others.window(10) == 160
    for _ in range(50):
        others.record(10, 0)
    assert others.window(10) == 10


def test_one_lost_candidate_of_one_widens_the_window_and_one_success_does_not_narrow_it() -> None:
    others = contention.CandidateWindow()
    others.record(1, 1)
    others.record(1, 0)
    assert others.window(1) == 16


def test_some_of_many_candidates_are_chosen_in_their_order() -> None:
    others = contention.CandidateWindow()
    assert list(others.choose("abc", 3)) == ["a", "b", "c"]
    chosen = others.choose(range(1000), 100)
    assert list(chosen) == sorted(set(chosen))
    assert len(chosen) == 100
    assert chosen != others.choose(range(1000), 100)


# Refusals of the server


@pytest.fixture
def strict(orders: Orders) -> Orders:
    """The validator wants a total to be a number, and does not check old documents."""
    orders.insert_one({"_id": "old", "total": "no number"})
    orders.database.command("collMod", "orders", validator={"total": {"$not": {"$type": "string"}}})
    return orders


def test_unlockable_documents_are_logged_and_block_no_other(
    strict: Orders,
    documents: MongoDocuments,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Invalid documents may have been written without validation, or before there was a validator.
    strict.with_options().insert_many(
        [{"_id": number, "sleep_until": due(clock, 9), "total": "x"} for number in range(3)],
        bypass_document_validation=True,
    )
    strict.insert_one({"_id": "good", "sleep_until": due(clock)})
    with caplog.at_level(logging.ERROR):
        assert ids(documents.lock_next(LOCK, 2).found) == ["good"]
    assert "documents can't be locked" in caplog.text
    assert documents.lock_next(LOCK, 2) == ([], clock.now + LOCK)
    strict.database.command("collMod", "orders", validator={})
    monkeypatch.setattr("evenbeat.documents.locking._LEFT_OUT", -1.0)  # a minute later
    assert ids(documents.lock_next(LOCK, 9).found) == [0, 1, 2]


def test_the_reason_is_raised_if_all_documents_are_unlockable(
    strict: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    strict.insert_many(
        [{"_id": number, "sleep_until": due(clock, 9), "total": "x"} for number in range(3)],
        bypass_document_validation=True,
    )
    with pytest.raises(InvalidValue, match=r"refuses a change in .*Document failed validation \(code 121\)"):
        documents.lock_next(LOCK, 2)
    assert documents.lock_next(LOCK, 2) == ([], None)


def test_more_unlockable_documents_than_are_left_out_block_no_other(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_TRIES", 3)
    documents._locker.unlockable._ids = deque(maxlen=5)
    orders.insert_many([{"_id": number, "sleep_until": due(clock, 900 - number)} for number in range(30)])
    orders.insert_many([{"_id": key, "sleep_until": due(clock), "email": "x"} for key in "abc"])
    orders.database.command("collMod", "orders", validator={"email": {"$exists": True}})
    found = [ids(documents.lock_next(LOCK, 1).found) for _ in range(3)]
    assert sorted(one for some in found for one in some) == ["a", "b", "c"]


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_many_unlockable_documents_block_no_other(
    orders: Orders,
    documents: MongoDocuments,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    limit: int,
) -> None:
    orders.insert_many([{"_id": number, "sleep_until": due(clock, 900 - number)} for number in range(150)])
    orders.insert_many([{"_id": key, "sleep_until": due(clock), "email": "x"} for key in "abc"])
    orders.database.command("collMod", "orders", validator={"email": {"$exists": True}})
    found = [ids(documents.lock_next(LOCK, limit).found) for _ in range(-(-3 // limit))]
    assert [one for some in found for one in some] == ["a", "b", "c"]
    # One message for all of them.
    assert [record.__dict__["count"] for record in caplog.records] == [150]
    assert documents.lock_next(LOCK, limit) == ([], clock.now + LOCK)


@pytest.mark.parametrize(
    "fields",
    [
        {"total": "text"},
        {"sleep_until.more": 1},
        {"a": 1, "a.b": 2},
        {"_id.x": 1},
        {"$x": 1},
        {"": 1},
        {"total": object()},
        {"total": 2**70},
        {"total": "\ud800"},
        {"blob": b"x" * (17 << 20)},
    ],
    ids=lambda fields: ",".join(fields),  # the same in every process, and short
)
def test_a_refused_change_does_not_make_the_store_unavailable(
    strict: Orders, documents: MongoDocuments, clock: VirtualClock, fields: dict[str, Any]
) -> None:
    strict.insert_one({"_id": 1, "sleep_until": due(clock)})
    (found,) = documents.lock_next(LOCK, 1).found
    with pytest.raises(InvalidValue, match="MongoDB"):
        documents.update([Change(lock_of(found), None, fields)])
    assert documents.update([Change(lock_of(found), clock.now + 1)]) == [True]


def test_a_document_that_would_grow_too_large_is_refused(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock
) -> None:
    orders.insert_one({"sleep_until": due(clock), "blob": b"x" * (10 << 20)})
    (found,) = documents.lock_next(LOCK, 1).found
    with pytest.raises(InvalidValue, match="MongoDB refuses a change"):
        documents.update([Change(lock_of(found), None, {"more": b"x" * (10 << 20)})])


# Deleted documents


def test_writes_to_deleted_documents_are_reported_as_far_as_is_known(
    orders: Orders, documents: MongoDocuments, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    orders.insert_many([{"_id": {"n": number}, "sleep_until": due(clock)} for number in range(6)])
    found = sorted(documents.lock_next(LOCK, 6).found, key=lambda one: int(one.id["n"]))
    orders.delete_one({"_id": {"n": 1}})
    orders.update_one({"_id": {"n": 2}}, {"$set": {"sleep_until": None}})
    locks = [lock_of(one) for one in found]
    assert documents.update([Change(lock, clock.now + LOCK) for lock in locks]) == [
        True,
        False,
        False,
        True,
        True,
        True,
    ]
    orders.delete_one({"_id": {"n": 4}})
    # They are deleted, whoever has deleted them; the log has a warning.
    assert documents.remove(locks[2:]) == [False, True, True, True]
    assert "deleted before they could be removed" in caplog.text
    assert documents.remove(locks[3:]) == [False] * 3


# Unavailable servers


def test_a_closed_client_makes_the_store_unavailable(orders: Orders) -> None:
    documents = MongoDocuments(orders)
    orders.database.client.close()
    for call in (documents.open, documents.now, lambda: documents.lock_next(LOCK, 1)):
        with pytest.raises(StoreUnavailable, match="after close"):
            call()


def test_a_missing_server_makes_the_store_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_PING_TIMEOUT", 0.5)
    url = f"mongodb://127.0.0.1:{servers.free_port()}"
    with MongoClient[Any](url, serverSelectionTimeoutMS=50) as client:
        documents = MongoDocuments(client.shop.orders, clock=VirtualClock())
        lock = DocumentLock(1, (2,))
        calls: list[Callable[[], object]] = [
            documents.open,
            lambda: documents.lock_next(LOCK, 1),
            lambda: documents.update([Change(lock, None)]),
            lambda: documents.remove([lock]),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"shop\.orders: .*is the server up"):
                call()


def test_open_does_not_wait_long_for_a_missing_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_PING_TIMEOUT", 0.05)
    url = f"mongodb://127.0.0.1:{servers.free_port()}"
    with (
        MongoClient[Any](url, serverSelectionTimeoutMS=3_600_000) as client,
        pytest.raises(StoreUnavailable, match=r"shop\.orders: .*is the server up"),
    ):
        MongoDocuments(client.shop.orders).open()
    # A timeout of the client overrides it.
    monkeypatch.setattr(collection, "_PING_TIMEOUT", 3600)
    with MongoClient[Any](url, timeoutMS=50) as client, pytest.raises(StoreUnavailable):
        MongoDocuments(client.shop.orders).open()


def test_a_write_that_too_few_servers_have_confirmed_raises_an_error(
    orders: Orders, clock: VirtualClock
) -> None:
    orders.insert_one({"_id": 1, "sleep_until": due(clock)})
    careful = orders.with_options(write_concern=WriteConcern(w=2, wtimeout=50))
    with pytest.raises(StoreUnavailable):
        MongoDocuments(careful, clock=clock).lock_next(LOCK, 1)


class _Losing(monitoring.CommandListener):
    """Loses the reply to the next write after it was armed."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.is_armed = False
        self.lost = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self.is_armed and event.command_name == "update":
            self.is_armed = False
            self._proxy.become("lose replies")

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        self.lost += 1
        self._proxy.become("pass")


@pytest.mark.parametrize("name", ["mongo", "mongo_standalone"])
def test_a_lost_reply_locks_no_document_twice(name: str, clock: VirtualClock) -> None:
    """On a replica set, the driver retries the write by its number, and gets the locked documents. On a
    standalone server the call raises an error, and the documents are free when their locks end."""
    server_url(name)
    server = servers.shared(name)
    if not isinstance(server, servers.Server):
        pytest.skip("a server that the tests have not started has no port for a proxy")
    with closing(Proxy(server.port)) as proxy:
        listener = _Losing(proxy)
        with MongoClient[Any](server.url_at(proxy.port), event_listeners=[listener]) as client:
            orders = client[f"test_lost_{name}"]["orders"]
            try:
                orders.insert_many([{"_id": n, "sleep_until": due(clock, 9 - n)} for n in range(5)])
                documents = MongoDocuments(orders, clock=clock)
                documents.open()
                listener.is_armed = True
                if name == "mongo":
                    assert ids(documents.lock_next(LOCK, 4).found) == [0, 1, 2, 3]
                else:
                    with pytest.raises(StoreUnavailable):
                        documents.lock_next(LOCK, 4)
                assert listener.lost == 1
                assert ids(documents.lock_next(LOCK, 4).found) == [4]
                clock.now += LOCK
                assert sorted(ids(documents.lock_next(LOCK, 5).found)) == [0, 1, 2, 3, 4]
            finally:
                client.drop_database(orders.database.name)


def test_locked_documents_are_returned_if_the_server_disconnects(
    orders: Orders, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.insert_one({"_id": 1, "sleep_until": datetime(2026, 1, 1, tzinfo=UTC)})
    documents = MongoDocuments(orders, clock=clock)

    def away(now: int) -> int:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(documents, "_next_due", away)
    assert [one.id for one in documents.lock_next(LOCK, 5).found] == [1]
    with pytest.raises(StoreUnavailable, match="gone"):
        documents.lock_next(LOCK, 5)

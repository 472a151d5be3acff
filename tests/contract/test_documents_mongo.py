"""Documents in MongoDB keep the contract: on a replica set and on a standalone server, with nested fields,
and with a client that has options of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG

from evenbeat.core.instants import Instant
from evenbeat.documents import MongoDocuments, paths
from evenbeat.documents.base import Documents, Fields, Found
from evenbeat.testing import DocumentsContract, DocumentsUnderTest, StoredDocument, VirtualClock

NESTED = Fields("schedule.sleepUntil", "schedule.cron", "schedule.until.last", "flags.remove")


class MongoCollection(DocumentsUnderTest):
    def __init__(self, collection: Collection[Any], fields: Fields, clock: VirtualClock) -> None:
        self._theirs = collection
        # Whatever options the user's collection has, tests read milliseconds and unreplicated writes.
        options = collection.codec_options.with_options(
            document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
        )
        self._own = collection.with_options(codec_options=options, read_concern=ReadConcern("local"))
        self._fields = fields
        self._clock = clock

    def open_store(self, *, only_active: bool = False) -> Documents:
        fields = self._fields
        documents = MongoDocuments(
            self._theirs,
            sleep_until=fields.sleep_until,
            interval=fields.interval,
            repeat_until=fields.repeat_until,
            auto_remove=fields.auto_remove,
            condition={"active": True} if only_active else None,
            clock=self._clock,
        )
        documents.open()
        return documents

    def add(
        self,
        key: str,
        sleep_until: Instant | None,
        *,
        interval: str | None = None,
        repeat_until: Instant | None = None,
        auto_remove: bool = False,
        active: bool = True,
        note: str | None = None,
    ) -> None:
        document: dict[str, Any] = {"_id": self._id(key), "active": active, "note": note}
        paths.put(document, self._fields.sleep_until, _date(sleep_until))
        paths.put(document, self._fields.interval, interval)
        paths.put(document, self._fields.repeat_until, _date(repeat_until))
        paths.put(document, self._fields.auto_remove, auto_remove)
        self._own.insert_one(document)

    def row(self, key: str) -> StoredDocument | None:
        document = self._own.find_one({"_id": self._id(key)})
        if document is None:
            return None
        due = paths.get(document, self._fields.sleep_until)
        return StoredDocument(None if due is None else int(due), document.get("note"))

    def move(self, key: str, sleep_until: Instant | None) -> None:
        self._own.update_one({"_id": self._id(key)}, {"$set": {self._fields.sleep_until: _date(sleep_until)}})

    def delete(self, key: str) -> None:
        self._own.delete_one({"_id": self._id(key)})

    def _id(self, key: str) -> Any:
        return key


class DictsAsIds(MongoCollection):
    """An _id may be a document, which has no hash; the order of its fields matters."""

    def _id(self, key: str) -> Any:
        return {"shop": "a", "number": key, "more": [1, {"b": 2}]}

    def key_of(self, found: Found) -> str:
        return str(found.id["number"])


def _date(instant: Instant | None) -> DatetimeMS | None:
    return None if instant is None else DatetimeMS(instant)


class OneCollection(DocumentsContract):
    """One collection for a class, emptied before each test."""

    __test__ = False
    server = "mongo"
    fields: ClassVar[Fields] = Fields()
    options: ClassVar[dict[str, Any]] = {}
    kind: ClassVar[type[MongoCollection]] = MongoCollection
    collection: Collection[Any]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def database(cls) -> Iterator[None]:
        with own_place(server_url(cls.server)) as url, MongoClient[Any](url, **cls.options) as client:
            cls.collection = client.get_default_database()["orders"]
            cls.collection.create_index(cls.fields.sleep_until)
            yield

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        self.collection.delete_many({})
        yield self.kind(self.collection, self.fields, clock)


class TestMongo(OneCollection):
    pass


@LONG
class TestMongoAlone(OneCollection):
    server = "mongo_standalone"


@LONG
class TestMongoNested(OneCollection):
    fields = NESTED
    kind = DictsAsIds


@LONG
class TestMongoNestedAlone(OneCollection):
    server = "mongo_standalone"
    fields = NESTED
    options: ClassVar[dict[str, Any]] = {"tz_aware": True}


@LONG
class TestMongoRaw(OneCollection):
    """A client whose documents can't be changed, and whose dates are numbers."""

    fields = NESTED
    kind = DictsAsIds
    options: ClassVar[dict[str, Any]] = {
        "document_class": RawBSONDocument,
        "datetime_conversion": DatetimeConversion.DATETIME_MS,
        "readConcernLevel": "majority",
        "w": 1,
    }

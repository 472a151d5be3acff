"""Calls to the server, and what its errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DocumentTooLarge, OperationFailure, PyMongoError, WTimeoutError
from pymongo.read_concern import ReadConcern

from evenbeat.core.instants import Instant
from evenbeat.documents import indexes
from evenbeat.documents.mongo.queries import EARLY, NOT_OURS, Filter, Operation
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.mongo.session import unavailable
from evenbeat.stores.server_clock import ServerClock

Error: TypeAlias = Mapping[str, Any]

# Whatever stands in a document, it can be read: dates that Python has no room for, texts that are none.
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="replace",
)
PLAIN = RAW.with_options(document_class=dict)

# The server is at fault, not what was asked: it changes its role or shuts down (7 to 13436), had no time
# or room (24, 50, 202, 262, 14031), met a conflict (112, 225, 246, 251), or lets us not (13, 18, 8000).
_UNAVAILABLE = frozenset(
    {
        6,
        7,
        13,
        18,
        24,
        50,
        64,
        89,
        91,
        112,
        133,
        134,
        189,
        202,
        225,
        234,
        246,
        251,
        262,
        317,
        8000,
        9001,
        10107,
        10058,
        11600,
        11602,
        13435,
        13436,
        14031,
    }
)


# Seconds to wait for a server when the documents are opened, and for what is nice to know.
_TO_REACH = 5.0
_TO_GLIMPSE = 0.5

_UNAUTHORIZED = 13


class Written(NamedTuple):
    """What became of a bulk of writes."""

    documents: int
    """How many were found and written, or deleted."""
    not_ours: frozenset[int]
    """Which writes, by index, found another value than theirs."""
    errors: list[Error]
    """What else went wrong; each names its index."""
    early: int = 0
    """How many of those that are not ours were locked before their time."""


class Calls:
    """A user's collection. His client and its options stay as they are."""

    def __init__(self, collection: Collection[Any]) -> None:
        self.name = collection.full_name
        # What was locked is read again: only the primary is sure to have it, and has it before a majority.
        self._raw = collection.with_options(
            codec_options=RAW, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
        )
        self._theirs = collection
        self._client = collection.database.client
        self._admin = self._client.admin
        self.clock = ServerClock(self._server_time)

    def reach(self) -> None:
        """See whether there is a primary. The driver would wait for one for half a minute."""
        has_timeout = self._client.options.timeout is not None
        with self._translated(), contextlib.nullcontext() if has_timeout else pymongo.timeout(_TO_REACH):
            self._admin.command("ping")

    def glimpse(self, where: Filter, fields: Mapping[str, Any]) -> RawBSONDocument | None:
        """A document, if one is found soon."""
        with self._translated():
            try:
                with pymongo.timeout(_TO_GLIMPSE):
                    return self._raw.find_one(where, fields)
            except PyMongoError as error:
                if error.timeout:
                    return None
                raise

    def find(
        self,
        where: Filter,
        fields: Mapping[str, Any],
        *,
        by: str | None = None,
        descending: bool = False,
        limit: int = 0,
    ) -> list[RawBSONDocument]:
        with self._translated():
            cursor = self._raw.find(where, projection=fields, limit=limit, batch_size=limit or 10_000)
            if by is not None:
                cursor = cursor.sort(by, -1 if descending else 1)
            with cursor:
                return list(cursor)

    def misses_index(self, path: str) -> bool:
        """Whether there are many documents, and no index with that field."""
        with self._translated():
            if self._raw.estimated_document_count() <= indexes.MANY:
                return False
        known = self._indexes()
        return known is not None and not any(path in index["key"] for index in known)

    def unique_index(self, path: str) -> str | None:
        """The name of an index that lets no two documents have the same value there, if there is one."""
        for index in self._indexes() or ():
            if index.get("unique") and list(index["key"]) == [path]:
                return str(index["name"])
        return None

    def _indexes(self) -> list[Mapping[str, Any]] | None:
        """None for who may not look: he is told nothing, and may work all the same."""
        with self._translated():
            try:
                return list(self._raw.with_options(codec_options=PLAIN).list_indexes())
            except OperationFailure as error:
                if error.code == _UNAUTHORIZED:
                    return None
                raise

    def write(self, operations: Sequence[Operation]) -> Written:
        """Each for itself. Encoded as the user's collection does, whose values may be in it."""
        with self._translated():
            try:
                done = self._theirs.bulk_write(operations, ordered=False)
                return Written(done.matched_count + done.deleted_count, frozenset(), [])
            except BulkWriteError as error:
                details = error.details or {}
                if details.get("writeConcernErrors"):
                    raise WTimeoutError(str(details["writeConcernErrors"][-1].get("errmsg"))) from error
                failed = details.get("writeErrors", [])
        early = sum(entry.get("code") == NOT_OURS and EARLY in entry.get("errmsg", "") for entry in failed)
        if early:
            # It was set back since it was heard of.
            self.clock.forget()
        return Written(
            documents=details.get("nMatched", 0) + details.get("nRemoved", 0),
            not_ours=frozenset(entry["index"] for entry in failed if entry.get("code") == NOT_OURS),
            errors=[entry for entry in failed if entry.get("code") != NOT_OURS],
            early=early,
        )

    def _server_time(self) -> Instant:
        with self._translated():
            return int(self._admin.command("hello", codec_options=PLAIN)["localTime"])

    def refusal(self, error: Error) -> InvalidValue | StoreUnavailable:
        """What the error of a single write means."""
        code, text = error.get("code"), str(error.get("errmsg"))
        if code in _UNAVAILABLE:
            return self._unavailable(OperationFailure(text, code))
        return InvalidValue(
            f"MongoDB refuses a change in {self.name}: {text} (code {code})", field="document", value=None
        )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DocumentTooLarge as error:
            raise self.refusal({"errmsg": str(error)}) from error
        except OperationFailure as error:
            # One without a code is the driver's own.
            if error.code is None or error.code in _UNAVAILABLE or error.timeout:
                raise self._unavailable(error) from error
            said = (error.details or {}).get("errmsg", error)
            raise InvalidValue(
                f"MongoDB refuses what is asked of {self.name}: {said} (code {error.code})",
                field="collection",
                value=self.name,
                hint="is the condition a filter, and the collection one that can be written to?",
            ) from error
        except PyMongoError as error:
            raise self._unavailable(error) from error
        except (OverflowError, UnicodeError, BSONError) as error:
            raise InvalidValue(
                f"MongoDB can't hold a value: {error}", field="document", value=None
            ) from error

    def _unavailable(self, error: PyMongoError) -> StoreUnavailable:
        # It may be another server that answers next, with a clock of its own.
        self.clock.forget()
        return unavailable(self.name, error)

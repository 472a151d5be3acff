"""Sends commands to the user's collection, and translates the errors of the server."""

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

# Reads every document, also dates outside of Python's years, and texts that are not UTF-8.
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="replace",
)
PLAIN = RAW.with_options(document_class=dict)
# Raises BSONError for texts that are not UTF-8: a filter with the text that RAW reads would not find them.
STRICT = RAW.with_options(unicode_decode_error_handler="strict")

# Error codes that concern the server, not the request: the server cannot be reached, changes its role or
# shuts down; it lacks time or memory; it met a conflict; or it refuses access.
_SHUTTING_DOWN = {6, 7, 64, 89, 91, 133, 134, 189, 234, 317, 9001, 10107, 10058, 11600, 11602, 13435, 13436}
_OVERLOADED = {24, 50, 202, 262, 14031}
_CONFLICT = {112, 225, 246, 251}
_NO_ACCESS = {13, 18, 8000}
_UNAVAILABLE = frozenset(_SHUTTING_DOWN | _OVERLOADED | _CONFLICT | _NO_ACCESS)

# Seconds to wait for a server when a program opens the documents, and for a query that only serves a warning.
_PING_TIMEOUT = 5.0
_GLIMPSE_TIMEOUT = 0.5

_UNAUTHORIZED = 13


class WriteResult(NamedTuple):
    """The result of a bulk of writes."""

    documents: int
    """How many documents were found and written, or deleted."""
    not_ours: frozenset[int]
    """The indexes of the writes that found a different ``sleep_until`` than they expect."""
    errors: list[Error]
    """All other errors; each has its index."""
    early: int = 0
    """How many of ``not_ours`` were locks of documents that were not due yet."""


class UserCollection:
    """The user's collection. The client and its options stay unchanged."""

    def __init__(self, collection: Collection[Any]) -> None:
        self.name = collection.full_name
        # Evenbeat reads documents again after it has locked them. Only the primary is certain to have the
        # lock, and it has the lock before a majority of servers does.
        self._raw = collection.with_options(
            codec_options=RAW, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
        )
        self._strict = self._raw.with_options(codec_options=STRICT)
        self._theirs = collection
        self._client = collection.database.client
        self._admin = self._client.admin
        self.clock = ServerClock(self._server_time)

    def reach(self) -> None:
        """Raise ``StoreUnavailable`` soon if there is no primary. The driver would wait for half a minute."""
        has_timeout = self._client.options.timeout is not None
        with self._translated(), contextlib.nullcontext() if has_timeout else pymongo.timeout(_PING_TIMEOUT):
            self._admin.command("ping")

    def glimpse(self, where: Filter, fields: Mapping[str, Any]) -> RawBSONDocument | None:
        """Return a document, if the server finds one soon."""
        with self._translated():
            try:
                with pymongo.timeout(_GLIMPSE_TIMEOUT):
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
        is_strict: bool = False,
    ) -> list[RawBSONDocument]:
        """Find documents. ``is_strict``: reading a text that is not UTF-8 from one raises BSONError."""
        with self._translated():
            source = self._strict if is_strict else self._raw
            cursor = source.find(where, projection=fields, limit=limit, batch_size=limit or 10_000)
            if by is not None:
                cursor = cursor.sort(by, -1 if descending else 1)
            with cursor:
                return list(cursor)

    def misses_index(self, path: str) -> bool:
        """Return whether there are many documents, and no index with that field."""
        with self._translated():
            if self._raw.estimated_document_count() <= indexes.MANY:
                return False
        known = self._indexes()
        return known is not None and not any(path in index["key"] for index in known)

    def unique_index(self, path: str) -> str | None:
        """Return the name of a unique index on that field alone, if there is one."""
        for index in self._indexes() or ():
            if index.get("unique") and list(index["key"]) == [path]:
                return str(index["name"])
        return None

    def _indexes(self) -> list[Mapping[str, Any]] | None:
        """Return the indexes; None if the user may not list them. Then only the warning is missing."""
        with self._translated():
            try:
                return list(self._raw.with_options(codec_options=PLAIN).list_indexes())
            except OperationFailure as error:
                if error.code == _UNAUTHORIZED:
                    return None
                raise

    def write(self, operations: Sequence[Operation]) -> WriteResult:
        """Execute each operation independently. The user's collection encodes the values."""
        with self._translated():
            try:
                done = self._theirs.bulk_write(operations, ordered=False)
                return WriteResult(done.matched_count + done.deleted_count, frozenset(), [])
            except BulkWriteError as error:
                details = error.details or {}
                if details.get("writeConcernErrors"):
                    raise WTimeoutError(str(details["writeConcernErrors"][-1].get("errmsg"))) from error
                failed = details.get("writeErrors", [])
        early = sum(entry.get("code") == NOT_OURS and EARLY in entry.get("errmsg", "") for entry in failed)
        if early:
            # The server's clock was set back since it was read.
            self.clock.forget()
        return WriteResult(
            documents=details.get("nMatched", 0) + details.get("nRemoved", 0),
            not_ours=frozenset(entry["index"] for entry in failed if entry.get("code") == NOT_OURS),
            errors=[entry for entry in failed if entry.get("code") != NOT_OURS],
            early=early,
        )

    def _server_time(self) -> Instant:
        with self._translated():
            return int(self._admin.command("hello", codec_options=PLAIN)["localTime"])

    def refusal(self, error: Error) -> InvalidValue | StoreUnavailable:
        """Return the error to raise for the error of a single write."""
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
            # An error without a code comes from the driver.
            if error.code is None or error.code in _UNAVAILABLE or error.timeout:
                raise self._unavailable(error) from error
            why = (error.details or {}).get("errmsg", error)
            raise InvalidValue(
                f"MongoDB refuses a request to {self.name}: {why} (code {error.code})",
                field="collection",
                value=self.name,
                hint="is the condition a filter, and can the collection be written to?",
            ) from error
        except PyMongoError as error:
            raise self._unavailable(error) from error
        except (OverflowError, UnicodeError, BSONError) as error:
            raise InvalidValue(
                f"MongoDB can't hold a value: {error}", field="document", value=None
            ) from error

    def _unavailable(self, error: PyMongoError) -> StoreUnavailable:
        # The next answer may come from another server, whose clock differs.
        self.clock.forget()
        return unavailable(self.name, error)

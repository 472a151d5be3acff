"""Documents in MongoDB: a collection that the user has already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import bson
import msgspec
from bson.errors import BSONError
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from evenbeat.core.instants import Instant
from evenbeat.documents import indexes, paths
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.locking import DocumentLocker, Locking
from evenbeat.documents.mongo.collection import UserCollection, WriteResult
from evenbeat.documents.mongo.contention import CandidateWindow
from evenbeat.documents.mongo.queries import Operation, Queries
from evenbeat.documents.mongo.reading import Reader, readable_id
from evenbeat.errors import InvalidValue, StoreUnavailable, shown

# How often to search again if other processors lock all candidates first, or the server refuses to lock them.
_PASSES = 4
# Milliseconds until the next search, if the server's clock was set back.
_CLOCK_RETRY = 100
# How many candidates to read if the server refuses to lock some: others may be behind them.
_FAR = 1000
# How often other candidates of the same search are tried in place of those that the server refuses.
_TRIES = 100
# Ids in one filter: a message is limited to 16 MB, and an id may be a document.
_AT_ONCE = 1000

_log = logging.getLogger("evenbeat.documents")


class _Seen(NamedTuple):
    """A candidate: a document that is due."""

    id: Any
    due: Instant


class _Search:
    """The state of the last search for candidates."""

    now: Instant
    is_all = False
    """Whether it has tried all documents that were due."""
    is_early = False
    """Whether the server did not lock some because they are not due yet by its own clock."""


class MongoDocuments:
    """A collection of pymongo, on MongoDB 4.4 or later. Evenbeat never closes its client.

    Handlers get documents as the collection returns them, with its codec options. Naive dates are in UTC.
    Evenbeat adds no field, no index and no collection, and uses no transaction. It needs an index with the
    field ``sleep_until`` (and those of the condition); without one, each search reads the whole collection.

    :param collection: for example ``MongoClient().shop.orders``. Its write concern is used.
    :param sleep_until: the path of the field; ``schedule.sleepUntil`` is inside of ``schedule``. Documents
        where it is an array, or inside of one, are not jobs.
    :param condition: a filter that a document must meet to be a job: ``{"active": True}``.
    """

    def __init__(
        self,
        collection: Collection[Any],
        *,
        sleep_until: str = Fields().sleep_until,
        interval: str = Fields().interval,
        repeat_until: str = Fields().repeat_until,
        auto_remove: str = Fields().auto_remove,
        condition: Mapping[str, Any] | None = None,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        fields = Fields(
            sleep_until=_path(sleep_until, "sleep_until"),
            interval=paths.check(interval, "interval"),
            repeat_until=paths.check(repeat_until, "repeat_until"),
            auto_remove=paths.check(auto_remove, "auto_remove"),
        )
        paths.check_apart(msgspec.structs.asdict(fields))
        self._path = fields.sleep_until
        self._codec_options = _collection(collection).codec_options
        self._collection = UserCollection(collection)
        self._queries = Queries(fields.sleep_until, _condition(condition), by_server=clock is None)
        self._reader = Reader(fields, self._codec_options)
        self._contention = CandidateWindow()
        self._locker = DocumentLocker(self.name, _PASSES)
        self._unreadable = 0
        """How many documents were due at the last search whose ids can't be read."""
        self._clock = clock or self._collection.clock.now

    @property
    def name(self) -> str:
        return self._collection.name

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({"_id", self._path})

    def open(self) -> None:
        """Read and write as ``lock_next`` does, so that mistakes raise now. The write finds no document."""
        self._collection.reach()
        self._collection.clock.forget()
        self._find_due(self._clock(), 1, Locking(1, self._locker.unlockable))
        for error in self._collection.write([self._queries.lock(ObjectId(), 0, 1)]).errors:
            raise self._collection.refusal(error)
        if self._collection.misses_index(self._path):
            remedy = f'db.{self.name.partition(".")[2]}.createIndex({{"{self._path}": 1}}, {{sparse: true}})'
            indexes.warn(self.name, remedy)
        self._warn_of_other_types()
        self._warn_of_unique_index()

    def close(self) -> None:
        pass

    def now(self) -> Instant:
        return self._clock()

    def lock_next(self, duration: int, limit: int) -> Taken:
        if limit <= 0:
            return Taken([], None)
        search = _Search()

        def lock_pass(locking: Locking) -> bool:
            search.now, search.is_early = self._clock(), False
            window = self._contention.window(limit)
            far = max(window, _FAR) if locking.refused else window
            seen, is_all = self._find_due(search.now, far, locking)
            chosen = self._contention.choose(seen[:window], limit)
            tried = self._lock_some(chosen, seen, search.now + duration, locking, search)
            search.is_all = is_all and tried == len(seen) and not search.is_early
            return not locking.found and not search.is_all

        found = self._locker.lock(limit, lock_pass)
        if len(found) == limit:
            return Taken(found, None)
        if search.is_early:
            return Taken(found, self._clock() + (0 if found else _CLOCK_RETRY))
        if not search.is_all:
            return Taken(found, search.now)
        try:
            return Taken(found, self._next_due(search.now))
        except StoreUnavailable:
            if not found:
                raise
            return Taken(found, search.now)  # they are locked; the next call raises

    def _find_due(self, now: Instant, limit: int, locking: Locking) -> tuple[list[_Seen], bool]:
        """Return due documents, the longest due first, or last, and whether these are all."""
        # Unreadable ones stay at the head of the queue. Twice as many: also finds those behind the last page.
        limit += 2 * self._unreadable
        documents = self._collection.find(
            self._queries.due(now, locking.left_out),
            {self._path: 1},
            by=self._path,
            descending=locking.from_end,
            limit=limit,
            is_strict=True,
        )
        seen: list[_Seen] = []
        reason: BSONError | None = None
        for document in documents:
            try:
                seen.append(_Seen(readable_id(document), int(paths.get(document, self._path))))
            except BSONError as error:
                reason = reason or error
        unreadable = len(documents) - len(seen)
        if unreadable != self._unreadable:
            self._unreadable = unreadable
            if reason is not None:
                self._log_unreadable(reason)
        return seen, len(documents) < limit

    def _log_unreadable(self, reason: BSONError) -> None:
        _log.error(
            "due documents have an _id that can't be read, and are skipped: %s; delete them, or insert them "
            "with another _id",
            reason,
            extra=self._extra() | {"count": self._unreadable},
        )

    def _warn_of_unique_index(self) -> None:
        name = self._collection.unique_index(self._path)
        if name is not None:
            _log.warning(
                "the index %s is unique: it allows only one of the documents that are locked at once, or "
                "that have no next tick; create it again without unique",
                name,
                extra=self._extra(),
            )

    def _warn_of_other_types(self) -> None:
        """Warn of a text or a number, as an import from JSON leaves it: the document is never due."""
        document = self._collection.glimpse(self._queries.not_a_date(), {self._path: 1})
        if document is None:
            return
        try:
            key, value = shown(document["_id"]), shown(paths.get(document, self._path))
        except BSONError:
            return
        _log.warning(
            "document %s is never due: its %s is %s; store a date, not a text or a number",
            key,
            self._path,
            value,
            extra=self._extra() | {"document": key},
        )

    def _next_due(self, now: Instant) -> Instant | None:
        # Without the _id, which may be one that can't be read.
        fields = {"_id": 0, self._path: 1}
        documents = self._collection.find(self._queries.later(now), fields, by=self._path, limit=1)
        return int(paths.get(documents[0], self._path)) if documents else None

    def _lock_some(
        self,
        chosen: Sequence[_Seen],
        seen: Sequence[_Seen],
        until: Instant,
        locking: Locking,
        search: _Search,
    ) -> int:
        """Lock the chosen candidates. If the server refuses some, and none was locked, try others that were
        seen. Return how many were tried."""
        limit, tried = len(chosen), 0
        rest: Sequence[_Seen] | None = None
        for _ in range(_TRIES):
            before = len(locking.refused)
            locking.found.extend(self._lock(chosen, until, locking, search))
            tried += len(chosen)
            if locking.found or len(locking.refused) == before:
                break
            if rest is None:
                places = {id(one) for one in chosen}
                rest = [one for one in seen if id(one) not in places]
            chosen, rest = rest[:limit], rest[limit:]
        return tried

    def _lock(
        self, chosen: Sequence[_Seen], until: Instant, locking: Locking, search: _Search
    ) -> list[Found]:
        """Lock the candidates that are still as they were seen, all in one command, and read them again:
        other fields may have changed in between."""
        if not chosen:
            return []
        written = self._collection.write([self._queries.lock(one.id, one.due, until) for one in chosen])
        search.is_early = search.is_early or bool(written.early)
        self._contention.record(len(chosen), len(written.not_ours) - written.early)
        failed = written.not_ours | {error["index"] for error in written.errors}
        locked = [one for place, one in enumerate(chosen) if place not in failed]
        documents = self._read_locked(locked, until)
        if len(documents) > written.documents:
            # One of them was deleted when the write came to it, and inserted again, and another processor has
            # locked it in the same millisecond. The server does not say which one that is.
            _log.warning("locked documents are not processed until their lock ends", extra=self._extra())
            return []
        self._refuse([chosen[error["index"]].id for error in written.errors], written, locking, bool(locked))
        return [
            self._reader.found(one.id, document, one.due, until)
            for one in locked
            if (document := documents.get(_key(one.id))) is not None
        ]

    def _read_locked(self, locked: Sequence[_Seen], until: Instant) -> dict[bytes, RawBSONDocument]:
        """Return the documents that have our lock: the write to a document that was deleted before, or did
        not meet the condition any more, raised no error."""
        documents: dict[bytes, RawBSONDocument] = {}
        for start in range(0, len(locked), _AT_ONCE):
            ids = [one.id for one in locked[start : start + _AT_ONCE]]
            # Inside of another document it stays raw when its id is read.
            for whole in self._collection.find(self._queries.locked(ids, until), {"document": "$$ROOT"}):
                documents[_key(whole["_id"])] = whole["document"]
        return documents

    def _refuse(self, ids: Sequence[Any], written: WriteResult, locking: Locking, has_others: bool) -> None:
        """Leave out for a while the documents that the server refused to lock."""
        if not ids:
            return
        reason = self._collection.refusal(written.errors[0])
        if isinstance(reason, InvalidValue):
            locking.refuse(ids, reason)
        elif has_others:
            self._locker.log_refused(ids, reason)
        else:
            raise reason

    def update(self, changes: Sequence[Change]) -> list[bool]:
        answers, missing = self._send([self._queries.change(change) for change in changes])
        if not missing:
            return answers
        # Some were deleted before the write. Documents that were deleted after it look the same: their locks
        # are reported as lost, too.
        ids = [change.lock.id for change, is_ours in zip(changes, answers, strict=True) if is_ours]
        keys: set[bytes] = set()
        for start in range(0, len(ids), _AT_ONCE):
            where = {"_id": {"$in": ids[start : start + _AT_ONCE]}}
            keys.update(_key(document["_id"]) for document in self._collection.find(where, {"_id": 1}))
        return [
            is_ours and self._key(change.lock.id) in keys
            for change, is_ours in zip(changes, answers, strict=True)
        ]

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        answers, missing = self._send([self._queries.removal(lock) for lock in locks])
        if missing and missing == sum(answers):
            return [False] * len(locks)
        if missing:
            # All of these are deleted now; the server does not say which of them others have deleted.
            extra = self._extra() | {"count": missing}
            _log.warning("documents were deleted before they could be removed", extra=extra)
        return answers

    def _send(self, operations: Sequence[Operation]) -> tuple[list[bool], int]:
        """Return which operations did not find another lock than their own, and how many of these found no
        document."""
        if not operations:
            return [], 0
        written = self._collection.write(operations)
        for error in written.errors:
            raise self._collection.refusal(error)
        answers = [place not in written.not_ours for place in range(len(operations))]
        return answers, sum(answers) - written.documents

    def _key(self, document: Any) -> bytes:
        """Return a key for an id as the user's collection encodes it."""
        return bson.encode({"_id": document}, codec_options=self._codec_options)

    def _extra(self) -> dict[str, object]:
        return {"component": "documents", "documents": self.name}


def _key(document: Any) -> bytes:
    """Return a key for an id, which may have no hash."""
    return bson.encode({"_id": document})


def _collection(collection: object) -> Collection[Any]:
    if not isinstance(collection, Collection):
        raise InvalidValue(
            f"collection {shown(type(collection).__name__)} is not a pymongo Collection",
            field="collection",
            value=None,
            hint="give one like MongoClient().shop.orders; handlers may be async def without an "
            "AsyncMongoClient",
        )
    if not collection.write_concern.acknowledged:
        raise InvalidValue(
            f"collection {collection.full_name} has the write concern w=0",
            field="collection",
            value=collection.full_name,
            hint="the server would not answer which locks were written: give "
            'collection.with_options(write_concern=WriteConcern("majority"))',
        )
    return collection


def _condition(condition: object) -> Mapping[str, Any] | None:
    if condition is None or isinstance(condition, Mapping):
        return condition or None
    raise InvalidValue(
        f"condition {shown(condition)} is not a filter",
        field="condition",
        value=condition,
        hint='write it as for find: {"active": True}',
    )


def _path(path: object, field: str) -> str:
    checked = paths.check(path, field)
    if checked.split(".")[0] == "_id":
        raise InvalidValue(
            f"{field} {shown(path)} can't be changed",
            field=field,
            value=path,
            hint="_id identifies the document; name another field",
        )
    return checked

"""Documents of MongoDB: a collection that the user has already."""

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
from evenbeat.documents.mongo.calls import Calls, Written
from evenbeat.documents.mongo.contention import Contention
from evenbeat.documents.mongo.queries import Operation, Queries
from evenbeat.documents.mongo.reading import Reader
from evenbeat.documents.unlockable import Unlockable
from evenbeat.errors import InvalidValue, StoreUnavailable, shown

# How often to look anew where others took all that was seen.
_LOOKS = 4
# Milliseconds until another look, where the server has two opinions of the time.
_AGREED = 100
# Where documents can't be locked, so many are looked at: others may be behind them.
_FAR = 1000
# How often others are tried in place of those that can't be locked, after one look.
_TRIES = 100
# Ids in one question: a message has room for 16 MB, and an id may be a document.
_AT_ONCE = 1000

_log = logging.getLogger("evenbeat.documents")


class _Seen(NamedTuple):
    """A document that is due."""

    id: Any
    due: Instant


class _Refused:
    """Documents that the server does not let us lock, and why not the first of them."""

    def __init__(self) -> None:
        self.documents: list[_Seen] = []
        self.reason: InvalidValue | None = None
        self.is_early = False
        """Whether some were not due yet, by the server's clock, when they were to be locked."""


class MongoDocuments:
    """A collection of pymongo's, on MongoDB 4.4 or later. Its client stays the user's, and is never closed.

    Documents come to handlers as the collection gives them, with its codec options. Dates that are not aware
    are in UTC. No field, no index and no collection is added, and no transaction used. An index that has the
    field ``sleep_until`` (and those of the condition) makes all of it fast; without one each look reads the
    whole collection.

    :param collection: like ``MongoClient().shop.orders``. Its write concern counts.
    :param sleep_until: the path of the field; ``schedule.sleepUntil`` is inside of ``schedule``. Documents
        where it holds an array, or lies in one, are no jobs.
    :param condition: a filter that a document must meet, too: ``{"active": True}``.
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
        self._theirs = _collection(collection).codec_options
        self._calls = Calls(collection)
        self._queries = Queries(fields.sleep_until, _condition(condition), by_server=clock is None)
        self._reader = Reader(fields, self._theirs)
        self._contention = Contention()
        self._unlockable = Unlockable()
        self._nameless = 0
        """How many were due at the last look whose ids can't be read."""
        self._clock = clock or self._calls.clock.now

    @property
    def name(self) -> str:
        return self._calls.name

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({"_id", self._path})

    def open(self) -> None:
        """Ask and write as later on, so that a mistake is told of now: the write finds no document."""
        self._calls.reach()
        self._calls.clock.forget()
        self._look(self._clock(), 1)
        for error in self._calls.write([self._queries.lock(ObjectId(), 0, 1)]).errors:
            raise self._calls.refusal(error)
        if self._calls.misses_index(self._path):
            remedy = f'db.{self.name.partition(".")[2]}.createIndex({{"{self._path}": 1}}, {{sparse: true}})'
            indexes.warn(self.name, remedy)
        self._warn_of_no_dates()
        self._warn_of_unique_index()

    def close(self) -> None:
        pass

    def now(self) -> Instant:
        return self._clock()

    def lock_next(self, duration: int, limit: int) -> Taken:
        if limit <= 0:
            return Taken([], None)
        refused = _Refused()
        for look in range(_LOOKS):
            now = self._clock()
            window = self._contention.window(limit)
            far = max(window, _FAR) if refused.documents else window
            # They may be more than can be set aside: at last it is tried from the other end.
            seen, is_all = self._look(now, far, from_end=bool(refused.documents) and look == _LOOKS - 1)
            chosen = self._contention.choose(seen[:window], limit)
            refused.is_early = False
            found, tried = self._lock_some(chosen, seen, now + duration, refused)
            is_all = is_all and tried == len(seen) and not refused.is_early
            if found or is_all:
                break
        self._tell(refused, bool(found))
        if len(found) == limit:
            return Taken(found, None)
        if refused.is_early:
            return Taken(found, self._clock() + (0 if found else _AGREED))
        if not is_all:
            return Taken(found, now)
        try:
            return Taken(found, self._next_due(now))
        except StoreUnavailable:
            if not found:
                raise
            return Taken(found, now)  # they are ours; whoever asks again is told

    def _look(self, now: Instant, limit: int, *, from_end: bool = False) -> tuple[list[_Seen], bool]:
        """Those that are due, the longest due first, or last, and whether these are all."""
        limit += self._nameless
        where = self._queries.due(now, self._unlockable.ids)
        documents = self._calls.find(where, {self._path: 1}, by=self._path, descending=from_end, limit=limit)
        seen: list[_Seen] = []
        for document in documents:
            try:
                seen.append(_Seen(document["_id"], int(paths.get(document, self._path))))
            except BSONError as error:
                _log.error("a document has an _id that can't be read: %s", error, extra=self._extra())
        # They stay at the head: the others are behind them.
        self._nameless = len(documents) - len(seen)
        return seen, len(documents) < limit

    def _warn_of_unique_index(self) -> None:
        name = self._calls.unique_index(self._path)
        if name is not None:
            _log.warning(
                "the index %s is unique: of documents that are locked at once, or that have no next time, "
                "it allows a single one; make it anew without unique",
                name,
                extra=self._extra(),
            )

    def _warn_of_no_dates(self) -> None:
        """A text or a number, as an import from JSON leaves it, is never due."""
        document = self._calls.glimpse(self._queries.no_date(), {self._path: 1})
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
        documents = self._calls.find(self._queries.later(now), {self._path: 1}, by=self._path, limit=1)
        return int(paths.get(documents[0], self._path)) if documents else None

    def _lock_some(
        self, chosen: Sequence[_Seen], seen: Sequence[_Seen], until: Instant, refused: _Refused
    ) -> tuple[list[Found], int]:
        """Lock those that were chosen, or others that were seen if none of these can be: in nobody's way is
        what the server refuses. Answers also how many were tried."""
        limit, tried = len(chosen), 0
        rest: Sequence[_Seen] | None = None
        for _ in range(_TRIES):
            before = len(refused.documents)
            found = self._lock(chosen, until, refused)
            tried += len(chosen)
            if found or len(refused.documents) == before:
                break
            if rest is None:
                places = {id(one) for one in chosen}
                rest = [one for one in seen if id(one) not in places]
            chosen, rest = rest[:limit], rest[limit:]
        return found, tried

    def _lock(self, chosen: Sequence[_Seen], until: Instant, refused: _Refused) -> list[Found]:
        """Lock those that still are as they were seen, all in one command, and read them again: other fields
        may have changed in between."""
        if not chosen:
            return []
        written = self._calls.write([self._queries.lock(one.id, one.due, until) for one in chosen])
        refused.is_early = refused.is_early or bool(written.early)
        self._contention.met(len(chosen), len(written.not_ours) - written.early)
        failed = written.not_ours | {error["index"] for error in written.errors}
        won = [one for place, one in enumerate(chosen) if place not in failed]
        documents = self._read_locked(won, until)
        if len(documents) > written.documents:
            # One of them was gone when we came to it, and is back, and somebody has locked it in the same
            # millisecond as we the others. Which one can't be told.
            _log.warning("locked documents are left until their lock ends", extra=self._extra())
            return []
        self._set_aside([chosen[error["index"]] for error in written.errors], written, refused, bool(won))
        return [
            self._reader.found(one.id, document, one.due, until)
            for one in won
            if (document := documents.get(_key(one.id))) is not None
        ]

    def _read_locked(self, won: Sequence[_Seen], until: Instant) -> dict[bytes, RawBSONDocument]:
        """Those that have our lock: one that was deleted in time, or did not meet the condition any more,
        raised no error when it was to be locked."""
        documents: dict[bytes, RawBSONDocument] = {}
        for start in range(0, len(won), _AT_ONCE):
            ids = [one.id for one in won[start : start + _AT_ONCE]]
            # Inside of another one it is not decoded to get at its id.
            for whole in self._calls.find(self._queries.locked(ids, until), {"document": "$$ROOT"}):
                documents[_key(whole["_id"])] = whole["document"]
        return documents

    def _set_aside(
        self, some: Sequence[_Seen], written: Written, refused: _Refused, has_others: bool
    ) -> None:
        """Leave out for a while what the server does not let us lock."""
        if not some:
            return
        reason = self._calls.refusal(written.errors[0])
        if isinstance(reason, StoreUnavailable):
            if not has_others:
                raise reason
            self._log_refused(some, reason)
            return
        self._unlockable.put([one.id for one in some])
        refused.documents.extend(some)
        refused.reason = refused.reason or reason

    def _tell(self, refused: _Refused, has_others: bool) -> None:
        """Tell of documents that were refused: in the log, and to whoever asked for them if there was nothing
        else."""
        if refused.reason is None:
            return
        self._log_refused(refused.documents, refused.reason)
        if not has_others:
            raise refused.reason

    def _log_refused(self, some: Sequence[_Seen], reason: Exception) -> None:
        extra = self._extra() | {"count": len(some), "document": shown(some[0].id)}
        _log.error("documents can't be locked: %s", reason, extra=extra)

    def update(self, changes: Sequence[Change]) -> list[bool]:
        answers, missing = self._send([self._queries.change(change) for change in changes])
        if not missing:
            return answers
        # Of those that are gone now. If there are more than were missing, some were written and deleted
        # since, and which ones can't be told: these are told to be lost, too.
        ids = [change.lock.id for change, is_ours in zip(changes, answers, strict=True) if is_ours]
        keys: set[bytes] = set()
        for start in range(0, len(ids), _AT_ONCE):
            where = {"_id": {"$in": ids[start : start + _AT_ONCE]}}
            keys.update(_key(document["_id"]) for document in self._calls.find(where, {"_id": 1}))
        return [
            is_ours and self._key(change.lock.id) in keys
            for change, is_ours in zip(changes, answers, strict=True)
        ]

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        answers, missing = self._send([self._queries.removal(lock) for lock in locks])
        if missing and missing == sum(answers):
            return [False] * len(locks)
        if missing:
            # They are gone, as all of these are now: by whom can't be told.
            extra = self._extra() | {"count": missing}
            _log.warning("documents were gone before they could be removed", extra=extra)
        return answers

    def _send(self, operations: Sequence[Operation]) -> tuple[list[bool], int]:
        """Which of them did not find another lock than theirs, and how many of these found no document."""
        if not operations:
            return [], 0
        written = self._calls.write(operations)
        for error in written.errors:
            raise self._calls.refusal(error)
        answers = [place not in written.not_ours for place in range(len(operations))]
        return answers, sum(answers) - written.documents

    def _key(self, document: Any) -> bytes:
        """An id in the user's terms."""
        return bson.encode({"_id": document}, codec_options=self._theirs)

    def _extra(self) -> dict[str, object]:
        return {"component": "documents", "documents": self.name}


def _key(document: Any) -> bytes:
    """An id, which may not be hashable, as a key."""
    return bson.encode({"_id": document})


def _collection(collection: object) -> Collection[Any]:
    if not isinstance(collection, Collection):
        raise InvalidValue(
            f"collection {shown(type(collection).__name__)} is not a Collection of pymongo",
            field="collection",
            value=None,
            hint="give one like MongoClient().shop.orders; an AsyncMongoClient is not needed: handlers "
            "may be async def all the same",
        )
    if not collection.write_concern.acknowledged:
        raise InvalidValue(
            f"collection {collection.full_name} has the write concern w=0",
            field="collection",
            value=collection.full_name,
            hint="nobody would know who has locked what: give collection.with_options(write_concern="
            'WriteConcern("majority"))',
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
            hint="_id is what a document is known by; name another field",
        )
    return checked

"""Commands on the database: each announced by name, and every error of the driver translated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pymongo
from bson.errors import BSONError
from pymongo import ReadPreference, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)
from pymongo.operations import DeleteMany, DeleteOne, ReplaceOne
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from evenbeat.errors import InvalidValue, StoreUnavailable, TooLarge
from evenbeat.stores.mongo.location import Document

OnCommand: TypeAlias = Callable[[str], None]
Sort: TypeAlias = Sequence[tuple[str, int]]
Operation: TypeAlias = UpdateOne | ReplaceOne[Document] | DeleteOne | DeleteMany

_DUPLICATE = 11000
_UNAUTHORIZED = (13, 8000)
# BSONObjectTooLarge, a document that is too large after an update or for an upsert, TransactionTooLarge,
# TransactionTooLargeForCache, a buffer of the server's that is full.
_TOO_LARGE = frozenset({10334, 17419, 17420, 257, 388, 13548})
# WriteConflict, LockTimeout, SnapshotUnavailable, NoSuchTransaction, TransactionTooOld, MaxTimeMSExpired,
# PreparedTransactionInProgress: the transaction is gone, nothing of it stays, and it may be tried again.
_CONTENDED = (112, 24, 246, 251, 225, 50, 267)
_OUT_OF_TIME = 50
SHORT_WAIT = 0.2
"""Seconds that a write waits which can be done in another way, or later: a busy server needs some of them."""
_NOTES = "meta"
# An error may quote the document that it is about.
_LONGEST_TEXT = 500
# To end a transaction on a server that may be away is worth a moment and no more.
_TO_ABORT = 1.0


class Contended(Exception):
    """Somebody else writes the same documents now. Nothing was changed. Stays inside the store."""


class Duplicate(Exception):
    """A document of that id is there. Nothing was changed. Stays inside the store."""


class Session:
    """A database, and perhaps a transaction in it."""

    def __init__(
        self, database: Database[Document], where: str, on_command: OnCommand | None, timeout: float
    ) -> None:
        self.database = database
        self.where = where
        self.milliseconds = max(1, int(timeout * 1000))
        self._on_command = on_command
        self._client_session: ClientSession | None = None

    def announce(self, name: str) -> None:
        if self._on_command is not None:
            self._on_command(name)

    # Transactions.

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        """All that is sent inside is committed at the end, or nothing is.

        A snapshot: what was read and is written must not have been changed by others in between, else
        Contended. Nobody waits for a lock here: a conflict is an error at once.
        """
        with self._translated():
            client_session = self.database.client.start_session()
        inside = self._within(client_session)
        try:
            client_session.start_transaction(
                read_concern=ReadConcern("snapshot"),
                write_concern=WriteConcern("majority", j=True, wtimeout=self.milliseconds),
                read_preference=ReadPreference.PRIMARY,
                max_commit_time_ms=self.milliseconds,
            )
            yield inside
            inside.commit(client_session)
        except Contended:
            _forget(client_session)
            raise
        except BaseException:
            _abort(client_session)
            raise
        client_session.end_session()

    def _within(self, client_session: ClientSession) -> Session:
        inside = Session.__new__(Session)
        inside.__dict__.update(self.__dict__, _client_session=client_session)
        return inside

    def commit(self, client_session: ClientSession) -> None:
        """The driver sends it again once if the reply is lost: the server knows a transaction's number."""
        self.announce("commit")
        with self._translated():
            client_session.commit_transaction()

    # Reading.

    def find(
        self,
        name: str,
        collection: str,
        where: Mapping[str, Any],
        *,
        fields: Mapping[str, Any] | None = None,
        sort: Sort | None = None,
        limit: int = 0,
        hint: str | None = None,
        start: Sort | Sequence[tuple[str, Any]] | None = None,
        skip: int = 0,
        quiet: bool = False,
    ) -> list[Document]:
        """All documents, in as few replies as their size allows. ``quiet``: part of the command before."""
        if not quiet:
            self.announce(name)
        with self._translated():
            cursor = self.database[collection].find(
                where,
                projection=fields,
                session=self._client_session,
                limit=limit,
                skip=skip,
                batch_size=limit or 10_000,
                max_time_ms=None if self._client_session is not None else self.milliseconds,
            )
            if sort is not None:
                cursor = cursor.sort(sort)
            if hint is not None:
                cursor = cursor.hint(hint)
            if start is not None:
                cursor = cursor.min(start)
            with cursor:
                return list(cursor)

    def aggregate(
        self,
        name: str,
        collection: str,
        pipeline: Sequence[Mapping[str, Any]],
        hint: str | None = None,
        quiet: bool = False,
    ) -> list[Document]:
        if not quiet:
            self.announce(name)
        more: dict[str, Any] = {} if hint is None else {"hint": hint}
        if self._client_session is None:
            more["maxTimeMS"] = self.milliseconds
        with (
            self._translated(),
            self.database[collection].aggregate(pipeline, session=self._client_session, **more) as cursor,
        ):
            return list(cursor)

    # Writing, in a transaction.

    def insert(self, name: str, collection: str, documents: Sequence[Document]) -> None:
        """Nothing at all if there are none."""
        if documents:
            self.announce(name)
            with self._translated():
                self.database[collection].insert_many(documents, session=self._client_session)

    def bulk(self, name: str, collection: str, operations: Sequence[Operation]) -> int:
        """Writes in their order; how many documents they found or made."""
        if not operations:
            return 0
        self.announce(name)
        with self._translated():
            done = self.database[collection].bulk_write(operations, session=self._client_session)
            return done.matched_count + done.upserted_count + done.deleted_count

    def update(
        self, name: str, collection: str, where: Mapping[str, Any], change: Mapping[str, Any] | list[Any]
    ) -> int:
        """The same change for every document found; how many they were."""
        self.announce(name)
        with self._translated():
            return (
                self.database[collection]
                .update_many(where, change, session=self._client_session)
                .matched_count
            )

    def delete(self, name: str, collection: str, where: Mapping[str, Any]) -> int:
        self.announce(name)
        with self._translated():
            return self.database[collection].delete_many(where, session=self._client_session).deleted_count

    # Writing without a transaction.

    def write(self, name: str, command: Document, patience: float) -> Document:
        """A command that is atomic by itself. It waits up to ``patience`` seconds for others' writes."""
        self.announce(name)
        with self._translated():
            answer = self._send(command, patience)
            if "writeConcernError" in answer:
                # Its time was over when it had written and waited for the majority: that may take longer.
                self.await_majority()
        self.announce("committed")
        return answer

    def write_each(self, name: str, command: Document, patience: float) -> int | None:
        """A command that changes documents each for itself; how many. Whoever calls announces "committed".

        None: it met a document that others hold, and gave up after ``patience`` seconds. What it has changed
        by then stays changed, and is kept by a majority, as always.
        """
        self.announce(name)
        with self._translated():
            try:
                answer = self._send(command, patience)
            except OperationFailure as error:
                if error.code != _OUT_OF_TIME:
                    raise
                answer = {"writeConcernError": {}}
            if "writeConcernError" in answer:
                self.await_majority()
        return answer.get("n")

    def await_majority(self) -> None:
        """Until all that was written so far is kept by a majority: who reads what a majority has would
        overlook it before. A write that finds nothing waits for that."""
        nothing = {"q": {"_id": "nothing"}, "u": {"$set": {"until": 0}}}
        with self._translated():
            _check_concern(self._send({"update": _NOTES, "updates": [nothing]}, self.milliseconds / 1000))

    def _send(self, command: Document, patience: float) -> Document:
        concern = {"w": "majority", "j": True, "wtimeout": self.milliseconds}
        answer = self.database.command(
            {**command, "maxTimeMS": max(1, int(patience * 1000)), "writeConcern": concern}
        )
        for error in answer.get("writeErrors", ()):
            if error["code"] == _DUPLICATE:
                raise Duplicate
            raise OperationFailure(str(error["errmsg"]), error["code"])
        return answer

    def reserve(self, name: str, where: Document, until: Document) -> bool:
        """Write a note in ``meta`` unless there is one that ``where`` excludes. On the primary alone: a note
        that is lost with it is a courtesy less."""
        self.announce(name)
        change = {"q": where, "u": {"$set": until}, "upsert": True}
        try:
            with self._translated():
                answer = self.database.command(
                    {
                        "update": _NOTES,
                        "updates": [change],
                        "writeConcern": {"w": 1},
                        "maxTimeMS": self.milliseconds,
                    }
                )
        except Duplicate:
            return False
        return not answer.get("writeErrors")

    def release(self, where: Document) -> None:
        """Remove such a note, without waiting for an answer."""
        notes = self.database.get_collection(_NOTES, write_concern=WriteConcern(w=0))
        with contextlib.suppress(PyMongoError):
            notes.delete_one(where)

    def run(self, name: str, command: Document, database: str | None = None) -> Document:
        """A command that is none of the above."""
        self.announce(name)
        with self._translated():
            target = self.database if database is None else self.database.client[database]
            return target.command(command)

    def insert_missing(self, name: str, collection: str, documents: Sequence[Document]) -> None:
        """Those that are not there yet. Each stands for itself: a repetition adds what is missing."""
        if not documents:
            return
        self.announce(name)
        with contextlib.suppress(Duplicate), self._translated():
            self.database[collection].insert_many(documents, ordered=False)
        self.announce("committed")

    def quietly(self, command: Document) -> Document:
        """A command of the administration: not part of what a call does, and so not announced."""
        with self._translated():
            return self.database.client.admin.command(command)

    def admin_aggregate(self, pipeline: Sequence[Mapping[str, Any]]) -> list[Document]:
        """As ``quietly``, for what the server knows of itself."""
        # What is going on is in no majority's snapshot: the server refuses to answer.
        admin = self.database.client.get_database("admin", read_concern=ReadConcern("local"))
        with self._translated(), admin.aggregate(pipeline, maxTimeMS=self.milliseconds) as cursor:
            return list(cursor)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PyMongoError as error:
            raise self._translation(error) from error
        except DocumentTooLarge as error:
            raise self._too_large(str(error)) from error
        except (OverflowError, UnicodeError, BSONError) as error:
            raise InvalidValue(
                f"MongoDB can't hold a value: {error}", field="document", value=None
            ) from error

    def _translation(self, error: PyMongoError) -> Exception:
        codes = {getattr(error, "code", None)}
        if isinstance(error, BulkWriteError):
            codes = {entry.get("code") for entry in error.details.get("writeErrors", ())} or codes
        if not _TOO_LARGE.isdisjoint(codes):
            return self._too_large(_text(error))
        if isinstance(error, DuplicateKeyError) or codes == {_DUPLICATE}:
            return Duplicate()
        if self._client_session is not None and isinstance(error, OperationFailure):
            is_transient = error.has_error_label("TransientTransactionError")
            if is_transient and not codes.isdisjoint(_CONTENDED):
                return Contended()
        return unavailable(self.where, error)

    def _too_large(self, text: str) -> TooLarge:
        return TooLarge(
            f"{self.where}: {text}; write less at once, keep large payloads and results elsewhere and name "
            "them, or give the server a larger cache"
        )


def _check_concern(answer: Document) -> None:
    if "writeConcernError" in answer:
        raise WTimeoutError(str(answer["writeConcernError"].get("errmsg")))


def _forget(client_session: ClientSession) -> None:
    """End a session whose transaction the server has ended: it does with the first error. To say so again
    takes as long as a commit, since it waits for what others have committed meanwhile."""
    transaction = getattr(client_session, "_transaction", None)
    if transaction is not None:
        transaction.reset()
    _abort(client_session)


def _abort(client_session: ClientSession) -> None:
    """Nobody else waits for what is open here. A server that is away forgets it by itself."""
    with contextlib.suppress(PyMongoError), pymongo.timeout(_TO_ABORT):
        client_session.end_session()


def unavailable(where: str, error: PyMongoError) -> StoreUnavailable:
    """What went wrong, and what to do, in the words of a user."""
    code = getattr(error, "code", None)
    advice = None
    if isinstance(error, ServerSelectionTimeoutError):
        advice = "is the server up, and does the replica set have a primary?"
    elif isinstance(error, ExecutionTimeout) or code == 50:
        advice = "somebody else writes the same document, or the server is overloaded; try again"
    elif isinstance(error, NetworkTimeout):
        advice = "the server did not answer in time; try again"
    elif isinstance(error, WTimeoutError):
        advice = "no majority of the replica set confirmed the write in time; are its members up?"
    elif code in _UNAUTHORIZED:
        advice = "does the user of the URL have the role readWrite on this database?"
    elif code == 18:
        advice = "check the user and the password, and the database that knows them (authSource=)"
    elif code == 20:
        advice = "transactions need a replica set, of one node at least"
    return StoreUnavailable(f"{where}: {_text(error)}" + (f" ({advice})" if advice else ""))


def _text(error: PyMongoError) -> str:
    """What the server or the driver says. Of a bulk of writes, the first that failed: the driver says no more
    than that there were errors."""
    if isinstance(error, BulkWriteError):
        failed = [*error.details.get("writeErrors", ()), *error.details.get("writeConcernErrors", ())]
        if failed:
            return str(failed[0].get("errmsg"))[:_LONGEST_TEXT]
    text = str(error).split(", full error:")[0].split(", Timeout:")[0].split(" (configured timeouts:")[0]
    return text[:_LONGEST_TEXT]

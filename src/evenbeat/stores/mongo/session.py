"""Sends commands to the database: announces each by name, and translates every error of the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pymongo
from bson.errors import BSONError
from pymongo import ReadPreference, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.command_cursor import CommandCursor
from pymongo.cursor import Cursor
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
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

from evenbeat.errors import RowRefused, StoreUnavailable, TooLarge
from evenbeat.stores.mongo import exact_reading
from evenbeat.stores.mongo.location import Document

OnCommand: TypeAlias = Callable[[str], None]
Sort: TypeAlias = Sequence[tuple[str, int]]
Operation: TypeAlias = UpdateOne | UpdateMany | ReplaceOne[Document] | DeleteOne | DeleteMany

_DUPLICATE = 11000
_ID = {"_id": 1}
# DocumentValidationFailure: by a validator of the collection.
_REFUSED = 121
_UNAUTHORIZED = (13, 8000)
# BSONObjectTooLarge, a document that is too large after an update or for an upsert, TransactionTooLarge,
# TransactionTooLargeForCache, a full buffer of the server.
_TOO_LARGE = frozenset({10334, 17419, 17420, 257, 388, 13548})
# WriteConflict, LockTimeout, SnapshotUnavailable, NoSuchTransaction, TransactionTooOld, MaxTimeMSExpired,
# PreparedTransactionInProgress: the transaction has ended without effect, and may be repeated.
_CONTENDED = (112, 24, 246, 251, 225, 50, 267)
_OUT_OF_TIME = 50
SHORT_WAIT = 0.2
"""How many seconds a write waits if it can be done in another way, or later. Not zero: a busy server needs
some time."""
_NOTES = "meta"
# An error may quote a whole document.
_LONGEST_TEXT = 500
# How many seconds to wait for the end of a transaction on a server that may be unavailable.
_TO_ABORT = 1.0


class Contended(Exception):
    """Another client writes the same documents now. Nothing was changed. Never leaves the store."""


class Duplicate(Exception):
    """A document with that id exists. Nothing was changed. Never leaves the store."""


class Session:
    """A database, and perhaps a transaction in it."""

    def __init__(
        self,
        database: Database[Document],
        where: str,
        on_command: OnCommand | None,
        timeout: float,
        renew: Callable[[], None],
    ) -> None:
        """``renew`` is called if the client's connections have become useless."""
        self.database = database
        self._renew = renew
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
        """Open a transaction, and commit it at the end.

        It reads a snapshot: writing a document that another client has changed since raises Contended. It
        never waits for locks: a conflict is an error at once.
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
        """Commit. The driver repeats it once if the reply is lost: the server knows the transaction's
        number."""
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
        """Find all documents, in as few replies as their size allows. ``quiet``: do not announce it."""
        if not quiet:
            self.announce(name)

        def open_cursor(source: Collection[Any]) -> Cursor[Any]:
            cursor = source.find(
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
            return cursor

        with self._translated():
            return exact_reading.read(self.database[collection], open_cursor, are_inside=False)

    def aggregate(
        self,
        name: str,
        collection: str,
        pipeline: Sequence[Mapping[str, Any]],
        hint: str | None = None,
        quiet: bool = False,
        are_inside: bool = False,
    ) -> list[Document]:
        """Return the documents of a pipeline. ``are_inside``: the documents are inside of arrays."""
        if not quiet:
            self.announce(name)
        more: dict[str, Any] = {} if hint is None else {"hint": hint}
        if self._client_session is None:
            more["maxTimeMS"] = self.milliseconds

        def open_cursor(source: Collection[Any]) -> CommandCursor[Any]:
            return source.aggregate(pipeline, session=self._client_session, **more)

        with self._translated():
            return exact_reading.read(self.database[collection], open_cursor, are_inside=are_inside)

    # Writing, in a transaction.

    def insert(self, name: str, collection: str, documents: Sequence[Document]) -> None:
        """Insert documents; send nothing if there are none."""
        if documents:
            self.announce(name)
            with self._translated():
                self.database[collection].insert_many(documents, session=self._client_session)

    def bulk(self, name: str, collection: str, operations: Sequence[Operation]) -> int:
        """Execute writes in their order, and return how many documents they found or created."""
        if not operations:
            return 0
        self.announce(name)
        with self._translated():
            done = self.database[collection].bulk_write(operations, session=self._client_session)
            return done.matched_count + done.upserted_count + done.deleted_count

    def update(
        self, name: str, collection: str, where: Mapping[str, Any], change: Mapping[str, Any] | list[Any]
    ) -> int:
        """Change every document found in the same way, and return how many there were."""
        self.announce(name)
        with self._translated():
            return (
                self.database[collection]
                .update_many(where, change, session=self._client_session)
                .matched_count
            )

    def update_counted(
        self, name: str, collection: str, where: Mapping[str, Any], change: list[Any]
    ) -> tuple[int, int]:
        """Change every document found in the same way; return how many were found, and how many changed."""
        self.announce(name)
        with self._translated():
            done = self.database[collection].update_many(where, change, session=self._client_session)
            return done.matched_count, done.modified_count

    def delete(self, name: str, collection: str, where: Mapping[str, Any]) -> int:
        self.announce(name)
        with self._translated():
            return self.database[collection].delete_many(where, session=self._client_session).deleted_count

    # Writing without a transaction.

    def write(self, name: str, command: Document, patience: float) -> Document:
        """Execute a command that is atomic by itself. It waits up to ``patience`` seconds for other
        clients' writes."""
        self.announce(name)
        with self._translated():
            answer = self._send(command, patience)
            if "writeConcernError" in answer:
                # The write is done, but the majority has not confirmed it in time: wait again.
                self.await_majority()
        self.announce("committed")
        return answer

    def write_each(self, name: str, command: Document, patience: float) -> int | None:
        """Change documents one by one, and return how many. The caller announces "committed".

        None: the command met a document that another client has locked, and gave up after ``patience``
        seconds. The changes that it has made by then stay, confirmed by a majority as always.
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
        """Wait until a majority of the replica set has all earlier writes: until then, majority reads do not
        see them. The command is a write that matches no document, so it only waits."""
        nothing = {"q": {"_id": "nothing"}, "u": {"$set": {"until": 0}}}
        with self._translated():
            _check_concern(self._send({"update": _NOTES, "updates": [nothing]}, self.milliseconds / 1000))

    def _send(self, command: Document, patience: float) -> Document:
        concern = {"w": "majority", "j": True, "wtimeout": self.milliseconds}
        answer = self.database.command(
            {**command, "maxTimeMS": max(1, int(patience * 1000)), "writeConcern": concern}
        )
        for error in answer.get("writeErrors", ()):
            if error["code"] == _DUPLICATE and error.get("keyPattern", _ID) == _ID:
                raise Duplicate
            if error["code"] in (_DUPLICATE, _REFUSED):
                raise RowRefused(str(error["errmsg"])[:_LONGEST_TEXT])
            raise OperationFailure(str(error["errmsg"]), error["code"])
        return answer

    def reserve(self, name: str, where: Document, until: Document) -> bool:
        """Write a note in ``meta``, and return True; return False if a note exists that ``where`` does not
        match. Only the primary confirms the write: a lost note costs some useless work and nothing else."""
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
        """Delete a note, without waiting for an answer."""
        notes = self.database.get_collection(_NOTES, write_concern=WriteConcern(w=0))
        with contextlib.suppress(PyMongoError):
            notes.delete_one(where)

    def run(self, name: str, command: Document, database: str | None = None) -> Document:
        """Execute any other command."""
        self.announce(name)
        with self._translated():
            target = self.database if database is None else self.database.client[database]
            return target.command(command)

    def insert_missing(self, name: str, collection: str, documents: Sequence[Document]) -> None:
        """Insert the documents that do not exist yet, one by one: a repeated call adds the missing ones."""
        if not documents:
            return
        self.announce(name)
        with contextlib.suppress(Duplicate), self._translated():
            self.database[collection].insert_many(documents, ordered=False)
        self.announce("committed")

    def quietly(self, command: Document) -> Document:
        """Execute an administrative command, which is not announced."""
        with self._translated():
            return self.database.client.admin.command(command)

    def admin_aggregate(self, pipeline: Sequence[Mapping[str, Any]]) -> list[Document]:
        """Like ``quietly``, for queries of the server's own state."""
        # The server refuses these queries with the read concern "majority".
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
            raise RowRefused(str(error), "MongoDB cannot store a value") from error

    def _translation(self, error: PyMongoError) -> Exception:
        if isinstance(error, ConfigurationError):
            # "Sessions are not supported": the driver opened this connection while the server was starting,
            # and never asks it again, so every transaction on it would fail from now on.
            self._renew()
        codes = {getattr(error, "code", None)}
        if isinstance(error, BulkWriteError):
            codes = {entry.get("code") for entry in error.details.get("writeErrors", ())} or codes
        if not _TOO_LARGE.isdisjoint(codes):
            return self._too_large(_text(error))
        if isinstance(error, DuplicateKeyError) or codes == {_DUPLICATE}:
            return Duplicate() if _is_of_id(error) else RowRefused(_text(error))
        if _REFUSED in codes:
            return RowRefused(_text(error))
        if self._client_session is not None and isinstance(error, OperationFailure):
            is_transient = error.has_error_label("TransientTransactionError")
            if is_transient and not codes.isdisjoint(_CONTENDED):
                return Contended()
        return unavailable(self.where, error)

    def _too_large(self, text: str) -> TooLarge:
        return TooLarge(
            f"{self.where}: {text}; write less at once, store large payloads and results elsewhere and "
            "pass a reference to them, or give the server a larger cache"
        )


def _is_of_id(error: PyMongoError) -> bool:
    """Return whether a duplicate has the id of another document, not a value of a user's own unique index."""
    details = getattr(error, "details", None) or {}
    found = details.get("writeErrors") or [details]
    return all(entry.get("keyPattern", _ID) == _ID for entry in found)


def _check_concern(answer: Document) -> None:
    if "writeConcernError" in answer:
        raise WTimeoutError(str(answer["writeConcernError"].get("errmsg")))


def _forget(client_session: ClientSession) -> None:
    """End a session whose transaction the server has ended, as it does at the first error. Aborting it
    again would take as long as a commit, since it waits for the commits of others."""
    transaction = getattr(client_session, "_transaction", None)
    if transaction is not None:
        transaction.reset()
    _abort(client_session)


def _abort(client_session: ClientSession) -> None:
    """Abort the transaction. If the server cannot be reached, it ends the transaction by itself."""
    with contextlib.suppress(PyMongoError), pymongo.timeout(_TO_ABORT):
        client_session.end_session()


def unavailable(where: str, error: PyMongoError) -> StoreUnavailable:
    """Return the error to raise, with advice for users."""
    code = getattr(error, "code", None)
    advice = None
    if isinstance(error, ServerSelectionTimeoutError):
        advice = "is the server up, and does the replica set have a primary?"
    elif isinstance(error, ExecutionTimeout) or code == 50:
        advice = "another client writes the same document, or the server is overloaded; try again"
    elif isinstance(error, NetworkTimeout):
        advice = "the server did not answer in time; try again"
    elif isinstance(error, WTimeoutError):
        advice = "no majority of the replica set confirmed the write in time; are its members up?"
    elif code in _UNAUTHORIZED:
        advice = "does the user of the URL have the role readWrite on this database?"
    elif code == 18:
        advice = "check the user, the password, and the database that holds the user (authSource=)"
    elif code == 20:
        advice = "transactions need a replica set, of one node at least"
    return StoreUnavailable(f"{where}: {_text(error)}" + (f" ({advice})" if advice else ""))


def _text(error: PyMongoError) -> str:
    """Return the text of an error; of a bulk write, that of the first failure, which the driver's own text
    leaves out."""
    if isinstance(error, BulkWriteError):
        failed = [*error.details.get("writeErrors", ()), *error.details.get("writeConcernErrors", ())]
        if failed:
            return str(failed[0].get("errmsg"))[:_LONGEST_TEXT]
    text = str(error).split(", full error:")[0].split(", Timeout:")[0].split(" (configured timeouts:")[0]
    return text[:_LONGEST_TEXT]

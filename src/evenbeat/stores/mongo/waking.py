"""Hints between processes that share a MongoDB database: documents in a capped collection.

The sender writes a hint without waiting for an answer. Receivers read it with a tailable cursor: the server
holds the cursor's request until a document arrives. A change stream would do the same, but it reads
everything that clients write to the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pymongo
from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.schema import HINTS
from evenbeat.stores.mongo.session import Session
from evenbeat.stores.waking import Receiver, Transport

# How long to try to send a hint: a lost hint costs latency only.
_SEND_SECONDS = 0.5
# More documents than the capped collection holds.
_ALL = 2000


class CollectionTransport(Transport):
    """Writes hints to the capped collection."""

    def __init__(self, shown: str, session: Callable[[], Session]) -> None:
        self.shown = shown
        self.session = session

    def send(self, sender: str) -> None:
        self.insert({"by": sender})

    def insert(self, document: Document) -> None:
        """Insert a document without waiting for an answer."""
        with contextlib.suppress(PyMongoError, EvenbeatError), pymongo.timeout(_SEND_SECONDS):
            hints = self.session().database.get_collection(HINTS, write_concern=WriteConcern(w=0))
            hints.insert_one({"_id": ObjectId(), **document})

    def receiver(self, sender: str) -> CursorReceiver:
        return CursorReceiver(self, sender)


class CursorReceiver(Receiver):
    """A tailable cursor. Its requests end after the store's timeout if no document arrives."""

    def __init__(self, transport: CollectionTransport, sender: str) -> None:
        super().__init__()
        self._transport = transport
        self._sender = sender
        self._client_session: ClientSession | None = None
        self.cursor = 0

    def connect(self) -> None:
        database = self._transport.session().database
        self._client_session = database.client.start_session()
        self.cursor = _start(database, self._client_session, self._sender)
        self._check_cursor()

    def receive(self) -> list[str]:
        session = self._transport.session()
        command = {"getMore": self.cursor, "collection": HINTS, "maxTimeMS": session.milliseconds}
        reply = session.database.command(command, session=self._client_session)
        self.cursor = reply["cursor"]["id"]
        self._check_cursor()
        return [document["by"] for document in reply["cursor"]["nextBatch"] if "by" in document]

    def _check_cursor(self) -> None:
        if not self.cursor:
            raise StoreUnavailable("the server has closed the cursor")

    def interrupt(self) -> None:
        # Killing the cursor would not end a request that waits. A new document ends it.
        self._transport.insert({"end": self._sender})

    def disconnect(self) -> None:
        ended, self._client_session = self._client_session, None
        if ended is not None:
            with contextlib.suppress(PyMongoError):
                ended.end_session()

    def disown(self) -> None:
        """The driver handles forks itself."""


def _start(database: Database[Document], client_session: ClientSession, sender: str) -> int:
    """Return a cursor that returns only documents that are inserted from now on; 0 if that fails."""
    for _ in range(2):
        reply = database.command(
            {
                "find": HINTS,
                "tailable": True,
                "awaitData": True,
                "batchSize": _ALL,
                "projection": {"_id": 0, "by": 1},
            },
            session=client_session,
        )
        cursor = reply["cursor"]
        if cursor["id"] and cursor["firstBatch"]:
            return int(cursor["id"])
        # The server closes a tailable cursor on an empty collection. And a cursor that is created while the
        # first document is inserted stays open and never returns a document (MongoDB 6.0.5, 5 of 150 tries).
        database[HINTS].insert_one({"_id": ObjectId(), "by": sender})
    return 0

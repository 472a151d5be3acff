"""Waking up who waits: threads of this process by a condition, other processes by a capped collection.

A hint is a document in ``hints``, written without waiting for an answer. Who waits has a thread that follows
the collection with a tailable cursor: the server holds its request until a document comes. A change stream
would do the same and read everything that is written to the server on the way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable

import pymongo
from bson import ObjectId
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from evenbeat.errors import EvenbeatError
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.schema import HINTS
from evenbeat.stores.mongo.session import Session

# How long one may sleep who can't be told.
_DEAF = 1.0
# A hint to a server that is away is worth no more.
_TO_SEND = 0.5
_ALL = 2000


class Waker:
    """What ``wait`` and ``hint`` do, for one store."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._opened = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._token = secrets.token_hex(8)
        self._changed = threading.Condition()
        self._seen = threading.local()
        self._changes = 0
        self._listener: Listener | None = None

    def open(self) -> None:
        self._opened = True

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint comes, or came since this thread's last wait; False if none did."""
        deadline = time.monotonic() + timeout
        with self._changed:
            listener = self._listen()
            seen = getattr(self._seen, "changes", self._changes)
            deaf_until = time.monotonic() + _DEAF
            while self._changes == seen and (left := deadline - time.monotonic()) > 0:
                if listener is None or listener.hears:
                    self._changed.wait(left)
                    deaf_until = time.monotonic() + _DEAF
                elif (rest := deaf_until - time.monotonic()) > 0:
                    self._changed.wait(min(left, rest))
                else:
                    break
            is_deaf = listener is not None and not listener.hears
            is_changed = self._changes != seen
            self._seen.changes = self._changes
            return is_changed or is_deaf

    def _listen(self) -> Listener | None:
        """Have somebody listen, from the first wait on. Holds the condition."""
        if self._listener is None and self._opened:
            self._listener = Listener(self, self._session, self._token)
            self._listener.start()
            # Whoever hints after this wait has begun is heard.
            listener = self._listener
            self._changed.wait_for(lambda: listener.hears or listener.failed, _DEAF)
        return self._listener

    def hint(self) -> None:
        """Wake up whoever waits, here and elsewhere. The calling thread's own next wait is not cut short."""
        with self._changed:
            own_is_known = getattr(self._seen, "changes", self._changes) == self._changes
            self._changes += 1
            if own_is_known:
                self._seen.changes = self._changes
            self._changed.notify_all()
        if self._opened:
            with contextlib.suppress(PyMongoError, EvenbeatError), pymongo.timeout(_TO_SEND):
                send(self._session().database, self._token)

    def heard(self) -> None:
        """Others hinted, or may have while nobody listened."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def tell(self) -> None:
        """The listener's state has changed."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Who waits here is woken up; the thread ends."""
        with self._changed:
            listener, self._listener, self._opened = self._listener, None, False
            self._changes += 1
            self._changed.notify_all()
        if listener is not None:
            listener.stop()

    def after_fork_in_child(self) -> None:
        """The thread is the parent's, and so is its connection."""
        if self._pid != os.getpid():
            self._reset()


class Listener:
    """A thread that follows the hints of others, and connects again by itself."""

    def __init__(self, waker: Waker, session: Callable[[], Session], token: str) -> None:
        self.hears = False
        self.failed = False
        self._waker = waker
        self._session = session
        self._token = token
        self._stopping = threading.Event()
        self._cursor: int = 0
        self._thread = threading.Thread(target=self._run, name="evenbeat-hints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        # To kill its cursor does not end a request that waits; a document does. Again, in case that one came
        # before the request.
        pause = 0.02
        while self._thread.is_alive() and pause < 10:
            with contextlib.suppress(PyMongoError, EvenbeatError), pymongo.timeout(_TO_SEND):
                send(self._session().database, self._token, end=True)
            self._thread.join(pause)
            pause *= 2

    def _run(self) -> None:
        again = False
        while not self._stopping.is_set():
            with contextlib.suppress(PyMongoError, EvenbeatError):
                self._follow(again)
            self.hears, self.failed, again = False, True, True
            self._waker.tell()
            self._stopping.wait(_DEAF / 4)

    def _follow(self, again: bool) -> None:
        session = self._session()
        database, await_for = session.database, session.milliseconds
        with database.client.start_session() as client_session:
            self._cursor = _begin(database, client_session, self._token)
            self.hears = True
            if again:
                self._waker.heard()
            else:
                self._waker.tell()
            while self._cursor and not self._stopping.is_set():
                reply = database.command(
                    {"getMore": self._cursor, "collection": HINTS, "maxTimeMS": await_for},
                    session=client_session,
                )
                batch = reply["cursor"]["nextBatch"]
                self._cursor = reply["cursor"]["id"]
                # What this process sent itself is counted already; an end concerns who sent it.
                if any(document.get("by") != self._token and "end" not in document for document in batch):
                    self._waker.heard()


def _begin(database: Database[Document], client_session: ClientSession, token: str) -> int:
    """A cursor behind all that is there now."""
    for _ in range(2):
        reply = database.command(
            {
                "find": HINTS,
                "tailable": True,
                "awaitData": True,
                "batchSize": _ALL,
                "projection": {"_id": 0, "by": 1, "end": 1},
            },
            session=client_session,
        )
        cursor = reply["cursor"]
        if cursor["id"] and cursor["firstBatch"]:
            return int(cursor["id"])
        # There is nothing to stand behind in an empty collection; and a cursor that is made while its first
        # document comes lives on and never sees any (MongoDB 6.0.5, 5 of 150 tries).
        database[HINTS].insert_one(_document(token))
    return 0


def send(database: Database[Document], token: str, end: bool = False) -> None:
    """Without waiting for an answer."""
    document = {**_document(token), "end": True} if end else _document(token)
    database.get_collection(HINTS, write_concern=WriteConcern(w=0)).insert_one(document)


def _document(token: str) -> Document:
    return {"_id": ObjectId(), "by": token}


_all: weakref.WeakSet[Waker] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for waker in list(_all):
        waker.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

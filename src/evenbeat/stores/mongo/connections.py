"""The connections of a store, its clock, and the repetition of transactions."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.mongo import schema, server_checks
from evenbeat.stores.mongo.abandoned import AbandonedTransactions
from evenbeat.stores.mongo.location import Client, ClientReference, Location
from evenbeat.stores.mongo.session import Contended, Duplicate, OnCommand, Session
from evenbeat.stores.server_clock import ServerClock

T = TypeVar("T")
Work = Callable[[Session, bool], T]

_log = logging.getLogger("evenbeat.store")

# The longest random pause before a transaction that met a conflict is repeated; it doubles each time.
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1
# With a shorter lock_timeout a store does not wait at all.
_NO_PATIENCE = 0.01
# The least time for a write of one document, which waits on the server: with less it would fail at random.
_SHORTEST_WAIT = 0.1


class Connections:
    """A store's access to the server. Survives forks."""

    def __init__(
        self, location: Location, timeout: float, lock_timeout: float, on_command: OnCommand | None
    ) -> None:
        self.location = location
        self.patience = max(lock_timeout, _SHORTEST_WAIT)
        self._timeout = timeout
        self._lock_timeout = lock_timeout
        self._on_command = on_command
        self.clock = ServerClock(self._server_time)
        self._reference = ClientReference(location, timeout, self.clock)
        self._opened = False
        self._cached: tuple[Client, Session] | None = None
        self._abandoned = AbandonedTransactions()

    def open(self) -> None:
        """Check the server, and create or upgrade the collections."""
        was_open, self._opened = self._opened, True
        try:
            session = self.session()
            self.clock.forget()
            for setting in server_checks.settings(session, self.clock):
                if setting.level == "fail":
                    raise StoreUnavailable(
                        f"{self.location.shown}: {setting.name} is {setting.value}; {setting.hint}"
                    )
                if setting.level == "warn":
                    fields = {"component": "store", "setting": setting.name, "value": setting.value}
                    _log.warning("%s: %s", setting.name, setting.hint, extra=fields)
            schema.upgrade(session)
        except BaseException:
            if not was_open:
                self.close()
            raise

    def close(self) -> None:
        self._opened = False
        self._cached = None
        self._reference.give_back()

    def session(self) -> Session:
        if not self._opened:
            raise StoreUnavailable(f"{self.location.shown}: the store is not open; call open() first")
        return self.unopened()

    def unopened(self) -> Session:
        """Return a session even if the store is not open, for reading."""
        cached, client = self._cached, self._reference.client()
        if cached is not None and cached[0] is client:
            return cached[1]
        session = Session(
            client[self.location.database],
            self.location.shown,
            self._on_command,
            self._timeout,
            lambda: self._reference.renew(client),
        )
        self._cached = (client, session)
        return session

    def read_unopened(self, question: Callable[[Session], T]) -> T:
        """Read without opening the store, and release the client afterwards."""
        held = self._reference.held
        try:
            return question(self.unopened())
        finally:
            if not held:
                self._cached = None
                self._reference.give_back()

    def _server_time(self) -> Instant:
        return server_checks.server_time(self.session())

    def write(self, work: Work[T]) -> T:
        """Run a transaction, and repeat it until it is committed.

        Transactions never wait for locks: one that meets a conflict is repeated. Raises StoreUnavailable
        after ``lock_timeout`` seconds of conflicts.
        """
        return self.repeated(lambda careful: self.once(work, careful))

    def once(self, work: Work[T], careful: bool) -> T:
        session = self.session()
        with session.transaction() as inside:
            answer = work(inside, careful)
        session.announce("committed")
        return answer

    def repeated(self, attempt: Callable[[bool], T]) -> T:
        """Repeat ``attempt``. Its argument is whether to be careful: the try before met an id that exists."""
        deadline = time.monotonic() + self._lock_timeout
        pause, careful = _FIRST_PAUSE, False
        while True:
            try:
                return attempt(careful)
            except Duplicate:
                if not careful:
                    careful = True
                    continue
            except Contended:
                pass
            self.contended()
            if self._lock_timeout < _NO_PATIENCE or time.monotonic() >= deadline:
                raise StoreUnavailable(
                    f"{self.location.shown}: other clients write the same documents; nothing was changed, "
                    "try again"
                )
            _sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def contended(self) -> None:
        """Handle a conflict: the other client may have died during its transaction."""
        self._abandoned.end(self.session())

    def step_aside(self, tries: int) -> None:
        """Pause before another try, longer after each: two clients that met would meet again."""
        if self._lock_timeout >= _NO_PATIENCE:
            _sleep(min(_FIRST_PAUSE * (1 << tries), _LONGEST_PAUSE))


def _sleep(longest: float) -> None:
    time.sleep(random.random() * longest)  # noqa: S311 - a random pause, not a secret

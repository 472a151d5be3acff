"""Waking up who waits: threads of this process by a condition, other processes over a channel.

Of the threads that wait, one listens to the server, on a connection of its own, and the others to the
condition. The connection keeps what comes while nobody waits, so a hint between two waits is not lost.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
import weakref

from redis import exceptions as driver

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.redis.primary import Line
from evenbeat.stores.redis.session import Session

# Seconds that a wait takes, at most, while nobody can be heard.
_DEAF = 1.0
_BROKEN = (driver.RedisError, OSError, ValueError, TypeError, AttributeError)
"""What reading from a connection raises that is broken, or that another thread has closed meanwhile."""


class Waker:
    """What ``wait`` and ``hint`` do, for one store."""

    def __init__(self, session: Session) -> None:
        self._session = session
        session.on_leave = self.reconnect
        self._opened = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._name = secrets.token_hex(8)
        self._changed = threading.Condition()
        self._seen = threading.local()
        self._changes = 0
        self._listening = False
        self._connection: Line | None = None
        self._was_deaf = False
        self._servers = 0
        """How many servers were left."""
        self._inherited: Line | None = None

    def open(self) -> None:
        self._opened = True

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint comes, or came since this thread's last wait; False if none did."""
        deadline = time.monotonic() + timeout
        with self._changed:
            seen = getattr(self._seen, "changes", self._changes)
            while self._changes == seen:
                left = deadline - time.monotonic()
                if self._listening:
                    if left <= 0:
                        break
                    self._changed.wait(left)
                elif not self._hears(max(left, 0.0)):
                    return self._wait_deaf(seen, deadline)
                elif left <= 0:
                    break
            self._seen.changes = self._changes
            return self._changes != seen

    def _wait_deaf(self, seen: int, deadline: float) -> bool:
        """Nobody can say whether anything changed: so it may have."""
        self._was_deaf = True
        left = deadline - time.monotonic()
        if left > 0:
            self._changed.wait_for(lambda: self._changes != seen, min(left, _DEAF))
        self._seen.changes = self._changes
        return True

    def _hears(self, timeout: float) -> bool:
        """Listen, as the one who does. False if the server can't be heard."""
        self._listening = True
        connection = self._connection
        self._changed.release()
        heard, alive = 0, True
        try:
            if connection is None:
                connection = self._connect()
            # What was said while nobody listened is lost: something may have changed.
            heard = int(self._was_deaf) + self._read(connection, 0.0 if self._was_deaf else timeout)
        except (*_BROKEN, StoreUnavailable):
            alive = False
        finally:
            self._changed.acquire()
            self._listening = False
            if not alive or not self._opened:
                self._let_go(connection)
            elif self._connection is connection:
                self._was_deaf = False
            else:
                self._let_go(connection)  # its server was left meanwhile
            self._changes += bool(heard)
            # Somebody else listens from here on.
            self._changed.notify_all()
        return alive

    def _connect(self) -> Line:
        if not self._opened:
            raise StoreUnavailable("the store is not open")
        server = self._servers
        connection = self._session.line()
        connection.connect()
        with self._changed:
            if self._servers != server:
                connection.disconnect()
                raise StoreUnavailable("the server was left meanwhile")
            # From here on close() and reconnect() can end what this waits for.
            self._connection = connection
        connection.send_command("SUBSCRIBE", self._session.address.channel)
        connection.read_response()
        return connection

    def _read(self, connection: Line, timeout: float) -> int:
        """How many hints have come from others, until the first or for so long."""
        heard = 0
        while connection.can_read(timeout=timeout):
            kind, _, said = connection.read_response()
            heard += kind == "message" and said != self._name
            # One of our own woke this thread up: the condition knows what it says.
            timeout = 0
        return heard

    def _let_go(self, connection: Line | None) -> None:
        if self._connection is connection:
            self._connection = None
        if connection is not None:
            with contextlib.suppress(*_BROKEN):
                connection.disconnect()

    def reconnect(self) -> None:
        """Listen to another server from now on: hints are not given on this one any more."""
        with self._changed:
            self._servers += 1
            connection, self._connection = self._connection, None
            if connection is None:
                return
            self._was_deaf = True
            is_read = self._listening
        with contextlib.suppress(*_BROKEN):
            if is_read:
                # The thread that reads from it meets its end, and closes it. Closed here, the driver would
                # connect anew in the middle of reading, and subscribe to nothing.
                connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001  # the driver has no other way
            else:
                connection.disconnect()

    def hint(self) -> None:
        """Wake up whoever waits, here and elsewhere. The calling thread's own next wait is not cut short."""
        with self._changed:
            own_is_known = getattr(self._seen, "changes", self._changes) == self._changes
            self._changes += 1
            if own_is_known:
                self._seen.changes = self._changes
            self._changed.notify_all()
        with contextlib.suppress(StoreUnavailable):
            self._session.execute("hint", "PUBLISH", self._session.address.channel, self._name)

    def close(self) -> None:
        """End the connection. Who waits here is woken up."""
        with self._changed:
            self._opened = False
            connection, self._connection = self._connection, None
            self._was_deaf = False
            self._changes += 1
            self._changed.notify_all()
        if connection is not None:
            with contextlib.suppress(*_BROKEN):
                connection.disconnect()

    def after_fork_in_child(self) -> None:
        """The connection is the parent's: leave it alone, and make our own when it is needed."""
        if self._pid != os.getpid():
            inherited = self._connection
            self._reset()
            self._inherited = inherited


_all: weakref.WeakSet[Waker] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for waker in list(_all):
        waker.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

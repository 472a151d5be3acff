"""The pool of connections to the server, transactions on them, and forks.

The pool has no threads. psycopg_pool connects in threads of its own: a fork loses them, a store that is
dropped leaves them behind, and a caller learns only that connecting took too long, not that the password is
wrong. Here the calling thread connects, and gets the reason.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections import deque
from collections.abc import Iterator

import psycopg

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.postgres.failures import translated
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.postgres.session import OnCommand, Session, TimedConnection, Transaction
from evenbeat.stores.server_clock import ServerClock

# With 50 threads that fire in 4 processes, 10 connections each made the slowest calls take 1.5 times as long.
LARGEST = 5
"""How many connections a store has in one process, besides the one that listens."""


class Timeouts:
    """The timeouts of a store in seconds, and as settings of PostgreSQL."""

    def __init__(self, timeout: float, lock_timeout: float) -> None:
        self.timeout = timeout
        # Longer than the server's own timeouts: the server reports the reason, unless it does not answer at
        # all.
        self.answer = timeout + lock_timeout + 1.0
        self.settings = {
            "lock_timeout": str(max(1, round(lock_timeout * 1000))),
            "statement_timeout": str(max(1, round((timeout + lock_timeout) * 1000))),
            # Longer than planning ever takes. A client that is cut off, or frozen, must not keep its row
            # locks.
            "idle_timeout": str(max(10_000, round(2000 * timeout))),
        }


class Connections:
    """The connections of one store in one process. Survives forks."""

    def __init__(
        self, location: Location, patience: Timeouts, clock: ServerClock, on_command: OnCommand | None
    ) -> None:
        self.location = location
        self._patience = patience
        self._clock = clock
        self._on_command = on_command
        self._opened = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._state = threading.Condition()
        self._idle: list[Session] = []
        self._in_use: list[Session] = []
        self._lent_out = 0
        self._queue: deque[object] = deque()

    def open(self) -> bool:
        """Allow connections, and return whether they were allowed before."""
        self._check_process()
        with self._state:
            before, self._opened = self._opened, True
        return before

    def close(self) -> None:
        """Close every idle connection now, and those in use when they are returned to the pool."""
        self._check_process()
        with self._state:
            self._opened = False
            idle, self._idle = self._idle, []
            self._state.notify_all()
        for held in idle:
            held.connection.close()

    @contextlib.contextmanager
    def write(self, clock: int | None, patience: Timeouts | None = None) -> Iterator[Transaction]:
        """Open a transaction, and roll it back unless it was committed. ``clock`` replaces the server's
        clock.

        READ COMMITTED is enough: a transaction locks the rows it decides on first, and each statement sees
        what was committed before it began. A snapshot of the whole transaction would be older than its
        locks.
        """
        usual = self._patience
        patience = patience or usual
        with self._lent(usual.timeout) as held:
            held.patience = patience.answer
            transaction = Transaction(held, {**patience.settings, "clock": clock}, self._clock)
            try:
                yield transaction
            finally:
                if transaction.begun and not transaction.committed:
                    held.roll_back()
                held.patience = usual.answer
        # The connection is back in the pool: if this raises, the store is committed and usable.
        if transaction.committed:
            held.announce("committed")

    @contextlib.contextmanager
    def read(self, patience: float | None = None) -> Iterator[Session]:
        """Open a connection for single statements, each its own transaction."""
        with self._lent(self._patience.timeout if patience is None else patience) as held:
            yield held

    @contextlib.contextmanager
    def _lent(self, patience: float) -> Iterator[Session]:
        self._check_process()
        held = self._take(patience)
        pid = self._pid
        try:
            if held is None:
                held = self._connect()
            with self._state:
                self._in_use.append(held)
            yield held
        finally:
            # In the child of a fork inside this block, the connection belongs to the parent.
            if pid == os.getpid():
                self._give_back(held)

    def _take(self, patience: float) -> Session | None:
        """Return an idle connection, or None: the caller may make one. In the order of the calls."""
        ticket = object()
        with self._state:
            self._queue.append(ticket)
            try:
                served = self._state.wait_for(lambda: self._is_served(ticket), patience)
            finally:
                self._queue.remove(ticket)
                self._state.notify_all()
            if not self._opened:
                raise StoreUnavailable(f"{self.location.shown}: the store is not open; call open() first")
            if not served:
                raise StoreUnavailable(
                    f"{self.location.shown}: all {LARGEST} connections are in use; try again"
                )
            held = None
            while self._idle and held is None:
                held = self._idle.pop()
                if not _is_quiet(held):
                    held.connection.close()
                    held = None
            self._lent_out += 1
        return held

    def _is_served(self, ticket: object) -> bool:
        return not self._opened or (self._lent_out < LARGEST and self._queue[0] is ticket)

    def _give_back(self, held: Session | None) -> None:
        kept = False
        with self._state:
            self._lent_out -= 1
            if held is not None:
                if held in self._in_use:
                    self._in_use.remove(held)
                kept = self._opened and not held.broken
                if kept:
                    self._idle.append(held)
            self._state.notify_all()
        if held is not None and not kept:
            held.connection.close()

    def _connect(self) -> Session:
        if self._on_command is not None:
            self._on_command("connect")
        try:
            connection = TimedConnection.connect(
                self.location.conninfo, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise translated(self.location.shown, error) from error
        connection.add_notice_handler(connection.note)
        # PostgreSQL 14 and newer report this when connecting; behind a pooler the first write will fail.
        if connection.info.parameter_status("in_hot_standby") == "on":
            connection.close()
            raise StoreUnavailable(
                f"{self.location.shown}: the server is a standby, which accepts no writes; name the primary"
            )
        with self._state:
            if not self._idle and not self._in_use:
                # There is no other connection: this may be another server, with another clock.
                self._clock.forget()
        return Session(connection, self.location, self._patience.answer, self._on_command)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Start without the parent's connections. Threads that do not exist here may hold the old locks."""
        if self._pid == os.getpid():
            return
        inherited = [*self._idle, *self._in_use]
        self._reset()
        for held in inherited:
            disown(held.connection.pgconn.socket)
        _abandoned.extend(held.connection for held in inherited)


def _is_quiet(held: Session) -> bool:
    """Whether the server has sent nothing since its last answer. It sends something when it ends the
    connection.

    Takes 3 us.
    """
    if held.broken:
        return False
    poll = select.poll()
    poll.register(held.connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def disown(descriptor: int) -> None:
    """Release the parent's socket. Its descriptor then leads to /dev/null: later writes reach neither the
    parent's session nor a file that is opened next."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
# A fork's copies of the parent's connections: never closed here, since that would end the parent's sessions.
_abandoned: list[TimedConnection] = []


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

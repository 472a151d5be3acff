"""Connections to the server: who may use which when, what a transaction is, what a fork does.

A pool of our own, without threads: psycopg_pool connects in threads of its own, which a fork loses and a
store that is dropped leaves behind, and whoever waits for it is told that it took too long, not that the
password is wrong. Here the caller connects, when it needs to, and gets the reason.
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
from evenbeat.stores.postgres.session import Link, OnCommand, Session, Transaction
from evenbeat.stores.server_clock import ServerClock

# With 50 threads that fire in 4 processes, 10 each made the slowest calls half as long again.
LARGEST = 5
"""Connections of one store in one process, besides the one that listens."""


class Patience:
    """How long what is waited for, in seconds, and as PostgreSQL is told."""

    def __init__(self, timeout: float, lock_timeout: float) -> None:
        self.timeout = timeout
        # The server stops first and says why; only a server that is silent is given up here.
        self.answer = timeout + lock_timeout + 1.0
        self.settings = {
            "lock_timeout": str(max(1, round(lock_timeout * 1000))),
            "statement_timeout": str(max(1, round((timeout + lock_timeout) * 1000))),
            # A holder that is cut off, or frozen, must not keep its rows. More than planning ever takes.
            "idle_timeout": str(max(10_000, round(2000 * timeout))),
        }


class Connections:
    """The connections of one store in one process. Survives forks."""

    def __init__(
        self, location: Location, patience: Patience, clock: ServerClock, on_command: OnCommand | None
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
        """Let connections be made; says whether they might already."""
        self._check_process()
        with self._state:
            before, self._opened = self._opened, True
        return before

    def close(self) -> None:
        """Close every connection; those in use are closed when they are given back."""
        self._check_process()
        with self._state:
            self._opened = False
            idle, self._idle = self._idle, []
            self._state.notify_all()
        for held in idle:
            held.link.close()

    @contextlib.contextmanager
    def write(self, clock: int | None, patience: Patience | None = None) -> Iterator[Transaction]:
        """A transaction: what it has not committed is rolled back. ``clock`` stands in for the server's.

        READ COMMITTED is enough: whatever is decided upon is locked first, and each statement sees what
        was committed before it began. A snapshot of the whole transaction would be older than its locks.
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
        # The connection is back: whatever this raises finds the store committed and usable.
        if transaction.committed:
            held.announce("committed")

    @contextlib.contextmanager
    def read(self, patience: float | None = None) -> Iterator[Session]:
        """A connection for statements that stand for themselves."""
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
            # In the child of a fork made from inside, everything here belongs to the parent.
            if pid == os.getpid():
                self._give_back(held)

    def _take(self, patience: float) -> Session | None:
        """An idle connection, or the right to make one; who came first gets it first."""
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
                    held.link.close()
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
            held.link.close()

    def _connect(self) -> Session:
        if self._on_command is not None:
            self._on_command("connect")
        try:
            link = Link.connect(self.location.conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise translated(self.location.shown, error) from error
        link.add_notice_handler(link.note)
        # PostgreSQL 14 and newer say so unasked; behind a pooler the first write will find out.
        if link.info.parameter_status("in_hot_standby") == "on":
            link.close()
            raise StoreUnavailable(
                f"{self.location.shown}: the server is a standby, which takes no writes; name the primary"
            )
        with self._state:
            if not self._idle and not self._in_use:
                # All were lost, or there were none: this may be another server, with another clock.
                self._clock.forget()
        return Session(link, self.location, self._patience.answer, self._on_command)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Start afresh, without the parent's connections: locks may be held by threads that are not here."""
        if self._pid == os.getpid():
            return
        inherited = [*self._idle, *self._in_use]
        self._reset()
        for held in inherited:
            disown(held.link.pgconn.socket)
        _abandoned.extend(held.link for held in inherited)


def _is_quiet(held: Session) -> bool:
    """Whether the server has said nothing since the last answer: what it says then is that it ends. 3 us."""
    if held.broken:
        return False
    poll = select.poll()
    poll.register(held.link.fileno(), select.POLLIN)
    return not poll.poll(0)


def disown(descriptor: int) -> None:
    """Let go of the parent's socket. Its number stays taken, so that whoever still writes to it reaches
    nobody: neither the parent's session nor what is opened next."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
# A fork's copies of the parent's connections: never closed here, since closing would say good-bye for both.
_abandoned: list[Link] = []


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

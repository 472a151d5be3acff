"""Waking up who waits: threads of this process by a condition, other processes by LISTEN and NOTIFY.

A process that waits has one more connection, which only listens. It is made without blocking, step by step,
by the threads that wait: of them one watches its socket and the others the condition, so that there is no
thread of its own. Until hints are known to come through (the listener hears one that was sent by an
ordinary connection) nobody sleeps for longer than a second: behind a PgBouncer that pools transactions
LISTEN succeeds, and nothing comes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable

from evenbeat.stores.postgres.listener import Listener

# While nothing can be heard, waits are as long as this.
_DEAF = 1.0

# Connections that listen and are lost in a row before it is said: a server that restarts is no news.
_PATIENCE = 3

_log = logging.getLogger("evenbeat.store")


class Waker:
    """What ``wait`` and ``hint`` do, for one store."""

    def __init__(
        self, conninfo: str | None, channel: str, timeout: float, notify: Callable[[str], None], shown: str
    ) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._timeout = timeout
        self._notify = notify
        """Sends a hint, with the name of its sender; never raises for a server that is away."""
        self._shown = shown
        self._opened = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self.name = secrets.token_hex(8)
        """Who hints: what this process told itself it knows already."""
        self._changed = threading.Condition()
        self._seen = threading.local()
        self._changes = 0
        self._failures = 0
        """How often, in a row, nothing was heard before the connection that listens was lost."""
        self._watching = False
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._listener: Listener | None = None
        self._next_try = 0.0

    def open(self) -> None:
        self._opened = True

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint comes, or came since this thread's last wait; False if none did."""
        deadline = time.monotonic() + timeout
        with self._changed:
            seen = getattr(self._seen, "changes", self._changes)
            while self._changes == seen and (left := deadline - time.monotonic()) > 0:
                deaf = self._is_deaf()
                started = time.monotonic()
                if self._watching or not self._opened:
                    self._changed.wait(min(left, _DEAF) if deaf else left)
                else:
                    self._watch(min(left, _DEAF) if deaf else left)
                if deaf and self._changes == seen and time.monotonic() - started >= _DEAF:
                    # Nobody can tell whether something has changed: let the caller look.
                    return True
            if self._changes == seen and not self._watching and self._listener is not None:
                self._watching = True
                try:
                    self._hear()
                finally:
                    self._watching = False
                    self._changed.notify_all()
            self._seen.changes = self._changes
            return self._changes != seen

    def _is_deaf(self) -> bool:
        return self._listener is None or not self._listener.proven

    def _watch(self, timeout: float) -> None:
        """Watch the listener's socket, and the bell of this process, for that long or until one is ready."""
        listener = self._listen()
        bell = self._own_bell()
        self._watching = True
        until = time.monotonic() + timeout
        self._changed.release()
        try:
            poll = select.poll()
            poll.register(bell[0], select.POLLIN)
            if listener is not None:
                poll.register(*listener.interest())
            # A socket that close() took away meanwhile reads as ready or bad: both end the wait.
            with contextlib.suppress(OSError, ValueError):
                poll.poll(max(0.0, until - time.monotonic()) * 1000)
        finally:
            self._changed.acquire()
            with contextlib.suppress(OSError):
                while bell[0].recv(64):
                    pass
            self._hear()
            self._watching = False
            # Somebody else watches from here on.
            self._changed.notify_all()

    def _listen(self) -> Listener | None:
        """The listener, as far as it has come; if there is none a new one, but not more than one a second."""
        if self._listener is None and self._conninfo is not None and time.monotonic() >= self._next_try:
            self._next_try = time.monotonic() + _DEAF
            self._listener = Listener.start(self._conninfo, self._channel, self._timeout, self._shown)
        return self._listener

    def _hear(self) -> None:
        """Take the listener one step further, and count what it heard as one change.

        By who watches, and nobody else: the lock is let go of while a hint is sent.
        """
        listener = self._listener
        if listener is None:
            return
        heard = listener.step()
        if listener.ended:
            self._listener = None
            listener.close()
            self._changes += listener.proven
            self._failures = 0 if listener.proven else self._failures + 1
            if self._failures == _PATIENCE:
                _log.warning(
                    "hints can't be heard, so this node looks once a second: %s",
                    listener.reason,
                    extra={"component": "store", "store": self._shown},
                )
            return
        if listener.wants_proof:
            listener.wants_proof = False
            self._changed.release()
            try:
                self._notify(f"{self.name}?")
            finally:
                self._changed.acquire()
        others = [sender for sender in heard if sender.rstrip("?") != self.name]
        if f"{self.name}?" in heard and not listener.proven:
            listener.proven = True
            # What was said before nobody heard.
            self._changes += 1
        self._changes += bool(others)

    def _own_bell(self) -> tuple[socket.socket, socket.socket]:
        if self._bell is None:
            self._bell = socket.socketpair()
            for end in self._bell:
                end.setblocking(False)
        return self._bell

    def hint(self) -> None:
        """Wake up whoever waits, here and elsewhere. The calling thread's own next wait is not cut short."""
        with self._changed:
            own_is_known = getattr(self._seen, "changes", self._changes) == self._changes
            self._changes += 1
            if own_is_known:
                self._seen.changes = self._changes
            self._ring()
        self._notify(self.name)

    def _ring(self) -> None:
        self._changed.notify_all()
        if self._watching and self._bell is not None:
            with contextlib.suppress(OSError):
                self._bell[1].send(b"!")

    def close(self) -> None:
        """Stop listening. Who waits here is woken up."""
        with self._changed:
            self._opened = False
            self._changes += 1
            self._ring()
            # Who watches the listener's socket comes out by the bell, and uses it no more.
            self._changed.wait_for(lambda: not self._watching, timeout=5)
            listener, self._listener = self._listener, None
            bell, self._bell = self._bell, None
            self._next_try = 0.0
        if listener is not None:
            listener.close()
        for end in bell or ():
            end.close()

    def after_fork_in_child(self) -> None:
        """The connection is the parent's: let go of our copy, and leave the parent's session alone."""
        if self._pid == os.getpid():
            return
        listener, bell = self._listener, self._bell
        self._reset()
        if listener is not None:
            listener.disown()
        for end in bell or ():
            end.close()


_all: weakref.WeakSet[Waker] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for waker in list(_all):
        waker.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

"""Waits for hints and sends them: the part that all stores share.

A hint says that something in the store may have changed. Threads of this process wait on one condition. Hints
of other processes arrive over the store's ``Transport``: a listener thread, started by the first wait,
receives them and notifies the condition. Only the listener thread connects, and it holds no lock while it
does: a slow network never delays ``hint``.

A lost hint costs latency and nothing else. While hints cannot be received, ``wait`` returns True once a
second, and once more as soon as they can be received again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import selectors
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable

from evenbeat.processes.descriptors import DescriptorProbe

POLL_SECONDS = 1.0
"""How long a wait takes while hints cannot be received, and the least time between two tries to connect."""

# Log a warning after so many failures in a row, not when a server only restarts.
_FAILURES_BEFORE_WARNING = 3
# How long close() waits for the listener thread. If the thread looks up a host name, which cannot be
# interrupted, it ends after that.
_CLOSE_SECONDS = 5.0

# Windows has no poll(); select() refuses descriptors above 1023.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)

_log = logging.getLogger("evenbeat.store")


class Interrupted(Exception):
    """Raised inside ``connect`` or ``receive`` when the listener has to close the connection."""


class Transport(ABC):
    """How hints travel between the processes that use one store."""

    shown = ""
    """The store's location in log messages, without passwords."""

    can_receive = True
    """Whether hints of other processes can be received at all on this system and with these settings."""

    store_polls = False
    """Whether the store also finds the changes of other processes without hints. If it does, ``wait`` sleeps
    for its whole timeout while hints cannot be received; otherwise it returns True once a second."""

    @abstractmethod
    def send(self, sender: str) -> None:
        """Send a hint to the other processes. Drop it without an error if the server is unavailable."""

    @abstractmethod
    def receiver(self, sender: str) -> Receiver:
        """Create a receiver that is not connected yet. ``sender`` identifies this process's own hints."""


class Receiver(ABC):
    """A connection on which hints of other processes arrive.

    Only the listener thread calls ``connect``, ``receive`` and ``disconnect``, and it holds no lock
    meanwhile. After an exception from ``connect`` or ``receive`` it disconnects and connects again. Other
    threads may call ``interrupt`` at any time.
    """

    def __init__(self) -> None:
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)

    @abstractmethod
    def connect(self) -> None:
        """Connect. When this method returns, every hint that is sent from then on will arrive."""

    @abstractmethod
    def receive(self) -> Iterable[str]:
        """Block until hints arrive, and return their senders. May return early with none."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection if there is one. Never raises."""

    @abstractmethod
    def disown(self) -> None:
        """In a forked child: release the connection without closing it for the parent."""

    def interrupt(self) -> None:
        """Make a blocked ``connect`` or ``receive`` end soon, by raising or returning."""
        self.ring()

    def ring(self) -> None:
        """Make ``is_ready`` raise ``Interrupted``. Takes no lock and never blocks."""
        with contextlib.suppress(OSError):
            self._bell[1].send(b"!")

    def is_ready(self, descriptor: int, events: int, timeout: float | None = None) -> bool:
        """Wait until the descriptor is ready; return False if it is not within ``timeout`` seconds.

        ``events`` are constants of ``selectors``. Raises ``Interrupted`` if a thread has called ``ring``.
        """
        with _Selector() as selector:
            selector.register(descriptor, events)
            selector.register(self._bell[0], selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(timeout)}
        if self._bell[0] in ready:
            raise Interrupted("the connection is given up")
        return descriptor in ready

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until a thread calls ``ring``. A call since the last pause counts, too."""
        with _Selector() as selector:
            selector.register(self._bell[0], selectors.EVENT_READ)
            selector.select(max(0.0, seconds))
        with contextlib.suppress(OSError):
            while self._bell[0].recv(64):
                pass

    def close(self) -> None:
        """Close the socket pair of ``interrupt``. No other method may be called after this."""
        for end in self._bell:
            # A job may have closed the descriptors of its process.
            with contextlib.suppress(OSError):
                end.close()


class Waker:
    """The ``wait`` and ``hint`` of one store. Without a transport, hints stay inside this process.

    After a fork, the child has its own sender name, and no listener until its first wait.
    """

    def __init__(self, transport: Transport | None = None) -> None:
        self._transport = transport
        self._opened = False
        self._finalizer: weakref.finalize[..., Waker] | None = None
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._sender = secrets.token_hex(8)
        self._seen = threading.local()
        self._state = _State()
        self._listener: _Listener | None = None

    @property
    def is_receiving(self) -> bool:
        """Whether hints of other processes arrive at present."""
        return self._state.is_receiving

    def open(self) -> None:
        """Let the next wait start to receive hints, and ``hint`` send them to other processes."""
        self._opened = True

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint arrives, or return at once if one has arrived since this thread's last wait.
        Return False if none arrived.

        Also returns True after a second in which hints could not be received.
        """
        started = time.monotonic()
        deadline, poll_at = started + timeout, started + POLL_SECONDS
        transport = self._transport
        polls = transport is not None and not (transport.store_polls and self._opened)
        state = self._state
        with state.changed:
            self._listen()
            seen = getattr(self._seen, "changes", state.changes)
            must_poll = False
            while state.changes == seen and (left := deadline - time.monotonic()) > 0 and not must_poll:
                if state.is_receiving or not polls:
                    state.changed.wait(left)
                    poll_at = time.monotonic() + POLL_SECONDS
                elif (until_poll := poll_at - time.monotonic()) > 0:
                    state.changed.wait(min(left, until_poll))
                else:
                    must_poll = True
            is_changed = state.changes != seen
            self._seen.changes = state.changes
            return is_changed or must_poll

    def _listen(self) -> None:
        """Start the listener if there is none, and wait for its first try to connect, for at most a
        second."""
        state, transport = self._state, self._transport
        if transport is None or not transport.can_receive:
            return
        if self._listener is None and self._opened:
            listener = _Listener(state, transport, self._sender)
            listener.thread.start()
            state.is_first_try = True
            self._listener = listener
            # If a program drops the store without closing it, this ends the thread.
            self._finalizer = weakref.finalize(self, listener.give_up)
            self._finalizer.atexit = False
        if state.is_first_try:
            # Usually the listener is connected before this wait begins, so that no hint can be missed.
            state.changed.wait_for(lambda: not state.is_first_try, POLL_SECONDS)
            state.is_first_try = False
        if not state.is_receiving:
            state.may_have_missed = True

    def hint(self) -> None:
        """Wake every other thread that waits, in this process and in others.

        Does not wake the calling thread's own next wait.
        """
        state = self._state
        with state.changed:
            is_up_to_date = getattr(self._seen, "changes", state.changes) == state.changes
            state.changes += 1
            if is_up_to_date:
                self._seen.changes = state.changes
            state.changed.notify_all()
        if self._transport is not None and self._opened:
            self._transport.send(self._sender)

    def close(self) -> None:
        """Wake every waiting thread and stop the listener."""
        state = self._state
        with state.changed:
            listener, self._listener, self._opened = self._listener, None, False
            if listener is not None:
                listener.give_up()
            if self._finalizer is not None:
                self._finalizer.detach()
            state.is_receiving = state.is_first_try = False
            state.changes += 1
            state.changed.notify_all()
        if listener is not None:
            listener.join()

    def after_fork_in_child(self) -> None:
        """Drop the parent's listener. Its thread does not exist in this process, and its locks may be held
        forever."""
        listener, finalizer = self._listener, self._finalizer
        self._reset()
        if finalizer is not None:
            finalizer.detach()
        if listener is not None:
            listener.receiver.disown()
            listener.receiver.close()


class _State:
    """The state that the waiting threads and the listener share. The condition protects all of it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.changes = 0
        """How many times something may have changed."""
        self.is_receiving = False
        self.is_first_try = False
        """Whether the listener is making its first try to connect, which began less than a second ago."""
        self.may_have_missed = False
        """Whether hints may have been lost while a thread waited."""


class _Listener:
    """The thread that receives hints, and connects again by itself when the connection is lost.

    It has no reference to the Waker, so that Python can collect the Waker, which ends the thread.
    """

    def __init__(self, state: _State, transport: Transport, sender: str) -> None:
        self.receiver = transport.receiver(sender)
        self.thread = threading.Thread(target=self._run, name="evenbeat-hints", daemon=True)
        self._state = state
        self._sender = sender
        self._shown = transport.shown
        self._is_stopping = False
        self._failures = 0
        self._probe = DescriptorProbe()

    def give_up(self) -> None:
        """Make the thread end soon. Takes no lock: a destructor may call this in any thread, at any time."""
        self._is_stopping = True
        self.receiver.ring()

    def join(self) -> None:
        """Wait until the thread has ended."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        pause = 0.02
        # Interrupt repeatedly: an interruption may come just before the call that it should end.
        while self.thread.is_alive() and time.monotonic() < deadline:
            self.receiver.interrupt()
            self.thread.join(pause)
            pause *= 2

    def _run(self) -> None:
        next_try = time.monotonic()
        while True:
            self.receiver.pause(next_try - time.monotonic())
            # Without its bell it would never pause again.
            if self._is_stopping or not self._probe.is_intact():
                break
            next_try = time.monotonic() + POLL_SECONDS
            try:
                self._receive()
            except Exception as error:
                self._lost(error)
            finally:
                self.receiver.disconnect()
        self.receiver.close()
        self._probe.close()

    def _receive(self) -> None:
        self.receiver.connect()
        self._failures = 0
        self._connected()
        while not self._is_stopping:
            # This process counts its own hints when it sends them.
            if any(sender != self._sender for sender in self.receiver.receive()):
                self._received()

    def _connected(self) -> None:
        with self._state.changed:
            if not self._is_stopping:
                self._state.is_receiving, self._state.is_first_try = True, False
                self._state.changes += self._state.may_have_missed
                self._state.may_have_missed = False
                self._state.changed.notify_all()

    def _received(self) -> None:
        with self._state.changed:
            self._state.changes += 1
            self._state.changed.notify_all()

    def _lost(self, error: Exception) -> None:
        with self._state.changed:
            if self._is_stopping:
                return
            self._state.is_receiving = self._state.is_first_try = False
            self._state.may_have_missed = True
            self._state.changed.notify_all()
        self._failures += 1
        if self._failures == _FAILURES_BEFORE_WARNING:
            _log.warning(
                "this process cannot receive hints, so it polls the store once a second: %s",
                " ".join(str(error).split())[:200] or type(error).__name__,
                extra={"component": "store", "store": self._shown},
            )


_all: weakref.WeakSet[Waker] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for waker in list(_all):
        waker.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

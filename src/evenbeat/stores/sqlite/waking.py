"""Waking up who waits: threads of this process by a condition, other processes by datagrams.

Every process that waits has a socket in a folder beside the database; a hint is one byte to each.
Nothing is polled: of the threads that wait, one listens on the socket and the others on the condition.
A socket keeps what comes while nobody waits, so a hint between two waits is not lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import select
import socket
import stat
import tempfile
import threading
import time
import weakref

# sockaddr_un holds 108 bytes on Linux, 104 elsewhere, the closing NUL included.
_LONGEST = 100
_HINT, _SELF = b"!", b"."


class Waker:
    """What ``wait`` and ``hint`` do, for one store."""

    def __init__(self, path: str) -> None:
        self._folder, self._private = _folder(path)
        self._opened = False
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._seen = threading.local()
        self._changes = 0
        self._listening = False
        self._socket: socket.socket | None = None
        self._address = ""

    def open(self) -> None:
        self._opened = True

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint comes, or came since this thread's last wait; False if none did."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._bind()
            seen = getattr(self._seen, "changes", self._changes)
            while self._changes == seen and (left := deadline - time.monotonic()) > 0:
                if self._listening or self._socket is None:
                    self._changed.wait(left)
                else:
                    self._listen(self._socket, left)
            if self._changes == seen and not self._listening:
                self._drain()
            self._seen.changes = self._changes
            return self._changes != seen

    def _listen(self, ours: socket.socket, timeout: float) -> None:
        self._listening = True
        self._changed.release()
        try:
            # A socket that close() took away meanwhile reads as ready or bad: both end the wait.
            with contextlib.suppress(OSError, ValueError):
                poll = select.poll()
                poll.register(ours, select.POLLIN)
                poll.poll(timeout * 1000)
        finally:
            self._changed.acquire()
            self._listening = False
            self._drain()
            # Somebody else listens from here on.
            self._changed.notify_all()

    def _drain(self) -> None:
        """All that came counts as one change; what this process sent itself is counted already."""
        heard = False
        with contextlib.suppress(OSError):
            while self._socket is not None:
                heard = self._socket.recv(1) == _HINT or heard
        self._changes += heard

    def hint(self) -> None:
        """Wake up whoever waits, here and elsewhere. The calling thread's own next wait is not cut short."""
        with self._changed:
            own_is_known = getattr(self._seen, "changes", self._changes) == self._changes
            self._changes += 1
            if own_is_known:
                self._seen.changes = self._changes
            self._changed.notify_all()
            address, listening = self._address, self._listening
        with contextlib.suppress(OSError), _sender() as sender:
            if listening:
                _send(sender, _SELF, address)
            for name in os.listdir(self._folder):
                other = os.path.join(self._folder, name)
                if other != address and name.endswith(".sock"):
                    _send(sender, _HINT, other)

    def _bind(self) -> None:
        """A socket of our own, where the system and the folder allow one; else waits just take their time."""
        possible = hasattr(socket, "AF_UNIX") and hasattr(select, "poll")
        if self._socket is not None or not self._opened or not possible:
            return
        # Containers that share the file may number their processes alike.
        address = os.path.join(self._folder, f"{os.getpid()}-{secrets.token_hex(4)}.sock")
        # Twice: a process that closes removes the folder when it is empty.
        for _ in range(2):
            ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                _make(self._folder, self._private)
                ours.bind(address)
            except OSError:
                ours.close()
                continue
            ours.setblocking(False)
            self._socket, self._address = ours, address
            return

    def close(self) -> None:
        """Take the socket away, and the folder if it was the last one. Who waits here is woken up."""
        with self._changed:
            ours, address, listening = self._socket, self._address, self._listening
            self._socket, self._address, self._opened = None, "", False
            self._changes += 1
            self._changed.notify_all()
        if ours is not None:
            if listening:
                with contextlib.suppress(OSError), _sender() as sender:
                    _send(sender, _SELF, address)
            ours.close()
            with contextlib.suppress(OSError):
                os.unlink(address)
        # Also where a process that was killed has left it.
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def after_fork_in_child(self) -> None:
        """The socket is the parent's: let go of our copy, and leave its name where it is."""
        if self._pid != os.getpid():
            inherited = self._socket
            self._reset()
            if inherited is not None:
                inherited.close()


def _folder(path: str) -> tuple[str, bool]:
    """Where the sockets are, and whether that must be a folder of ours alone.

    Beside the database, where all its users find it; those of a long path are in the temporary folder.
    """
    beside = f"{path}.wake"
    if len(os.fsencode(beside)) + len("/1234567890-12345678.sock") <= _LONGEST:
        return beside, False
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(tempfile.gettempdir(), f"evenbeat-{user}-{digest}.wake"), True


def _make(folder: str, private: bool) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700 if private else 0o777)
    found = os.lstat(folder)
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if private and not ours:
        raise PermissionError(f"{folder} is not a folder of ours alone")


def _sender() -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    return sender


def _send(sender: socket.socket, what: bytes, address: str) -> None:
    try:
        sender.sendto(what, address)
    except ConnectionRefusedError:
        # Nobody is behind this name any more, and nobody ever will be.
        with contextlib.suppress(OSError):
            os.unlink(address)
    except OSError:
        pass  # full: it has a hint already; gone: it needs none


_all: weakref.WeakSet[Waker] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for waker in list(_all):
        waker.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

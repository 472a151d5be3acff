"""Hints between processes that share an SQLite file: datagrams to sockets in a folder beside the file.

Every process that waits has a socket in the folder. A hint is one datagram to each socket. A socket keeps the
datagrams that arrive until the process reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import select
import selectors
import socket
import stat
import tempfile

from evenbeat.stores.waking import Receiver, Transport

# sockaddr_un holds 108 bytes on Linux and 104 elsewhere, including the final NUL.
_LONGEST_PATH = 100
_LONGEST_SENDER = 64


class SocketTransport(Transport):
    """Sends hints to every socket in the folder that belongs to a database file."""

    store_polls = True
    can_receive = hasattr(socket, "AF_UNIX") and hasattr(select, "poll")

    def __init__(self, path: str) -> None:
        self.shown = path
        self.folder, self._is_private = _folder(path)
        self.own_address = ""
        """The path of this process's socket, which needs no datagram."""

    def send(self, sender: str) -> None:
        if not self.can_receive:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            for name in os.listdir(self.folder):
                address = os.path.join(self.folder, name)
                if address != self.own_address and name.endswith(".sock"):
                    _send(sending, sender.encode(), address)

    def receiver(self, sender: str) -> SocketReceiver:
        return SocketReceiver(self)

    def make_folder(self) -> None:
        """Create the folder. Raise PermissionError if it must be private and other users can access it."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.folder, 0o700 if self._is_private else 0o777)
        found = os.lstat(self.folder)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        if self._is_private and not is_ours:
            raise PermissionError(f"{self.folder} is not a private folder of this user")

    def remove_folder(self) -> None:
        """Remove the folder if it is empty, also if a killed process has left it."""
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


class SocketReceiver(Receiver):
    """A socket in the folder, for the datagrams of other processes."""

    def __init__(self, transport: SocketTransport) -> None:
        super().__init__()
        self._transport = transport
        self._socket: socket.socket | None = None
        self._address = ""

    def connect(self) -> None:
        # Containers that share the file may have equal process numbers.
        name = f"{os.getpid()}-{secrets.token_hex(4)}.sock"
        self._address = os.path.join(self._transport.folder, name)
        made = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.setblocking(False)
        try:
            self._transport.make_folder()
            made.bind(self._address)
        except FileNotFoundError:
            # A process that closes removes the folder when it is empty.
            self._transport.make_folder()
            made.bind(self._address)
        self._transport.own_address = self._address

    def receive(self) -> list[str]:
        assert self._socket is not None
        self.is_ready(self._socket.fileno(), selectors.EVENT_READ)
        senders: list[str] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                senders.append(self._socket.recv(_LONGEST_SENDER).decode(errors="replace"))
        return senders

    def disconnect(self) -> None:
        self.disown()
        with contextlib.suppress(OSError):
            os.unlink(self._address)

    def disown(self) -> None:
        if self._transport.own_address == self._address:
            self._transport.own_address = ""
        made, self._socket = self._socket, None
        if made is not None:
            # A job may have closed the descriptors of its process.
            with contextlib.suppress(OSError):
                made.close()


def _folder(path: str) -> tuple[str, bool]:
    """Return the folder of the sockets, and whether it must be private to this user.

    It is beside the database, where all users of the file find it. If that path is too long for a socket,
    it is in the system's folder for temporary files.
    """
    beside = f"{path}.wake"
    if len(os.fsencode(beside)) + len("/1234567890-12345678.sock") <= _LONGEST_PATH:
        return beside, False
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(tempfile.gettempdir(), f"evenbeat-{user}-{digest}.wake"), True


def _send(sending: socket.socket, message: bytes, address: str) -> None:
    try:
        sending.sendto(message, address)
    except ConnectionRefusedError:
        # The process of this socket has ended, and no other will use the name.
        with contextlib.suppress(OSError):
            os.unlink(address)
    except OSError:
        pass  # the socket is full: its process has a hint to read; or gone: its process does not wait

"""Messages between two of our processes: the length, then JSON. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec

Received = TypeVar("Received")

LONGEST = 64_000_000
"""The most bytes of a message, far more than we send. The reader allocates them before it reads."""
# Seconds that ``hang_up`` waits for a message that is being sent and that the other end does not read.
_PATIENCE = 1.0


class Channel(Generic[Received]):
    """One end of a connection. Any thread may send; one thread receives.

    It belongs to the process that created it. In a fork both directions are closed: the other end never gets
    messages of two processes, and notices the end of the owner, however long its forks live.
    """

    def __init__(self, reader: io.FileIO, writer: io.FileIO, decoder: msgspec.json.Decoder[Received]) -> None:
        # Without buffers: a fork would inherit their content, and write it once more.
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._sending = threading.Lock()
        self._owner = os.getpid()
        _channels.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether this process owns the channel: False in a fork."""
        return os.getpid() == self._owner

    def send(self, message: msgspec.Struct) -> bool:
        """Send a message; return False if the other end is gone."""
        body = msgspec.json.encode(message)
        unsent = memoryview(len(body).to_bytes(4, "big") + body)
        if not self.is_ours:  # before the lock, which a thread may hold that does not exist in the fork
            return False
        try:
            with self._sending:
                while unsent:
                    unsent = unsent[self._writer.write(unsent) :]
        except (OSError, ValueError):  # a broken pipe; closed by us
            return False
        return True

    def receive(self) -> Received | None:
        """Wait for the next message and return it; None when the other end is gone."""
        head = self._read(4)
        length = 0 if head is None else int.from_bytes(head, "big")
        if head is None or length > LONGEST:
            return None  # gone, or not a message: a job may write to any file descriptor of its process
        body = self._read(length)
        return None if body is None else self._decoder.decode(body)

    def _read(self, length: int) -> bytearray | None:
        """Read so many bytes; return None if the other end closes before that."""
        data = bytearray(length)
        missing = memoryview(data)
        try:
            while missing:
                count = self._reader.readinto(missing)
                if not count:
                    return None
                missing = missing[count:]
        except (OSError, ValueError):
            return None
        return data

    def hang_up(self) -> None:
        """Close the sending direction, which the other end notices. Any thread may call this."""
        # Not in the middle of a message: its rest would go to the next file that gets this descriptor.
        held = self._sending.acquire(timeout=_PATIENCE)
        try:
            with contextlib.suppress(OSError):
                self._writer.close()
        finally:
            if held:
                self._sending.release()

    def close(self) -> None:
        """Close both directions. Only the receiving thread may: no read may be under way."""
        self.hang_up()
        self._reader.close()

    def abandon(self) -> None:
        """Close both directions in a fork."""
        with contextlib.suppress(OSError):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._reader.close()


_channels: WeakSet[Channel[Any]] = WeakSet()


def _close_all() -> None:
    for channel in tuple(_channels):
        channel.abandon()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_close_all)


def storable(text: str) -> str:
    """Return a text without lone surrogates, which JSON can't express."""
    return text.encode(errors="replace").decode()

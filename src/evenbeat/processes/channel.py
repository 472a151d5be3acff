"""Messages between two processes of ours: JSON with its length before it. Nothing is ever unpickled."""

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
"""Bytes of a message: far more than any that we send. Memory for it is taken before it is read."""
# A message that nobody reads does not hold up the end for longer.
_PATIENCE = 1.0


class Channel(Generic[Received]):
    """One end. Any thread may send; one receives.

    It belongs to the process that made it. In a fork both directions are closed: what the other end hears is
    never said by two, and its end is seen, however long the forks of a process live.
    """

    def __init__(self, reader: io.FileIO, writer: io.FileIO, decoder: msgspec.json.Decoder[Received]) -> None:
        # Without buffers: a fork would inherit what is in them, and write it once more.
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._sending = threading.Lock()
        self._owner = os.getpid()
        _channels.add(self)

    @property
    def is_ours(self) -> bool:
        """False in a fork."""
        return os.getpid() == self._owner

    def send(self, message: msgspec.Struct) -> bool:
        """False if the other end is gone."""
        body = msgspec.json.encode(message)
        unsent = memoryview(len(body).to_bytes(4, "big") + body)
        if not self.is_ours:  # before the lock, which a thread that is not in the fork may hold
            return False
        try:
            with self._sending:
                while unsent:
                    unsent = unsent[self._writer.write(unsent) :]
        except (OSError, ValueError):  # a broken pipe; closed by us
            return False
        return True

    def receive(self) -> Received | None:
        """The next message, when there is one; None when the other end is gone."""
        head = self._read(4)
        length = 0 if head is None else int.from_bytes(head, "big")
        if head is None or length > LONGEST:
            return None  # gone, or writing what is not a message: a job may write to any file of its process
        body = self._read(length)
        return None if body is None else self._decoder.decode(body)

    def _read(self, length: int) -> bytearray | None:
        """None where it is cut off: whoever wrote it is gone."""
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
        """No more from here: the other end sees it. Any thread may."""
        # Not in the middle of a message, whose rest would go to whatever has the file's number next.
        held = self._sending.acquire(timeout=_PATIENCE)
        try:
            with contextlib.suppress(OSError):
                self._writer.close()
        finally:
            if held:
                self._sending.release()

    def close(self) -> None:
        """Let go of both directions. Only who receives may: the file must not be gone during a read."""
        self.hang_up()
        self._reader.close()

    def abandon(self) -> None:
        """In a fork: nothing is said or heard here."""
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
    """Without lone surrogates, which JSON can't say."""
    return text.encode(errors="replace").decode()

"""Messages between two processes of ours: JSON with its length before it. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import threading
from typing import BinaryIO, Generic, TypeVar

import msgspec

Received = TypeVar("Received")


class Channel(Generic[Received]):
    """One end. Any thread may send; one receives."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO, decoder: msgspec.json.Decoder[Received]) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = decoder
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> bool:
        """False if the other end is gone."""
        body = msgspec.json.encode(message)
        try:
            with self._sending:
                self._writer.write(len(body).to_bytes(4, "big") + body)
                self._writer.flush()
        except (OSError, ValueError):  # a broken pipe; closed by us
            return False
        return True

    def receive(self) -> Received | None:
        """The next message, when there is one; None when the other end is gone."""
        try:
            head = self._reader.read(4)
            length = int.from_bytes(head, "big")
            body = self._reader.read(length) if len(head) == 4 else b""
        except (OSError, ValueError):
            return None
        # Cut off in the middle: whoever wrote it was killed.
        return self._decoder.decode(body) if len(head) == 4 and len(body) == length else None

    def hang_up(self) -> None:
        """No more from here: the other end sees it. Any thread may."""
        with contextlib.suppress(OSError):  # what was buffered can't be delivered any more
            self._writer.close()

    def close(self) -> None:
        """Let go of both directions. Only who receives may: a read in another thread would hold it up."""
        self.hang_up()
        self._reader.close()


def storable(text: str) -> str:
    """Without lone surrogates, which JSON can't say."""
    return text.encode(errors="replace").decode()

"""A MongoDB server whose clock can be set: a proxy changes the time in its replies.

libfaketime is not usable here: it serialises all reads of the clock of mongod's forty threads, which took
minutes beside other load. A store learns the time of a MongoDB server from ``localTime`` in replies to hello,
and from nothing else, so a server with such a clock would answer with the same bytes.
"""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path

from tests.faults.proxy import Proxy

# A BSON element: the type of a datetime, the name, and milliseconds in 64 bits.
_LOCAL_TIME = re.compile(rb"\x09localTime\x00(.{8})", re.DOTALL)


class MongoClock(Proxy):
    """Forwards to a MongoDB server. Its time is that of the server plus what a file says, as ``-3600s``."""

    def __init__(self, target: int, file: Path) -> None:
        self._file = file
        super().__init__(target)

    def _receive(self, source: socket.socket, is_reply: bool) -> bytes:
        if not is_reply:
            return super()._receive(source, is_reply)
        length = _exactly(source, 4)  # a message begins with its length
        return _LOCAL_TIME.sub(self._moved, length + _exactly(source, int.from_bytes(length, "little") - 4))

    def _moved(self, element: re.Match[bytes]) -> bytes:
        seconds = int(self._file.read_text().strip().removesuffix("s"))
        (time,) = struct.unpack("<q", element[1])
        return element[0][:-8] + struct.pack("<q", time + seconds * 1000)


def _exactly(source: socket.socket, size: int) -> bytes:
    """Return so many bytes; none at the end of the connection."""
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data

"""What a process has begun, in memory that outlives it.

Whoever watches the process shares the memory, and when the process is gone tells what it was executing from
what it had only claimed. A message for each would cost more than a short run does.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections import deque
from hashlib import blake2b

_RECORD = 64
_HEAD = _RECORD
_LEFT, _FULL = 0, 1
_NOTHING = bytes(_RECORD)

here: Begun | None = None
"""That of this process, if somebody watches it."""


class Begun:
    """So many places for attempts. Their process writes; who watches reads, also when that is dead.

    A place is free again when the function has ended, which is before that is recorded in the store. So what
    is written there stays: the place is the last in line, and with enough of them its next attempt comes long
    after. What is still written of attempts that the store knows the end of does no harm.
    """

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, 0)
        # Taken and given back by any thread, without a lock: either is one atomic step.
        self._free = deque(range(_HEAD, len(self._memory), _RECORD))

    def add(self, run: str, attempt: int) -> int | None:
        """Right before a function is called; the answer is for ``remove``. 0.5 us with its share of that."""
        try:
            place = self._free.popleft()
        except IndexError:
            self._memory[_FULL] = 1  # from now on, nobody can tell
            return None
        self._memory[place : place + _RECORD] = _record(run, attempt)
        return place

    def remove(self, place: int) -> None:
        self._free.append(place)

    def leave(self) -> None:
        """This process ends in order, with nothing in hand but what the store did not take back."""
        self._memory[_LEFT] = 1

    def has_left(self) -> bool:
        """In order, that is."""
        return bool(self._memory[_LEFT])

    def snapshot(self) -> Snapshot:
        """All that was begun and is not recorded as ended, and some of what is."""
        if self._memory[_FULL]:
            return Snapshot(None)
        records = (self._memory[at : at + _RECORD] for at in range(_HEAD, len(self._memory), _RECORD))
        return Snapshot(frozenset(record for record in records if record != _NOTHING))

    def close(self) -> None:
        self._memory.close()


class Snapshot:
    """What a process had begun at some moment."""

    __slots__ = ("_records",)

    def __init__(self, records: frozenset[bytes] | None = None) -> None:
        """None: that can't be told, and everything may have been."""
        self._records = records

    def has(self, run: str, attempt: int) -> bool:
        return self._records is None or _record(run, attempt) in self._records


def make_file(places: int) -> io.FileIO:
    """A file in memory, for ``Begun`` in two processes."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("evenbeat-begun")
    else:
        number, path = tempfile.mkstemp("evenbeat-begun")
        os.unlink(path)
    file = io.FileIO(number, "r+b")
    file.truncate(_HEAD + places * _RECORD)
    return file


def _record(run: str, attempt: int) -> bytes:
    key = f"{attempt}/{run}".encode(errors="surrogatepass")
    return (key if len(key) <= _RECORD else blake2b(key).digest()).ljust(_RECORD, b"\0")

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
from typing import Literal

from evenbeat.processes.descriptors import DescriptorProbe

_RECORD = 64
"""The attempt and its run's id; the last byte says whether the function has ended."""
_KEY = _RECORD - 1
_HEAD = _RECORD
_LEFT, _FULL, _CLOSED = 0, 1, 2
_NOTHING = bytes(_KEY)

LOST_DESCRIPTORS = 74
"""The exit code of a process in which a job closed descriptors of others (EX_IOERR)."""

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
        self._probe: DescriptorProbe | None = None
        # Taken and given back by any thread, without a lock: either is one atomic step.
        self._free = deque(range(_HEAD, len(self._memory), _RECORD))

    def add(self, run: str, attempt: int) -> int | None:
        """Right before a function is called; the answer is for ``end``. Both together take 0.7 us."""
        try:
            place = self._free.popleft()
        except IndexError:
            self._memory[_FULL] = 1  # from now on, nobody can tell
            return None
        self._memory[place : place + _RECORD] = _key(run, attempt) + b"\0"
        return place

    def end(self, place: int) -> None:
        self.check_descriptors()  # before it counts as ended: the function that closed them is to blame
        self._memory[place + _KEY] = 1
        self._free.append(place)

    def watch_descriptors(self) -> None:
        """From now on, end this process when somebody closes its descriptors."""
        self._probe = DescriptorProbe()

    def check_descriptors(self) -> None:
        """End this process, at once and without a word to anybody, if its descriptors were closed.

        Whatever it writes may go into another file, such as a database, and so may what it logs. Whoever
        watches reads here why it ended.
        """
        if self._probe is not None and not self._probe.is_intact():
            self._memory[_CLOSED] = 1
            os._exit(LOST_DESCRIPTORS)

    def has_lost_descriptors(self) -> bool:
        return bool(self._memory[_CLOSED])

    def leave(self) -> None:
        """This process ends in order, with nothing in hand but what the store did not take back."""
        self._memory[_LEFT] = 1

    def has_left(self) -> bool:
        """In order, that is."""
        return bool(self._memory[_LEFT])

    def is_used(self) -> bool:
        """Whether anything was ever begun."""
        return self._memory[_HEAD : _HEAD + _KEY] != _NOTHING

    def snapshot(self) -> Snapshot:
        """All that was begun and is not recorded as ended, and some of what is."""
        if self._memory[_FULL]:
            return Snapshot()
        records = (self._memory[at : at + _RECORD] for at in range(_HEAD, len(self._memory), _RECORD))
        return Snapshot({record[:_KEY]: bool(record[_KEY]) for record in records if record[0]})

    def close(self) -> None:
        self._memory.close()


class Snapshot:
    """What a process had begun at some moment, and what of it was over."""

    __slots__ = ("_over", "is_executing")

    def __init__(self, over: dict[bytes, bool] | None = None) -> None:
        """None: nobody can tell, and everything may be going on."""
        self._over = over
        self.is_executing = over is None or not all(over.values())
        """Whether a function was going on at all."""

    def state(self, run: str, attempt: int) -> Literal["claimed", "executing", "ended"]:
        if self._over is None:
            return "executing"
        over = self._over.get(_key(run, attempt))
        return "claimed" if over is None else "ended" if over else "executing"


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


def _key(run: str, attempt: int) -> bytes:
    key = f"{attempt}/{run}".encode("utf-8", "surrogatepass")
    return (key if len(key) <= _KEY else b"#" + blake2b(key, digest_size=32).digest()).ljust(_KEY, b"\0")

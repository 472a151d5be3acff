"""The attempts that a process has begun, in memory that outlives the process.

The supervisor shares the memory. When the process is gone, the supervisor knows which attempts were executing
and which were only claimed. A message for each attempt would cost more than a short run does.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections import deque
from hashlib import blake2b
from typing import Literal

from evenbeat.core.records import RunRecord
from evenbeat.processes.descriptors import DescriptorProbe

_RECORD = 64
"""The size of a record: the attempt, a part of its claim, and its run's id; the last byte is 1 when the
function has ended."""
_KEY = _RECORD - 1
_CLAIM = 20
_HEAD = _RECORD
_LEFT, _FULL, _CLOSED = 0, 1, 2
_NOTHING = bytes(_KEY)

LOST_DESCRIPTORS = 74
"""The exit code of a process in which a job closed descriptors that it had not opened (EX_IOERR)."""

here: Begun | None = None
"""The memory of this process, if it has a supervisor."""


class Begun:
    """Places for attempts in shared memory. The process writes; its supervisor reads, also after its death.

    A place is free again when the function has ended, which is before the store knows the end. Therefore the
    record stays, and the place goes to the end of the line: with enough places, the next attempt overwrites
    it long after the end is recorded. Records of attempts whose end the store knows do no harm.
    """

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, 0)
        self._probe: DescriptorProbe | None = None
        # Threads take and return places without a lock: either is one atomic step.
        self._free = deque(range(_HEAD, len(self._memory), _RECORD))

    def add(self, run: RunRecord) -> int | None:
        """Record the attempt of a run right before its function is called; return the place for ``end``.

        Both together take 0.7 us.
        """
        try:
            place = self._free.popleft()
        except IndexError:
            self._memory[_FULL] = 1  # from now on, the snapshot is unknown
            return None
        self._memory[place : place + _RECORD] = _key(run) + b"\0"
        return place

    def end(self, place: int) -> None:
        """Record that the function of an attempt has ended."""
        self.check_descriptors()  # before it counts as ended: the function that closed them is to blame
        self._memory[place + _KEY] = 1
        self._free.append(place)

    def watch_descriptors(self) -> None:
        """End this process, from now on, when a job closes its descriptors."""
        self._probe = DescriptorProbe()

    def check_descriptors(self) -> None:
        """End this process at once, without a log line, if its descriptors were closed.

        Anything that it writes or logs may go into another file, such as a database. The supervisor reads the
        reason in the shared memory.
        """
        if self._probe is not None and not self._probe.is_intact():
            self._memory[_CLOSED] = 1
            os._exit(LOST_DESCRIPTORS)

    def has_lost_descriptors(self) -> bool:
        return bool(self._memory[_CLOSED])

    def leave(self) -> None:
        """Record that this process ends in order, and has handed back its runs if the store was available."""
        self.check_descriptors()  # without them it could not hand back anything
        self._memory[_LEFT] = 1

    def has_left(self) -> bool:
        """Return whether the process has ended in order."""
        return bool(self._memory[_LEFT])

    def is_used(self) -> bool:
        """Return whether any attempt has ever begun."""
        return self._memory[_HEAD : _HEAD + _KEY] != _NOTHING

    def snapshot(self) -> Snapshot:
        """Return all attempts that have begun and whose end the store does not know, and some others."""
        if self._memory[_FULL]:
            return Snapshot()
        records = (self._memory[at : at + _RECORD] for at in range(_HEAD, len(self._memory), _RECORD))
        return Snapshot({record[:_KEY]: bool(record[_KEY]) for record in records if record[0]})

    def close(self) -> None:
        self._memory.close()


class Snapshot:
    """The attempts that a process had begun at some moment, and which of them had ended."""

    __slots__ = ("_over", "is_executing")

    def __init__(self, over: dict[bytes, bool] | None = None) -> None:
        """``over`` is None if there were more attempts than places: any attempt may be executing."""
        self._over = over
        self.is_executing = over is None or not all(over.values())
        """Whether any function was executing."""

    def state(self, run: RunRecord) -> Literal["claimed", "executing", "ended"]:
        """Return how far the present attempt of a run was."""
        if self._over is None:
            return "executing"
        over = self._over.get(_key(run))
        return "claimed" if over is None else "ended" if over else "executing"


def make_file(places: int) -> io.FileIO:
    """Create a file in memory, for ``Begun`` in two processes."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("evenbeat-begun")
    else:
        number, path = tempfile.mkstemp("evenbeat-begun")
        os.unlink(path)
    file = io.FileIO(number, "r+b")
    file.truncate(_HEAD + places * _RECORD)
    return file


def _key(run: RunRecord) -> bytes:
    # The claim tells two runs of one id apart: the record of the earlier one may still be there. An id with a
    # slash is never given twice. A part of the claim is enough: with it, most keys fit without a hash.
    claim = "" if run.claim is None or "/" in run.id else run.claim[-_CLAIM:]
    key = f"{run.attempt}/{claim}/{run.id}".encode("utf-8", "surrogatepass")
    return (key if len(key) <= _KEY else b"#" + blake2b(key, digest_size=32).digest()).ljust(_KEY, b"\0")

"""The process that holds the write lock of a file, as the operating system reports it.

Linux lists all locks with their processes. This module never opens the file itself: closing it would
release every lock that this process has on it, also those of other connections.
"""

from __future__ import annotations

import os
from typing import NamedTuple

# SQLite's reserved byte in the file itself, and its write lock in the shared memory beside a write-ahead log.
_RESERVED = 0x4000_0001
_WAL_WRITE = 120
_LOCKS = "/proc/locks"


class _Lock(NamedTuple):
    pid: int
    inode: int
    first: int
    last: int


def write_lock_advice(path: str, locks: str = _LOCKS) -> str:
    """Return a message that names the holder of the lock, and what to do."""
    holder = _holder(path, locks)
    if holder == os.getpid():
        return (
            "this process holds the write lock itself, in a transaction on another connection: commit it or "
            "roll it back first; a run can be added within it: app.enqueue(…, within=connection)"
        )
    if holder is not None and holder > 0:
        return f"another process, {holder}, holds the write lock; try again"
    return (
        "another connection holds the write lock: try again. If it is your own, commit or roll back first; a "
        "run can be added within it: app.enqueue(…, within=connection)"
    )


def _holder(path: str, locks: str) -> int | None:
    """Return the process that holds the write lock; None if it is unknown."""
    places = {_inode(path): _RESERVED, _inode(f"{path}-shm"): _WAL_WRITE}
    try:
        with open(locks, encoding="ascii") as listed:
            held = [lock for line in listed if (lock := _read(line)) is not None]
    except (OSError, UnicodeDecodeError):
        return None
    for lock in held:
        place = places.get(lock.inode)
        if place is not None and lock.first <= place <= lock.last:
            return lock.pid
    return None


def _read(line: str) -> _Lock | None:
    """Read a line such as ``1: POSIX  ADVISORY  WRITE 4711 08:01:131 1073741825 1073741825``."""
    words = line.split()
    if len(words) != 8 or words[1] not in ("POSIX", "OFDLCK") or words[3] != "WRITE":
        return None
    try:
        inode = int(words[5].rpartition(":")[2])
        last = (1 << 63) if words[7] == "EOF" else int(words[7])
        return _Lock(int(words[4]), inode, int(words[6]), last)
    except ValueError:
        return None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None

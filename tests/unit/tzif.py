"""A reader of TZif files (RFC 8536): the transitions as the zone's own data lists them."""

from __future__ import annotations

import struct
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from zoneinfo import TZPATH


class History(NamedTuple):
    first: int
    """The offset before the first transition."""
    changes: tuple[tuple[int, int], ...]
    """(second, new offset) of each transition that changes the offset."""
    footer: str
    """The rule for the time after the last transition, as in the variable TZ."""
    last: int | None
    """The second of the last transition that the file lists, whether it changes the offset or not."""


def data(key: str) -> bytes:
    """The file that zoneinfo reads for ``key``."""
    for folder in TZPATH:
        path = Path(folder, key)
        if path.is_file():
            return path.read_bytes()
    return files("tzdata").joinpath("zoneinfo", key).read_bytes()


def history(content: bytes) -> History:
    # A file has two blocks: one with 32-bit times for old readers, and one with 64-bit times.
    _, size = _header(content, 0, 4)
    counts, length = _header(content, size, 8)
    body = content[size + 44 :]
    times = struct.unpack_from(f">{counts.times}q", body)
    indexes = body[8 * counts.times : 9 * counts.times]
    offsets = [struct.unpack_from(">lBB", body, 9 * counts.times + 6 * n)[0] for n in range(counts.types)]
    changes = []
    old = offsets[0]
    for second, index in zip(times, indexes, strict=True):
        if offsets[index] != old:
            old = offsets[index]
            changes.append((second, old))
    footer = content[size + length :].strip(b"\n").decode("ascii")
    return History(offsets[0], tuple(changes), footer, times[-1] if times else None)


class _Counts(NamedTuple):
    uts: int
    standards: int
    leaps: int
    times: int
    types: int
    characters: int


def _header(content: bytes, start: int, width: int) -> tuple[_Counts, int]:
    """The counts of a block, and its length with the header."""
    assert content[start : start + 4] == b"TZif"
    assert content[start + 4] >= ord("2")
    counts = _Counts(*struct.unpack_from(">6l", content, start + 20))
    length = 44 + counts.times * (width + 1) + counts.types * 6 + counts.characters
    return counts, length + counts.leaps * (width + 4) + counts.standards + counts.uts

"""Identities that clients choose before the first try."""

from __future__ import annotations

import os

from evenbeat.core.instants import Instant

_TAIL = 1 << 80
_last: tuple[Instant, int] = (0, 0)


def new_run_id(now: Instant) -> str:
    """An id for a run made by hand: when it was made, then 80 bits, as 32 hexadecimal digits.

    Ids of the same time stand together in a database's index. Random ones dirty a page each: with 200,000
    runs of history, adding, claiming and settling took about twice as long in the few runs measured.

    Within a millisecond they grow, so that what one thread enqueues first is first in its queue. By 56
    random bits each time: a forked child goes on from the same id as its parent, and must not meet it.
    """
    global _last
    # Without a lock, which a fork could leave taken: of two threads at once, either may come first.
    before, tail = _last
    tail = tail + 1 + int.from_bytes(os.urandom(7), "big") if before == now else _TAIL
    if tail >= _TAIL:
        tail = int.from_bytes(os.urandom(10), "big") >> 1
    _last = (now, tail)
    return f"{now & 0xFFFF_FFFF_FFFF:012x}{tail:020x}"

"""Ids of runs, which clients choose before the first try."""

from __future__ import annotations

import os
from hashlib import blake2b

from evenbeat.core.instants import Instant

_TAIL = 1 << 80
_HEXADECIMAL = frozenset("0123456789abcdef")
_last: tuple[Instant, int] = (0, 0)


def new_run_id(now: Instant) -> str:
    """Return an id for a run that has no tick: the time, then 80 bits, as 32 hexadecimal digits.

    Ids of the same time are neighbours in a database's index. Random ids write to a page each: with 200,000
    runs of history, adding, claiming and settling took about twice as long in the few runs measured.

    Within a millisecond ids grow, so that the runs of one thread keep their order in the queue. They grow by
    56 random bits each time: a forked child continues from the same id as its parent, and must not create the
    same.
    """
    global _last
    # Without a lock, which would stay locked in a fork. If two threads call at once, either may come first.
    before, tail = _last
    tail = tail + 1 + int.from_bytes(os.urandom(7), "big") if before == now else _TAIL
    if tail >= _TAIL:
        tail = int.from_bytes(os.urandom(10), "big") >> 1
    _last = (now, tail)
    return f"{now & 0xFFFF_FFFF_FFFF:012x}{tail:020x}"


def is_given_once(run_id: str, created_at: Instant) -> bool:
    """Return whether no other run ever gets this id: it is the id of a tick's run, or one of ``new_run_id``
    for the time at which the run was made. A user may give any other id again once the run is purged."""
    return "/" in run_id or (len(run_id) == 32 and run_id.startswith(f"{created_at & 0xFFFF_FFFF_FFFF:012x}"))


def lasting_key(run_id: str, created_at: Instant) -> str:
    """Return a key that no other run ever has: the id, followed by the time of its making if the id may be
    given again. Rows about a run that may outlive it have this key.

    No id has this form: the ids of ticks' runs have several slashes, and all others none.
    """
    return run_id if is_given_once(run_id, created_at) else f"{run_id}/{created_at}"


def id_of_key(key: str) -> str:
    """Return the id of the run that has this ``lasting_key``."""
    run_id, slash, _ = key.partition("/")
    return run_id if slash and key.count("/") == 1 else key


def made_at_by(run_id: str) -> Instant | None:
    """Return the time in an id of ``new_run_id``; None if the id has another form."""
    if len(run_id) != 32 or not _HEXADECIMAL.issuperset(run_id):
        return None
    return int(run_id[:12], 16)


def nonce_of(run_id: str, created_at: Instant, claim: str | None) -> str:
    """Return what ids that are derived from that of a claimed run contain besides: 48 bits of its claim.
    Empty if the id of the run is never given twice, so that the derived ones are not, either."""
    if claim is None or is_given_once(run_id, created_at):
        return ""
    return blake2b(claim.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def making_token(run_id: str, created_at: Instant) -> str | None:
    """Return the ``claim`` of a new run, which tells it from an earlier run of the same id; None if there is
    no earlier one."""
    return None if is_given_once(run_id, created_at) else os.urandom(16).hex()


_ALL_BITS = (1 << 128) - 1
_TIME_BITS = (1 << 48) - 1


def new_key(now: Instant) -> str:
    """Return a unique key of 32 hexadecimal digits that sorts before the keys of earlier times.

    Stores read records in the order of their keys: the newest come first.
    """
    return f"{_ALL_BITS - int(new_run_id(now), 16):032x}"


def instant_of(key: str) -> Instant:
    """Return the time of a key of ``new_key``."""
    return _TIME_BITS - int(key[:12], 16)


def first_key_of(instant: Instant) -> str:
    """Return the start of the keys of this millisecond: those of later ones sort before it."""
    return f"{_TIME_BITS - min(max(instant, 0), _TIME_BITS):012x}"

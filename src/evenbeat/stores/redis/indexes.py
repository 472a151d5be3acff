"""Checks of the indexes of runs: each run is in the indexes that its state demands, and in no others.

Scripts keep the indexes in the same step as the rows, so they differ only after a change by hand, a restored
part of a backup, or a defect. Each script compares a few hundred runs in one step, so a check may run beside
live nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from evenbeat.stores.redis.history import READ_LIMIT
from evenbeat.stores.redis.session import Session

_PREFIXES = ("newest:", "over:", "ready:", "ready.", "cohort:", "cohort.", "active:")
_ALONE = ("newest", "over", "leases")


def check(session: Session, limit: int, *, mend: bool) -> list[str]:
    """Return what differs, as "index: words", at most ``limit`` of it, and ``mend`` it."""
    found: list[str] = []
    base = session.location.base
    for names in _keys(session, f"{base}runs:*"):
        ids = [name.removeprefix("runs:") for name in names]
        found += _compared(session, ids, False, mend)
        if len(found) >= limit:
            return found[:limit]
    indexes = {name for names in _keys(session, f"{base}*") for name in names if _is_index(name)}
    for index in sorted(indexes):
        for ids in _members(session, base + index):
            found += _compared(session, ids, index, mend)
            if len(found) >= limit:
                return found[:limit]
    return found


def _compared(session: Session, ids: list[str], index: str | bool, mend: bool) -> list[str]:
    if not ids:
        return []
    (rows,) = session.run("check_runs", [ids, index, mend])
    if rows and mend:
        session.committed()
    return [f"{name}: {words}, {run}" for name, run, words in rows]


def _is_index(name: str) -> bool:
    return name in _ALONE or name.startswith(_PREFIXES)


def _keys(session: Session, pattern: str) -> Iterator[list[str]]:
    """Yield the names of keys, without the prefix of this store."""
    cursor = 0
    base = session.location.base
    while True:
        cursor, keys = session.execute("scan keys", "SCAN", cursor, "MATCH", pattern, "COUNT", READ_LIMIT)
        yield [key.removeprefix(base) for key in keys]
        if not int(cursor):
            return


def _members(session: Session, key: str) -> Iterator[list[str]]:
    """Yield the members of a sorted set, the last first: removing some moves those behind them."""
    if session.execute("read type", "TYPE", key) != "zset":
        return
    last = int(session.execute("count members", "ZCARD", key))
    while last > 0:
        first = max(0, last - READ_LIMIT)
        yield session.execute("read members", "ZRANGE", key, first, last - 1)
        last = first

"""Transactions that nobody will end.

The server keeps a transaction whose client died, and what it has written stays locked, until its lifetime of
60 s is over: it does not go by the connection. So who meets a conflict looks for transactions of Evenbeat in
which nothing was asked for some seconds, and ends them. A node sends the commands of a transaction one after
the other, without anything in between that takes time; one that was merely frozen is told that its
transaction is gone, and starts anew.
"""

from __future__ import annotations

import logging
import time

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.mongo.location import APPLICATION
from evenbeat.stores.mongo.session import Contended, Duplicate, Session

IDLE = 3.0
"""Seconds without a command, after which a transaction is taken for abandoned."""

_BETWEEN_LOOKS = 0.5

_log = logging.getLogger("evenbeat.store")


class AbandonedTransactions:
    """Looks no more often than needed."""

    def __init__(self) -> None:
        self._looked = 0.0

    def look(self, session: Session) -> None:
        now = time.monotonic()
        if now - self._looked < _BETWEEN_LOOKS:
            return
        self._looked = now
        try:
            ended = end(session)
        except (StoreUnavailable, Contended, Duplicate) as error:
            # Without the right to, the server's own limit has to do.
            _log.debug("can't look for abandoned transactions: %s", error)
            return
        if ended:
            _log.warning(
                "ended transactions of nodes that went silent", extra={"component": "store", "count": ended}
            )


def end(session: Session) -> int:
    """End what is abandoned; how many there were. Of one's own user: that takes no special right."""
    idle = {
        "type": "idleSession",
        "appName": APPLICATION,
        "transaction.timeInactiveMicros": {"$gt": int(IDLE * 1_000_000)},
    }
    found = session.admin_aggregate(
        [
            {"$currentOp": {"allUsers": False, "idleSessions": True}},
            {"$match": idle},
            {"$project": {"lsid": 1}},
        ]
    )
    sessions = [{"id": document["lsid"]["id"]} for document in found]
    if sessions:
        session.quietly({"killSessions": sessions})
    return len(sessions)

"""Ending the transactions of clients that died.

The server keeps the transaction of a client that died, with its locks, for 60 s: it does not notice the end
of the connection. So a node that meets a conflict searches for transactions of Evenbeat without a command
for some seconds, and ends them. A node sends the commands of a transaction one after the other, without
slow work in between. A node that was merely frozen learns that its transaction has ended, and repeats it.
"""

from __future__ import annotations

import logging
import time

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.mongo.location import APPLICATION
from evenbeat.stores.mongo.session import Contended, Duplicate, Session

IDLE = 3.0
"""After how many seconds without a command a transaction counts as abandoned."""

_BETWEEN_SEARCHES = 0.5

_log = logging.getLogger("evenbeat.store")


class AbandonedTransactions:
    """Searches for abandoned transactions, and not more often than needed."""

    def __init__(self) -> None:
        self._last_search = 0.0

    def end(self, session: Session) -> None:
        now = time.monotonic()
        if now - self._last_search < _BETWEEN_SEARCHES:
            return
        self._last_search = now
        try:
            ended = end_abandoned(session)
        except (StoreUnavailable, Contended, Duplicate) as error:
            # A user without the right to search has to wait for the server's own limit.
            _log.debug("cannot search for abandoned transactions: %s", error)
            return
        if ended:
            _log.warning(
                "ended abandoned transactions of other nodes", extra={"component": "store", "count": ended}
            )


def end_abandoned(session: Session) -> int:
    """End abandoned transactions of the same user, which needs no special right. Return how many there
    were."""
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

"""The warning that documents have no index on ``sleep_until``. Users create indexes, Evenbeat does not."""

from __future__ import annotations

import logging

MANY = 10_000
"""The number of documents above which a missing index is reported."""

_log = logging.getLogger("evenbeat.documents")


def warn(name: str, remedy: str) -> None:
    """Warn that many documents have no index, and show how to create one."""
    _log.warning(
        "there is no index on sleep_until, so each search reads all documents; create one: %s",
        remedy,
        extra={"component": "documents", "documents": name},
    )

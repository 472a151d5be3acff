"""An index on ``sleep_until``: ours to ask for, the user's to make."""

from __future__ import annotations

import logging

MANY = 10_000
"""Documents from which on an index is missed."""

_log = logging.getLogger("evenbeat.documents")


def warn(name: str, remedy: str) -> None:
    """Say that many documents have no index, and how to make one."""
    _log.warning(
        "there is no index on sleep_until, so that each look reads all documents; make one: %s",
        remedy,
        extra={"component": "documents", "documents": name},
    )

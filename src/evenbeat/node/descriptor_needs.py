"""How many files a node may have to open at once, compared with how many its process may open."""

from __future__ import annotations

from collections.abc import Mapping

from evenbeat.tasks.task import ExecutorKind

# A node at rest has 19 descriptors on SQLite, 13 on PostgreSQL. The rest is for probes, logs and alerts.
_OF_NODE = 64
# A job in a thread or coroutine has at least the connection that it waits for; one in a process, two pipes.
_OF_JOB: Mapping[ExecutorKind, int] = {"thread": 1, "async": 1, "process": 2}


def descriptors_needed(slots: Mapping[ExecutorKind, int]) -> int:
    """Return how many descriptors a node needs that executes this many runs at once."""
    return _OF_NODE + sum(_OF_JOB[kind] * most for kind, most in slots.items())


def shortage(slots: Mapping[ExecutorKind, int], limit: int | None) -> str | None:
    """Return a warning if a process that may open ``limit`` files is too small for these slots."""
    needed = descriptors_needed(slots)
    if limit is None or limit >= needed:
        return None
    settings = ", ".join(f"{kind}_concurrency={most}" for kind, most in slots.items())
    return (
        f"this process may open {limit:,} files, and with {settings} it may need {needed:,}: jobs and the "
        "store then fail with 'too many open files'. Raise the limit (ulimit -n, LimitNOFILE= of systemd, "
        "--ulimit nofile= of Docker), or lower the concurrency"
    )

"""Limits over all machines as users get them back."""

from __future__ import annotations

from datetime import datetime

import msgspec

from evenbeat.core.results import ChangeWarning


class LimitValue(msgspec.Struct, frozen=True, kw_only=True):
    """The runs with one value of a limit's key."""

    value: str
    """A long value is cut, and followed by ~ and a hash; a value that may be a secret is masked."""
    running: int
    waiting: int


class RunLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit over all machines, and the runs that it counts now."""

    name: str
    """What it limits: ``task=charge key=customer``. One limit exists for each name."""
    task: str | None
    queue: str | None
    tenant: str | None
    key: str | None
    """The field of the payload for each value of which the limit holds."""
    concurrency: int | None
    """At most so many runs at once."""
    rate: str | None
    """At most so many starts in a period: ``100/m``."""
    burst: int | None
    """How many starts the rate allows at once after a quiet time; None without a rate."""
    words: str
    """The limit in plain English."""
    running: int
    waiting: int
    """Due runs that it does not admit now. With a key, a run counts once a worker has looked at it."""
    oldest_waiting: datetime | None
    """Since when the oldest of the runs has been due of which some wait; None if none waits."""
    admits: int | None
    """How many more runs may start now; None with a key, since each value has its own number."""
    admits_at: datetime | None
    """When the rate admits the next run; None if it admits one now, if that depends on the end of a running
    run, and with a key."""
    values: tuple[LimitValue, ...]
    """With a key: the values with the most waiting, then the most running runs; at most 10."""
    value_count: int
    """How many values have active runs."""
    warnings: tuple[ChangeWarning, ...] = ()
    """In the result of ``set``: the task is not known. Empty elsewhere."""

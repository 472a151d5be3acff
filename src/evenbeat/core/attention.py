"""``Attention``: what needs somebody now, as users see it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.explanations import Fact

AttentionKind: TypeAlias = Literal[
    "late",
    "waiting",
    "failing",
    "stuck",
    "orphaned",
    "no_node",
    "no_ticker",
    "quarantined",
    "undelivered",
    "store_unsafe",
]
"""``late``: a tick has not fired for 30 s after its time. ``waiting``: runs of a queue have waited for over
10 minutes although live nodes could take them. ``failing``: the last run failed. ``stuck``: a run is running
much longer than its timeout or its earlier runs, or its worker is gone and no node took it over.
``orphaned``: due runs wait, and their schedule is deleted. ``no_node``: no live node takes the task of due
runs, or of coming ticks. ``no_ticker``: no live node fires schedules. ``quarantined``: nodes can't process a
schedule or a run. ``undelivered``: alerts were given up in the last 24 hours, or have been retried for more
than 10 minutes. ``store_unsafe``: a setting of the server may break a guarantee."""


class AttentionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that needs a person. Problems with the same cause are one item."""

    kind: AttentionKind
    level: Literal["fail", "warn"]
    """``fail``: jobs do not run, or fail. ``warn``: they may."""
    sentence: str
    evidence: tuple[Fact, ...]
    remedy: str | None
    """A command or a step that helps."""
    tenant: str | None = None
    """None if it is about the whole store."""
    schedule: str | None = None
    run: str | None = None
    """The id of the run."""
    task: str | None = None
    since: datetime | None = None
    count: int = 1
    """How many schedules, runs or alerts it is about; of a failing schedule, its failed runs in a row."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """What needs somebody now."""

    checked_at: datetime
    items: tuple[AttentionItem, ...]
    """The worst first, at most 50."""
    more: int
    """How many items are left out. At least so many, unless ``is_exact``."""
    is_exact: bool = True
    """Whether everything was read. Reading is bounded: of 700 late schedules, 500 are counted."""

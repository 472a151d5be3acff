"""Retention rules as users get them back: how long, and how many, ended runs are kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias, get_args

import msgspec

EndedState: TypeAlias = Literal["succeeded", "failed", "cancelled"]
ENDED_STATES: tuple[EndedState, ...] = get_args(EndedState)

SHORTEST_KEEP = 60_000
"""The shortest ``keep``, in milliseconds: nodes look once a minute."""
MOST_KEPT = 1_000_000
"""The largest ``most``: finding the end of the run in that place reads so many entries of an index."""
MOST_RULES = 500
"""The most rules of a store: nodes ask the store at least once a minute for each of them."""


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and how many, ended runs of a tenant and state are kept."""

    tenant: str | None
    """None: all tenants."""
    state: EndedState | None
    """None: every state of ended runs."""
    keep: timedelta | None
    """Runs that ended longer ago are deleted; None: a less specific rule, or the node's setting, decides."""
    most: int | None
    """Only so many runs, the newest, are kept; None: any number."""
    words: str
    """The rule as a sentence."""
    updated_at: datetime
    updated_by: str

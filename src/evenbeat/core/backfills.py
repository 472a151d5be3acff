"""Backfills as users get them back: runs for the ticks of a past range."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.core.records import Reason

BackfillOrder: TypeAlias = Literal["oldest", "newest"]
BackfillState: TypeAlias = Literal["dry_run", "running", "done", "cancelling", "cancelled"]
TickState: TypeAlias = Literal[
    "succeeded", "failed", "cancelled", "queued", "running", "skipped", "none", "unknown"
]
"""What became of a tick before: the state of its run; ``skipped``: the ledger has it; ``none``: it left no
record, as before the schedule existed; ``unknown``: nodes may have deleted its record."""

MOST_TICKS = 100_000
"""The most ticks of one backfill."""
MOST_CONCURRENT = 1_000
"""The highest ``max_concurrent`` of a backfill."""


class BackfillTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick in the range of a dry run."""

    tick: datetime
    state: TickState
    reason: Reason | None
    """Why it was skipped; None in any other state."""
    run: str | None
    """The id of the run that it had; None if it had none."""
    is_made: bool
    """Whether the backfill would add a run for it. False for succeeded ticks with ``missing_only``."""


class BackfillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill would do: the result of a dry run."""

    states: dict[TickState, int]
    """How many ticks of the range have each state."""
    unknown_before: datetime | None
    """Nodes may have deleted the history before this instant; None if the range begins later."""
    ticks: tuple[BackfillTick, ...]
    """The first ticks, in the order in which the backfill would run them; at most 200."""
    more: int
    """How many ticks follow these."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill: runs for the ticks of a schedule in a past range, and how far it is."""

    id: str
    tenant: str
    schedule: str
    state: BackfillState
    """``cancelling``: no further runs are added, and running ones have been asked to stop."""
    trigger: str
    """The trigger that the schedule had when the backfill was made. It decides which ticks there are."""
    start: datetime
    end: datetime
    """The range: ticks from ``start`` to before ``end``."""
    order: BackfillOrder
    max_concurrent: int
    priority: int
    payload: Any
    """The payload of all runs; None: each run gets the schedule's own."""
    missing_only: bool
    ticks: int
    """How many ticks the range has."""
    total: int
    """How many runs the backfill adds: as many as the range has ticks, or has without a succeeded run."""
    succeeded: int
    failed: int
    cancelled: int
    purged: int
    """Runs that were deleted before a node had counted their ends."""
    active: int
    """Runs that are queued or running, or about to be added."""
    left: int
    """Runs that are not added yet."""
    waits_for: str | None
    """Why it adds no runs at the moment, in words; None if it does."""
    failed_runs: tuple[str, ...]
    """The ids of the last failed runs, at most 20."""
    note: str
    """Why it ended early; empty if it did not, or if a user cancelled it."""
    created_at: datetime | None
    """None for a dry run."""
    created_by: str
    ended_at: datetime | None
    """When the last run had ended; None until then."""
    existed_since: datetime | None = None
    """When the same backfill was made before this call, which then adds nothing; None if there was none."""
    plan: BackfillPlan | None = None
    """Of a dry run: what the backfill would do."""

    @property
    def ended(self) -> int:
        """How many runs have ended."""
        return self.succeeded + self.failed + self.cancelled + self.purged

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None

"""What ``repair`` found in a store, and mended."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.explanations import Fact

RepairKind: TypeAlias = Literal["duplicate", "asleep", "unlisted", "lost", "uncancelled", "leftover", "index"]
"""``duplicate``: a tick was settled more than once. ``asleep``: an active schedule has no wake-up.
``unlisted``: a schedule does not tell one that waits for it of its successes. ``lost``: a running run has no
lease, or one that ended, and no node takes it over. ``uncancelled``: a queued run was asked to stop, and
nobody ended it. ``leftover``: a record that nothing needs any more. ``index``: an index of the store does not
agree with its rows (Redis)."""

RepairOutcome: TypeAlias = Literal["found", "mended", "changed", "left"]
"""``found``: a dry run changes nothing. ``mended``. ``changed``: somebody changed the row meanwhile, so it
was left alone. ``left``: only a person can decide."""


class RepairFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the store that is wrong."""

    kind: RepairKind
    tenant: str | None
    """None if it is about no tenant."""
    subject: str
    """The name of a schedule, the id of a run, or the name of a record or index."""
    what: str
    """What is wrong, as a sentence."""
    evidence: tuple[Fact, ...] = ()
    mending: str | None = None
    """What mending does; None if only a person can decide."""
    outcome: RepairOutcome = "found"


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What ``repair`` found, and mended."""

    checked_at: datetime
    dry_run: bool
    findings: tuple[RepairFinding, ...]
    is_exact: bool = True
    """Whether everything was read. Reading is bounded: duplicates are searched in the newest 100,000 runs."""

    @property
    def mended(self) -> int:
        """How many findings were mended."""
        return sum(finding.outcome == "mended" for finding in self.findings)

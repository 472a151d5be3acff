"""Marks that a unique run has ended, which outlive the run: its id is not given to another one. Pure."""

from __future__ import annotations

from evenbeat.core.ids import is_given_once
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord

KIND = "unique_end"
# Longer than a record of kind ``unique`` may name a run that does not exist: see ``unique_runs``.
KEPT = 30 * 3_600_000


def end_marks(run: RunRecord, now: Instant) -> tuple[Record, ...]:
    """Return the mark that the end of a run leaves, in the same step; nothing if the run is not unique.

    A record of kind ``unique`` names the run that holds the key. If that run is missing, it was not added
    yet, or it has ended and was purged: the mark tells. A run whose id a user has chosen has none: whether
    that id comes again is up to the user.
    """
    if run.unique_key is None or not is_given_once(run.id, run.created_at):
        return ()
    return (Record(kind=KIND, tenant=run.tenant, key=run.id, body="", expires=now + KEPT),)

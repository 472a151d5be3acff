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
    yet, or it has ended and was purged: the mark tells.
    """
    if run.unique_key is None:
        return ()
    key = mark_key(run.id, made_at(run))
    return (Record(kind=KIND, tenant=run.tenant, key=key, body="", expires=now + KEPT),)


def made_at(run: RunRecord) -> Instant | None:
    """Return what tells a run from an earlier one of the same id, for as long as the run exists; None if its
    id is never given twice. The run's ``claim`` does not: each claim replaces it."""
    return None if is_given_once(run.id, run.created_at) else run.created_at


def mark_key(run_id: str, made: Instant | None) -> str:
    """Return the key of the mark of a run. A user may choose an id again once its run is purged: the mark of
    the earlier run must not count for the later one. Chosen ids have no ``/``."""
    return run_id if made is None else f"{run_id}/{made}"

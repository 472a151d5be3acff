"""Runs that are new: those of ticks, those that follow from others, those that somebody adds."""

from __future__ import annotations

from collections.abc import Iterable

from evenbeat.core.records import RunRecord
from evenbeat.stores.rows import run_row
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.bulk import bulk
from evenbeat.stores.sqlite.session import Session


def insert(session: Session, runs: Iterable[RunRecord]) -> None:
    """Write runs, in their order; one whose id exists stays as it is."""
    rows = [run_row(run) for run in runs]
    together = bulk(rows)
    if together is None:
        session.many("insert runs", sql.INSERT_RUN, rows)
    else:
        session.run("insert runs", sql.insert_runs(together.expressions), together.values)

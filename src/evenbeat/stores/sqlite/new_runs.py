"""Insertion of new runs: of ticks, of transitions, and enqueued ones."""

from __future__ import annotations

from collections.abc import Iterable

from evenbeat.core.records import RunRecord
from evenbeat.stores.rows import run_row
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.bulk import bulk
from evenbeat.stores.sqlite.session import Session


def insert(session: Session, runs: Iterable[RunRecord]) -> None:
    """Insert runs in their order. A run whose id exists is not changed."""
    rows = [run_row(run) for run in runs]
    together = bulk(rows)
    if together is None:
        session.many("insert runs", sql.INSERT_RUN, rows)
    else:
        session.run("insert runs", sql.insert_runs(together.expressions), together.values)

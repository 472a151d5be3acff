"""Runs that are new: those of ticks, those that follow from others, those that somebody adds."""

from __future__ import annotations

from collections.abc import Iterable

from evenbeat.model import Run
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.commands import Commands
from evenbeat.stores.sqlite.rows import fresh_rows, run_row


def insert(commands: Commands, runs: Iterable[Run]) -> None:
    """Write runs, in their order; one whose id exists stays as it is."""
    rows = [run_row(run) for run in runs]
    fresh = fresh_rows(rows)
    if fresh is not None:
        commands.many("insert runs", sql.INSERT_FRESH_RUN, fresh)
    else:
        # All by one statement, since of two with the same id the first one counts.
        commands.many("insert runs", sql.INSERT_RUN, rows)

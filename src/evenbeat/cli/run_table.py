"""Runs as a table."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.states import duration, lateness, run_state
from evenbeat.core.results import Run


def run_table(runs: Sequence[Run], local: LocalTime, *, of_schedule: bool = False) -> Fitted:
    """Return a table of runs; ``of_schedule`` leaves the task out, since all have the same."""
    columns = [
        Column("run", [run.id for run in runs]),
        Column("state", [run_state(run) for run in runs]),
        Column("due", [local.near(run.scheduled_at) for run in runs]),
        Column("late", [lateness(run) for run in runs], drop=4, justify="right"),
        Column("took", [duration(run, local) for run in runs], drop=2, justify="right"),
        # Only of running ones: "runs show" has the worker of a run that is over.
        Column(
            "worker", [run.worker or "" if run.state == "running" else "" for run in runs], drop=3, wraps=12
        ),
        # Only from the second attempt on: most runs need one.
        Column("attempt", [str(run.attempt) if run.attempt > 1 else "" for run in runs], drop=5),
    ]
    if not of_schedule:
        columns.insert(2, Column("task", [run.task for run in runs], drop=1))
    return Fitted(columns)

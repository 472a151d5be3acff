"""Runs as a table."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.states import duration, lateness, run_state
from evenbeat.cli.wall import Wall
from evenbeat.core.results import Run


def run_table(runs: Sequence[Run], wall: Wall, *, of_schedule: bool = False) -> Fitted:
    """``of_schedule``: they are all of one, which need not be repeated."""
    columns = [
        Column("run", [run.id for run in runs]),
        Column("state", [run_state(run) for run in runs]),
        Column("due", [wall.near(run.scheduled_at) for run in runs]),
        Column("late", [lateness(run) for run in runs], drop=4, justify="right"),
        Column("took", [duration(run, wall) for run in runs], drop=2, justify="right"),
        # Of those that are over, who executed them is rarely asked: "show" tells.
        Column(
            "worker", [run.worker or "" if run.state == "running" else "" for run in runs], drop=3, wraps=12
        ),
        # The first attempt is what everybody expects.
        Column("attempt", [str(run.attempt) if run.attempt > 1 else "" for run in runs], drop=5),
    ]
    if not of_schedule:
        columns.insert(2, Column("task", [run.task for run in runs], drop=1))
    return Fitted(columns)

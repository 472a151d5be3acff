"""Schedules as a table."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.states import last_result, next_run, schedule_state
from evenbeat.core.results import Schedule, ScheduleStats


def schedule_table(
    rows: Sequence[Schedule],
    local: LocalTime,
    stats: Sequence[ScheduleStats] = (),
    *,
    show_tenants: bool = False,
) -> Fitted:
    """Return a table of schedules; with their statistics, it shows the last result of each.

    The tenants are shown if there are several, or ``show_tenants`` asks for them.
    """
    coming = [next_run(row, local) for row in rows]
    show_tenants = show_tenants or len({row.tenant for row in rows}) > 1
    return Fitted(
        [
            Column("tenant", [row.tenant if show_tenants else "" for row in rows]),
            Column("name", [row.name for row in rows]),
            Column("state", [schedule_state(row, local) for row in rows], wraps=14, lines=3),
            Column("next run", [when for when, _ in coming], drop=3),
            Column("", [away for _, away in coming], wraps=16, alone="next"),
            Column("trigger", [row.trigger for row in rows], drop=1, wraps=16, lines=2),
            Column("task", [row.task for row in rows], drop=4),
            Column("tags", [", ".join(row.tags) for row in rows], drop=5, wraps=16, lines=2),
            Column("by hand", [("edited", "magenta") if row.edited else "" for row in rows], drop=6),
            Column("last run", [last_result(each, local) for each in stats] or [""] * len(rows), drop=2),
        ]
    )

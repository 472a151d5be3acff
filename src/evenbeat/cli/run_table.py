"""Runs as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.states import STYLES, duration, lateness, run_state
from evenbeat.core.results import Run
from evenbeat.observe.phrases import count

# So many elements of a map are listed one by one.
_FEW = 3


class MapRuns(NamedTuple):
    """The elements of a map in a flow, which share a line."""

    first: Run
    states: Counter[str]

    @property
    def id(self) -> str:
        """The id of the elements, without their position in the list."""
        return self.first.id.rpartition("~")[0]


RunLine: TypeAlias = Run | MapRuns


def run_lines(runs: Sequence[Run]) -> list[RunLine]:
    """Return a line for each run; the elements of a map of a flow share one, unless they are few."""
    maps: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.flow is not None and run.flow.index is not None:
            maps.setdefault((run.flow.id, run.flow.step), []).append(run)
    lines: list[RunLine] = []
    for run in runs:
        elements = [] if run.flow is None else maps.get((run.flow.id, run.flow.step), [])
        if len(elements) <= _FEW:
            lines.append(run)
        elif run is elements[0]:
            lines.append(MapRuns(run, Counter(str(each.state) for each in elements)))
    return lines


def run_table(runs: Sequence[RunLine], local: LocalTime, *, of_schedule: bool = False) -> Fitted:
    """Return a table of runs; ``of_schedule`` leaves the task out, since all have the same."""
    firsts = [run.first if isinstance(run, MapRuns) else run for run in runs]
    alone = [None if isinstance(run, MapRuns) else run for run in runs]
    columns = [
        Column("run", [run.id for run in runs]),
        Column("state", [_state(run) for run in runs], wraps=12),
        Column("due", [local.near(run.scheduled_at) for run in firsts]),
        Column("late", ["" if run is None else lateness(run) for run in alone], drop=4, justify="right"),
        Column(
            "took", ["" if run is None else duration(run, local) for run in alone], drop=2, justify="right"
        ),
        # Only of running ones: "runs show" has the worker of a run that is over.
        Column("worker", ["" if run is None else _worker(run) for run in alone], drop=3, wraps=12),
        # Only from the second attempt on: most runs need one.
        Column(
            "attempt",
            [str(run.attempt) if run is not None and run.attempt > 1 else "" for run in alone],
            drop=5,
        ),
    ]
    if not of_schedule:
        columns.insert(2, Column("task", [_task(run) for run in runs], drop=1))
    return Fitted(columns)


def _state(run: RunLine) -> Cell:
    if not isinstance(run, MapRuns):
        return run_state(run)
    if len(run.states) == 1:
        (state,) = run.states
        return state, STYLES[state]
    words = ", ".join(f"{number:,} {state}" for state, number in sorted(run.states.items()))
    worst = next(state for state in ("failed", "cancelled", "running", "queued") if state in run.states)
    return words, STYLES[worst]


def _task(run: RunLine) -> str:
    if isinstance(run, MapRuns):
        return f"{run.first.task}, {count(run.states.total(), 'element')}"
    return f"{run.task}, flow" if run.kind == "flow" else run.task


def _worker(run: Run) -> str:
    return run.worker or "" if run.state == "running" else ""

"""Cells of time: the ticks of a schedule as a heat map, and those of many schedules as a timeline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.records import ScheduleState

CellLength: TypeAlias = Literal["hour", "day"]


class HeatCell(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks and runs of one hour or day. A tick belongs to the cell of its own time, and a run to the
    cell of its tick, whenever it ran."""

    at: datetime
    """The start, in the zone of the map."""
    end: datetime
    """The end, which belongs to the next cell. At a clock change, a day has 23 or 25 hours."""
    fired: int
    """Ticks that became runs."""
    succeeded: int
    """Runs, also those that a user started by hand."""
    failed: int
    cancelled: int
    running: int
    """Runs that have not ended: queued or running."""
    skipped: int
    """Ticks that did not become runs: the ledger has the reasons."""
    coalesced: int
    """Ticks that the run of a later tick stands for."""
    planned: int
    """Ticks that will fire; in the past, ticks that are due and have not fired yet."""
    paused: int
    """Ticks of the present pause, past and to come. Those of a pause that has ended are skipped ones."""


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the ticks of a schedule, and those to come, in cells of equal length."""

    tenant: str
    schedule: str
    zone: str
    """The zone whose clock the cells follow."""
    by: CellLength
    since: datetime
    """The start of the first cell."""
    until: datetime
    """The end of the last cell."""
    now: datetime
    counted_from: datetime
    """Earlier cells have no counts: their records are deleted, or lie before ``since``."""
    is_exact: bool
    """Whether each tick and run was counted. False: they are too many, and the figures that nodes write were
    counted instead: hours are those of UTC, and runs belong to the hour in which they ended. Also false if
    the ledger does not say in which cells ticks of an earlier trigger were skipped."""
    cells: tuple[HeatCell, ...]
    """All cells from ``since`` to ``until``, the earliest first."""


class TimelineCell(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of a schedule in one column of a timeline, by their own times."""

    at: datetime
    """The start of the column."""
    end: datetime
    """The end of the time that the cell stands for: that of the column. If the figures of a minute or an hour
    are counted in shorter columns, the cell stands for that time, as far as it has passed."""
    fired: int
    """Ticks that became runs."""
    failed: int
    """Runs that failed, also those that a user started by hand."""
    waiting: int
    """Runs that are queued or running, also those that a user started by hand. Their ticks count as fired."""
    skipped: int
    """Ticks that did not become runs of their own."""
    planned: int
    """Ticks that will fire; in the past, ticks that are due and have not fired yet."""
    paused: int
    """Ticks of the present pause, past and to come. Those of a pause that has ended are skipped ones."""


class TimelineLane(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule in a timeline."""

    tenant: str
    schedule: str
    state: ScheduleState
    is_exact: bool
    """Whether each tick was counted. False: they are too many, and the figures that nodes write were counted
    instead, by the minute or hour; or the ledger does not say when ticks were skipped."""
    cells: tuple[TimelineCell, ...]
    """The columns in which something is, the earliest first."""


class ScheduleTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of many schedules over a range, past and future."""

    since: datetime
    """The start of the first column."""
    until: datetime
    """The end of the last column."""
    now: datetime
    step: timedelta
    """The length of a column. There are at most 360 columns."""
    lanes: tuple[TimelineLane, ...]
    """One for each schedule, in the order of the list."""

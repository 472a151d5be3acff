"""The figures that users get back: statistics over time, failures by error, nodes, quarantine."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from evenbeat.core.records import Reason


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """The 50th, 95th and 99th percentile of measured lengths of time.

    They come from histograms whose buckets double, so each is at most a factor of two off.
    """

    count: int
    """How many lengths were measured."""
    p50: timedelta
    p95: timedelta
    p99: timedelta


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes counted in a period."""

    fired: int
    """Ticks that became runs."""
    skipped: dict[Reason, int]
    """Ticks that did not, by reason; ``coalesced`` ones are part of another run."""
    started: int
    """Attempts that began."""
    succeeded: int
    failed: int
    """Runs that failed for good, also those whose last attempt crashed."""
    cancelled: int
    """Runs that a worker ended as cancelled."""
    retried: int
    """Attempts that failed and are followed by another."""
    crashed: int
    """Attempts whose worker, or process, died."""
    released: int
    """Attempts that were handed back unfinished: the node stopped, or its code did not fit."""
    duration: Percentiles | None
    """How long attempts took that succeeded or failed; None if there were none."""
    lateness: Percentiles | None
    """How long after their planned time first attempts started; None if there were none."""


class FigurePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one minute or hour."""

    at: datetime
    """The start of the minute or hour."""
    nodes: int
    """How many nodes have written figures of this period; 0: none was alive, or none has written yet."""
    figures: Figures


class NamedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one schedule or task over the whole range."""

    tenant: str
    name: str
    figures: Figures


class FigureSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over time, from the records that nodes write once a minute."""

    since: datetime
    """The start of the first point."""
    until: datetime
    """The end of the last point."""
    by: Literal["minute", "hour"]
    points: tuple[FigurePoint, ...]
    """One for each minute or hour, the oldest first."""
    total: Figures
    is_complete: bool
    """False if runs of the schedule, task or tenant that was asked for are missing: a node counts only a
    bounded number of names separately."""
    schedules: tuple[NamedFigures, ...]
    """With ``top``: the schedules with the most runs, the busiest first."""
    tasks: tuple[NamedFigures, ...]
    """With ``top``: the tasks with the most runs, the busiest first."""


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed runs with the same error, apart from numbers, ids and quoted values."""

    id: str
    """Depends on the error alone: the same in every report."""
    error: str
    """The line that names the error; ``…`` stands for values that differ."""
    count: int
    newest: datetime
    """When the newest of these runs ended."""
    oldest: datetime
    tasks: tuple[str, ...]
    schedules: tuple[str, ...]
    tenants: tuple[str, ...]
    whole_error: str | None
    """The error of the newest of these runs, with its traceback."""
    runs: tuple[str, ...]
    """The ids of all of them, the newest first: ``app.runs.retry_all(ids=group.runs)`` retries them."""


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failed runs, grouped by their error."""

    since: datetime | None
    """No failed run since then is left out. None: the report has all of them."""
    until: datetime
    count: int
    """How many runs the groups have together."""
    more: bool
    """Whether there are more failed runs than the limit allowed."""
    groups: tuple[FailureGroup, ...]
    """The largest first."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A live node, as it described itself when it was last seen."""

    name: str
    host: str | None
    pid: int | None
    version: str | None
    started_at: datetime | None
    seen_at: datetime | None
    """When it last gave a sign of life. Nodes do so every 20 seconds."""
    ticker: bool
    """Whether it fires schedules."""
    worker: bool
    """Whether it executes runs."""
    tasks: dict[str, str]
    """The tasks that it executes, each with its executor."""
    queues: tuple[str, ...]
    slots: dict[str, int]
    """How many runs it executes at once, by executor."""
    running: int | None
    """How many runs it held when it was last seen."""
    code_only: tuple[str, ...] = ()
    """The schedules without a row that it plans in memory: ``durable=False``."""
    fallback_since: datetime | None = None
    """Since when it fires the schedules of its code from memory, because their rows can't be read."""


class QuarantineNote(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, or a run, that nodes can't process, and the reason."""

    kind: Literal["quarantine", "deferred"]
    """``quarantine``: the stored row can't be read, and sleeps until it is written again. ``deferred``: a
    node could not plan it, or the database refuses its run; nodes try again."""
    tenant: str
    name: str
    """The name of the schedule, or the id of the run."""
    reason: str
    remedy: str
    """What to do about it."""

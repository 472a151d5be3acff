"""Figures of a scheduler: statistics over time, failures by error, nodes, tenants and quarantine notes.

Statistics come from the rollups that nodes write. Only ``failures`` reads runs, and at most 1,000 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Literal, NamedTuple, get_args

from msgspec.structs import replace

from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_one_of
from evenbeat.core.durations import write_duration
from evenbeat.core.figures import (
    FailureGroup,
    FailureReport,
    FigurePoint,
    Figures,
    FigureSeries,
    NamedFigures,
    NodeView,
    Percentiles,
    QuarantineNote,
)
from evenbeat.core.instants import Instant, Moment, from_ms, read_moment
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, ScheduleState
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.presence import LiveNode, live_nodes
from evenbeat.node.rollups import read_rollups
from evenbeat.observe.attention import Quarantined
from evenbeat.rules import error_groups, rollups
from evenbeat.rules.dependencies import is_on_success
from evenbeat.rules.refusals import is_refusal
from evenbeat.rules.rollups import (
    KEPT,
    LENGTH,
    MOST_NAMES,
    By,
    Counts,
    Rollup,
    Tally,
    TenantCounts,
    new_tally,
    start_of,
)
from evenbeat.stores.base import VALUES, RunQuery, ScheduleQuery, Store, check_limit
from evenbeat.tasks.task import Task

MOST_FAILURES = 1_000
"""How many failed runs ``failures`` reads at most."""
_PAGE = 500
_DAY = 24 * rollups.HOUR

_REMEDIES = {
    "schedule": "'evenbeat quarantine show' says what is wrong; mend it and retry it, or drop it",
    "run": "it was set to failed: 'evenbeat quarantine show' says why; mend its row and retry it, or drop it",
    "refused": "fix what the database names (a trigger, a constraint, a key); nodes keep trying",
    "deferred": "look at the log of the nodes: time-zone data (pip install -U tzdata), open files, memory",
}


class FigureReader:
    """Reads the figures for a scheduler."""

    def __init__(self, session: AppSession) -> None:
        self._session = session

    # -- statistics ----------------------------------------------------------------------------------------

    def statistics(
        self, since: Moment, until: Moment | None, by: By | None, scope: Scope, top: int
    ) -> FigureSeries:
        store = self._session.store()
        by, start, end = _range(since, until, by, store.now())
        if not 0 <= top <= MOST_NAMES:
            raise InvalidValue(f"top {shown(top)} is not 0 to {MOST_NAMES}", field="top", value=top)
        sums = _Sums(scope, wants_names=top > 0)
        for written in read_rollups(store, by, start, end):
            sums.add(written.start, written.rollup)
        return FigureSeries(
            since=from_ms(start),
            until=from_ms(end),
            by=by,
            points=tuple(sums.point(at) for at in range(start, end, LENGTH[by])),
            total=_figures(sums.total),
            is_complete=sums.is_complete,
            schedules=_busiest(sums.schedules, top),
            tasks=_busiest(sums.tasks, top),
        )

    def scope(
        self, schedule: str | None, task: Task[..., Any] | str | None, tenant: str | None, all_tenants: bool
    ) -> Scope:
        """Return the part of all figures that a call asks for."""
        if schedule is not None and task is not None:
            raise InvalidValue(
                "figures are kept by schedule and by task, not by both together",
                field="task",
                value=task,
                hint="give schedule or task",
            )
        name = task.name if isinstance(task, Task) else task
        return Scope(None if all_tenants else self._session.tenant_of(tenant), schedule, name)

    # -- failures ------------------------------------------------------------------------------------------

    def failures(self, since: Moment | None, scope: Scope, limit: int) -> FailureReport:
        if not 1 <= check_limit(limit) <= MOST_FAILURES:
            raise InvalidValue(
                f"limit {limit} is not 1 to {MOST_FAILURES:,}",
                field="limit",
                value=limit,
                hint="give a later since, or choose a schedule or a task",
            )
        now = self._session.store().now()
        start = None if since is None else read_moment(since, "since", now, ago=True)
        runs, more = self._failed(start, scope, limit)
        grouped: dict[str, list[RunRecord]] = {}
        for run in runs:
            line = error_groups.normalised(error_groups.error_line(run.error))
            grouped.setdefault(line, []).append(run)
        groups = [_group(line, members) for line, members in grouped.items()]
        if more:
            start = min(run.created_at for run in runs)
        return FailureReport(
            since=None if start is None else from_ms(start),
            until=from_ms(now),
            count=len(runs),
            more=more,
            groups=tuple(sorted(groups, key=lambda group: (group.count, group.newest), reverse=True)),
        )

    def _failed(self, since: Instant | None, scope: Scope, limit: int) -> tuple[list[RunRecord], bool]:
        """Return the newest failed runs, and whether there are more."""
        query = RunQuery(
            tenant=scope.tenant,
            schedule=scope.schedule,
            task=scope.task,
            states=("failed",),
            since=since,
            without=VALUES,
            limit=min(limit, _PAGE),
        )
        found: list[RunRecord] = []
        while True:
            page = self._session.store().find_runs(query)
            found += page.items
            if page.cursor is None or len(found) >= limit:
                return found, page.cursor is not None
            query = replace(query, cursor=page.cursor, limit=min(limit - len(found), _PAGE))

    # -- nodes, tenants, quarantine ------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        return [_node(node) for node in live_nodes(self._session.store())]

    def of_tenants(self, only: str | None) -> dict[str, Tally]:
        """Return the figures of the last 24 hours of each tenant that has some, or of one."""
        now = self._session.store().now()
        found: dict[str, Tally] = {}
        for written in read_rollups(self._session.store(), "hour", now - _DAY, now):
            for tenant, counts in written.rollup.tenants.items():
                if only is None or tenant == only:
                    rollups.add_counts(found.setdefault(tenant, new_tally()), counts.total)
        return found


def read_quarantine(store: Store, owner: str | None, limit: int | None = None) -> list[Quarantined]:
    """Read the notes on schedules and runs that nodes can't process, at most ``limit`` of each kind."""
    notes = store.find_records("quarantine", owner, limit=limit)
    deferred = store.find_records("deferred", owner, limit=limit)
    keys = tuple((note.tenant, note.key) for note in notes)
    rows: dict[tuple[str, str], ScheduleRecord] = {}
    for at in range(0, len(keys), _PAGE):
        part = keys[at : at + _PAGE]
        query = ScheduleQuery(keys=part, states=get_args(ScheduleState), limit=len(part))
        rows |= {row.key: row for row in store.find_schedules(query).items}
    found: list[Quarantined] = []
    for note in notes:
        row = rows.get((note.tenant, note.key))
        known = _quarantined(note, row)
        if known is not None:
            found.append(Quarantined(known, is_run=row is None))
    for note in deferred:
        remedy = "refused" if is_refusal(note.body) else "deferred"
        found.append(Quarantined(_note("deferred", note, remedy), is_run=False))
    return sorted(found, key=lambda each: (each.note.tenant, each.note.name, each.note.kind))


class Scope(NamedTuple):
    """A part of all figures."""

    tenant: str | None
    """None: of all tenants."""
    schedule: str | None
    task: str | None


class _Sums:
    """The sums of rollups: by period, in all, and by name."""

    def __init__(self, scope: Scope, *, wants_names: bool) -> None:
        self._scope = scope
        self._wants_names = wants_names
        self._points: dict[Instant, Tally] = {}
        self._nodes: dict[Instant, int] = {}
        self.total = new_tally()
        self.schedules: dict[tuple[str, str], Tally] = {}
        self.tasks: dict[tuple[str, str], Tally] = {}
        self.is_complete = True

    def add(self, at: Instant, rollup: Rollup) -> None:
        """Add one node's figures of a period."""
        if rollup.ticker or rollup.worker:
            self._nodes[at] = self._nodes.get(at, 0) + 1
        for counts in self._counts(rollup):
            rollups.add_counts(self._points.setdefault(at, new_tally()), counts)
            rollups.add_counts(self.total, counts)
        if self._wants_names:
            for tenant, of_tenant in self._tenants(rollup):
                parts = ((self.schedules, of_tenant.schedules), (self.tasks, of_tenant.tasks))
                for names, raw in parts:
                    for name, each in rollups.read_named(raw).items():
                        tally = names.get((tenant, name))
                        if tally is None:
                            tally = names[tenant, name] = new_tally()
                        rollups.add_counts(tally, each)

    def point(self, at: Instant) -> FigurePoint:
        figures = _figures(self._points.get(at) or new_tally())
        return FigurePoint(at=from_ms(at), nodes=self._nodes.get(at, 0), figures=figures)

    def _tenants(self, rollup: Rollup) -> list[tuple[str, TenantCounts]]:
        if self._scope.tenant is None:
            return list(rollup.tenants.items())
        counts = rollup.tenants.get(self._scope.tenant)
        return [] if counts is None else [(self._scope.tenant, counts)]

    def _counts(self, rollup: Rollup) -> Iterator[Counts]:
        """Yield the counts inside the scope; note whether some may be missing."""
        scope, tenants = self._scope, self._tenants(rollup)
        name = scope.task if scope.schedule is None else scope.schedule
        if rollup.others is not None:
            if scope.tenant is None and name is None:
                yield rollup.others
            elif scope.tenant is None or not tenants:
                self.is_complete = False
        for _, counts in tenants:
            if name is None:
                yield counts.total
                continue
            named = rollups.read_named(counts.tasks if scope.schedule is None else counts.schedules)
            if name in named:
                yield named[name]
            elif counts.has_others:
                self.is_complete = False


def _range(since: Moment, until: Moment | None, by: By | None, now: Instant) -> tuple[By, Instant, Instant]:
    """Return the periods and their range: whole minutes or hours."""
    start = read_moment(since, "since", now, ago=True)
    end = now if until is None else min(now, read_moment(until, "until", now, ago=True))
    if end <= start:
        raise InvalidValue(
            f"since {shown(str(since))} is not before {'now' if until is None else f'until {until}'}",
            field="since",
            value=since,
            hint="give an earlier time, such as 1h, which counts back from now",
        )
    if by is None:
        by = "minute" if now - start <= KEPT["minute"] else "hour"
    check_one_of("by", by, tuple(LENGTH))
    if now - start > KEPT[by]:
        hint = 'by="hour" goes back 40 days' if by == "minute" else "give a later time"
        raise InvalidValue(
            f"since {shown(str(since))} is too long ago: figures by the {by} are kept for "
            f"{write_duration(KEPT[by])}",
            field="since",
            value=since,
            hint=hint,
        )
    length = LENGTH[by]
    first, last = start_of(by, start), start_of(by, end + length - 1)
    if by == "minute" and until is None:
        # Nodes write a minute when it is over.
        last = start_of(by, end)
    return by, first, max(last, first + length)


def _group(line: str, runs: list[RunRecord]) -> FailureGroup:
    by_end = sorted(runs, key=_ended, reverse=True)
    return FailureGroup(
        id=error_groups.group_id(line),
        error=line,
        count=len(runs),
        newest=from_ms(_ended(by_end[0])),
        oldest=from_ms(_ended(by_end[-1])),
        tasks=_distinct(run.task for run in runs),
        schedules=_distinct(run.schedule for run in runs),
        tenants=_distinct(run.tenant for run in runs),
        whole_error=by_end[0].error,
        runs=tuple(run.id for run in by_end),
    )


def _figures(tally: Tally) -> Figures:
    counts = rollups.to_counts(tally)
    return Figures(
        fired=counts.fired,
        skipped={reason: tally[at] for reason, at in rollups.SKIPPED.items() if tally[at]},
        started=counts.started,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
        retried=counts.retried,
        crashed=counts.crashed,
        released=counts.released,
        duration=_percentiles(tally[rollups.TOOK : rollups.LATE]),
        lateness=_percentiles(tally[rollups.LATE : rollups.TOOK_SUM]),
    )


def _percentiles(buckets: list[int]) -> Percentiles | None:
    p50, p95, p99 = (rollups.percentile(buckets, share) for share in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(
        count=sum(buckets),
        p50=timedelta(milliseconds=p50),
        p95=timedelta(milliseconds=p95),
        p99=timedelta(milliseconds=p99),
    )


def _busiest(tallies: dict[tuple[str, str], Tally], top: int) -> tuple[NamedFigures, ...]:
    """Return the figures of the names with the most attempts and ticks."""
    ranked = sorted(tallies.items(), key=lambda entry: (-sum(entry[1][: rollups.TOOK]), entry[0]))
    return tuple(
        NamedFigures(tenant=tenant, name=name, figures=_figures(tally))
        for (tenant, name), tally in ranked[:top]
    )


def _ended(run: RunRecord) -> Instant:
    return run.created_at if run.finished_at is None else run.finished_at


def _distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name is not None}))


def _node(node: LiveNode) -> NodeView:
    return NodeView(
        name=node.key,
        host=node.host,
        pid=node.pid,
        version=node.version,
        started_at=None if node.started_at is None else from_ms(node.started_at),
        seen_at=None if node.seen_at is None else from_ms(node.seen_at),
        ticker=node.ticker,
        worker=node.worker,
        tasks=dict(node.kinds),
        queues=node.queues,
        slots=dict(node.slots),
        running=node.running,
        code_only=node.code_only,
        fallback_since=None if node.fallback_since is None else from_ms(node.fallback_since),
    )


def _quarantined(note: Record, row: ScheduleRecord | None) -> QuarantineNote | None:
    """Return a note on a row that can't be read; None if the row was repaired in the database itself."""
    if row is None:
        return _note("quarantine", note, "run")
    is_asleep = row.state == "active" and row.wake_at is None and not is_on_success(row)
    return _note("quarantine", note, "schedule") if row.damage or is_asleep else None


def _note(kind: Literal["quarantine", "deferred"], note: Record, remedy: str) -> QuarantineNote:
    return QuarantineNote(
        kind=kind, tenant=note.tenant, name=note.key, reason=note.body, remedy=_REMEDIES[remedy]
    )

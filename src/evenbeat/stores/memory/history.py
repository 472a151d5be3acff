"""Runs, the ledger, statistics and logs of the store in memory: found, counted, purged."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec.structs import replace

from evenbeat.core.instants import FIRST, Instant
from evenbeat.core.records import ACTIVE_STATES, LogChunk, RunRecord, RunState, Skipped, Statistics
from evenbeat.stores.base import (
    EVERYTHING,
    LEFT_OUT,
    ActiveCounts,
    EndedRuns,
    Page,
    Purged,
    QueueCounts,
    RunQuery,
    check_limit,
)
from evenbeat.stores.memory.state import MemoryState
from evenbeat.stores.pages import read_run_cursor, run_page
from evenbeat.stores.queue_counts import active_counts, added_up, of_run


class MemoryHistory(MemoryState):
    """Finds, counts and purges what is stored about runs."""

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        after = read_run_cursor(query.cursor)
        with self._lock:
            candidates = self._runs.values()
            if query.ids is not None:
                candidates = {
                    run_id: self._runs[run_id] for run_id in query.ids if run_id in self._runs
                }.values()
            found = [run for run in candidates if query.matches(run)]
        found.sort(key=lambda run: (-run.created_at, run.id))
        if after is not None:
            found = [run for run in found if (-run.created_at, run.id) > (-after[0], after[1])]
        page = run_page(found, query.limit)
        if not query.without:
            return page
        left_out = {name: LEFT_OUT[name] for name in query.without}
        return Page(tuple(replace(run, **left_out) for run in page.items), page.cursor)

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        counts: dict[RunState, int] = {}
        with self._lock:
            for run in self._runs.values():
                if tenant is None or run.tenant == tenant:
                    counts[run.state] = counts.get(run.state, 0) + 1
        return counts

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        with self._lock:
            runs = list(self._runs.values())
        return added_up(part for run in runs if (part := of_run(run, now, since)) is not None)

    def count_active(self, now: Instant) -> list[ActiveCounts]:
        with self._lock:
            active = [run for run in self._runs.values() if run.state in ACTIVE_STATES]
        return active_counts(active, now)

    def find_skipped(
        self,
        tenant: str,
        schedule: str,
        limit: int = 100,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[Skipped]:
        check_limit(limit)
        with self._lock:
            rows = [
                row
                for row in self._skipped.get((tenant, schedule), ())
                if (since is None or row.last >= since) and (until is None or row.first < until)
            ]
        rows.sort(key=lambda row: (row.last, row.first), reverse=True)
        return rows[:limit]

    def statistics(self, schedules: Sequence[tuple[str, str]]) -> list[Statistics]:
        with self._lock:
            return [
                self._statistics.get(key) or Statistics(tenant=key[0], schedule=key[1]) for key in schedules
            ]

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        check_limit(limit)
        with self._lock:
            old = heapq.nsmallest(
                limit,
                (
                    run
                    for run in self._runs.values()
                    if run.state in runs.states and _is_selected(run, finished_before, runs)
                ),
                key=lambda run: run.finished_at or 0,
            )
            for run in old:
                del self._runs[run.id]
                self._logs.pop(run.id, None)
            gone = len(old)
            if runs.others:
                for rows in self._skipped.values():
                    over = [row for row in rows if row.recorded_at < finished_before][: limit - gone]
                    for row in over:
                        rows.remove(row)
                    gone += len(over)
                gone += self._records.purge(limit - gone)
            if gone < limit:
                return Purged(gone, finished_before)
            return Purged(gone, old[-1].finished_at or 0 if len(old) == limit and old else FIRST)

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        if position < 1:
            return None
        with self._lock:
            ends = (
                run.finished_at or 0
                for run in self._runs.values()
                if run.state in states and (tenant is None or run.tenant == tenant)
            )
            newest = heapq.nlargest(position, ends)
        return newest[-1] if len(newest) == position else None

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        with self._lock:
            for chunk in chunks:
                run = self._runs.get(chunk.run)
                if run is not None and chunk.run_created_at in (None, run.created_at):
                    if chunk.run_created_at is not None:
                        chunk = replace(chunk, run_created_at=None)
                    self._logs.setdefault(chunk.run, {}).setdefault((chunk.attempt, chunk.seq), chunk)

    def read_log(self, run: str) -> list[LogChunk]:
        with self._lock:
            chunks = self._logs.get(run, {})
            return [chunks[key] for key in sorted(chunks)]


def _is_selected(run: RunRecord, before: Instant, runs: EndedRuns) -> bool:
    ended = run.finished_at or 0
    return (
        ended < before
        and (runs.since is None or ended >= runs.since)
        and (run.tenant not in runs.spared if runs.tenant is None else run.tenant == runs.tenant)
        and not any(ended >= held.before and (run.fired_by or "").endswith(held.mark) for held in runs.held)
    )

"""The oracle of backfills: each tick of a range gets one run, few at a time, and each backfill ends."""

from __future__ import annotations

from collections import defaultdict

from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, RunRecord, ScheduleRecord
from evenbeat.rules.backfills import StoredBackfill
from tests.simulator.backends import Key, View
from tests.simulator.violation import Violation


class BackfillOracle:
    """Checks the backfills of a tenant after each commit."""

    def __init__(self) -> None:
        self._seen: dict[str, StoredBackfill] = {}
        self._view: View | None = None
        self._added: defaultdict[str, set[str]] = defaultdict(set)
        """The ids of the runs that each backfill has ever added."""
        self._ended: set[str] = set()
        """Those that have ended. Users may start them again, which no backfill counts."""

    def added(self, run: RunRecord) -> None:
        if run.cause != "backfill" or "~" in run.id:
            return
        runs = self._added[_key_of(run)]
        if run.id in runs:
            raise Violation(f"a backfill added {run.id} twice", run.id)
        runs.add(run.id)

    def observe(self, view: View) -> None:
        self._view = view
        for run_id in {run_id for runs in self._added.values() for run_id in runs} - self._ended:
            if run_id not in view.runs or view.runs[run_id].state in FINAL_STATES:
                self._ended.add(run_id)
        for key, backfill in view.backfills.items():
            before = self._seen.get(key)
            if backfill == before:
                continue
            if before is not None and before.is_over:
                raise Violation(f"backfill {key} was over, and became {backfill}", key)
            if backfill.outstanding > backfill.max_concurrent:
                raise Violation(f"backfill {key} has {backfill.outstanding} outstanding runs", key)
            self._seen[key] = backfill
        for key, runs in self._added.items():
            active = [run_id for run_id in runs - self._ended if view.runs[run_id].state in ACTIVE_STATES]
            if len(active) > self._seen[key].max_concurrent:
                raise Violation(f"runs of backfill {key} are active: {', '.join(sorted(active))}", key)

    def unfinished(self, now: Instant) -> str | None:
        """Return which backfill has work left that nothing holds up."""
        for key, backfill in self._seen.items():
            row = None if self._view is None else self._view.schedules.get(_owner(backfill))
            is_held_up = backfill.state == "running" and row is not None and _holds_up(row, now)
            if not backfill.is_over and not is_held_up:
                return f"backfill {key} is {backfill.state}"
        return None

    def check_all(self) -> None:
        for key, backfill in self._seen.items():
            added = len(self._added[key])
            counted = backfill.succeeded + backfill.failed + backfill.cancelled + backfill.purged
            if backfill.is_over and (
                counted != added or (backfill.state == "done" and added != backfill.total)
            ):
                raise Violation(
                    f"backfill {key} of {backfill.total} added {added}, and counts {counted}", key
                )


def _holds_up(row: ScheduleRecord, now: Instant) -> bool:
    """Return whether a schedule gets no runs of backfills: it is paused, or bounds its runs and has a tick
    that is due, which goes first."""
    is_bounded = row.overlap != "allow" or row.max_concurrent is not None
    return row.state == "paused" or (is_bounded and row.next_tick is not None and row.next_tick <= now)


def _owner(backfill: StoredBackfill) -> Key:
    return "default", backfill.schedule


def _key_of(run: RunRecord) -> str:
    return run.id.rsplit("/", 2)[1]

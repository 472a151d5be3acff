"""What became of the ticks of a backfill's range: reads their runs, the ledger, and earlier backfills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from evenbeat.app.tick_records import TickRecords, covered
from evenbeat.core.backfills import BackfillPlan, BackfillTick, TickState
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import Reason, RunRecord, ScheduleRecord
from evenbeat.node.pruner import purged_before
from evenbeat.rules.accounts import is_of_trigger, outcomes_of
from evenbeat.rules.backfills import KIND, StoredBackfill, read_backfill, run_id, trigger_of_backfill
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store

LISTED = 200
"""The most ticks that a plan names one by one."""
_PAGE = 500


class PastTicks:
    """What became of each tick of a range, before a backfill of it."""

    def __init__(self, store: Store, row: ScheduleRecord, wanted: StoredBackfill) -> None:
        self._store = store
        self._row = row
        self._zone = trigger_of_backfill(wanted).tzinfo
        self.ticks: list[Instant] = list(trigger_of_backfill(wanted).between_ms(wanted.start, wanted.end))
        self._found: dict[Instant, RunRecord | Reason] = {}
        self._purged: Instant | None = None
        self._read()
        # Read after the records: a node notes a purge before it deletes anything.
        self._purged = purged_before(store, row.tenant)

    @property
    def succeeded(self) -> frozenset[Instant]:
        """The ticks that have a succeeded run."""
        return frozenset(tick for tick in self.ticks if self._state(tick) == "succeeded")

    def plan(self, order: str, skipped: frozenset[Instant]) -> BackfillPlan:
        """Return what a backfill of these ticks would do, without those that are ``skipped``."""
        ordered = self.ticks if order == "oldest" else self.ticks[::-1]
        purged = self._purged
        is_cut = purged is not None and bool(self.ticks) and self.ticks[0] < purged
        return BackfillPlan(
            states=dict(Counter(self._state(tick) for tick in self.ticks)),
            unknown_before=from_ms(purged, self._zone) if is_cut and purged is not None else None,
            ticks=tuple(self._view(tick, tick not in skipped) for tick in ordered[:LISTED]),
            more=max(0, len(ordered) - LISTED),
        )

    def _view(self, tick: Instant, is_made: bool) -> BackfillTick:
        found = self._found.get(tick)
        return BackfillTick(
            tick=from_ms(tick, self._zone),
            state=self._state(tick),
            reason=found if isinstance(found, str) else None,
            run=found.id if isinstance(found, RunRecord) else None,
            is_made=is_made,
        )

    def _state(self, tick: Instant) -> TickState:
        found = self._found.get(tick)
        if found is None:
            return "unknown" if self._purged is not None and tick < self._purged else "none"
        return found.state if isinstance(found, RunRecord) else "skipped"

    def _read(self) -> None:
        row, records = self._row, TickRecords(self._store, self._row)
        if not self.ticks:
            return
        ledger = records.ledger(self.ticks[0], self.ticks[-1] + 1)
        present = (each for each in ledger if is_of_trigger(each, row))
        runs = records.runs_of(self.ticks, covered(self.ticks, present))
        for tick, record, _, _ in outcomes_of(row, self.ticks, runs, ledger):
            if record is not None:
                self._found[tick] = record
        for key, earlier in self._earlier():
            self._read_backfill(key, earlier)

    def _earlier(self) -> Iterable[tuple[str, StoredBackfill]]:
        """Yield the backfills of the same schedule that are known."""
        for record in self._store.find_records(KIND, self._row.tenant):
            found = read_backfill(record)
            if found is not None and found.schedule == self._row.name:
                yield record.key, found

    def _read_backfill(self, key: str, earlier: StoredBackfill) -> None:
        """Take a run of an earlier backfill where it is better than what is known of a tick."""
        row = self._row
        wanted = [
            tick
            for tick in self.ticks
            if earlier.start <= tick < earlier.end and self._state(tick) != "succeeded"
        ]
        for part in _parts(wanted):
            ids = tuple(run_id(row.tenant, row.name, key, tick) for tick in part)
            query = RunQuery(ids=ids, without=LARGE_FIELDS, limit=len(ids))
            for run in self._store.find_runs(query).items:
                known = self._found.get(run.tick or 0)
                if run.tick is not None and (run.state == "succeeded" or not isinstance(known, RunRecord)):
                    self._found[run.tick] = run


def _parts(ticks: Sequence[Instant]) -> Iterable[Sequence[Instant]]:
    return (ticks[at : at + _PAGE] for at in range(0, len(ticks), _PAGE))

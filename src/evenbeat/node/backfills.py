"""Backfills: adds the runs of past ranges, a few at a time, and counts their ends."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, ScheduleState
from evenbeat.errors import EvenbeatError, RowRefused, StoreUnavailable
from evenbeat.node.flows import End, FlowSettling
from evenbeat.rules import attempts
from evenbeat.rules import backfills as rules
from evenbeat.rules.backfills import BATCH, KIND, OPEN, StoredBackfill
from evenbeat.rules.firing import TICKS_A_STEP, Planned, needs_active
from evenbeat.rules.refusals import refusal_text
from evenbeat.rules.tenants import KEY, QUOTA, read_quota
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.pages import every_run

IDLE_EVERY = 30_000
"""Milliseconds between two looks for backfills that no end of a run has announced."""
BUSY_EVERY = 2_000
"""The same while there is one: it may wait for runs of other nodes, for a pause to end, or for room."""
ABANDONED_AFTER = 3_600_000
"""A note about a backfill that was never written is deleted so many ms later: its caller has died."""
_AT_ONCE = 10
"""How many backfills one step advances: the other duties of the node wait meanwhile."""
# A step goes on with one backfill for at most so many rounds, so that others get their turn.
_ROUNDS = 12
_PAGE = 500
_STATES: tuple[ScheduleState, ...] = ("active", "paused", "finished", "deleted")

_log = logging.getLogger("evenbeat.node.backfills")


class Backfiller:
    """A duty of each node: advances all backfills that are not over.

    Several nodes may do so at once: see ``rules.backfills``. Without a backfill, a step is one search that
    finds nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: list[Record] = []
        """The notes that this round has still to look at."""
        self._is_busy = False

    def step(self, now: Instant) -> Instant:
        if not self._left:
            self._left, self._is_busy = self._store.find_records(OPEN), False
        part, self._left = self._left[:_AT_ONCE], self._left[_AT_ONCE:]
        for note in part:
            self._is_busy = self._advance(note, now) or self._is_busy
        if self._left:
            return now
        return now + (BUSY_EVERY if self._is_busy else IDLE_EVERY)

    def _advance(self, note: Record, now: Instant) -> bool:
        """Advance one backfill; return whether it goes on."""
        try:
            found = advance(self._store, note.tenant, note.key, now)
        except StoreUnavailable:
            raise
        except EvenbeatError as error:
            # A time zone that this machine lacks, or a damaged schedule. Other backfills must go on.
            fields = {"component": "backfills", "backfill": note.key, "tenant": note.tenant}
            _log.warning("a backfill can't be advanced here: %s", error, extra=fields)
            return False
        if found is not None:
            return not found.is_over
        # One that a newer version wrote in another form is left to the nodes of that version.
        is_missing = self._store.get_record(KIND, note.tenant, note.key) is None
        if is_missing and now - _written_at(note) >= ABANDONED_AFTER:
            self._store.delete_record(OPEN, note.tenant, note.key, note.version)
        return False


def note_open(store: Store, tenant: str, key: str, now: Instant) -> None:
    """Write the note by which nodes find a backfill, unless it is there."""
    store.put_record(Record(kind=OPEN, tenant=tenant, key=key, body=str(now), version=secrets.randbits(53)))


def advance(store: Store, tenant: str, key: str, now: Instant) -> StoredBackfill | None:
    """Advance a backfill as far as it goes now, and return it; None if there is none, or if it can't be read.

    Counts the runs that have ended, and adds the next ones. Ends a backfill that has nothing left to do, and
    one whose schedule was deleted.
    """
    found: StoredBackfill | None = None
    for _ in range(_ROUNDS):
        step = _Step(store, tenant, key, now)
        found = step.backfill
        if found is None or not step.run():
            return step.backfill
        found = step.backfill
    return found


class _Step:
    """One round: read, decide, compare-and-set the record, write runs."""

    def __init__(self, store: Store, tenant: str, key: str, now: Instant) -> None:
        self._store = store
        self._tenant = tenant
        self._key = key
        self._now = now
        # In this order: see rules.backfills. The name of the schedule never changes.
        first = store.get_record(KIND, tenant, key)
        known = None if first is None else rules.read_backfill(first)
        self._row = None if known is None else _row(store, tenant, known.schedule)
        self._batches = self._read_batches() if known is not None else []
        self._record = store.get_record(KIND, tenant, key) if known is not None else None
        self.backfill = None if self._record is None else rules.read_backfill(self._record)

    def run(self) -> bool:
        """Do what is to do; return whether another round may do more at once."""
        before, row = self.backfill, self._row
        assert before is not None
        if before.is_over:
            self._clean_up()
            return False
        after = self._with_counts(rules.confirmed(before, self._batches))
        if after.state == "running" and rules.is_gone(after, row):
            after = rules.cancelled(after, note=f"schedule {after.schedule} was deleted")
        if after.state == "cancelled":
            return self._cancel(before, after)
        assert row is not None
        room, waits_for = self._room(row, after)
        after = rules.reserving(after, max(0, room - len(after.reserved)))
        waits_for = waits_for if not after.written and not (after.is_exhausted and not after.reserved) else ""
        after = rules.finished(replace(after, waits_for=waits_for), self._now)
        if not self._write(before, after):
            return True
        if after.is_over:
            self._clean_up()
            return False
        if not after.reserved or room <= 0:
            return False
        planned = rules.writing(row, self._key, after, room, self._now)
        try:
            accepted = self._store.put_schedules([Write(planned, row.version)])[0].accepted
        except RowRefused as refused:
            # The next look tries again. Until then the backfill says why it does not go on.
            self._write(after, replace(after, waits_for=refusal_text(refused.reason)))
            return False
        if accepted:
            self._store.hint()
        has_room = after.outstanding < after.max_concurrent and not after.is_exhausted
        return not accepted or (has_room and not needs_active(row)) or len(after.reserved) > room

    def _with_counts(self, backfill: StoredBackfill) -> StoredBackfill:
        self._runs = self._find_runs(backfill) if backfill.written else []
        return rules.counted(backfill, {run.tick: run for run in self._runs if run.tick is not None})

    def _find_runs(self, backfill: StoredBackfill) -> list[RunRecord]:
        ids = [rules.run_id(self._tenant, backfill.schedule, self._key, tick) for tick in backfill.written]
        found: list[RunRecord] = []
        for at in range(0, len(ids), _PAGE):
            part = tuple(ids[at : at + _PAGE])
            found += self._store.find_runs(RunQuery(ids=part, without=LARGE_FIELDS, limit=len(part))).items
        return found

    def _room(self, row: ScheduleRecord, backfill: StoredBackfill) -> tuple[int, str]:
        """Return how many runs may be written now; if none, why."""
        if words := rules.obstacle(row, self._now):
            return 0, words
        room = rules.policy_room(row, self._active(row), backfill.payload)
        if room <= 0:
            return 0, "the schedule's policies (overlap, max_concurrent) leave no room beside its active runs"
        quota = self._quota_room()
        return (0, "the tenant's quota of queued runs is used up") if quota <= 0 else (min(room, quota), "")

    def _active(self, row: ScheduleRecord) -> int:
        """Count the active runs of the schedule, if its policies depend on them. Read after the row: adding a
        run changes the row, so a stale answer loses the compare-and-set."""
        if not needs_active(row):
            return 0
        query = RunQuery(
            tenant=row.tenant,
            schedule=row.name,
            states=("queued", "running"),
            without=LARGE_FIELDS,
            limit=_PAGE,
        )
        return sum(1 for _ in every_run(self._store, query))

    def _quota_room(self) -> int:
        record = self._store.get_record(QUOTA, self._tenant, KEY)
        quota = None if record is None else read_quota(record)
        if quota is None or quota.queued_runs is None:
            return TICKS_A_STEP
        active = (each for each in self._store.count_active(self._now) if each.tenant == self._tenant)
        return quota.queued_runs - sum(each.due + each.later for each in active)

    def _cancel(self, before: StoredBackfill, after: StoredBackfill) -> bool:
        """Stop the runs of a cancelled backfill; return whether another round may do more at once."""
        if before.state == "running":
            self._write(before, after)  # first of all: no node reserves any more
            return True
        if after.reserved:
            if not self._refuse_late_writes(after):
                return True
            after = rules.without_reserved(rules.confirmed(after, self._read_batches()))
            self._write(before, after)
            return True
        asked = [
            (run, attempts.cancel(run, self._now, uuid4().hex)) for run in self._runs if not _is_asked(run)
        ]
        ends = [End(run, transition) for run, transition in asked if transition is not None]
        if ends:
            FlowSettling(self._store, "backfills").settle(ends, self._now)
        if any(run.state == "queued" for run in self._runs):
            return True  # the next round counts them
        after = rules.finished(after, self._now)
        if not self._write(before, after):
            return True
        if after.is_over:
            self._clean_up()
        return False

    def _refuse_late_writes(self, backfill: StoredBackfill) -> bool:
        """Touch the row of the schedule: what a node plans by an earlier version is refused from now on."""
        row = self._row
        if row is None or rules.is_gone(backfill, row):
            return True  # the deletion has changed the row, too
        touched = Planned(rules.touched(row, self._now))
        return self._store.put_schedules([Write(touched, row.version)])[0].accepted

    def _write(self, before: StoredBackfill, after: StoredBackfill) -> bool:
        """Write the record by compare-and-set; return False if another node was faster."""
        assert self._record is not None
        if after != before:
            # A version is never used twice: a late write must not match.
            record = rules.backfill_record(self._tenant, self._key, after, secrets.randbits(53))
            if not self._store.put_record(record, self._record.version):
                return False
            self.backfill, self._record = after, record
        for batch in self._batches:
            if rules.batch_number(batch) < after.batch:
                self._store.delete_record(BATCH, self._tenant, batch.key, batch.version)
        return True

    def _clean_up(self) -> None:
        """Delete what only a backfill that is not over needs; the note comes last."""
        for batch in self._read_batches():
            self._store.delete_record(BATCH, self._tenant, batch.key, batch.version)
        note = self._store.get_record(OPEN, self._tenant, self._key)
        if note is not None:
            self._store.delete_record(OPEN, self._tenant, self._key, note.version)

    def _read_batches(self) -> Sequence[Record]:
        start, end = rules.batch_range(self._key)
        return self._store.find_records(BATCH, self._tenant, start=start, end=end)


def _row(store: Store, tenant: str, name: str) -> ScheduleRecord | None:
    found = store.find_schedules(ScheduleQuery(keys=((tenant, name),), states=_STATES, limit=1)).items
    return found[0] if found else None


def _is_asked(run: RunRecord) -> bool:
    return run.state == "running" and run.cancel_requested


def _written_at(note: Record) -> Instant:
    try:
        return int(note.body)
    except ValueError:
        return 0

"""The records of a schedule's ticks: reads the runs and the rows of the ledger that ticks have left."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, takewhile

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.rules.accounts import is_of_trigger, is_tick, trigger_since
from evenbeat.rules.dependencies import PENDING, facts_of, is_on_success, pending_keys, predecessors
from evenbeat.rules.ticks import own_trigger, tick_run_id
from evenbeat.stores.base import LARGE_FIELDS, VALUES, RunQuery, Store
from evenbeat.stores.pages import cursor_at, every_run
from evenbeat.triggers import Trigger

_PAGE = 500
# A row of the ledger covers at least one tick, and an account has at most 100,000.
_MOST_ROWS = 200_000
# The most generations that are searched for one tick: each is one move by a user.
_MOST_GENERATIONS = 100
# The most ticks in a row that may have been moved to earlier times.
_MOST_MOVED = 100
# A user whose clock is behind may have moved a tick to a time before the last one that fired.
_CLOCKS_APART = 600_000
_NODE_CLOCKS_APART = 60_000
# The most runs that are read to find a moved tick, or a success.
_MOST_RUNS = 10_000
_MOST_PENDING = 10_000
# A tick of an unknown trigger is searched among the runs that were fired within this time.
FIRED_WITHIN = 3_600_000


def runs_since(store: Store, row: ScheduleRecord, start: Instant, page: int = _PAGE) -> Iterator[RunRecord]:
    """Yield the runs of a schedule that were created at ``start`` or later, the newest first, without their
    large fields.

    Reads the newest runs of the schedule page by page until one is older. A search with ``created_since``
    would read the runs of all schedules since then on SQLite: with 100 schedules it took three times as long.
    """
    query = RunQuery(tenant=row.tenant, schedule=row.name, without=LARGE_FIELDS, limit=page)
    # The clocks of the node that fires a tick and of the store differ a little.
    return takewhile(lambda run: run.created_at >= start - _NODE_CLOCKS_APART, every_run(store, query))


class TickRecords:
    """Reads what the ticks of one schedule have left in the store.

    With ``removed``, also the rows about ticks that calendars removed: the trigger of ``row`` has them.
    """

    def __init__(self, store: Store, row: ScheduleRecord, *, removed: bool = False) -> None:
        self._store = store
        self._row = row
        self._removed = removed

    def ledger(self, start: Instant, end: Instant) -> list[Skipped]:
        """Return the rows of the ledger with ticks in [start, end), the newest first."""
        row = self._row
        found = self._store.find_skipped(row.tenant, row.name, _MOST_ROWS, since=start, until=end)
        return [each for each in found if self._removed or each.reason != "calendar"]

    def runs_of(
        self, ticks: Sequence[Instant], recorded: Collection[Instant] = ()
    ) -> dict[Instant, list[RunRecord]]:
        """Return the runs of these ticks, which are in order.

        Moving a tick back begins a generation, and a later tick never has an earlier generation. So the
        search goes back in time, and asks for an earlier generation only if a tick has no run in the present
        one, is not ``recorded`` in the ledger, and should have fired.
        """
        found: dict[Instant, list[RunRecord]] = {}
        generation = self._row.generation
        for end in range(len(ticks), 0, -_PAGE):
            left: Sequence[Instant] = ticks[max(0, end - _PAGE) : end]
            lowest = max(1, generation - _MOST_GENERATIONS)
            for tried in range(generation, lowest - 1, -1):
                runs = self._read(left, tried)
                if runs:
                    generation = tried
                for run in runs:
                    assert run.tick is not None
                    found.setdefault(run.tick, []).append(run)
                left = [
                    tick
                    for tick in left
                    if tick not in found and tick not in recorded and self._is_past(tick)
                ]
                if not left:
                    break
        return found

    def _is_past(self, tick: Instant) -> bool:
        return self._row.next_tick is None or tick < self._row.next_tick

    def _read(self, ticks: Sequence[Instant], generation: int) -> tuple[RunRecord, ...]:
        row = self._row
        ids = tuple(tick_run_id(row, generation, tick) for tick in ticks)
        return self._store.find_runs(
            RunQuery(ids=ids, tenant=row.tenant, without=VALUES, limit=len(ids))
        ).items

    def fired_between(self, start: Instant, end: Instant) -> Iterator[RunRecord]:
        """Yield runs of ticks that were fired in [start, end], the latest first."""
        row = self._row
        query = RunQuery(
            tenant=row.tenant, schedule=row.name, without=VALUES, limit=_PAGE, cursor=cursor_at(end)
        )
        for run in islice(every_run(self._store, query), _MOST_RUNS):
            if run.created_at < start:
                return
            if run.cause == "tick" and run.tick is not None:
                yield run

    def successes(self, start: Instant, end: Instant) -> Iterator[Instant]:
        """Yield the ticks in [start, end) of the successful runs that this schedule follows; the end of a run
        that has no tick."""
        row = self._row
        if not is_on_success(row):
            return
        (name,) = predecessors(row.trigger, "")
        query = RunQuery(
            tenant=row.tenant,
            schedule=name,
            states=("succeeded",),
            without=VALUES,
            limit=_PAGE,
            cursor=cursor_at(end + FIRED_WITHIN),
        )
        for run in islice(every_run(self._store, query), _MOST_RUNS):
            if run.created_at < start - FIRED_WITHIN:
                return
            at = run.finished_at if run.tick is None else run.tick
            if at is not None and start <= at < end:
                yield at

    def pending_success(self, start: Instant, end: Instant) -> Instant | None:
        """Return the tick in [start, end) of a success that this schedule has not fired yet."""
        row = self._row
        if not is_on_success(row):
            return None
        first, last = pending_keys(row.name)
        found = self._store.find_records(PENDING, row.tenant, start=first, end=last, limit=_MOST_PENDING)
        successes = [each.success for each in facts_of({}, found, _MOST_PENDING).pending]
        ticks = (success.at if success.tick is None else success.tick for success in successes)
        return next((tick for tick in ticks if start <= tick < end), None)

    def failed_by_hand(self, start: Instant | None, end: Instant) -> RunRecord | None:
        """Return the latest run that a user started in [start, end] and that failed; None if there is none,
        or if a later run in that time succeeded. Reads one page."""
        row = self._row
        query = RunQuery(tenant=row.tenant, schedule=row.name, limit=_PAGE, cursor=cursor_at(end))
        for run in self._store.find_runs(query).items:
            if run.state == "succeeded" or (start is not None and run.created_at < start):
                return None
            if run.cause == "run_now" and run.state == "failed":
                return run
        return None

    def moved_from(self, tick: Instant, fired_by: Instant) -> RunRecord | Skipped | None:
        """Return the record of a moved tick that stands for this one, which has no record of its own.

        A move to an earlier time begins a generation. So of several ticks in a row without a record, each has
        been moved if there are as many generations of moved ticks before it. These fired until ``fired_by``.
        """
        trigger, edge = own_trigger(self._row), trigger_since(self._row)
        earlier = self._ticks_before(trigger, tick)
        start = earlier[0] if len(earlier) == _MOST_MOVED else edge
        ledger = self.ledger(start - _CLOCKS_APART, tick)
        rows = [row for row in ledger if is_of_trigger(row, self._row)]
        # A row about removed ticks may be written together with the moved one: it says nothing about order.
        gone = covered(earlier, (row for row in rows if row.reason == "calendar"))
        earlier = [before for before in earlier if before not in gone]
        rows = [row for row in rows if row.reason != "calendar"]
        passed = covered(earlier, (row for row in rows if row.reason == "rescheduled"))
        generations = self._generations(earlier, [row for row in rows if row.reason != "rescheduled"])
        generation, place = 0, 1
        recorded: tuple[Instant, int] | None = None
        for before in reversed(earlier):
            if before in generations:
                edge, generation = recorded = (before, generations[before])
                break
            # A tick that was passed over ahead of its time may be later than the moved one.
            place += before not in passed
        moved = {
            number: record
            for at, number, record in self._moved_back(trigger, edge - _CLOCKS_APART, fired_by, rows)
            # The newest record of the tick before may itself be that of a moved tick.
            if at < tick and (number > generation or (at, number) == recorded)
        }
        order = sorted(moved)
        return moved[order[place - 1]] if len(order) >= place else None

    def _moved_back(
        self, trigger: Trigger, start: Instant, fired_by: Instant, rows: Sequence[Skipped]
    ) -> Iterator[tuple[Instant, int, RunRecord | Skipped]]:
        """Yield the ticks that users moved to an earlier time: (tick, generation, record)."""
        runs = list(self.fired_between(start, fired_by))
        records: list[tuple[Instant | None, int | None, RunRecord | Skipped]] = [
            *((run.tick, run.generation, run) for run in runs),
            *((row.first, row.generation, row) for row in rows),
        ]
        for at, number, record in records:
            if at is None or number is None or _is_moved_on(trigger, at, number, rows):
                continue
            if not is_tick(trigger, at) or _begins_again(at, number, runs, rows):
                yield at, number, record

    def _ticks_before(self, trigger: Trigger, tick: Instant) -> list[Instant]:
        """Return some ticks of the present trigger before a tick, in order."""
        found: list[Instant] = []
        before = trigger.prev_ms(tick)
        while before is not None and before > trigger_since(self._row) and len(found) < _MOST_MOVED:
            found.append(before)
            before = trigger.prev_ms(before)
        return found[::-1]

    def _generations(self, ticks: Sequence[Instant], rows: Sequence[Skipped]) -> dict[Instant, int]:
        """Return the newest generation of the records that these ticks have."""
        found = covered(ticks, rows)
        for tick, runs in self.runs_of(ticks, found).items():
            found[tick] = max(found.get(tick, 0), *(run.generation or 0 for run in runs))
        return found


def _is_moved_on(trigger: Trigger, at: Instant, generation: int, rows: Iterable[Skipped]) -> bool:
    """Return whether a tick was moved to this later time: then the ticks before it were passed over."""
    before = trigger.prev_ms(at)
    return any(
        row.reason == "rescheduled" and row.generation == generation and row.last == before for row in rows
    )


def _begins_again(at: Instant, generation: int, runs: Iterable[RunRecord], rows: Iterable[Skipped]) -> bool:
    """Return whether a generation begins with this tick of the trigger, which has a record of an earlier one:
    then a user moved a later tick exactly onto it."""
    records = [(run.tick, run.tick, run.generation) for run in runs]
    records += [(row.first, row.last, row.generation) for row in rows]
    is_again = False
    for first, last, number in records:
        if first is None or last is None or number is None:
            continue
        if number == generation and first < at:
            return False
        is_again = is_again or (number < generation and first <= at <= last)
    return is_again


def covered(ticks: Sequence[Instant], rows: Iterable[Skipped]) -> dict[Instant, int]:
    """Return the ticks that rows cover, each with the newest generation of these."""
    found: dict[Instant, int] = {}
    for row in rows:
        for tick in ticks[bisect_left(ticks, row.first) : bisect_right(ticks, row.last)]:
            found[tick] = max(found.get(tick, 0), row.generation)
    return found

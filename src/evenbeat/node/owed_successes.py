"""Settles runs while the rows of schedules can't be used, and hands over to followers what is owed then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast, get_args

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord, ScheduleState, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.firing import Planned
from evenbeat.rules.owed import OWED, hand_over, needs_schedule, row_of, without_schedule
from evenbeat.stores.base import ScheduleQuery, Store, Write

_AT_ONCE = 100
# A node that died may have left records; each node looks for some this often.
_PERIOD = 60_000
_SOON = 1_000

_log = logging.getLogger("evenbeat.node.owed_successes")


def without_rows(store: Store, is_failing: Callable[[], bool], owes: Callable[[], None]) -> Store:
    """Return the store with a ``settle_runs`` that does not depend on the rows of schedules.

    If the store does not accept a settlement, the settlement is repeated without the part of the schedules.
    While ``is_failing``, it is tried without them at once. ``owes`` is called when a success may be owed.
    The first try may have taken effect: both have the same tokens, so the store accepts the second one as a
    repetition. A call that succeeds costs 0.3 us more.
    """
    return cast(Store, _WithoutRows(store, is_failing, owes))


class _WithoutRows:
    """Passes every other method on."""

    def __init__(self, store: Store, is_failing: Callable[[], bool], owes: Callable[[], None]) -> None:
        self._store = store
        self._is_failing = is_failing
        self._owes = owes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        if not self._is_failing():
            try:
                return self._store.settle_runs(transitions)
            except StoreUnavailable:
                if not needs_schedule(transitions):
                    raise
                with suppress(StoreUnavailable):
                    return self._settle(transitions)
                raise
        return self._settle(transitions)

    def _settle(self, transitions: Sequence[Transition]) -> list[bool]:
        now = self._store.now()
        answers = self._store.settle_runs([without_schedule(each, now) for each in transitions])
        self._owes()
        return answers


class OwedSuccesses:
    """Hands owed successes over to the followers of their schedules. Any number of nodes may do so."""

    def __init__(self, store: Store, is_failing: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self._is_failing = is_failing
        """Whether the rows of schedules can't be used now."""
        self._limit = _AT_ONCE

    def step(self, now: Instant) -> Instant:
        """Hand over what is owed. Without anything owed, this reads one entry of an index."""
        if self._is_failing():
            return now + _PERIOD
        found = self._store.find_records(OWED, limit=self._limit)
        if not found:
            return now + _PERIOD
        rows = self._read_rows(found)
        # After the rows: see rules/owed.py.
        present = self._store.find_records(OWED, limit=self._limit)
        known = {(record.tenant, record.key) for record in found}
        done = hand_over([each for each in present if (each.tenant, each.key) in known], rows, now)
        written = sum(self._write(planned, rows[planned.schedule.key]) for planned in done.plans)
        for record in done.useless:
            self._store.delete_record(OWED, record.tenant, record.key, record.version)
        if written:
            self._store.hint()
        if written or done.useless:
            self._limit = _AT_ONCE
            return now  # records for followers have come, and there may be more behind the first ones
        if len(found) == self._limit:
            # Rows that can't be written must not keep the others from being found.
            self._limit *= 2
        return now + _SOON if self._limit > _AT_ONCE or done.plans else now + _PERIOD

    def _write(self, planned: Planned, row: ScheduleRecord) -> bool:
        try:
            (written,) = self._store.put_schedules([Write(planned, row.version)])
        except StoreUnavailable:
            raise
        except Exception as error:
            fields = {"component": "owed successes", "schedule_id": row.name, "tenant": row.tenant}
            _log.error("successes can't be handed over to a schedule: %s", error, extra=fields)
            return False
        return written.accepted

    def _read_rows(self, records: Sequence[Record]) -> dict[tuple[str, str], ScheduleRecord]:
        keys = tuple(sorted({key for record in records if (key := row_of(record)) is not None}))
        if not keys:
            return {}
        query = ScheduleQuery(keys=keys, states=get_args(ScheduleState), limit=len(keys))
        return {row.key: row for row in self._store.find_schedules(query).items}

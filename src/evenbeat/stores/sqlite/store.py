"""The store: which part of it answers what, and in what kind of transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from evenbeat.errors import InvalidValue
from evenbeat.instants import Instant
from evenbeat.model import (
    LogChunk,
    Record,
    Run,
    RunState,
    Schedule,
    Skipped,
    Statistics,
    Transition,
)
from evenbeat.stores.base import (
    Claim,
    Claimed,
    Fired,
    Page,
    PlanFunction,
    RunQuery,
    ScheduleQuery,
    Write,
    Written,
    wall_clock,
)
from evenbeat.stores.sqlite import history, records, runs, schedules
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.commands import OnCommand
from evenbeat.stores.sqlite.connections import Connections
from evenbeat.stores.sqlite.rows import log_row
from evenbeat.stores.sqlite.wake import Waker


class SqliteStore:
    """Schedules and runs in an SQLite file, for any number of processes and threads of one host.

    ``busy_timeout``: how many seconds to wait for the write lock before StoreUnavailable. ``on_command``
    is told the name of each command before it is sent, and "committed" after each commit; whatever it
    raises comes out of the call, with the transaction rolled back if it was not committed.

    A store that is not open, or not any more, raises StoreUnavailable; ``open`` it (again).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Callable[[], Instant] = wall_clock,
        busy_timeout: float = 5.0,
        on_command: OnCommand | None = None,
    ) -> None:
        text = os.fspath(path)
        if text in ("", ":memory:") or "\0" in text:
            raise InvalidValue(
                "path is not that of a file", field="path", value=text, hint="use the store in memory"
            )
        # As it is meant now, whatever the working directory is later, and one name for one file.
        self.path = os.path.realpath(text)
        self._clock = clock
        self._connections = Connections(self.path, busy_timeout, on_command)
        self._waker = Waker(self.path)

    def open(self) -> None:
        self._connections.open()
        self._waker.open()

    def close(self) -> None:
        self._waker.close()
        self._connections.close()

    def now(self) -> Instant:
        return self._clock()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        with self._connections.write() as commands:
            return schedules.put(commands, writes)

    def find_schedules(self, query: ScheduleQuery) -> Page[Schedule]:
        with self._connections.read() as commands:
            return schedules.find(commands, query)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        now = min(now, self.now())
        # Most passes find nothing due: they look, and leave the write lock to others.
        with self._connections.read() as commands:
            next_wake = schedules.next_wake(commands)
        if next_wake is None or next_wake > now:
            return Fired((), next_wake)
        with self._connections.write() as commands:
            return schedules.fire(commands, now, limit, plan)

    def add_runs(self, wanted: Sequence[Run]) -> list[bool]:
        with self._connections.write() as commands:
            return runs.add(commands, wanted)

    def claim_runs(self, claim: Claim) -> Claimed:
        due = min(claim.now, self.now())
        # As in fire_due: an idle worker looks, and leaves the write lock to others.
        with self._connections.read() as commands:
            next_due, is_repetition = runs.outlook(commands, claim)
        if not is_repetition and (next_due is None or next_due > due):
            return Claimed((), next_due)
        with self._connections.write() as commands:
            return runs.claim(commands, claim, due, self.now())

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._connections.write() as commands:
            return runs.settle(commands, transitions, self.now())

    def find_runs(self, query: RunQuery) -> Page[Run]:
        if query.lease_ended_by is not None:
            query = replace(query, lease_ended_by=min(query.lease_ended_by, self.now()))
        with self._connections.read() as commands:
            return history.find(commands, query)

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        with self._connections.read() as commands:
            return history.count(commands, tenant)

    def find_skipped(self, tenant: str, schedule: str, limit: int = 100) -> list[Skipped]:
        with self._connections.read() as commands:
            return history.skipped(commands, tenant, schedule, limit)

    def statistics(self, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
        with self._connections.read() as commands:
            return history.statistics(commands, keys)

    def purge(self, finished_before: Instant, limit: int) -> int:
        with self._connections.write() as commands:
            return history.purge(commands, finished_before, limit, self.now())

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        with self._connections.read() as commands:
            return records.get(commands, kind, tenant, key, self.now())

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        with self._connections.write() as commands:
            return records.put(commands, record, expect, self.now())

    def find_records(self, kind: str, tenant: str | None = None) -> list[Record]:
        with self._connections.read() as commands:
            return records.find(commands, kind, tenant, self.now())

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        with self._connections.write() as commands:
            return records.delete(commands, kind, tenant, key, version)

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        with self._connections.write() as commands:
            commands.many("insert logs", sql.INSERT_LOG, [log_row(chunk) for chunk in chunks])

    def read_log(self, run: str) -> list[LogChunk]:
        with self._connections.read() as commands:
            return history.log(commands, run)

    def safety(self) -> tuple[str, str]:
        """(journal mode, synchronous) of the connections in use: what a power cut may take with it."""
        with self._connections.read() as commands:
            ((journal,),) = commands.rows("look", "PRAGMA journal_mode")
            ((synchronous,),) = commands.rows("look", "PRAGMA synchronous")
        return str(journal), ("off", "normal", "full", "extra")[synchronous]

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()

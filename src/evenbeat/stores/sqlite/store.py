"""The store on SQLite: executes each operation in a transaction."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    LogChunk,
    Record,
    RunRecord,
    RunState,
    ScheduleRecord,
    Skipped,
    Statistics,
    Transition,
)
from evenbeat.errors import InvalidValue, RowRefused, StoreUnavailable
from evenbeat.stores.base import (
    EVERYTHING,
    ActiveCounts,
    Claim,
    Claimed,
    EndedRuns,
    Fired,
    Lost,
    Page,
    PlanFunction,
    Purged,
    QueueCounts,
    RunQuery,
    ScheduleQuery,
    Schema,
    Setting,
    TenantCounts,
    Write,
    Written,
    check_limit,
)
from evenbeat.stores.batching import batches
from evenbeat.stores.decisions import weight
from evenbeat.stores.refusals import ClaimRefusals, Refusals, Selection
from evenbeat.stores.rows import log_row
from evenbeat.stores.sqlite import (
    claims,
    history,
    joining,
    records,
    runs,
    schedules,
    schema,
    server_checks,
    tenants,
)
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.connections import Connections
from evenbeat.stores.sqlite.left_out import SessionWithout
from evenbeat.stores.sqlite.session import OnCommand, Session
from evenbeat.stores.sqlite.waking import SocketTransport
from evenbeat.stores.waking import Waker
from evenbeat.stores.within import execute_within

# A call with more runs than this uses several transactions, so that other processes can write in between.
_RUNS_A_STEP = 10_000
# Seconds between two checks for commits without a hint.
_CHECK_SECONDS = 1.0


class _SeenVersions(threading.local):
    """The ``data_version`` that this thread last read on each connection."""

    def __init__(self) -> None:
        self.versions: WeakKeyDictionary[Session, int] = WeakKeyDictionary()


class SqliteStore:
    """Schedules and runs in an SQLite file, for any number of processes and threads of one host.

    ``busy_timeout``: how many seconds to wait for the write lock before StoreUnavailable. The store calls
    ``on_command`` with the name of each command before it executes the command, and with "committed" after
    each commit. If ``on_command`` raises, the store rolls back a transaction that it has not committed, and
    the caller gets the exception.

    Calls before ``open`` or after ``close`` raise StoreUnavailable.
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
                "path is not the path of a file", field="path", value=text, hint="use the store in memory"
            )
        # Absolute: the working directory may change. Without links: one name for one file.
        self.path = os.path.realpath(text)
        self._clock = clock
        self._connections = Connections(self.path, busy_timeout, on_command)
        self._sockets = SocketTransport(self.path)
        self._waker = Waker(self._sockets)
        self._seen = _SeenVersions()
        self._refusals = Refusals()
        self._claim_refusals = ClaimRefusals()

    def open(self) -> None:
        self._connections.open()
        self._waker.open()

    def open_to_join(self) -> bool:
        """Open the file if it has its tables and its write-ahead log; return whether it has them.

        Creating them takes the write lock, which the caller's transaction may hold. So ``add_runs_within``
        creates missing tables over the caller's connection.
        """
        if not server_checks.is_made(self.path):
            return False
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()
        self._sockets.remove_folder()
        self._connections.close()

    def schema(self) -> Schema:
        found = server_checks.schema_version(self.path)
        return Schema(found, schema.KNOWN, schema.schema_sql(found) if found < schema.KNOWN else "")

    def server(self) -> list[Setting]:
        with self._connections.read() as session:
            return server_checks.settings(session)

    def now(self) -> Instant:
        return self._clock()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        with self._connections.write() as session:
            return schedules.put(session, writes, self.now())

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        with self._connections.read() as session:
            return schedules.find(session, query)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        check_limit(limit)
        now = min(now, self.now())
        # Most calls find nothing due: they only read, without the write lock.
        with self._connections.read() as session:
            next_wake = schedules.next_wake(session, self._refusals.left_out(now))
        if next_wake is None or next_wake > now:
            return Fired((), self._refusals.next_wake(next_wake, now))

        def fire(selection: Selection, plan: PlanFunction) -> Fired:
            with self._connections.write() as session:
                return schedules.fire(session, selection, now, plan, self.now())

        return self._refusals.fire(fire, now, limit, plan)

    def add_runs(self, wanted: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        answers: list[bool] = []
        for part in batches(wanted, _RUNS_A_STEP, lambda run: len(run.payload)):
            with self._connections.write() as session:
                # With the write lock: no purge comes between the look at the clock and the commit.
                is_late = before is not None and self.now() >= before
                answers += [False] * len(part) if is_late else runs.add(session, part)
        return answers

    def add_runs_within(
        self, connection: object, wanted: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        is_late = None if before is None else lambda: self.now() >= before
        return execute_within(connection, joining.adding(self.path, wanted, is_late))

    def claim_runs(self, claim: Claim) -> Claimed:
        return self._claim_refusals.claim(self._claim, claim, self.now)

    def _claim(self, claim: Claim) -> Claimed:
        now = self.now()
        due = min(claim.now, now)
        # As in fire_due: a call that takes nothing only reads, without the write lock.
        with self._connections.read() as session:
            session = SessionWithout(session, claim.without) if claim.without else session
            found = claims.outlook(session, claim)
            nothing = claims.take_nothing(session, claim, found, due, now)
        if nothing is not None:
            return nothing
        with self._connections.write() as session:
            session = SessionWithout(session, claim.without) if claim.without else session
            return claims.claim(session, claim, found, due, self.now())

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers: list[bool] = []
        for part in batches(transitions, _RUNS_A_STEP, weight):
            with self._connections.write() as session:
                accepted, wakes = runs.settle(session, part, self.now())
            answers += accepted
            if wakes:
                self.hint()
        return answers

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        with self._connections.read() as session:
            return history.find(session, query)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        check_limit(limit)
        ended_by = min(ended_by, self.now())
        with self._connections.read() as session:
            lost, unreadable = runs.lost(session, ended_by, limit)
        if unreadable:
            with self._connections.write() as session:
                runs.fail_unreadable(session, ended_by, limit, self.now())
        return lost

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        with self._connections.read() as session:
            return history.count(session, tenant)

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        with self._connections.read() as session:
            return history.count_queues(session, now, since)

    def count_active(self, now: Instant) -> list[ActiveCounts]:
        with self._connections.read() as session:
            return history.count_active(session, now)

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
        with self._connections.read() as session:
            return history.skipped(session, tenant, schedule, limit, since, until)

    def statistics(self, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
        with self._connections.read() as session:
            return history.statistics(session, keys)

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        check_limit(limit)
        with self._connections.read() as session:
            over = history.over(session, finished_before, limit, runs)
        if not over and not runs.others:
            return Purged(0, finished_before)
        try:
            with self._connections.write() as session:
                return history.purge(session, over, finished_before, limit, runs, self.now())
        except RowRefused:
            with self._connections.write() as session:
                return history.purge_in_parts(session, finished_before, limit, runs, self.now())

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        with self._connections.read() as session:
            return history.ended_at(session, position, tenant, states)

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        return []

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        with self._connections.read() as session:
            return records.get(session, kind, tenant, key, self.now())

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        with self._connections.write() as session:
            return records.put(session, record, expect, self.now())

    def find_records(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        if limit is not None:
            check_limit(limit)
        with self._connections.read() as session:
            return records.find(session, kind, tenant, self.now(), start=start, end=end, limit=limit)

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        with self._connections.write() as session:
            return records.delete(session, kind, tenant, key, version)

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        with self._connections.read() as session:
            return tenants.count(session, tenant)

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        check_limit(limit)
        with self._connections.write() as session:
            return tenants.purge(session, tenant, kinds, limit)

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        with self._connections.write() as session:
            rows = [(*log_row(chunk), chunk.run, chunk.run_created_at) for chunk in chunks]
            session.many("insert logs", sql.INSERT_LOG, rows)

    def read_log(self, run: str) -> list[LogChunk]:
        with self._connections.read() as session:
            return history.log(session, run)

    def wait(self, timeout: float) -> bool:
        """Wait for a hint, or for a commit without a hint, which this method notices within a second: users'
        own connections send no hint when they enqueue a run within their transaction."""
        deadline = time.monotonic() + timeout
        if self._is_changed(unless_known=False):
            return True
        while True:
            left = deadline - time.monotonic()
            if self._waker.wait(min(left, _CHECK_SECONDS)) or self._is_changed(unless_known=True):
                return True
            if left <= _CHECK_SECONDS:
                return False

    def _is_changed(self, *, unless_known: bool) -> bool:
        """Return whether any connection has committed since this thread last asked; ``unless_known`` if this
        thread has never asked on this connection.

        Takes 10 us, and reads no page of the file. SQLite counts the commits separately for each connection.
        """
        try:
            with self._connections.read() as session:
                ((version,),) = session.rows("select commit count", "PRAGMA data_version")
                before = self._seen.versions.get(session)
                self._seen.versions[session] = version
        except StoreUnavailable:
            return False  # the store is closed or unavailable: the caller's next call reports it
        return unless_known if before is None else before != version

    def hint(self) -> None:
        self._waker.hint()

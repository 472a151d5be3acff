"""The store on PostgreSQL: the transaction of each operation."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import psycopg

from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    FORMAT,
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
from evenbeat.stores.postgres import (
    claims,
    history,
    joining,
    outlook,
    records,
    runs,
    schedules,
    schema,
    server_checks,
    tenants,
    upgrades,
)
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.connections import Connections, Timeouts
from evenbeat.stores.postgres.left_out import TransactionWithout, without_runs
from evenbeat.stores.postgres.location import read_location
from evenbeat.stores.postgres.session import OnCommand, Transaction
from evenbeat.stores.postgres.waking import NotifyTransport
from evenbeat.stores.refusals import ClaimRefusals, Refusals, Selection, write_each
from evenbeat.stores.server_clock import ServerClock
from evenbeat.stores.waking import Waker
from evenbeat.stores.within import execute_within

_log = logging.getLogger("evenbeat.store")

# How many times put_schedules decides again because another node has created a schedule at the same moment.
_TRIES = 5
# More runs than this in one call are several transactions: other nodes must be able to write in between.
_RUNS_A_STEP = 10_000
# An upgrade waits for other nodes that upgrade, and its statements may take long.
_UPGRADE = Timeouts(timeout=600, lock_timeout=60)


class PostgresStore:
    """Schedules and runs in a schema of a PostgreSQL database, for any number of nodes.

    ``url``: as for libpq, with the additional options ``schema`` and ``listen`` (a URL for LISTEN, or
    ``off``); the arguments of these names override them. ``clock`` replaces the server's clock, in tests.
    ``timeout``: how many seconds to wait for a connection, and for an answer; ``lock_timeout``: for rows
    that others have locked. ``on_command`` is called with the name of each round trip before it is sent,
    and with "committed" after each commit. An exception that it raises leaves the call, and the transaction
    is rolled back unless it was committed.

    Calls before ``open`` or after ``close`` raise StoreUnavailable.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], Instant] | None = None,
        *,
        schema: str | None = None,
        listen: str | None = None,
        timeout: float = 5.0,
        lock_timeout: float = 5.0,
        on_command: OnCommand | None = None,
    ) -> None:
        self.location = read_location(url, schema, listen, timeout)
        self._given_clock = clock
        # Without a reference to the store: its listener thread ends when the store is dropped.
        self._server_clock = ServerClock(lambda: _read_clock(connections))
        timeouts = Timeouts(timeout, lock_timeout)
        connections = Connections(self.location, timeouts, self._server_clock, on_command)
        self._connections = connections
        self._refusals = Refusals()
        self._claim_refusals = ClaimRefusals()
        self._more_is_due = False
        """Whether the last fire has left due schedules, or has failed to find out."""
        self._guesses: dict[tuple[tuple[str, ...], frozenset[str] | None], outlook.Guess] = {}
        """What was due after the last claim, by queues and tasks of claims."""
        self._waker = Waker(NotifyTransport(self.location, self._connections, timeout))

    def open(self) -> None:
        was_open = self._connections.open()
        try:
            with self._connections.read() as session:
                found = upgrades.check(upgrades.version(session, self.location))
                self._check(server_checks.settings(session))
            if found < schema.KNOWN:
                with self._connections.write(self._clock(), _UPGRADE) as transaction:
                    upgrades.upgrade(transaction, self.location)
        except BaseException:
            if not was_open:
                self._connections.close()
            raise
        self._waker.open()

    def _check(self, settings: list[Setting]) -> None:
        for setting in settings:
            message = f"{setting.name} is {setting.value}: {setting.hint}"
            if setting.level == "fail":
                raise StoreUnavailable(f"{self.location.shown}: {message}")
            if setting.level == "warn":
                _log.warning(message, extra={"component": "store", "store": self.location.shown})

    def open_to_join(self) -> bool:
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()
        self._connections.close()

    def schema(self) -> Schema:
        with self._usable_connections() as connections, connections.read() as session:
            found = upgrades.version(session, self.location)
        script = self.location.own(schema.schema_sql(found)) if found < schema.KNOWN else ""
        return Schema(found, schema.KNOWN, script)

    @contextlib.contextmanager
    def _usable_connections(self) -> Iterator[Connections]:
        """Yield the connections, which are usable meanwhile even if the store is not open."""
        was_open = self._connections.open()
        try:
            yield self._connections
        finally:
            if not was_open:
                self._connections.close()

    def server(self) -> list[Setting]:
        with self._usable_connections() as connections, connections.read() as session:
            return server_checks.settings(session)

    def now(self) -> Instant:
        return self._server_clock.now() if self._given_clock is None else self._given_clock()

    def _clock(self) -> int | None:
        """Return the time that replaces the server's clock; None if none does."""
        return None if self._given_clock is None else self._given_clock()

    def _write(self) -> contextlib.AbstractContextManager[Transaction]:
        return self._connections.write(self._clock())

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        for last_try in (*[False] * (_TRIES - 1), True):
            try:
                with self._write() as transaction:
                    return schedules.put(transaction, writes)
            except InvalidValue as error:
                # Another node has created a schedule between the read and the insert.
                if last_try or not isinstance(error.__cause__, psycopg.errors.UniqueViolation):
                    raise
        raise AssertionError("the last try answers or raises")

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        with self._connections.read() as session:
            return schedules.find(session, query)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        check_limit(limit)
        # Most calls find nothing due: they read and lock nothing. In a burst the reading is left out.
        if not self._more_is_due:
            try:
                next_wake, due = self._read_next_wake(now)
            except StoreUnavailable:
                # A statement that waits for a locked table keeps waiting after the client has given up.
                # The next call begins with a transaction, whose statements the server ends in time.
                self._more_is_due = True
                raise
            if next_wake is None or next_wake > due:
                return Fired((), self._refusals.next_wake(next_wake, due))
        clock = self._clock()

        def fire(selection: Selection, plan: PlanFunction) -> Fired:
            with self._connections.write(clock) as transaction:
                return schedules.fire(transaction, selection, now, plan, clock)

        fired = self._refusals.fire(fire, now, limit, plan)
        self._more_is_due = bool(fired.planned and fired.next_wake is not None and fired.next_wake <= now)
        return fired

    def _read_next_wake(self, now: Instant) -> tuple[Instant | None, Instant]:
        """Return the next wake-up, and ``now`` or the store's own time, whichever is earlier."""
        sent = self._server_clock.mark()
        without = self._refusals.left_out(now)
        with self._connections.read() as session:
            ((next_wake, servers),) = session.rows(
                "select next wake", sql.SELECT_NEXT_WAKE, {"format": FORMAT}
            )
            if without:
                statement = schedules.next_wakes(without)
                next_wake = schedules.first_wake(session.rows("select next wake", *statement), without)
        self._server_clock.update(servers, sent)
        clock = self._clock()
        return next_wake, min(now, servers if clock is None else clock)

    def add_runs(self, wanted: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        answers: list[bool] = []
        for part in batches(wanted, _RUNS_A_STEP, lambda run: len(run.payload)):
            with self._write() as transaction:
                answers += runs.add(transaction, part, before, self._clock())
        return answers

    def add_runs_within(
        self, connection: object, wanted: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        try:
            new = execute_within(connection, joining.adding(self.location, wanted, before, self._clock()))
        except Exception as error:
            if joining.lacks_tables(error):
                error.add_note(
                    "The connection given as within leads to a database without the tables of the store, "
                    f"which is {self.location.shown}: give a connection to that one. In tests, put the app "
                    "into virtual time, which needs no tables: evenbeat.testing.virtual(app)"
                )
            raise
        if new is None:
            return []
        old = tuple(run.id for run in wanted if run.id not in new)
        # A run that the same transaction added before is not visible here, and is as it was given.
        found = self.find_runs(RunQuery(ids=old, limit=len(old))).items if old else ()
        known = {run.id: run for run in found}
        return [known.get(run.id, run) for run in wanted]

    def claim_runs(self, claim: Claim) -> Claimed:
        return self._claim_refusals.claim(self._claim, claim, self.now)

    def _claim(self, claim: Claim) -> Claimed:
        # As in fire_due: an idle worker reads and locks nothing; a busy one has a guess.
        claim = outlook.possible(claim)
        kind = (claim.queues, claim.tasks)
        guess = self._guesses.pop(kind, None)
        if guess is None or claim.limit <= 0:
            found, now = self._read_outlook(claim)
            guess = found.guess(claim, now)
            if not found.is_repetition and (guess is None or claim.limit <= 0):
                return Claimed((), found.next_claim(now))
        clock = self._clock()
        with self._connections.write(clock) as transaction:
            without = TransactionWithout.around(transaction, claim.without)
            taken = claims.claim(without, claim, guess, clock)
        if taken.expected is not None:
            self._guesses[kind] = taken.expected
        self._fail(taken.to_quarantine)
        return taken.claimed

    def _read_outlook(self, claim: Claim) -> tuple[outlook.Outlook, Instant]:
        sent = self._server_clock.mark()
        clock = self._clock()
        with self._connections.read() as session:
            statement = without_runs(outlook.outlook_statement(claim, clock), claim.without)
            (row,) = session.rows("select next due", *statement)
        found = outlook.Outlook(row)
        self._server_clock.update(found.servers_clock, sent)
        return found, min(claim.now, found.servers_clock if clock is None else clock)

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers: list[bool] = []
        for part in batches(transitions, _RUNS_A_STEP, weight):
            with self._write() as transaction:
                accepted, is_awaited = runs.settle(transaction, part)
            answers += accepted
            if is_awaited:
                self.hint()
        return answers

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        with self._connections.read() as session:
            return history.find(session, query)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        check_limit(limit)
        with self._connections.read() as session:
            lost, to_quarantine = runs.lost(session, ended_by, limit, self._clock())
        self._fail(to_quarantine)
        return lost

    def _fail(self, to_quarantine: Sequence[runs.UnreadableRow]) -> None:
        if not to_quarantine:
            return

        def write(part: Sequence[runs.UnreadableRow]) -> None:
            with self._write() as transaction:
                runs.fail_unreadable(transaction, part)

        for one in write_each(write, to_quarantine, lambda one: f"run {one.run}"):
            self._claim_refusals.leave_out(one.run, self.now())
        self.hint()  # a slot of a limit may be free

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
        clock = self._clock()
        try:
            with self._connections.write(clock) as transaction:
                return history.purge(transaction, finished_before, limit, clock, runs)
        except RowRefused:
            with self._connections.write(clock) as transaction:
                return history.purge_in_parts(transaction, finished_before, limit, clock, runs)

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        with self._connections.read() as session:
            return history.ended_at(session, position, tenant, states)

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        return []

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        with self._connections.read() as session:
            return records.get(session, kind, tenant, key, self._clock())

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        clock = self._clock()
        with self._connections.write(clock) as transaction:
            return records.put(transaction, record, expect, clock)

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
            return records.find(session, kind, tenant, self._clock(), start=start, end=end, limit=limit)

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        with self._write() as transaction:
            return records.delete(transaction, kind, tenant, key, version)

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        with self._connections.read() as session:
            return tenants.count(session, tenant)

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        check_limit(limit)
        with self._connections.write(self._clock()) as transaction:
            return tenants.purge(transaction, tenant, kinds, limit)

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        with self._write() as transaction:
            history.append_log(transaction, chunks)

    def read_log(self, run: str) -> list[LogChunk]:
        with self._connections.read() as session:
            return history.log(session, run)

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()


def _read_clock(connections: Connections) -> Instant:
    with connections.read() as session:
        ((instant,),) = session.rows("select clock", sql.GET_CLOCK)
    return int(instant)

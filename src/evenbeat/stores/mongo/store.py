"""The store on MongoDB: the transaction of each operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

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
from evenbeat.errors import InvalidValue, TooLarge
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
from evenbeat.stores.damage import Unreadable
from evenbeat.stores.decisions import weight
from evenbeat.stores.mongo import (
    claims,
    firing,
    history,
    new_runs,
    purging,
    records,
    schedules,
    schema,
    server_checks,
    settling,
    tenants,
)
from evenbeat.stores.mongo.claimer import Claimer
from evenbeat.stores.mongo.connections import Connections
from evenbeat.stores.mongo.location import Document, read_location
from evenbeat.stores.mongo.rows import key_of, log_document
from evenbeat.stores.mongo.session import Contended, Duplicate, OnCommand, Session
from evenbeat.stores.mongo.waking import CollectionTransport
from evenbeat.stores.refusals import ClaimRefusals, FireRefused, Refusals, Selection, write_each
from evenbeat.stores.waking import Waker

T = TypeVar("T")
A = TypeVar("A")

# How many times a fire skips a batch that another node has reserved, or makes its batch smaller.
_TRIES = 8
# More rows than this in one call are several transactions: 10,000 updates take seconds on a busy server.
_ROWS_A_STEP = 1_000


class MongoStore:
    """Schedules and runs in a database of a MongoDB replica set, for any number of nodes.

    ``timeout``: how many seconds a server may take to answer before StoreUnavailable. ``lock_timeout``: how
    many a write may take because others write the same documents. ``clock`` replaces the server's clock, in
    tests. ``on_command`` is called with the name of each command before it is sent, and with "committed"
    after each commit. An exception that it raises leaves the call, and the transaction is aborted unless it
    was committed.

    Calls before ``open`` or after ``close`` raise StoreUnavailable.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], Instant] | None = None,
        *,
        timeout: float = 5.0,
        lock_timeout: float = 5.0,
        on_command: OnCommand | None = None,
    ) -> None:
        self.location = read_location(url)
        self._connections = Connections(self.location, timeout, lock_timeout, on_command)
        self._clock = clock
        self._claimer = Claimer(self._connections, self.now)
        self._held = settling.HeldRuns()
        self._others = firing.Contention()
        self._refusals = Refusals()
        self._claim_refusals = ClaimRefusals()
        self._shard = settling.Shard()
        self._waker = Waker(CollectionTransport(self.location.shown, self._connections.session))

    def open(self) -> None:
        self._connections.open()
        self._waker.open()

    def open_to_join(self) -> bool:
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()
        self._connections.close()

    def schema(self) -> Schema:
        found = self._connections.read_unopened(schema.found_version)
        script = schema.schema_script(self.location.database, found)
        return Schema(found, schema.KNOWN, script if found < schema.KNOWN else "")

    def server(self) -> list[Setting]:
        clock = self._connections.clock
        return self._connections.read_unopened(lambda session: server_checks.settings(session, clock))

    def now(self) -> Instant:
        return self._connections.clock.now() if self._clock is None else self._clock()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        return _by_size(self._put, writes, _weight_of_write)

    def _put(self, writes: Sequence[Write]) -> list[Written]:
        now = self.now()
        try:
            return self._connections.write(
                lambda session, careful: schedules.put(session, writes, now, careful)
            )
        except schedules.AllRefused as refusal:
            return refusal.answers

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        return schedules.find(self._session, query)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        check_limit(limit)
        now = min(now, self.now())
        # Most calls find nothing due: they only read.
        first = firing.earliest(self._session, without=self._refusals.left_out(now))
        if first is None or first.wake_at > now or limit <= 0:
            return Fired((), self._refusals.next_wake(None if first is None else first.wake_at, now))
        if self._others.has(first):
            return Fired((), first.wake_at)
        known: firing.BatchStart | None = first

        def fire(selection: Selection, plan: PlanFunction) -> Fired:
            nonlocal known
            # The first step needs no other search.
            start, known = known, None
            if start is None or selection.without:
                start = firing.earliest(self._session, without=selection.without)
            if start is None or start.wake_at > now:
                return Fired((), None if start is None else start.wake_at)
            try:
                return self._fire_first(start, now, selection, plan)
            except FireRefused as refusal:
                raise self._with_row(refusal) from refusal

        return self._refusals.fire(fire, now, limit, plan)

    def _with_row(self, refusal: FireRefused) -> FireRefused:
        """Return the refusal with the row, if it was refused before the row was read."""
        if refusal.rows:
            return refusal
        query = ScheduleQuery(keys=tuple(refusal.keys), limit=len(refusal.keys))
        rows = [row for row in self.find_schedules(query).items if not row.damage]
        return FireRefused(rows, [], refusal.error) if rows else refusal

    def _fire_first(
        self, first: firing.BatchStart, now: Instant, selection: Selection, plan: PlanFunction
    ) -> Fired:
        """Fire the batch that begins with ``first``, or one behind it if another node has reserved that."""
        session, others, start = self._session, self._others, first
        for passed in range(1, _TRIES + 1):
            try:
                with firing.reserved(session, start, self.now()):
                    fired = self._fire(start, now, selection, plan)
            except firing.BatchReserved:
                others.met_at(first)
                following = (
                    firing.earliest(session, now, passed * selection.limit, selection.without)
                    if others.may_leave_some(first, now)
                    else None
                )
                if following is None:
                    break
                start = following
            else:
                if fired is None:
                    break
                others.fired(fired, selection.limit)
                return fired if start == first else fired._replace(next_wake=first.wake_at)
        # Other nodes are firing the due schedules; retry soon.
        return Fired((), first.wake_at)

    def _fire(
        self, start: firing.BatchStart, now: Instant, selection: Selection, plan: PlanFunction
    ) -> Fired | None:
        """Fire a reserved batch, or a part of it; None if other clients write all of its documents."""
        careful, size = False, selection.limit
        for tries in range(_TRIES):
            batch = firing.Batch(start, now, selection._replace(limit=size), self.now())
            try:
                return self._connections.once(
                    lambda session, careful: firing.fire(session, batch, plan, careful),  # noqa: B023 - called at once
                    careful,
                )
            except Duplicate:
                careful = True
            except firing.BatchReserved:
                self._connections.contended()
                raise
            except Contended:
                self._connections.contended()
                self._connections.step_aside(tries)
                # A smaller batch conflicts with fewer clients, such as those that settle its runs.
                size = max(1, size // 2)
            except TooLarge as error:  # of the commit
                if size == 1:
                    raise FireRefused([], [key_of({"_id": start.id})], error) from error
                size //= 2
        return None

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        def add(part: Sequence[RunRecord]) -> list[bool]:
            return self._add(part) if before is None else self._add_before(part, before)

        return _by_size(add, runs, lambda run: len(run.payload))

    def _add_before(self, runs: Sequence[RunRecord], before: Instant) -> list[bool]:
        """Add runs until an instant. In a transaction, also one run: the transaction reads the ids first and
        then the clock, so the insertion of a run that was purged meanwhile is a conflict."""

        def add(session: Session, _: bool) -> list[bool]:
            there = new_runs.present(session, list(dict.fromkeys(run.id for run in runs)))
            return [False] * len(runs) if self.now() >= before else new_runs.add_absent(session, runs, there)

        return self._connections.write(add)

    def _add(self, runs: Sequence[RunRecord]) -> list[bool]:
        if len(runs) == 1:
            return [new_runs.add_one(self._session, runs[0], self._connections.patience)]
        return self._connections.write(lambda session, careful: new_runs.add(session, runs, careful))

    def add_runs_within(
        self, connection: object, runs: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        raise InvalidValue(
            "MongoDB cannot join a transaction of another database",
            field="within",
            value=None,
            hint="enqueue after the commit, with an id of your own: a repetition adds nothing",
        )

    def claim_runs(self, claim: Claim) -> Claimed:
        return self._claim_refusals.claim(self._claim, claim, self.now)

    def _claim(self, claim: Claim) -> Claimed:
        found = self._claimer.claim(claim)
        self._held.add(found.runs)
        if found.to_quarantine:
            self._quarantine(claims.held_by(claim), found.to_quarantine)
        return Claimed(found.runs, found.next_due)

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return _by_size(self._settle, transitions, weight)

    def _settle(self, transitions: Sequence[Transition]) -> list[bool]:
        answers, wakes = self._settled(transitions, self.now())
        if wakes:
            self.hint()
        return answers

    def _settled(self, transitions: Sequence[Transition], now: Instant) -> tuple[list[bool], bool]:
        """Return which transitions are accepted, and whether a schedule was woken or a slot freed."""
        if settling.can_be_quick(transitions):
            with contextlib.suppress(settling.UnexpectedStatus):
                if settling.is_alone(transitions):
                    settling.settle_alone(self._session, transitions[0], now)
                    answers, wakes = [True], False
                else:
                    answers, wakes = self._connections.write(
                        lambda session, careful: settling.settle_quickly(
                            session, transitions, now, careful, self._shard
                        )
                    )
                return answers, self._held.frees(self._session, transitions) or wakes
        return self._connections.write(
            lambda session, careful: settling.settle(session, transitions, now, careful, self._shard)
        )

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        return history.find(self._session, query)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        check_limit(limit)
        ended_by = min(ended_by, self.now())
        found = claims.lost(self._session, ended_by, limit)
        self._held.add(found.runs)
        if found.to_quarantine:
            self._quarantine(claims.lease_ended(ended_by), found.to_quarantine)
        return Lost(found.runs, found.next_end)

    def _quarantine(self, held: Document, to_quarantine: list[tuple[Document, Unreadable]]) -> None:
        now = self.now()

        def write(part: Sequence[tuple[Document, Unreadable]]) -> None:
            self._connections.write(lambda session, _: claims.quarantine(session, held, list(part), now))

        # One that is refused stays running until its lease ends, and then is tried again.
        write_each(write, to_quarantine, lambda one: f"run {one[0]['_id']}")

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        return history.count(self._session, tenant)

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        return history.count_queues(self._session, now, since)

    def count_active(self, now: Instant) -> list[ActiveCounts]:
        return history.count_active(self._session, now)

    def find_skipped(
        self,
        tenant: str,
        schedule: str,
        limit: int = 100,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[Skipped]:
        return history.skipped(self._session, tenant, schedule, check_limit(limit), since, until)

    def statistics(self, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
        return history.statistics(self._session, keys)

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        check_limit(limit)
        patience = self._connections.patience
        return purging.purge(self._session, finished_before, limit, runs, self.now(), patience)

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        return purging.ended_at(self._session, position, tenant, states)

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        return []

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        return records.get(self._session, kind, tenant, key, self.now())

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        return records.put(self._session, record, expect, self.now(), self._connections.patience)

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
        return records.find(self._session, (kind, tenant), (start, end), limit, self.now())

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        return records.delete(self._session, (kind, tenant, key), version, self._connections.patience)

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        return tenants.count(self._session, tenant)

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        check_limit(limit)
        return tenants.purge(self._session, tenant, kinds, limit, self._connections.patience)

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        runs = dict.fromkeys((chunk.run, chunk.run_created_at) for chunk in chunks)
        documents = {
            (chunk.run, chunk.run_created_at, chunk.attempt, chunk.seq): log_document(chunk)
            for chunk in reversed(chunks)
        }
        session = self._session
        session.insert_missing("insert logs", schema.LOGS, list(documents.values()))
        purging.drop_lines_without_runs(session, runs)

    def read_log(self, run: str) -> list[LogChunk]:
        return history.log(self._session, run)

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()

    @property
    def _session(self) -> Session:
        return self._connections.session()


def _weight_of_write(write: Write) -> int:
    planned = write.planned
    size = len(planned.schedule.payload) + sum(len(run.payload) for run in planned.runs)
    return size + sum(len(record.body) for record in planned.records)


def _by_size(apply: Callable[[Sequence[T]], list[A]], rows: Sequence[T], size: Callable[[T], int]) -> list[A]:
    """Divide rows into transactions of some 4 MB: a server with a small cache accepts no more than ten
    times as much."""
    answers: list[A] = []
    for some in batches(rows, _ROWS_A_STEP, size):
        answers += apply(some)
    return answers

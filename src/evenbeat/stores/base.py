"""The protocol of a store, which keeps schedules, runs and locks. A store has no policy and emits no events.

The docstrings here are the contract, and ``evenbeat.testing.StoreContract`` tests it. It is the same for
every store.

**Atomic.** Each method takes effect as a whole or not at all, also when the process dies inside it. A store
may split a call with more than some 4 MB of text into several such steps. It still writes each schedule with
its runs, and each run, as a whole.

**Repeatable.** A caller whose reply was lost may repeat the call: the repetition adds nothing and returns
the same result. Therefore the caller chooses identities and tokens before the first try.

**Time.** ``now`` is an argument. If it is ahead of the store's own clock, the store uses its own clock
instead.

**Errors.** A store raises ``StoreUnavailable`` if a call did not take effect, or if the store does not know
whether it did (connection lost, locked, disk full), ``TooLarge`` if the database refused the size of a
request, and ``RowRefused`` if it refused the values of a row, by a constraint, a trigger or a validator: then
nothing was written. Driver errors never reach the caller.

**Refused rows.** Where the store chooses the rows (``fire_due``, ``claim_runs``, ``purge``), a row that the
database refuses does not stop the others. Where the caller chooses them, ``refusals.in_parts`` writes the
others.

**Limits.** A store refuses a negative limit with ``InvalidValue``; a limit of 0 returns nothing.

**Names.** A search by a name, id or key that the database cannot store (one with a NUL) finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

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
    Version,
)
from evenbeat.rules.firing import Planned
from evenbeat.rules.retention import Held
from evenbeat.stores.queries import (
    EVERYTHING,
    LARGE_FIELDS,
    LEFT_OUT,
    VALUES,
    EndedRuns,
    LargeField,
    Page,
    RunQuery,
    ScheduleQuery,
    check_limit,
)

__all__ = [
    "EVERYTHING",
    "LARGE_FIELDS",
    "LEFT_OUT",
    "VALUES",
    "ActiveCounts",
    "Claim",
    "Claimed",
    "EndedRuns",
    "Fired",
    "Held",
    "LargeField",
    "Lost",
    "Page",
    "PlanFunction",
    "Purged",
    "QueueCounts",
    "RecordWrite",
    "RunQuery",
    "ScheduleQuery",
    "Schema",
    "Setting",
    "Store",
    "TenantCounts",
    "Write",
    "Written",
    "check_limit",
]

PlanFunction: TypeAlias = Callable[..., Planned]
"""Called with a schedule, the time and its active runs (a tuple of ``Active``), and with ``Facts`` as a
fourth argument if ``needs_facts`` is true for the schedule."""


class RecordWrite(NamedTuple):
    """A record to write by compare-and-set, as ``put_record`` does."""

    record: Record
    expect: int | None
    """The version that the stored record must have; None if no record may exist."""


class Write(NamedTuple):
    """A change of a schedule, with the runs, ledger rows and records that belong to it."""

    planned: Planned
    expect: Version | None
    """The version that the row must have for the write to apply; None if no row of that name may exist."""
    record: RecordWrite | None = None
    """A record that is written in the same step: if another one is stored by now, the store refuses the whole
    write. Writes that must not overlap name the same record."""


class Written(NamedTuple):
    """The result of a write: whether the store applied it, and the current row."""

    accepted: bool
    current: ScheduleRecord | None


class Fired(NamedTuple):
    """The result of ``fire_due``, and when to call it again."""

    planned: tuple[Planned, ...]
    next_wake: Instant | None
    """The earliest wake-up of any schedule; in the past if more schedules are due than the limit allowed."""
    quarantined: tuple[tuple[str, str], ...] = ()
    """(tenant, name) of rows that could not be read or planned."""
    lost: tuple[tuple[str, str], ...] = ()
    """(tenant, name) of rows that another node fired, or a user changed, while this node planned them. Always
    empty for stores that lock the row while they plan."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's request for runs."""

    worker: str
    token: str
    """A new one for each claim. A repeated claim with the same token returns the runs of that claim that the
    worker still holds. If it holds none any more, the store may treat the call as a new claim."""
    limit: int
    now: Instant
    lease: int
    """Milliseconds, by the store's clock. The worker renews it with heartbeats, well before it ends."""
    tasks: frozenset[str] | None = None
    """Only runs of these tasks; None for runs of any task."""
    queues: tuple[str, ...] = ("default",)
    turn: str = ""
    """The tenant that this worker served last: the others come first."""
    without: frozenset[str] = frozenset()
    """Runs to leave out. A store sets it if the database has refused to start them."""

    def __post_init__(self) -> None:
        check_limit(self.limit)


class Claimed(NamedTuple):
    """The runs that ``claim_runs`` has taken, and when to call it again."""

    runs: tuple[RunRecord, ...]
    next_due: Instant | None
    """The earliest ``run_at`` of queued runs that this claim (its queues and tasks) could take later.

    None if there are none; in the past if more runs are due than the limit allowed. It may be too early,
    never too late: a worker sleeps until then. Rows of a newer format do not count. A run that waits for
    its rate counts with the time when the rate admits it; one that waits until others end does not count.
    """


class Lost(NamedTuple):
    """The result of ``lost_runs``, and when to call it again."""

    runs: tuple[RunRecord, ...]
    next_end: Instant | None
    """The current earliest end of any other lease; in the past if the limit left some runs out."""


class Purged(NamedTuple):
    """The result of a purge."""

    deleted: int
    """How many rows."""
    until: Instant
    """No selected row from before this instant is left. ``finished_before`` itself: the purge is complete."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the runs of a queue, of all tenants."""

    queue: str
    due: int = 0
    """Queued runs that may be claimed now."""
    later: int = 0
    """Queued runs that may be claimed later."""
    retrying: int = 0
    """Those of ``due`` and ``later`` that have failed before."""
    running: int = 0
    oldest_due: Instant | None = None
    """When the longest waiting of the due runs became due."""
    came_due: int = 0
    """Runs in any state that became due in the given period."""
    ended: int = 0
    """Runs that ended in the given period."""


class ActiveCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the active runs that have the same tenant, queue, priority, task and cohort."""

    tenant: str
    queue: str
    priority: int
    task: str
    cohort: str | None
    due: int = 0
    """Queued runs with ``run_at`` at or before ``now``: limits are not considered."""
    later: int = 0
    running: int = 0
    oldest_due: Instant | None = None
    """When the longest waiting of the due runs became due."""


class TenantCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the schedules of a tenant, without deleted ones."""

    tenant: str
    schedules: int = 0
    active: int = 0
    paused: int = 0


class Schema(NamedTuple):
    """The version of the store's tables, collections or keys, and the one that this version of Evenbeat
    uses."""

    found: int
    """0 if there are none yet."""
    known: int
    script: str = ""
    """The commands that ``open`` would run to upgrade, for administrators who run them by hand."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A property of the server on which the guarantees depend: a setting, its version, its clock."""

    name: str
    """The database's name for it: ``appendfsync``, ``synchronous_commit``."""
    value: str
    level: Literal["ok", "warn", "fail"] = "ok"
    """``fail``: ``open`` refuses the server. ``warn``: a crash of the server may break a guarantee."""
    hint: str | None = None
    """The possible consequence, and the setting that avoids it."""


class Store(Protocol):
    """The operations that Evenbeat needs from a database."""

    def open(self) -> None:
        """Connect, and create or upgrade the schema. Many nodes may call it at once. Safe to repeat."""

    def open_to_join(self) -> bool:
        """Prepare for ``now`` and ``add_runs_within``, and return whether the store is open now.

        Opens the store, unless that could wait for a lock that the caller's own transaction holds.
        """

    def close(self) -> None:
        """Close all connections, and wake every thread that waits. Safe to repeat."""

    def schema(self) -> Schema:
        """Read the version of the schema without creating or changing anything. The store need not be
        open."""

    def server(self) -> list[Setting]:
        """Return the properties of the server on which the guarantees depend. ``open`` checks them, too: it
        logs warnings and refuses failures.

        A store on a server need not be open.
        """

    def now(self) -> Instant:
        """Return the time of the store's clock, which every node uses. Cheap: not every call sends a query to
        a server."""

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        """Write schedules by compare-and-set on their versions, each with its runs, ledger rows and records.

        The store accepts or refuses each write independently. A refused write changes nothing and returns
        the current row. It refuses a write whose ``record`` is not stored in the expected version.
        """

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        """Find schedules, in the order (tenant, name).

        Also finds damaged rows. A damaged row has the fields that can be read, and its ``damage`` says what
        is wrong. Callers can write it like any other row.
        """

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        """Turn due ticks into runs.

        Takes up to ``limit`` rows with ``wake_at <= now``, earliest first, that no other node is
        firing, calls ``plan`` with each (and with its active runs where ``needs_active`` says so, and with
        facts where ``needs_facts`` does), writes the schedule's new tick, the runs, the ledger rows, the
        cancel requests and the records, and deletes the ``spent`` records, in one atomic step. It ignores
        rows of a newer format. It quarantines a row that cannot be
        read, or for which ``plan`` raises: that row sleeps, a record of kind ``quarantine`` contains the
        reason, and the other rows fire.

        A schedule whose write the database refuses waits as ``rules.refusals.back_off`` says, and is in the
        result with ``deferred``; the other rows fire.
        """

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        """Add runs, and return for each whether it is new. Does not change a run whose id exists.

        From ``before`` on, by the store's own clock, nothing is added, however long ago the call began: a
        caller that was stopped meanwhile may try to add a run that has ended and was purged.
        """

    def add_runs_within(
        self, connection: object, runs: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        """Add runs over the caller's own connection, inside the caller's transaction: the runs exist if and
        when it commits. Return each run as it is stored: the given one, or the one that existed already.

        From ``before`` on, by the store's own clock, nothing is added, and it returns an empty list. A run
        that is added before then may be committed later: nobody else adds it meanwhile.

        Raises InvalidValue if the store cannot join a transaction, and if the connection is not in one or
        leads to another database. Errors of the caller's driver reach the caller unchanged.
        """

    def claim_runs(self, claim: Claim) -> Claimed:
        """Claim due runs: by priority; within a priority the tenants in turn, beginning with the one after
        ``claim.turn``; the runs of a tenant by ``run_at``, then by id.

        If more tenants have due runs than ``claim.limit``, only the first ones in turn get one each.
        Otherwise each of them gets one before any gets two. How the claim divides the rest is up to the
        store; it takes as many runs as ``limit`` allows.

        Each run gets the state running, the next attempt number, the worker and a lease of ``lease`` ms by
        the store's own clock, whatever ``claim.now`` is.

        The claim obeys the limits in the records of kind ``limit`` (see ``rules.limits``), in the same atomic
        step: at no moment are more runs of a limit running than it allows, whatever their leases are, and no
        more are started than its rate allows by the store's own clock. It passes over runs that have to
        wait. Of several limits that concern a run, all hold. A limit that is set or removed holds for the
        next claim. With no such record and no run in a cohort, a claim costs nothing more.
        """

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        """Apply transitions, and return for each whether it is accepted.

        The store accepts a transition if the run has that attempt, that claim and one of the expected states,
        or if the transition with this token was the last one applied to the run. So it refuses a transition
        of an earlier run of the same id, which was purged. It refuses a transition whose ``gate`` does not
        match the current schedule. A refused transition changes nothing.

        A transition with ``ends`` is accepted if it and all of these (``decisions.parts``) apply, or if all
        innermost ends were the last ones applied to their runs. Otherwise none of them changes anything. Each
        is a transition of a different run.

        In the same step, and only once, the store adds the transition's runs and records, counts its
        statistics and wakes its schedule. It wakes the schedule named by ``wakes`` if ``waits`` is true for
        the current row: it sets the wake-up to the next tick. It calls ``hint`` itself, since the caller does
        not know whether a schedule was woken. It also calls ``hint`` if a run that a limit counts has stopped
        running: another run may start. If a node fires that schedule at the same time, the node sees that
        the run has ended, or it writes the row before the store wakes it.

        A transition that counts a success of a schedule with followers does, in the same step, what
        ``dependencies.woken`` says of each follower: it adds the pending records and sets the wake-up. Where
        it adds records, it counts ``fire_seq`` up, so that it refuses a write that has not seen them. A node
        that fires the follower at the same time sees the success, or writes the row before the store wakes
        it. A schedule without followers costs no further query.
        """

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        """Find runs, the newest first."""

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        """Find running runs whose lease has ended at ``ended_by`` and by the store's own clock: their workers
        have stopped heartbeating.

        The store sets an unreadable run to failed, with a record of kind ``quarantine``: no worker could
        end it.
        """

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        """Count the runs in each state."""

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        """Count the runs of each queue at ``now``, and those that became due or ended from ``since`` to
        ``now``.

        In the order of names, without queues that have none of these runs. Reads the active runs and those
        that ended in the period, never the rest of the history. While runs change, the counts may
        come from slightly different moments.
        """

    def count_active(self, now: Instant) -> list[ActiveCounts]:
        """Count the queued and running runs of each group, in no order. Reads active runs alone.

        While runs change, the counts may come from slightly different moments.
        """

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        """Return the tenants that have schedules or ended runs, by name, with counts of their schedules; with
        ``tenant``, that one alone.

        A tenant that has only deleted schedules is not one of them. Reads the schedules, and of the history
        one entry of an index for each tenant.
        """

    def find_skipped(
        self,
        tenant: str,
        schedule: str,
        limit: int = 100,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[Skipped]:
        """Read the ledger of a schedule, the newest ticks first.

        Only rows whose range of ticks ends at or after ``since`` and begins before ``until``.
        """

    def statistics(self, schedules: Sequence[tuple[str, str]]) -> list[Statistics]:
        """Read the statistics of schedules, by (tenant, name), in this order; zeros where there are none
        yet."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        """Delete up to ``limit`` old rows, the oldest first: the ended runs that ``runs`` selects and that
        ended before that instant, with their logs. If ``runs`` says so, also ledger rows that were recorded
        before it, and records that have expired by the clock of the store. Runs that are ``held`` stay.

        A store may return early, before it has deleted ``limit`` rows: ``until`` says how far it got.
        """

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        """Return when the run at this position ended, counted from 1, the run that ended last, among the runs
        of a tenant (None: of all) in these final states; None if there are fewer.

        Reads as many entries of an index as ``position`` says, whatever else the history has. Only with
        states and without a tenant, it may read entries of other states, too.
        """

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        """Compare indexes that the store itself keeps with the rows; return what differs, as "index: words",
        at most ``limit`` of it, and ``mend`` these entries.

        Databases that keep their indexes themselves have none such, and return nothing.
        """

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        """Delete up to ``limit`` rows of a tenant: of the ledger, of the statistics, and records of these
        kinds, expired or not. Runs and schedules stay.

        Return how many rows it deleted; 0 if there are no more. It may leave a row that another call is
        writing: repeat it.
        """

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        """Read a record; None if it does not exist or has expired."""

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        """Write a record if the stored one has the version ``expect``; with None, if no record exists.

        An expired record counts as missing. The caller chooses versions. If a key may be deleted and created
        again, like a lock, the caller never uses a version twice, so that a late write does not match.
        """

    def find_records(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Find the records of a kind that have not expired, in the order (tenant, key).

        Only keys from ``start`` to before ``end``, compared by code points; at most ``limit`` of them.
        Reads the records in that range alone, however many there are of the kind.
        """

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        """Delete the record if it has that version."""

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        """Store chunks of runs' logs. Does not change a chunk that exists.

        Drops the chunks of a run that does not exist, or was purged: no purge would ever delete them. A later
        run of the same id has another ``run_created_at``. Its log never has a chunk of the earlier run, and
        keeps its own chunk where both have the same attempt and seq.
        """

    def read_log(self, run: str) -> list[LogChunk]:
        """Read the log of a run, in the order (attempt, seq)."""

    def wait(self, timeout: float) -> bool:
        """Sleep until a hint arrives, for at most ``timeout`` seconds. Return False if none arrived.

        Returns at once if a hint has arrived since this thread's last wait. A thread's own hint does not end
        its wait. A lost hint costs latency, never a tick. While the store cannot receive hints (the
        connection on which it listens is down), it returns True after a second.
        """

    def hint(self) -> None:
        """Wake all threads that wait on this store, in this process and in others."""

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
whether it did (connection lost, locked, disk full), and ``TooLarge`` if the database refused the size of a
request. Driver errors never reach the caller.

**Limits.** A store refuses a negative limit with ``InvalidValue``; a limit of 0 returns nothing.

**Names.** A search by a name, id or key that the database cannot store (one with a NUL) finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    ACTIVE_STATES,
    LogChunk,
    Record,
    RunRecord,
    RunState,
    ScheduleRecord,
    ScheduleState,
    Skipped,
    Statistics,
    Transition,
    Version,
)
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.attempts import is_retrying, was_running
from evenbeat.rules.firing import Active, Planned

T = TypeVar("T")

LargeField: TypeAlias = Literal["payload", "result", "error"]
"""The fields of a run that may be large: a payload or a result has up to a megabyte or more."""
LARGE_FIELDS: tuple[LargeField, ...] = get_args(LargeField)
VALUES: tuple[LargeField, ...] = ("payload", "result")
LEFT_OUT: dict[LargeField, str | None] = {"payload": "null", "result": None, "error": None}
"""The value of each large field in a run that was read without it."""

PlanFunction: TypeAlias = Callable[[ScheduleRecord, Instant, tuple[Active, ...]], Planned]


def check_limit(limit: int) -> int:
    """Refuse a negative limit: databases read it as "all", as an error or as another number."""
    if not isinstance(limit, int):
        raise InvalidValue(f"limit {shown(limit)} is not a whole number", field="limit", value=limit)
    if limit < 0:
        raise InvalidValue(f"limit {limit} is negative", field="limit", value=limit, hint="give 0 or more")
    return limit


class Write(NamedTuple):
    """A change of a schedule, with the runs, ledger rows and records that belong to it."""

    planned: Planned
    expect: Version | None
    """The version that the row must have for the write to apply; None if no row of that name may exist."""


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

    def __post_init__(self) -> None:
        check_limit(self.limit)


class Claimed(NamedTuple):
    """The runs that ``claim_runs`` has taken, and when to call it again."""

    runs: tuple[RunRecord, ...]
    next_due: Instant | None
    """The earliest ``run_at`` of queued runs that this claim (its queues and tasks) could take later.

    None if there are none; in the past if more runs are due than the limit allowed. It may be too early,
    never too late: a worker sleeps until then. Rows of a newer format do not count.
    """


class Lost(NamedTuple):
    """The result of ``lost_runs``, and when to call it again."""

    runs: tuple[RunRecord, ...]
    next_end: Instant | None
    """The current earliest end of any other lease; in the past if the limit left some runs out."""


class Page(NamedTuple, Generic[T]):
    """A part of the result, in order. ``cursor`` continues after it; None at the end."""

    items: tuple[T, ...]
    cursor: str | None


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search for schedules, in the order (tenant, name). Finds deleted ones only if ``states`` names
    them."""

    tenant: str | None = None
    name: str | None = None
    keys: tuple[tuple[str, str], ...] | None = None
    """Only these schedules, by (tenant, name)."""
    states: tuple[ScheduleState, ...] = ("active", "paused", "finished")
    task: str | None = None
    changed_since: Instant | None = None
    """Only schedules whose definition or pause changed at or after this instant. Firing does not count."""
    wakes_before: Instant | None = None
    """Only schedules with a wake-up before this instant: late ones, if the instant is past. Reads these
    alone, however many schedules there are."""
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def unwanted(self) -> list[str]:
        """The states that do not match. The state of a damaged row is none of them, so a search finds the
        row."""
        return [state for state in get_args(ScheduleState) if state not in self.states]


# A node's estimate of the store's clock sets created_at; the clock itself sets started_at.
_CLOCKS_APART = 60_000


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search for runs, the newest first (created_at, then id)."""

    ids: tuple[str, ...] | None = None
    tenant: str | None = None
    schedule: str | None = None
    task: str | None = None
    queue: str | None = None
    states: tuple[RunState, ...] | None = None
    worker: str | None = None
    """Only runs that this worker holds, and ended runs that it was the last to hold."""
    cancel_requested: bool | None = None
    retrying: bool = False
    """Only queued runs that have failed before."""
    since: Instant | None = None
    """Only runs that were running, or ended, at or after this instant, as ``was_running`` says."""
    until: Instant | None = None
    """Only runs that were running, or ended, before this instant."""
    created_since: Instant | None = None
    """Only runs that were created at or after this instant. Reads no earlier ones."""
    finished_since: Instant | None = None
    """Only runs that ended at or after this instant. Reads these alone, however long the history is."""
    without: tuple[LargeField, ...] = ()
    """Large fields that the caller does not need. The database does not send them, and the runs have the
    values of LEFT_OUT instead. Never write such a run to the store."""
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def created_by(self) -> Instant | None:
        """The upper bound of ``created_at`` for ``until``: a run that was created later was not running
        before ``until``."""
        return None if self.until is None else self.until + _CLOCKS_APART

    @property
    def is_about_active_runs_of_a_schedule(self) -> bool:
        """Whether only active runs of one schedule match. These are few, however long the history is."""
        is_one = self.tenant is not None and self.schedule is not None
        return is_one and bool(self.states) and ACTIVE_STATES.issuperset(self.states or ())

    def asks_for(self, states: Iterable[str]) -> bool:
        """Whether runs in any of these states may match."""
        return self.states is None or not frozenset(states).isdisjoint(self.states)

    def matches(self, run: RunRecord) -> bool:
        """Whether a run matches, for stores without an index for the query. Does not compare ids."""
        return (
            (self.tenant is None or run.tenant == self.tenant)
            and (self.schedule is None or run.schedule == self.schedule)
            and (self.task is None or run.task == self.task)
            and (self.queue is None or run.queue == self.queue)
            and (self.states is None or run.state in self.states)
            and (self.worker is None or run.worker == self.worker)
            and (self.cancel_requested is None or run.cancel_requested == self.cancel_requested)
            and (not self.retrying or is_retrying(run))
            and ((self.since is None and self.until is None) or was_running(run, self.since, self.until))
            and (self.created_since is None or run.created_at >= self.created_since)
            and (
                self.finished_since is None
                or (run.finished_at is not None and run.finished_at >= self.finished_since)
            )
        )


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
        the current row.
        """

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        """Find schedules, in the order (tenant, name).

        Also finds damaged rows. A damaged row has the fields that can be read, and its ``damage`` says what
        is wrong. Callers can write it like any other row.
        """

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        """Turn due ticks into runs.

        Takes up to ``limit`` rows with ``wake_at <= now``, earliest first, that no other node is
        firing, calls ``plan`` with each (and with its active runs where ``needs_active`` says so),
        and writes the schedule's new tick, the runs, the ledger rows, the cancel requests and the
        records in one atomic step. It ignores rows of a newer format. It quarantines a row that cannot be
        read, or for which ``plan`` raises: that row sleeps, a record of kind ``quarantine`` contains the
        reason, and the other rows fire.
        """

    def add_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        """Add runs, and return for each whether it is new. Does not change a run whose id exists."""

    def add_runs_within(self, connection: object, runs: Sequence[RunRecord]) -> list[RunRecord]:
        """Add runs over the caller's own connection, inside the caller's transaction: the runs exist if and
        when it commits. Return each run as it is stored: the given one, or the one that existed already.

        Raises InvalidValue if the store cannot join a transaction, and if the connection is not in one or
        leads to another database. Errors of the caller's driver reach the caller unchanged.
        """

    def claim_runs(self, claim: Claim) -> Claimed:
        """Claim due runs: by priority, then by ``run_at``, then by id.

        Each gets the state running, the next attempt number, the worker and a lease of ``lease`` ms by
        the store's own clock, whatever ``claim.now`` is.
        """

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        """Apply transitions, and return for each whether it is accepted.

        The store accepts a transition if the run has that attempt and one of the expected states, or if the
        transition with this token was the last one applied to the run. It refuses a transition whose
        ``gate`` does not match the current schedule. A refused transition changes nothing.

        In the same step, and only once, the store adds the transition's runs and records, counts its
        statistics and wakes its schedule. It wakes the schedule named by ``wakes`` if ``waits`` is true for
        the current row: it sets the wake-up to the next tick. It calls ``hint`` itself, since the caller does
        not know whether a schedule was woken. If a node fires that schedule at the same time, the node sees
        that the run has ended, or it writes the row before the store wakes it.
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

    def purge(self, finished_before: Instant, limit: int) -> int:
        """Delete up to ``limit`` old rows: runs that ended before that instant, with their logs, ledger rows
        that were recorded before it and records that expired before it.

        Return how many rows it deleted; 0 if there are no more.
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

        Drops the chunks of a run that does not exist (any more): no purge would ever delete them.
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

"""The store: where schedules, runs and locks live. Mechanism only: it knows no policy, emits no events.

Every docstring here is a contract, and ``evenbeat.testing.contract.StoreContract`` is its executable
form. The
promise is the same on every store.

**Atomic.** Each method takes effect as a whole or not at all, also when the process dies inside it. A call
that carries more than some 4 MB of texts is several such steps; each schedule with its runs, and each run,
is written whole.

**Repeatable.** A call may be repeated after its reply was lost: it then adds nothing and answers as it
would have. Identities and tokens are therefore chosen by the client, before the first try.

**Time.** ``now`` is an argument. A store never trusts one that is ahead of its own clock: it then uses
its own.

**Errors.** A store raises ``StoreUnavailable`` when it cannot say whether a call took effect or knows
that it did not (connection lost, locked, disk full), and ``TooLarge`` when the database refused the size of
what it was sent; nothing of the driver escapes.

**Limits.** A negative limit is refused with ``InvalidValue``; 0 asks for nothing.

**Names.** What is looked up by a name, id or key that can't be stored (one with a NUL in it) is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import (
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

PlanFunction: TypeAlias = Callable[[ScheduleRecord, Instant, tuple[Active, ...]], Planned]


def check_limit(limit: int) -> int:
    """Refuse a negative limit: databases read it as "all", as an error or as another number."""
    if not isinstance(limit, int):
        raise InvalidValue(f"limit {shown(limit)} is not a whole number", field="limit", value=limit)
    if limit < 0:
        raise InvalidValue(f"limit {limit} is negative", field="limit", value=limit, hint="give 0 or more")
    return limit


class Write(NamedTuple):
    """A change of a schedule, with the runs and ledger rows that belong to it."""

    planned: Planned
    expect: Version | None
    """What the row must be for the write to apply; None: there must be no row of that name."""


class Written(NamedTuple):
    """Whether a write was applied, and the row as it is now."""

    accepted: bool
    current: ScheduleRecord | None


class Fired(NamedTuple):
    """What ``fire_due`` did, and when to come back."""

    planned: tuple[Planned, ...]
    next_wake: Instant | None
    """The earliest wake-up of any schedule; in the past if more is due than the limit allowed."""
    quarantined: tuple[tuple[str, str], ...] = ()
    """(tenant, name) of rows that could not be understood."""
    lost: tuple[tuple[str, str], ...] = ()
    """(tenant, name) of rows that another node fired, or a user changed, while this one planned them. Only
    stores that plan without a lock on the row can name them."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's request for runs."""

    worker: str
    token: str
    """Chosen anew for each claim. A repetition with the same token answers those runs of it that are
    still held; once none is, it may be taken for a new claim."""
    limit: int
    now: Instant
    lease: int
    """Milliseconds, by the store's clock. Renew it with heartbeats, well before it ends."""
    tasks: frozenset[str] | None = None
    """Only runs of these tasks; None: of any."""
    queues: tuple[str, ...] = ("default",)

    def __post_init__(self) -> None:
        check_limit(self.limit)


class Claimed(NamedTuple):
    """What ``claim_runs`` took, and when to come back."""

    runs: tuple[RunRecord, ...]
    next_due: Instant | None
    """The earliest ``run_at`` of queued runs that this claim (its queues and tasks) could take later.

    None if there are none; in the past if more is due than the limit allowed. A worker sleeps until
    then: it may be too early, never too late. Rows of a newer format don't count.
    """


class Lost(NamedTuple):
    """What ``lost_runs`` found, and when to look again."""

    runs: tuple[RunRecord, ...]
    next_end: Instant | None
    """The earliest end of any other lease, unless it is renewed; in the past if the limit left some out."""


class Page(NamedTuple, Generic[T]):
    """Some of what was asked for, in order; ``cursor`` continues after it, None at the end."""

    items: tuple[T, ...]
    cursor: str | None


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by (tenant, name). Deleted ones only when their state is asked for."""

    tenant: str | None = None
    name: str | None = None
    states: tuple[ScheduleState, ...] = ("active", "paused", "finished")
    task: str | None = None
    changed_since: Instant | None = None
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def unwanted(self) -> list[str]:
        """The states that are not asked for. What a damaged row has for its state is none of them, so that it
        is found."""
        return [state for state in get_args(ScheduleState) if state not in self.states]


# A run is created by a node's estimate of the store's clock, and started by the clock itself.
_CLOCKS_APART = 60_000


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Runs, the newest first (created_at, then id)."""

    ids: tuple[str, ...] | None = None
    tenant: str | None = None
    schedule: str | None = None
    task: str | None = None
    queue: str | None = None
    states: tuple[RunState, ...] | None = None
    worker: str | None = None
    """Only runs that this worker holds or, once they are over, was the last to hold."""
    cancel_requested: bool | None = None
    retrying: bool = False
    """Only queued runs that have failed before."""
    since: Instant | None = None
    """Only runs that were running, or ended, at or after this instant, as ``was_running`` says."""
    until: Instant | None = None
    """Only runs that were running, or ended, before this instant."""
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def created_by(self) -> Instant | None:
        """No run that was created later was running before ``until``: the bound for an index."""
        return None if self.until is None else self.until + _CLOCKS_APART

    def asks_for(self, states: Iterable[str]) -> bool:
        """Whether runs in any of these states may match."""
        return self.states is None or not frozenset(states).isdisjoint(self.states)

    def matches(self, run: RunRecord) -> bool:
        """Whether a run is asked for; for stores that have no index for what is asked. Not by its id."""
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
        )


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue holds, over all tenants."""

    queue: str
    due: int = 0
    """Queued, and may be claimed now."""
    later: int = 0
    """Queued for a time to come."""
    retrying: int = 0
    """Those of ``due`` and ``later`` that have failed before."""
    running: int = 0
    oldest_due: Instant | None = None
    """Since when the run has been due that has been due for the longest time."""
    came_due: int = 0
    """Runs in any state that became due in the period that was asked about."""
    ended: int = 0
    """Runs that ended in that period."""


class Schema(NamedTuple):
    """The tables, collections or keys of a store: which version is there, and what is known here."""

    found: int
    """0: there are none yet."""
    known: int
    script: str = ""
    """What ``open`` would run to get there, in the words of the database, for those who run it themselves."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A fact about the server that the promise leans on: a setting, its version, its clock."""

    name: str
    """As the database calls it: ``appendfsync``, ``synchronous_commit``."""
    value: str
    level: Literal["ok", "warn", "fail"] = "ok"
    """``fail``: ``open`` refuses the server. ``warn``: a crash of the server may undo what was promised."""
    hint: str | None = None
    """What may happen, and what to set instead."""


class Store(Protocol):
    """What Evenbeat asks of a database."""

    def open(self) -> None:
        """Connect, and create or upgrade the schema. Safe from many nodes at once; safe to repeat."""

    def open_to_join(self) -> bool:
        """Get ready for ``now`` and ``add_runs_within``: ``open``, unless that may wait for a lock that the
        caller's own transaction holds. Whether the store is open now."""

    def close(self) -> None:
        """Let go of everything. Safe to repeat."""

    def schema(self) -> Schema:
        """What there is, without making or changing anything. The store need not be open."""

    def server(self) -> list[Setting]:
        """What the promise leans on, as it is. ``open`` looks, too: it logs warnings and refuses failures.

        A store on a server need not be open.
        """

    def now(self) -> Instant:
        """The store's clock, which is the clock. Cheap: a server is not asked each time."""

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        """Write schedules by compare-and-set on their versions, each with its runs and ledger rows.

        Each write stands for itself. A refused one changes nothing and answers the row as it is.
        """

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        """Schedules in the order (tenant, name).

        A damaged row is found, too, as far as it can be read: its ``damage`` says why not further. It can be
        written anew like any other.
        """

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        """Turn due ticks into runs: the heart.

        Takes up to ``limit`` rows with ``wake_at <= now``, earliest first, that no other node is
        firing, calls ``plan`` with each (and with its active runs where ``needs_active`` says so),
        and writes the schedule's new place, the runs, the ledger rows and the cancel requests in one
        atomic step. Rows of a newer format are left alone. A row that cannot be read, or for which
        ``plan`` raises, is quarantined alone: it sleeps, a record of kind ``quarantine`` says why,
        and its neighbours fire.
        """

    def add_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        """Add runs; says of each whether it is new. One whose id exists stays as it is."""

    def add_runs_within(self, connection: object, runs: Sequence[RunRecord]) -> list[RunRecord]:
        """Add runs over the caller's own connection, inside the caller's transaction: they are there when it
        commits, or never. Answers each run as it is: as it was wanted, or as it was there already.

        InvalidValue on a store that can't join a transaction, and for a connection that is not in one or
        leads to another database. Errors of the caller's driver come out as they are.
        """

    def claim_runs(self, claim: Claim) -> Claimed:
        """Take due runs: by priority, then by ``run_at``, then by id.

        Each gets the state running, the next attempt number, the worker and a lease of ``lease`` ms by
        the store's own clock, whatever ``claim.now`` says.
        """

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        """Apply transitions; says of each whether it is accepted.

        Accepted: the run has that attempt and one of the expected states, or the transition with
        this token was the last one applied to it. Refused ones change nothing; so does one whose ``gate``
        finds another schedule than it names. What a transition adds, counts and wakes happens in the same
        step, and once. The schedule that it ``wakes`` is woken if ``waits`` says so of the row as it is then:
        it wakes up with its next tick, and ``hint`` is called, here, since nobody else knows. Whoever fires
        that schedule at the same time sees the run end, or its row is written after that and woken.
        """

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        """Runs, the newest first."""

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        """Running runs whose lease ended by then, and by the store's own clock: their workers are gone.

        One that can't be read ends as failed, with a record of kind ``quarantine``: no worker could end it.
        """

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        """How many runs there are in each state."""

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        """What each queue holds at ``now``, and what came due and ended from ``since`` to ``now``, by name.

        A queue with none of that is left out. Reads what is active and what ended in the period, never the
        rest of the history. The figures of a busy store may be of slightly different moments.
        """

    def find_skipped(self, tenant: str, schedule: str, limit: int = 100) -> list[Skipped]:
        """The ledger of a schedule, the newest ticks first."""

    def statistics(self, schedules: Sequence[tuple[str, str]]) -> list[Statistics]:
        """The statistics of schedules, by (tenant, name), in this order; zeros where there are none yet."""

    def purge(self, finished_before: Instant, limit: int) -> int:
        """Delete up to ``limit`` rows that belong to the past: runs that were over before that instant,
        with their logs, ledger rows recorded and records expired before it.

        Answers how many are gone; 0 means that there is no more.
        """

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        """The record, unless it has expired."""

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        """Write a record if the present one has the version ``expect``; None: if there is none.

        An expired record counts as none. Versions are chosen by the client; where a key may come and
        go, as a lock does, a version that was never used before keeps a latecomer from matching.
        """

    def find_records(self, kind: str, tenant: str | None = None) -> list[Record]:
        """The records of a kind that have not expired, in the order (tenant, key)."""

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        """Delete the record if it has that version."""

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        """Keep pieces of runs' logs; one that is there already is left as it is.

        Nothing is kept for a run that does not exist (any more): nobody would ever purge it.
        """

    def read_log(self, run: str) -> list[LogChunk]:
        """The log of a run, in the order (attempt, seq)."""

    def wait(self, timeout: float) -> bool:
        """Sleep until something may have changed, at most ``timeout`` seconds. False if nothing did.

        A hint: losing one costs latency, never a tick. A store that can't be told (the connection on which
        it listens is down) comes back after a second, and says True.
        """

    def hint(self) -> None:
        """Wake up whoever waits on this store, in this process and in others."""

"""The records: schedules, runs, and what stores keep about them. Frozen values without I/O.

Instants are integer milliseconds UTC, durations integer milliseconds, payloads and results JSON text that a
store does not interpret.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate

FORMAT = 1
"""The format of the rows that this version writes. It does not touch rows of a newer format."""

LOW, NORMAL, HIGH = 2, 5, 8
PRIORITIES = {"low": LOW, "normal": NORMAL, "high": HIGH}
PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
LONGEST_PAYLOAD = 1_000_000
LONGEST_ERROR = 10_000
LONGEST_DESCRIPTION = 1_000
LONGEST_SPREAD = 86_400_000
MOST_CONCURRENT = 10_000
MOST_RETRIES = 1_000
MOST_CRASHES = 1_000
MOST_CAUGHT_UP = 10_000
MOST_TAGS = 20
# How many earlier attempts a run keeps, the newest, and how many characters of their errors.
EARLIER_KEPT = 20
EARLIER_ERROR = 500

ScheduleState: TypeAlias = Literal["active", "paused", "finished", "deleted"]
RunState: TypeAlias = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Cause: TypeAlias = Literal["tick", "run_now", "backfill", "enqueue"]
Kind: TypeAlias = Literal["task", "flow"]
CatchUpKind: TypeAlias = Literal["latest", "all", "skip"]
Overlap: TypeAlias = Literal["allow", "skip", "queue", "queue_all", "cancel_running"]
OnCrash: TypeAlias = Literal["rerun", "fail"]
Reason: TypeAlias = Literal[
    "coalesced",
    "late",
    "limit",
    "overlap",
    "paused",
    "changed",
    "rescheduled",
    "deleted",
    "dependency",
    "calendar",
    "chain",
]
AttemptOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled", "lost", "handed back"]

ACTIVE_STATES: frozenset[RunState] = frozenset(("queued", "running"))
FINAL_STATES: frozenset[RunState] = frozenset(("succeeded", "failed", "cancelled"))


class CatchUp(msgspec.Struct, frozen=True, cache_hash=True):
    """The policy for ticks that fire late: the nodes were down, or the schedule was waiting.

    ``latest``: add one run for the latest tick, which counts how many it stands for. ``all``: add a run for
    each tick, oldest first, for at most ``limit`` ticks; record older ones as skipped. ``skip``: record ticks
    that are later than ``grace`` as skipped, and add runs for the others, for at most ``limit``.

    ``max_age``, of latest and all: record ticks that are later than this as skipped. ``rate``, of all and
    skip: ticks that are overdue together become runs no faster than this, oldest first.
    """

    kind: CatchUpKind = "latest"
    grace: int = 60_000
    limit: int = 100
    max_age: int | None = None
    rate: Rate | None = None


class Execution(msgspec.Struct, frozen=True, cache_hash=True):
    """How a run is executed, and what happens when it fails."""

    retries: int = 0
    """How many times a failed run is retried."""
    backoff: int = 10_000
    """The wait before the first retry; it doubles with each retry, up to ``max_backoff``."""
    max_backoff: int = 3_600_000
    timeout: int | None = None
    """An attempt that takes longer is asked to end, and has failed unless it returns nevertheless."""
    on_crash: OnCrash = "rerun"
    """What to do with a run whose worker died: run it again, at most ``max_crashes`` times, or fail it."""
    max_crashes: int = 3
    expires: int | None = None
    """A run that has not started so many ms after its planned start is cancelled instead."""


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A durable rule: when a task runs, with what payload and policies. Identity: (tenant, name)."""

    # The definition, given by a user. Each change of it increments the revision.
    tenant: str = "default"
    name: str
    task: str
    trigger: str
    """The canonical text of the trigger."""
    kind: Kind = "task"
    payload: str = "null"
    queue: str = "default"
    priority: int = NORMAL
    description: str = ""
    tags: str = ""
    """Words for filters: sorted, separated by spaces."""
    catch_up: CatchUp = CatchUp()
    overlap: Overlap = "allow"
    max_concurrent: int | None = None
    """At most this many runs at once; a tick beyond that waits."""
    spread: int = 0
    """Ticks fire up to this much later, by an amount that depends on the name alone."""
    execution: Execution = Execution()
    after: str = ""
    """The schedules that have to succeed before a tick fires, as the text of an ``After``; empty: none."""
    template: str = ""
    """The template whose options it inherits, as JSON text with the options of its own; empty: none."""
    managed_by: str = "api"
    state: ScheduleState = "active"
    pause_note: str = ""
    paused_until: Instant | None = None
    paused_by: str = ""
    paused_at: Instant | None = None
    declared: str = ""
    """The last declaration, as JSON text. An edit by hand stays until the declaration itself changes."""
    calendars: str = ""
    """A copy of the calendars that its trigger names, as JSON text, so that planning reads no other row;
    empty: none."""
    followers: str = ""
    """The schedules of its tenant that a success of its runs wakes: sorted names, separated by spaces."""

    # The state: firing writes it, and every write compares it.
    anchor: Instant = 0
    """When the trigger was given, or from when on it counts (``start_at``): its ticks come later. The
    phase of an interval without a start of its own."""
    next_tick: Instant | None = None
    """The coming tick, and the watermark: all ticks before it have been fired or recorded as skipped."""
    moved: Instant | None = None
    """The trigger's tick that ``next_tick`` replaces, if a user moved it to an earlier time."""
    wake_at: Instant | None = None
    """When to plan the schedule next; None: not until a user changes it."""
    last_fire: Instant | None = None
    """When it last added a run."""
    revision: int = 1
    """Counts the changes of the definition."""
    fire_seq: int = 0
    """Counts the fires."""
    generation: int = 1
    """Grows when the name is created again or its watermark is moved back, so that tick ids stay unique."""
    created_at: Instant = 0
    updated_at: Instant = 0
    format: int = FORMAT
    damage: str = ""
    """Why the stored row can't be read; fields that can't be read have their defaults. Never stored."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.tenant, self.name)

    @property
    def version(self) -> Version:
        return Version(self.generation, self.revision, self.fire_seq)


class Version(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The numbers that a write to a schedule compares, so that no change in between is overwritten."""

    generation: int
    revision: int
    fire_seq: int


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a task; of a tick if ``schedule`` and ``tick`` are set."""

    id: str
    tenant: str = "default"
    schedule: str | None = None
    generation: int | None = None
    tick: Instant | None = None
    cause: Cause = "enqueue"
    coalesced: int = 0
    """How many earlier ticks this run stands for, besides its own."""
    task: str
    kind: Kind = "task"
    payload: str = "null"
    queue: str = "default"
    priority: int = NORMAL
    execution: Execution = Execution()
    state: RunState = "queued"
    scheduled_at: Instant = 0
    """The planned start: its tick with its share of the spread, or the time for which it was enqueued. The
    same for every attempt."""
    run_at: Instant = 0
    """The run is claimed at this instant or later; a retry moves it."""
    attempt: int = 0
    """The fencing token: grows with each claim."""
    failures: int = 0
    crashes: int = 0
    worker: str | None = None
    claim: str | None = None
    """The token of its last claim, chosen by the claimer. Before the first claim, a token of its making if a
    user has chosen the id, who may give it again once the run is purged; None for ids that are never given
    twice.

    The identity of a run is its id with this token: two runs of one id have different ones.
    """
    lease_until: Instant | None = None
    cancel_requested: bool = False
    created_at: Instant = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    result: str | None = None
    error: str | None = None
    fired_by: str | None = None
    """The node that fired its tick."""
    trace: str | None = None
    """Who enqueued it: a W3C ``traceparent``, some 55 characters. None for ticks, and without tracing."""
    cohort: str | None = None
    """The group of runs that share the same limits, which claims give to it: see ``rules.limits``. None if no
    claim has found a limit that applies to it."""
    unique_key: str | None = None
    """Of a unique run: no other run of its task and tenant with the same key is active."""
    flow: str | None = None
    """Of a flow and of the steps of one, as JSON text: see ``rules.flow_parts``. None for all other runs."""
    earlier: str | None = None
    """The attempts before the present one, as JSON text: see ``json_text.with_attempt``."""
    settled: str | None = None
    """The token of the last transition that was applied, by which the store recognises a repetition."""
    format: int = FORMAT

    @property
    def attempt_identity(self) -> tuple[str, int, str | None]:
        """The identity of its present attempt. An attempt that lost its lease may still run when a later run
        of the same id is claimed, with the same number: their claims differ."""
        return (self.id, self.attempt, self.claim)


class AttemptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt of a run that has ended."""

    number: int
    worker: str | None
    started_at: Instant | None
    ended_at: Instant | None
    outcome: AttemptOutcome
    error: str | None = None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger: a range of ticks that did not become runs of their own."""

    tenant: str
    schedule: str
    generation: int
    first: Instant
    last: Instant
    count: int
    reason: Reason
    recorded_at: Instant
    run: str | None = None
    """For coalesced ticks, and for those that a calendar moved: the run that stands for them."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and times of a schedule's runs; they are kept when the runs are purged."""

    tenant: str
    schedule: str
    run_count: int = 0
    success_count: int = 0
    failure_count: int = 0
    last_run: Instant | None = None
    last_success: Instant | None = None
    last_failure: Instant | None = None
    last_error: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Any other small record (nodes, locks, calendars, …), changed by compare-and-set."""

    kind: str
    key: str
    body: str
    tenant: str = "default"
    version: int = 1
    expires: Instant | None = None


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the log of a run. Identity: (run, attempt, seq), and which run of that id it is."""

    run: str
    attempt: int
    seq: int
    text: str
    at: Instant
    run_created_at: Instant | None = None
    """The run's ``created_at`` if its id may be given again: a store drops the chunk if the run of that id is
    another one by now. None for ids that are never given twice, and for chunks that were read.

    Not the claim: a run has another one for each attempt, and its log has the lines of all of them.
    """


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of one run: applied if the run still has this attempt, this claim and one of these states.

    The claim tells the run from an earlier one of the same id, which was purged. Fields that are UNSET stay
    as they are. The client chooses ``token`` before the first try: the store recognises a repetition of the
    transition by it.
    """

    run: str
    attempt: int
    claim: str | None
    expect: tuple[RunState, ...]
    token: str
    state: RunState | msgspec.UnsetType = msgspec.UNSET
    delay: int | msgspec.UnsetType = msgspec.UNSET
    """The run may be claimed so much later than the store's now. A duration, since clocks of nodes differ."""
    failures: int | msgspec.UnsetType = msgspec.UNSET
    crashes: int | msgspec.UnsetType = msgspec.UNSET
    worker: str | msgspec.UnsetType | None = msgspec.UNSET
    lease: int | msgspec.UnsetType | None = msgspec.UNSET
    """The lease expires so much later than the store's now; None removes the lease.

    A duration, so that no node's clock can shorten or stretch it.
    """
    cancel_requested: bool | msgspec.UnsetType = msgspec.UNSET
    finished_at: Instant | msgspec.UnsetType | None = msgspec.UNSET
    result: str | msgspec.UnsetType | None = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    earlier: str | msgspec.UnsetType = msgspec.UNSET
    flow: str | msgspec.UnsetType = msgspec.UNSET
    payload: str | msgspec.UnsetType = msgspec.UNSET
    """Only of a step: of a flow within a flow that begins, its arguments with the results of other steps; of
    a run that goes back to the queue, the fields that limits need. Its cohort is removed then."""
    task: str | msgspec.UnsetType = msgspec.UNSET
    """Only of a queued run that stays queued: it becomes a run of this task. Its cohort is removed, since
    cohorts depend on the task: the next claim gives it another one."""
    kind: Kind | msgspec.UnsetType = msgspec.UNSET
    """The kind of the run by the code of the node that claimed it, where its row says something else. Its
    cohort is removed, since cohorts depend on the kind, too."""
    lease_ended: bool = False
    """Applied only if the lease has expired by the store's clock: a heartbeat in between keeps the run."""
    renews: bool = False
    """Increments the attempt: all earlier transitions of the run are stale from then on."""
    ends: tuple[Transition, ...] = ()
    """Transitions of other runs, each with its own ``ends``: the store applies all of them and this one, or
    none. A transition that changes a flow has the ends of its steps."""
    adds: tuple[RunRecord, ...] = ()
    """Runs to add in the same step (the next steps of a flow)."""
    records: tuple[Record, ...] = ()
    """Records to add in the same step (the audit's); one that exists stays as it is."""
    counts: Statistics | None = None
    """Numbers to add to the schedule's statistics."""
    tick: Instant | None = None
    """Of a success: the run's tick, which the followers of its schedule get."""
    wakes: tuple[str, str] | None = None
    """(tenant, name) of the run's schedule, which may wait until this run has ended."""
    gate: tuple[str, str, int, int] | None = None
    """(tenant, name, generation, revision) of a schedule: applied only if its row still has these numbers.

    Numbers of 0 stand for "there is no such row". A retry names the schedule that was read for the decision,
    so that it can't bypass a policy that was set in between.
    """
    gate_fires: int | None = None
    """Of the gate: its ``fire_seq`` must be this, too: no tick has fired since the schedule was read. The
    store counts it up, so that it refuses the write of a user who has not seen this run become active."""


# msgspec inspects the fields of a record type when it first reads one. If threads do so at the same moment,
# the process dies with a segmentation fault (0.22). So this happens here, while the module is imported.
for _kind in (
    CatchUp,
    Execution,
    ScheduleRecord,
    RunRecord,
    AttemptRecord,
    Skipped,
    Statistics,
    Record,
    LogChunk,
    Transition,
):
    msgspec.json.Decoder(_kind)

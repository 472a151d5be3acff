"""The records: schedules, runs, and what is written about them. Frozen, validated, no I/O.

Instants are integer milliseconds UTC, durations integer milliseconds, payloads and results JSON text
that a store never looks into. JSON is written and read here and nowhere else.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.errors import InvalidValue, shown

FORMAT = 1
"""The shape of the rows this version writes. Rows of a newer one are left alone."""

LOW, NORMAL, HIGH = 2, 5, 8
PRIORITIES = {"low": LOW, "normal": NORMAL, "high": HIGH}
PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}
LONGEST_PAYLOAD = 1_000_000
LONGEST_ERROR = 10_000
LONGEST_SPREAD = 86_400_000
MOST_CONCURRENT = 10_000
# What a run keeps of attempts before its present one: the newest, and the beginnings of their errors.
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
    "coalesced", "late", "limit", "overlap", "paused", "changed", "rescheduled", "deleted"
]
AttemptOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled", "lost", "handed back"]

ACTIVE_STATES: frozenset[RunState] = frozenset(("queued", "running"))
FINAL_STATES: frozenset[RunState] = frozenset(("succeeded", "failed", "cancelled"))

NAMES = "1 to 128 letters, digits, _, -, . or : (not . or : first)"
# Not . first: "." and ".." are not names but places in a URL.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TASK = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_RUN_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,400}")


class CatchUp(msgspec.Struct, frozen=True, cache_hash=True):
    """What becomes of ticks that are found late (the nodes were down, the schedule was waiting).

    ``latest``: one run for the latest, which says how many it stands for. ``all``: a run for each,
    oldest first, but no more than ``limit``: older ones are recorded as skipped. ``skip``: those later
    than ``grace`` are recorded as skipped, the others run, no more than ``limit`` of them.
    """

    kind: CatchUpKind = "latest"
    grace: int = 60_000
    limit: int = 100


class Execution(msgspec.Struct, frozen=True, cache_hash=True):
    """How a run is executed, and what follows when it fails."""

    retries: int = 0
    """How many times a failed run is tried again."""
    backoff: int = 10_000
    """The wait before the first retry; it doubles with each, up to ``max_backoff``."""
    max_backoff: int = 3_600_000
    timeout: int | None = None
    """An attempt that takes longer is asked to end, and counts as failed unless it returns all the same."""
    on_crash: OnCrash = "rerun"
    """What becomes of a run whose worker died: run it again, at most ``max_crashes`` times, or fail."""
    max_crashes: int = 3


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A durable rule: when a task runs, with what payload and policies. Identity: (tenant, name)."""

    # What a user says: a change of any of it counts the revision up.
    tenant: str = "default"
    name: str
    task: str
    trigger: str
    """The canonical text of the trigger, as it was said."""
    kind: Kind = "task"
    payload: str = "null"
    queue: str = "default"
    priority: int = NORMAL
    description: str = ""
    catch_up: CatchUp = CatchUp()
    overlap: Overlap = "allow"
    max_concurrent: int | None = None
    """No more runs than this at once; a tick beyond waits."""
    spread: int = 0
    """Ticks fire up to this much later, by an amount that depends on the name alone."""
    execution: Execution = Execution()
    managed_by: str = "api"
    state: ScheduleState = "active"
    pause_note: str = ""
    paused_until: Instant | None = None
    paused_by: str = ""
    paused_at: Instant | None = None
    declared: str = ""
    """What ``declare`` said last, as JSON text. An edit by hand stays until it says something else."""

    # Where it stands: written by firing, compared by every write.
    anchor: Instant = 0
    """From when an interval without a start of its own counts: when the trigger was given."""
    next_tick: Instant | None = None
    """The coming tick, and the watermark: everything before it has been dealt with."""
    moved: Instant | None = None
    """The tick that ``next_tick`` stands for, if it was moved to an earlier time: that one does not come."""
    wake_at: Instant | None = None
    """When to look at the row next; None: not until somebody changes it."""
    last_fire: Instant | None = None
    """When it last added a run."""
    revision: int = 1
    """Counts the changes of the definition."""
    fire_seq: int = 0
    """Counts the fires."""
    generation: int = 1
    """Grows when the name is made again or its watermark is moved back, so that tick ids stay unique."""
    created_at: Instant = 0
    updated_at: Instant = 0
    format: int = FORMAT
    damage: str = ""
    """Why the stored row can't be read; what can't be read of it has its default here. Never stored."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.tenant, self.name)

    @property
    def version(self) -> Version:
        return Version(self.generation, self.revision, self.fire_seq)


class Version(msgspec.Struct, frozen=True, order=True, array_like=True):
    """What a write to a schedule compares: nothing may have happened to the row in between."""

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
    """How many earlier ticks this run stands for besides its own."""
    task: str
    kind: Kind = "task"
    payload: str = "null"
    queue: str = "default"
    priority: int = NORMAL
    execution: Execution = Execution()
    state: RunState = "queued"
    scheduled_at: Instant = 0
    """When it was to start: its tick with its share of the spread, or the time it was enqueued for. The same
    for every attempt."""
    run_at: Instant = 0
    """Not before this: a retry moves it."""
    attempt: int = 0
    """The fencing token: grows with each claim."""
    failures: int = 0
    crashes: int = 0
    worker: str | None = None
    claim: str | None = None
    """The token of the claim that holds it, chosen by the claimer."""
    lease_until: Instant | None = None
    cancel_requested: bool = False
    created_at: Instant = 0
    started_at: Instant | None = None
    finished_at: Instant | None = None
    result: str | None = None
    error: str | None = None
    fired_by: str | None = None
    """The node that fired its tick."""
    earlier: str | None = None
    """The attempts before the present one, as JSON text: see ``with_attempt``."""
    settled: str | None = None
    """The token of the transition applied last, so that its repetition is recognised."""
    format: int = FORMAT


class AttemptRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt of a run that is over."""

    number: int
    worker: str | None
    started_at: Instant | None
    ended_at: Instant | None
    outcome: AttemptOutcome
    error: str | None = None


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks that did not become runs of their own, as a range: the ledger's row."""

    tenant: str
    schedule: str
    generation: int
    first: Instant
    last: Instant
    count: int
    reason: Reason
    recorded_at: Instant
    run: str | None = None
    """For coalesced ticks: the run that stands for them."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a schedule's runs; it outlives their history."""

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
    """A small piece of anything else (nodes, locks, calendars, …), changed by compare-and-set."""

    kind: str
    key: str
    body: str
    tenant: str = "default"
    version: int = 1
    expires: Instant | None = None


class LogChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a run wrote to its log. (run, attempt, seq) is its identity."""

    run: str
    attempt: int
    seq: int
    text: str
    at: Instant


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of one run: applied if it still has this attempt and one of these states.

    Fields that are UNSET stay as they are. ``token`` is chosen by the client before the first try: a
    repetition of a transition that was applied is recognised by it.
    """

    run: str
    attempt: int
    expect: tuple[RunState, ...]
    token: str
    state: RunState | msgspec.UnsetType = msgspec.UNSET
    delay: int | msgspec.UnsetType = msgspec.UNSET
    """May be claimed so much later than the store's now. A duration, as ``lease``: clocks of nodes differ."""
    failures: int | msgspec.UnsetType = msgspec.UNSET
    crashes: int | msgspec.UnsetType = msgspec.UNSET
    worker: str | msgspec.UnsetType | None = msgspec.UNSET
    lease: int | msgspec.UnsetType | None = msgspec.UNSET
    """The lease ends so much later than the store's now; None: there is none any more.

    A duration, so that no node's clock can shorten or stretch it.
    """
    cancel_requested: bool | msgspec.UnsetType = msgspec.UNSET
    finished_at: Instant | msgspec.UnsetType | None = msgspec.UNSET
    result: str | msgspec.UnsetType | None = msgspec.UNSET
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    earlier: str | msgspec.UnsetType = msgspec.UNSET
    lease_ended: bool = False
    """Applies only if the lease has ended by the store's clock: a heartbeat in between saves the run."""
    renews: bool = False
    """Counts the attempt up: whatever was said of the run before is stale from now on."""
    adds: tuple[RunRecord, ...] = ()
    """Runs that exist from the same moment on (the next steps of a flow)."""
    counts: Statistics | None = None
    """Added to the schedule's statistics."""
    wakes: tuple[str, str] | None = None
    """(tenant, name) of the run's schedule, which may be waiting for this run to end."""
    gate: tuple[str, str, int, int] | None = None
    """(tenant, name, generation, revision) of a schedule: applies only if its row still has these numbers.

    Numbers of 0 stand for "there is no such row". A run that is made active again names its schedule as
    the decision saw it, so that no policy that came in between is passed by.
    """


def is_name(value: object) -> bool:
    """Names of schedules and locks."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def check_name(value: object, field: str) -> None:
    if not is_name(value):
        raise InvalidValue(f"{field} {shown(value)} is not {NAMES}", field=field, value=value)


def check_label(value: object, field: str) -> None:
    """Tenants and queues: stricter than names, since more follows them in keys of Redis, after a : or /."""
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        raise InvalidValue(
            f"{field} {shown(value)} is not 1 to 128 letters, digits, _ or -", field=field, value=value
        )


def check_task(value: object) -> None:
    if not (isinstance(value, str) and _TASK.fullmatch(value)):
        hint = "give the name under which the task is registered"
        raise InvalidValue(
            f"task {shown(value)} is not 1 to 200 visible characters", field="task", value=value, hint=hint
        )
    _storable("task", value)


def read_priority(value: object) -> int:
    """0 to 9, or low, normal, high."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 9:
        return value
    raise InvalidValue(
        f"priority {shown(value)} is not one of 0-9, low, normal, high", field="priority", value=value
    )


def check_schedule(schedule: ScheduleRecord) -> ScheduleRecord:
    """Refuse what no store should ever hold, naming the field and the value (R14)."""
    check_label(schedule.tenant, "tenant")
    check_name(schedule.name, "name")
    check_label(schedule.queue, "queue")
    check_task(schedule.task)
    read_priority(schedule.priority)
    check_one_of("kind", schedule.kind, ("task", "flow"))
    check_one_of("overlap", schedule.overlap, ("allow", "skip", "queue", "queue_all", "cancel_running"))
    check_one_of("catch_up", schedule.catch_up.kind, ("latest", "all", "skip"))
    _whole("catch_up.grace", schedule.catch_up.grace, 0)
    _whole("catch_up.limit", schedule.catch_up.limit, 1, 10_000)
    _whole("spread", schedule.spread, 0, LONGEST_SPREAD)
    if schedule.max_concurrent is not None:
        _whole("max_concurrent", schedule.max_concurrent, 1, MOST_CONCURRENT)
    check_execution(schedule.execution)
    check_payload(schedule.payload)
    for field in ("pause_note", "paused_by", "managed_by"):
        _storable(field, getattr(schedule, field))
    check_description(schedule.description)
    return schedule


def check_description(text: str) -> None:
    """Refuse a description, of a schedule or a lock, that is not a text or is too long."""
    _storable("description", text)
    if len(text) > 1000:
        raise InvalidValue(
            f"description is {len(text):,} characters long",
            field="description",
            value=text,
            hint="at most 1,000",
        )


def check_texts(**texts: str) -> None:
    """Refuse texts, by the names of their fields, that no database takes."""
    for field, text in texts.items():
        _storable(field, text)


def check_execution(execution: Execution) -> Execution:
    _whole("retries", execution.retries, 0, 1000)
    _whole("backoff", execution.backoff, 0)
    _whole("max_backoff", execution.max_backoff, 0)
    if execution.timeout is not None:
        _whole("timeout", execution.timeout, 1)
    check_one_of("on_crash", execution.on_crash, ("rerun", "fail"))
    _whole("max_crashes", execution.max_crashes, 0, 1000)
    return execution


def check_run(run: RunRecord) -> RunRecord:
    """Refuse a run that no store should ever hold."""
    if not _RUN_ID.fullmatch(run.id if type(run.id) is str else ""):
        raise InvalidValue(f"id {shown(run.id)} is not 1 to 400 visible characters", field="id", value=run.id)
    if "/" in run.id and run.tick is None:
        raise InvalidValue(
            f"id {shown(run.id)} has a /, which is for the runs of ticks", field="id", value=run.id
        )
    check_label(run.tenant, "tenant")
    check_label(run.queue, "queue")
    check_task(run.task)
    read_priority(run.priority)
    check_execution(run.execution)
    check_payload(run.payload)
    _whole("run_at", run.run_at, FIRST, LAST)
    return run


def check_payload(text: str, field: str = "payload") -> str:
    """JSON text, and not too much of it."""
    if not isinstance(text, str):
        raise InvalidValue(
            f"{field} {shown(text)} is not JSON text", field=field, value=text, hint="write it with to_json"
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_PAYLOAD:
        raise InvalidValue(
            f"{field} is {size:,} bytes of JSON, the limit is {LONGEST_PAYLOAD:,}",
            field=field,
            value=text,
            hint="store the data elsewhere and pass a reference to it",
        )
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidValue(
            f"{field} {shown(text)} is not JSON text: {error}", field=field, value=text
        ) from None
    return text


def to_json(value: Any, field: str = "payload") -> str:
    """A value as JSON text. What JSON cannot say, or says differently elsewhere, is refused."""
    try:
        plain = msgspec.to_builtins(value)
        _check_plain(plain, field)
        text = _encoder.encode(plain).decode()
    except InvalidValue:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidValue(
            f"{field} is not JSON: {reason}", field=field, value=shown(type(value).__name__)
        ) from None
    return check_payload(text, field)


def _check_plain(value: Any, field: str) -> None:
    """Refuse what an encoder would write as something else: NaN and infinity as null, two keys as one.

    0.4 us for a payload of two fields.
    """
    left = [value]
    while left:
        item = left.pop()
        kind = type(item)
        if kind is dict:
            if not all(type(key) is str for key in item):
                _check_keys(item, field)
            left += item.values()
        elif kind is list or kind is tuple:
            left += item
        elif kind is float and not isfinite(item):
            raise InvalidValue(
                f"{field} holds {item}, which JSON has no word for",
                field=field,
                value=item,
                hint="write None or a text instead",
            )


def _check_keys(item: dict[Any, Any], field: str) -> None:
    written = msgspec.json.decode(_encoder.encode(dict.fromkeys(item)))
    for key in item:
        if isinstance(key, float) and not isfinite(key):
            raise InvalidValue(
                f"{field} has the key {key}, which JSON has no word for",
                field=field,
                value=key,
                hint="use texts as keys",
            )
    if len(written) < len(item):
        twice = sorted(key for key in written if sum(str(other) == key for other in item) > 1)
        raise InvalidValue(
            f"{field} has keys that are the same in JSON: {shown(twice[0] if twice else item)}",
            field=field,
            value=twice[0] if twice else None,
            hint="use texts as keys",
        )


def from_json(text: str) -> Any:
    """The value of a JSON text that ``to_json`` wrote."""
    return msgspec.json.decode(text)


def read_definition(text: str) -> dict[str, Any]:
    """The fields of a schedule that were declared: what ``changes.definition`` wrote."""
    try:
        fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        fields["payload"] = encode(fields["payload"])
        fields["catch_up"] = msgspec.convert(fields["catch_up"], CatchUp)
        fields["execution"] = msgspec.convert(fields["execution"], Execution)
    except (msgspec.MsgspecError, UnicodeError, KeyError) as error:
        raise InvalidValue(
            f"what was declared can't be read: {error}",
            field="declared",
            value=text,
            hint="declare it again, or update it",
        ) from None
    return fields


_encoder = msgspec.json.Encoder()
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def encode(record: Any) -> str:
    """A record as JSON text, for stores that keep records whole."""
    return _encoder.encode(record).decode()


# msgspec looks at the fields of a record when it first reads one, and threads that do so at the same moment
# end the process with a segmentation fault (0.22). So that is done here, while the module is imported.
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
_attempts = msgspec.json.Decoder(tuple[AttemptRecord, ...])


def with_attempt(earlier: str | None, attempt: AttemptRecord) -> str:
    """The JSON text of a run's earlier attempts with one more; the oldest go where there are too many."""
    if attempt.error is not None:
        attempt = msgspec.structs.replace(attempt, error=attempt.error[:EARLIER_ERROR])
    kept = (*read_attempts(earlier), attempt)[-EARLIER_KEPT:]
    return _encoder.encode(kept).decode()


def read_attempts(earlier: str | None) -> tuple[AttemptRecord, ...]:
    """The attempts of such a text. None at all if it can't be read: they are for people, and no run depends
    on them."""
    try:
        return () if earlier is None else _attempts.decode(earlier)
    except (msgspec.MsgspecError, UnicodeError):
        return ()


# Policies repeat: a million rows have a handful of different ones between them.
@lru_cache(maxsize=1024)
def encode_policy(policy: CatchUp | Execution) -> str:
    return _encoder.encode(policy).decode()


@lru_cache(maxsize=1024)
def decode_policy(text: str, kind: type[_Struct]) -> _Struct:
    return msgspec.json.decode(text, type=kind)


def _storable(field: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidValue(f"{field} {shown(text)} is not a text", field=field, value=text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            f"{field} {shown(text)} has a lone surrogate, which no database takes", field=field, value=text
        ) from None


def check_one_of(field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidValue(
            f"{field} {shown(value)} is not one of {', '.join(known)}", field=field, value=value
        )


def _whole(field: str, value: object, low: int, high: int = 1 << 53) -> None:
    if not (isinstance(value, int) and not isinstance(value, bool) and low <= value <= high):
        raise InvalidValue(
            f"{field} {shown(value)} is not a whole number of {low} to {high}", field=field, value=value
        )

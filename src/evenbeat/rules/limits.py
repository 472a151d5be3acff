"""Limits over all machines: which runs share a limit, and whether one more of them may start. Pure.

Runs that are equal in everything that a limit can name form a **cohort**: the same queue, priority, tenant,
task, kind and values of the keys. Either all runs of a cohort may start or none, so a claim looks at the
first runs of each cohort and passes over the rest, however many wait there. A claim gives a run its cohort
when it first finds a limit that may apply to it. Runs to which no limit can apply have no cohort, and are
claimed without all this.

A limit with a key is a limit for each value of it. The group of runs that one number counts is a
**partition**: all runs of the limit, or those with one value of its key.

A limit without a task does not count flows: a flow under way executes nothing, and its steps count. If it
took a slot, its steps would wait for that slot, and it for them. This is the rule against such standstills: a
run that only waits for other runs takes no slot that they may need. Flows are the only such runs: a tick that
waits for another schedule, for an earlier run of its schedule or for its turn in a backfill is not a run yet.
The limit of a flow's own task counts the flow, since a flow never contains itself: its steps are other tasks.

The code of a run decides what it is. A process without the code stores a flow as a task; the node that begins
it writes that it is a flow. A task that was stored as a flow goes back to the queue, and is claimed as a
task.

A step gets the results of other steps when it is claimed. Until then its payload lacks these fields, so
limits that have one of them as a key do not count it. The worker that reads the results hands the step back
with these fields, and it is claimed again as what it is. Only such steps are claimed twice.

The numbers that a limit bounds are never stored: a slot is taken by a row in the state ``running``, and is
free as soon as the row leaves that state, so no crash can lose one. Only the level of a rate's bucket is
stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode, from_json
from evenbeat.core.rates import Rate
from evenbeat.core.records import Record, RunRecord

LIMIT, BUCKET = "limit", "bucket"
"""The kinds of the records: definitions of limits, and levels of buckets. Their tenant is OWNER."""
OWNER = "default"

# Values of keys are shown to people, who seldom need more of a long one than its beginning.
_LONGEST_VALUE, _SHOWN_OF_VALUE = 60, 40
# Marks the cohorts of flows: the value of a key without a name, which no limit has.
_FLOW = " =flow"
# The default size of a bucket is what flows into it in this time: claims of fast rates come in batches.
_DEFAULT_BURST = 50
# How much earlier than the claim before it a claim may have read the clock, in ms: far longer than one takes.
_OVERTAKEN = 10_000


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit of the runs that have this task, queue and tenant, as far as they are given.

    With ``key``, the limit holds for each value of that field of the payload. A payload without the field is
    not limited.
    """

    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    key: str | None = None
    concurrency: int | None = None
    """At most this many runs at once."""
    rate: Rate | None = None
    burst: int | None = None
    """How many starts the rate allows at once after a quiet time: the size of the bucket."""

    @property
    def name(self) -> str:
        """Its identity: one limit exists for each."""
        parts = (("task", self.task), ("queue", self.queue), ("tenant", self.tenant), ("key", self.key))
        return " ".join(f"{label}={value}" for label, value in parts if value is not None)

    @property
    def size(self) -> int:
        """The size of the bucket."""
        if self.burst is not None or self.rate is None:
            return self.burst or 1
        return max(1, -(-self.rate.count * _DEFAULT_BURST // self.rate.period))

    def concerns(self, queue: str, tenant: str, task: str, *, is_flow: bool = False) -> bool:
        return (
            (self.task == task or (self.task is None and not is_flow))
            and (self.queue is None or self.queue == queue)
            and (self.tenant is None or self.tenant == tenant)
        )


def limit_record(limit: Limit, version: int = 1) -> Record:
    """Return a limit as it is stored."""
    return Record(
        kind=LIMIT, tenant=OWNER, key=limit.name, body=msgspec.json.encode(limit).decode(), version=version
    )


class Cohort(NamedTuple):
    """The parts of a cohort's text."""

    queue: str
    priority: int
    tenant: str
    task: str
    values: dict[str, str | None]
    """The values of keys; None where the payload has no such field."""
    is_flow: bool = False


@lru_cache(10_000)
def read_cohort(text: str) -> Cohort:
    """Split the text of a cohort. Names contain no spaces."""
    queue, level, tenant, task, *keys = text.split(" ")
    values: dict[str, str | None] = {}
    for part in keys:
        name, has_value, value = part.partition("=")
        values[name] = value if has_value else None
    is_flow = values.pop("", None) is not None
    return Cohort(queue, 9 - int(level), tenant, task, values, is_flow)


def cohort_range(queue: str) -> tuple[str, str]:
    """Return the bounds of the cohorts of a queue: from the first one to before the second one, by code
    points.

    Cohorts sort by queue, then the highest priority first, then tenant, task and values.
    """
    return f"{queue} ", f"{queue}!"


class Limits:
    """All limits of a store."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._limits = tuple(limits)
        self.tasks = frozenset(limit.task for limit in self._limits if limit.task is not None)
        """A run of one of these tasks may be limited. So may, whatever its task is, a run of one of
        ``tenants``, in one of ``queues``, or any run if ``any`` is true."""
        rest = [limit for limit in self._limits if limit.task is None]
        self.tenants = frozenset(limit.tenant for limit in rest if limit.tenant is not None)
        rest = [limit for limit in rest if limit.tenant is None]
        self.queues = frozenset(limit.queue for limit in rest if limit.queue is not None)
        self.any = any(limit.queue is None for limit in rest)
        self._of_cohort = lru_cache(10_000)(self._partitions)
        self._fitting = lru_cache(10_000)(self._fits)

    def __iter__(self) -> Iterator[Limit]:
        return iter(self._limits)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def may_concern(self, queue: str, tenant: str, task: str) -> bool:
        """Return whether a run gets a cohort. Stores select the same runs by comparing columns."""
        return self.any or task in self.tasks or tenant in self.tenants or queue in self.queues

    def cohort(self, run: RunRecord) -> str | None:
        """Return the cohort of a run; None if no limit can apply to it."""
        return self.cohort_of(run.queue, run.priority, run.tenant, run.task, run.payload, run.kind)

    def cohort_of(
        self, queue: str, priority: int, tenant: str, task: str, payload: str, kind: str = "task"
    ) -> str | None:
        if not self.may_concern(queue, tenant, task):
            return None
        is_flow = kind == "flow"
        cohort = f"{queue} {9 - priority} {tenant} {task}{_FLOW if is_flow else ''}"
        names = self._keys(queue, tenant, task, is_flow=is_flow)
        if not names:
            return cohort
        values = _values(payload, names)
        return cohort + "".join(f" {name}={values[name]}" if name in values else f" {name}" for name in names)

    def fits(self, cohort: str) -> bool:
        """Return whether the runs of a cohort belong there by the present limits. If not, because a limit was
        set or removed since, they get another cohort or none."""
        return self._fitting(cohort)

    def _fits(self, cohort: str) -> bool:
        try:
            parts = read_cohort(cohort)
        except ValueError:
            return False  # edited by hand
        names = self._keys(parts.queue, parts.tenant, parts.task, is_flow=parts.is_flow)
        return self.may_concern(parts.queue, parts.tenant, parts.task) and list(parts.values) == names

    def _keys(self, queue: str, tenant: str, task: str, *, is_flow: bool) -> list[str]:
        return sorted(
            {
                limit.key
                for limit in self._limits
                if limit.key is not None and limit.concerns(queue, tenant, task, is_flow=is_flow)
            }
        )

    def partitions(self, cohort: str) -> tuple[Partition, ...]:
        """Return the partitions that count the runs of a cohort."""
        return self._of_cohort(cohort)

    def _partitions(self, cohort: str) -> tuple[Partition, ...]:
        parts = read_cohort(cohort)
        found = []
        for limit in self._limits:
            if not limit.concerns(parts.queue, parts.tenant, parts.task, is_flow=parts.is_flow):
                continue
            if limit.key is None:
                found.append(Partition(limit.name, limit))
            elif (value := parts.values.get(limit.key)) is not None:
                found.append(Partition(f"{limit.name}={value}", limit))
        return tuple(found)

    def buckets(self, cohorts: Iterable[str]) -> list[str]:
        """Return the keys of the records of kind BUCKET that decide about these cohorts."""
        rated = (one for cohort in cohorts for one in self.partitions(cohort) if one.limit.rate is not None)
        return list(dict.fromkeys(one.name for one in rated))


class Partition(NamedTuple):
    """The runs that one number counts."""

    name: str
    limit: Limit


NO_LIMITS = Limits(())


@lru_cache(16)
def _read_limits(bodies: tuple[str, ...]) -> Limits:
    found = []
    for body in bodies:
        try:
            found.append(msgspec.json.decode(body, type=Limit))
        except (msgspec.MsgspecError, UnicodeError):
            continue  # edited by hand: doctor reports it
    return Limits(found)


def read_limits(bodies: Iterable[str]) -> Limits:
    """Read the bodies of the records of kind LIMIT, in the order of their keys. Repeated texts are not read
    again."""
    return _read_limits(tuple(bodies))


def _values(payload: str, names: Iterable[str]) -> dict[str, str]:
    """Return the values of these fields, without those that the payload lacks."""
    try:
        fields = from_json(payload)
        if isinstance(fields, dict):
            return {name: _value(fields[name]) for name in names if name in fields}
    except (msgspec.MsgspecError, UnicodeError):
        pass  # edited by hand: a claim must not fail on it
    return {}


def with_keys(run: RunRecord, payload: str) -> str | None:
    """Return what a claimed run has to store if its limits did not know the fields that they have as a key;
    None if they have counted it rightly.

    ``payload`` has the results of other steps, which the stored one lacks. Only the fields of keys are
    stored: results may be large.
    """
    keys = {} if run.cohort is None else read_cohort(run.cohort).values
    if not keys or payload == run.payload:
        return None
    values = _values(payload, keys)
    if all(values.get(name) == value for name, value in keys.items()):
        return None
    fields = from_json(payload)
    return encode({**from_json(run.payload), **{name: fields[name] for name in keys if name in fields}})


def _value(value: object) -> str:
    """Return a value as a text without spaces: equal for equal values, and short."""
    written = msgspec.json.encode(value, order="deterministic").decode()
    text = written[1:-1] if isinstance(value, str) else written
    if len(text) <= _LONGEST_VALUE and text.isascii() and text.isprintable() and " " not in text:
        # A text and a number that look the same are different values.
        return f'"{text}"' if isinstance(value, str) and _looks_like_json(text) else text
    digest = blake2b(written.encode(), digest_size=8).hexdigest()
    shown = "".join(
        letter if letter.isascii() and letter.isprintable() and letter != " " else "_"
        for letter in text[:_SHOWN_OF_VALUE]
    )
    return f"{shown}~{digest}"


def _looks_like_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return "~" in text
    return True


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """The level of a rate's bucket at an instant.

    One start costs ``period`` units, and ``count`` units flow in each millisecond: whole numbers without
    rounding.
    """

    level: int
    at: Instant
    period: int


def read_bucket(body: str) -> Bucket | None:
    """Read the body of a record of kind BUCKET; None if it can't be read: as good as a full bucket."""
    try:
        return msgspec.json.decode(body, type=Bucket)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def bucket_record(name: str, limit: Limit, bucket: Bucket) -> Record:
    """Return a bucket as it is stored. The record expires when the bucket is full: none is a full one.

    Its version does not matter: it is written while no other claim of limited runs is made.
    """
    assert limit.rate is not None
    missing = limit.size * limit.rate.period - bucket.level
    full_at = bucket.at + -(-missing // limit.rate.count)
    body = msgspec.json.encode(bucket).decode()
    return Record(kind=BUCKET, tenant=OWNER, key=name, body=body, expires=full_at)


def _refilled(bucket: Bucket | None, limit: Limit, now: Instant) -> Bucket:
    """Return the bucket at ``now``.

    A claim that was overtaken by another one has read the clock before that one did: the bucket stays as it
    is, or the time between the two would fill it twice. If the clock was set back by more, the level stays,
    and the bucket fills from now on.
    """
    assert limit.rate is not None
    count, period = limit.rate.count, limit.rate.period
    full = limit.size * period
    if bucket is None:
        return Bucket(full, now, period)
    # The limit may have been changed: the bucket keeps its number of starts.
    level = bucket.level if bucket.period == period else bucket.level * period // max(1, bucket.period)
    at = bucket.at if now < bucket.at <= now + _OVERTAKEN else now
    return Bucket(min(full, level + max(0, now - bucket.at) * count), at, period)


class Usage:
    """What is used of each limit at one moment: decides which runs may start, and counts those that do.

    The store makes it and writes the outcome in one atomic step, in which no other claim of limited runs is
    made.
    """

    def __init__(
        self, limits: Limits, running: Mapping[str, int], buckets: Mapping[str, str], now: Instant
    ) -> None:
        """``running``: how many runs of each cohort are running, by the cohorts that the present limits give
        them. ``buckets``: the bodies of the records of kind BUCKET, by key. ``now``: the time of the store's
        own clock."""
        self._limits = limits
        self._now = now
        self._used: defaultdict[str, int] = defaultdict(int)
        for cohort, count in running.items():
            for partition in limits.partitions(cohort):
                self._used[partition.name] += count
        self._stored = buckets
        self._buckets: dict[str, Bucket] = {}
        self._spent: dict[str, Partition] = {}

    def room(self, cohort: str) -> int | None:
        """Return how many more runs of a cohort may start now; None for any number."""
        free = [
            left
            for partition in self._limits.partitions(cohort)
            if (left := self.left(partition)) is not None
        ]
        return min(free, default=None)

    def take(self, cohort: str) -> None:
        """Count a run of the cohort that starts."""
        for partition in self._limits.partitions(cohort):
            self._used[partition.name] += 1
            if (rate := partition.limit.rate) is not None:
                bucket = self._bucket(partition)
                self._buckets[partition.name] = replace(bucket, level=bucket.level - rate.period)
                self._spent[partition.name] = partition

    def opens_at(self, cohort: str) -> Instant | None:
        """Return when the next run of a cohort may start; None if it waits until a running one ends, which
        wakes the workers."""
        opens = self._now
        for partition in self._limits.partitions(cohort):
            at = self.opens(partition)
            if at is None:
                return None
            opens = max(opens, at)
        return opens

    def opens(self, partition: Partition) -> Instant | None:
        """Return when the next run of a partition may start; None if it waits until a running one ends."""
        limit = partition.limit
        if limit.concurrency is not None and self._used[partition.name] >= limit.concurrency:
            return None
        if limit.rate is None:
            return self._now
        bucket = self._bucket(partition)
        missing = limit.rate.period - bucket.level
        return self._now if missing <= 0 else bucket.at + -(-missing // limit.rate.count)

    def left(self, partition: Partition) -> int | None:
        """Return how many more runs of a partition may start now; None for any number."""
        limit = partition.limit
        left = None
        if limit.concurrency is not None:
            left = max(0, limit.concurrency - self._used[partition.name])
        if limit.rate is not None:
            tokens = max(0, self._bucket(partition).level // limit.rate.period)
            left = tokens if left is None else min(left, tokens)
        return left

    def used(self, partition: Partition) -> int:
        """Return how many runs of a partition are running."""
        return self._used[partition.name]

    def spent(self) -> list[Record]:
        """Return the records of the buckets from which runs were taken, to be written with their claim."""
        return [
            bucket_record(name, partition.limit, self._buckets[name])
            for name, partition in self._spent.items()
        ]

    def _bucket(self, partition: Partition) -> Bucket:
        bucket = self._buckets.get(partition.name)
        if bucket is None:
            body = self._stored.get(partition.name)
            stored = None if body is None else read_bucket(body)
            bucket = self._buckets[partition.name] = _refilled(stored, partition.limit, self._now)
        return bucket


class Candidate(NamedTuple):
    """A due run that a claim may take."""

    id: str
    tenant: str
    priority: int
    run_at: Instant
    cohort: str | None = None


def choose(
    candidates: Iterable[Candidate], room: int, turn: str, usage: Usage | None = None
) -> list[Candidate]:
    """Choose the runs that a claim takes, in order: the highest priority first; within a priority the tenants
    in turn, beginning with the one after ``turn``; the runs of a tenant by time, then by id.

    A run that a limit does not admit is passed over.
    """
    chosen: list[Candidate] = []
    ordered = sorted(candidates, key=lambda run: (-run.priority, run.tenant, run.run_at, run.id))
    for _, of_priority in groupby(ordered, key=lambda run: run.priority):
        waiting = {
            tenant: iter(list(runs)) for tenant, runs in groupby(of_priority, key=lambda run: run.tenant)
        }
        tenants = in_turn(list(waiting), turn)
        while tenants and len(chosen) < room:
            left = []
            for tenant in tenants:
                if len(chosen) >= room:
                    break
                run = next((run for run in waiting[tenant] if _admits(usage, run)), None)
                if run is not None:
                    chosen.append(run)
                    left.append(tenant)
            tenants = left
        if len(chosen) >= room:
            break
    return chosen


def _admits(usage: Usage | None, run: Candidate) -> bool:
    """Count the run if its limits admit it, and return whether they do."""
    if usage is None or run.cohort is None:
        return True
    if usage.room(run.cohort) == 0:
        return False
    usage.take(run.cohort)
    return True


def in_turn(tenants: Sequence[str], turn: str) -> list[str]:
    """Return tenants in the order in which a claim serves them: those after ``turn``, then the others."""
    ordered = sorted(tenants)
    return [tenant for tenant in ordered if tenant > turn] + [tenant for tenant in ordered if tenant <= turn]


def share(room: int, tenants: int) -> int:
    """Return how many of ``room`` runs the next of so many tenants gets: an equal part, rounded up."""
    return -(-room // max(1, tenants))


def next_start(cohorts: Iterable[tuple[str, Instant]], usage: Usage) -> Instant | None:
    """Return when the next of some cohorts' runs may start, given the ``run_at`` of each cohort's first run;
    None if all wait for running ones to end."""
    starts = [
        max(run_at, opens) for cohort, run_at in cohorts if (opens := usage.opens_at(cohort)) is not None
    ]
    return min(starts, default=None)

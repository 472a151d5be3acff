"""Rollups: the figures that a node writes for each minute and hour, their arithmetic and their stored form.

A *tally* is the counts of one period as a list of integers, since incrementing an item of a list is the
cheapest way to count in Python. ``Counts`` is the same with names, as records store it. Pure.

Histograms have 32 buckets. Bucket 0 holds lengths under 1 ms, bucket n those from 2^(n-1) ms to under 2^n ms;
the last one, from 2^30 ms (12 days) on, is open. A percentile is interpolated inside its bucket, so it is
never more than a factor of two off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import add
from typing import Literal, TypeAlias, get_args

import msgspec

from evenbeat.core.instants import EPOCH, MILLISECOND, Instant, from_ms
from evenbeat.core.records import Reason

By: TypeAlias = Literal["minute", "hour"]
"""The periods for which nodes write figures."""

MINUTE, HOUR = 60_000, 3_600_000
LENGTH: dict[By, int] = {"minute": MINUTE, "hour": HOUR}
KEPT: dict[By, int] = {"minute": 3 * HOUR, "hour": 40 * 24 * HOUR}
"""How long records of figures are kept, in milliseconds."""

MOST_TENANTS = 500
"""How many tenants one record keeps apart; the others are counted together."""
MOST_NAMES = 200
"""How many schedules, and how many tasks, of a tenant one record keeps apart."""
MOST_NAMES_IN_ALL = 2_000
"""How many pairs of schedule and task of all tenants one record keeps apart: it stays below some 400 KB."""

BUCKETS = 32

_NUMBERS = ("fired", "started", "succeeded", "failed", "cancelled", "retried", "crashed", "released")
FIRED, STARTED, SUCCEEDED, FAILED, CANCELLED, RETRIED, CRASHED, RELEASED = range(8)
REASONS: tuple[Reason, ...] = get_args(Reason)
SKIPPED = {reason: len(_NUMBERS) + at for at, reason in enumerate(REASONS)}
"""The place of each reason in a tally."""
TOOK = len(_NUMBERS) + len(REASONS)
"""The place of the first bucket of durations in a tally."""
LATE = TOOK + BUCKETS
"""The place of the first bucket of lateness in a tally."""
TOOK_SUM = LATE + BUCKETS
"""The place of the sum of all durations in a tally, in microseconds."""
LATE_SUM = TOOK_SUM + 1
"""The place of the sum of all lateness in a tally, in microseconds."""
SIZE = LATE_SUM + 1

Tally: TypeAlias = list[int]
Name: TypeAlias = tuple[str, str | None, str]
"""(tenant, schedule, task) of a tally. A schedule of None: a run without one. OTHER: one of those that the
bounds leave no room for."""
OTHER = ""


def new_tally() -> Tally:
    return [0] * SIZE


def bucket(ms: int) -> int:
    """Return the bucket of a length of time; a negative one counts as 0."""
    return min(ms.bit_length(), BUCKETS - 1) if ms > 0 else 0


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tally as it is stored: zeros are left out."""

    fired: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    crashed: int = 0
    released: int = 0
    skipped: dict[str, int] = {}
    took: dict[int, int] = {}
    late: dict[int, int] = {}
    took_us: int = 0
    late_us: int = 0


class BriefCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the stored counts, for readers of many names: the histograms take most of the time to read."""

    fired: int = 0
    failed: int = 0
    skipped: dict[str, int] = {}


class TenantCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of a tenant in one record."""

    total: Counts
    schedules: msgspec.Raw = msgspec.Raw(b"{}")
    """``Counts`` by name. Raw, so that readers of totals do not pay for them."""
    tasks: msgspec.Raw = msgspec.Raw(b"{}")
    has_others: bool = False
    """Whether some schedules or tasks are counted in the total alone."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a record: what a node has counted in a minute, or in an hour so far."""

    written_at: Instant
    ticker: bool = True
    worker: bool = True
    tenants: dict[str, TenantCounts] = {}
    others: Counts | None = None
    """The figures of all further tenants, together."""


_NAMED = dict[str, Counts]
# msgspec inspects types when it first reads one, and is not safe if threads do so at once: see core.records.
_read_rollup = msgspec.json.Decoder(Rollup)
_read_named = msgspec.json.Decoder(_NAMED)
_read_brief = msgspec.json.Decoder(dict[str, BriefCounts])


# -- keys and periods ----------------------------------------------------------------------------------------


def start_of(by: By, instant: Instant) -> Instant:
    """Return the start of the period that contains an instant."""
    return instant - instant % LENGTH[by]


def rollup_key(by: By, start: Instant, node: str = "") -> str:
    """Return the key of a node's record. Without a node: the bound of a search, before all keys of the
    period."""
    return f"{by}/{from_ms(start):%Y-%m-%dT%H:%MZ}/{node}"


def read_key(key: str) -> tuple[Instant, str] | None:
    """Return the start of the period and the node of a key; None if the key is not one of ours."""
    parts = key.split("/", 2)
    if len(parts) != 3:
        return None
    try:
        return (datetime.fromisoformat(parts[1]) - EPOCH) // MILLISECOND, parts[2]
    except (ValueError, TypeError):
        return None


# -- writing -------------------------------------------------------------------------------------------------


def make_rollup(
    tallies: Mapping[Name, Tally], *, written_at: Instant, ticker: bool = True, worker: bool = True
) -> Rollup:
    """Return the tallies of a period, summed by tenant, by schedule and by task."""
    totals: dict[str, Tally] = {}
    schedules: dict[str, dict[str, Tally]] = {}
    tasks: dict[str, dict[str, Tally]] = {}
    crowded: set[str] = set()
    for (tenant, schedule, task), tally in tallies.items():
        _add(totals, tenant, tally)
        for names, name in ((schedules, schedule), (tasks, task)):
            if name == OTHER:
                crowded.add(tenant)
            elif name is not None:
                _add(names.setdefault(tenant, {}), name, tally)
    others = totals.pop(OTHER, None)
    return Rollup(
        written_at=written_at,
        ticker=ticker,
        worker=worker,
        tenants={
            tenant: TenantCounts(
                total=to_counts(total),
                schedules=_named(schedules.get(tenant)),
                tasks=_named(tasks.get(tenant)),
                has_others=tenant in crowded,
            )
            for tenant, total in totals.items()
        },
        others=None if others is None else to_counts(others),
    )


def write_rollup(rollup: Rollup) -> str:
    """Return the body of a record."""
    return msgspec.json.encode(rollup).decode()


def _add(tallies: dict[str, Tally], name: str, tally: Tally) -> None:
    present = tallies.get(name)
    tallies[name] = tally if present is None else list(map(add, present, tally))


def _named(tallies: Mapping[str, Tally] | None) -> msgspec.Raw:
    named = {name: to_counts(tally) for name, tally in (tallies or {}).items()}
    return msgspec.Raw(msgspec.json.encode(named))


def to_counts(tally: Tally) -> Counts:
    """Return a tally with names, without zeros."""
    return Counts(
        **dict(zip(_NUMBERS, tally, strict=False)),
        skipped={reason: tally[at] for reason, at in SKIPPED.items() if tally[at]},
        took={at: number for at, number in enumerate(tally[TOOK:LATE]) if number},
        late={at: number for at, number in enumerate(tally[LATE:TOOK_SUM]) if number},
        took_us=tally[TOOK_SUM],
        late_us=tally[LATE_SUM],
    )


# -- reading -------------------------------------------------------------------------------------------------


def read_rollup(body: str) -> Rollup | None:
    """Return the body of a record; None if it can't be read."""
    try:
        return _read_rollup.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def read_named(raw: msgspec.Raw) -> dict[str, Counts]:
    """Return the counts of schedules or tasks by name; nothing if they can't be read."""
    try:
        return _read_named.decode(raw)
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def read_brief(raw: msgspec.Raw) -> dict[str, BriefCounts]:
    """Return some counts of schedules or tasks by name; nothing if they can't be read."""
    try:
        return _read_brief.decode(raw)
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def add_counts(tally: Tally, counts: Counts) -> None:
    """Add stored counts to a tally. Reasons and buckets that this version does not know are ignored.

    Statistics with ``top`` call it for each name of each record. It takes 0.6 us, and took 0.9 us without the
    tests: most counts are 0, and a test costs less than an addition.
    """
    tally[FIRED] += counts.fired
    tally[STARTED] += counts.started
    tally[SUCCEEDED] += counts.succeeded
    if counts.failed:
        tally[FAILED] += counts.failed
    if counts.cancelled:
        tally[CANCELLED] += counts.cancelled
    if counts.retried:
        tally[RETRIED] += counts.retried
    if counts.crashed:
        tally[CRASHED] += counts.crashed
    if counts.released:
        tally[RELEASED] += counts.released
    if counts.skipped:
        for reason, number in counts.skipped.items():
            if reason in SKIPPED:
                tally[SKIPPED[reason]] += number
    tally[TOOK_SUM] += counts.took_us
    tally[LATE_SUM] += counts.late_us
    for at, number in counts.took.items():
        if 0 <= at < BUCKETS:
            tally[TOOK + at] += number
    for at, number in counts.late.items():
        if 0 <= at < BUCKETS:
            tally[LATE + at] += number


def add_tallies(tally: Tally, other: Tally) -> None:
    """Add the second tally to the first."""
    tally[:] = map(add, tally, other)


def merged(first: Rollup, second: Rollup) -> Rollup:
    """Return the sum of two rollups of one period; ``written_at`` and the node's duties are the second's."""
    tenants = dict(first.tenants)
    for tenant, counts in second.tenants.items():
        present = tenants.get(tenant)
        if present is not None:
            counts = TenantCounts(
                total=_sum(present.total, counts.total),
                schedules=_merged_names(present.schedules, counts.schedules),
                tasks=_merged_names(present.tasks, counts.tasks),
                has_others=present.has_others or counts.has_others,
            )
        tenants[tenant] = counts
    others = [counts for counts in (first.others, second.others) if counts is not None]
    return msgspec.structs.replace(second, tenants=tenants, others=_sum(*others) if others else None)


def _merged_names(first: msgspec.Raw, second: msgspec.Raw) -> msgspec.Raw:
    named = read_named(first)
    for name, counts in read_named(second).items():
        named[name] = _sum(named[name], counts) if name in named else counts
    return msgspec.Raw(msgspec.json.encode(named))


def _sum(*counts: Counts) -> Counts:
    tally = new_tally()
    for each in counts:
        add_counts(tally, each)
    return to_counts(tally)


# -- percentiles ---------------------------------------------------------------------------------------------


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """Return the length, in ms, that this share of all lengths does not exceed; None if there are none."""
    total = sum(buckets)
    if not total:
        return None
    rank, before = share * total, 0
    for at, number in enumerate(buckets):
        if number and before + number >= rank:
            low, high = (0, 1) if at == 0 else (1 << (at - 1), 1 << at)
            # ``rank - before`` of the bucket's lengths are at or below it, if they are spread evenly.
            return low + (high - low) * (rank - before) / number
        before += number
    raise AssertionError("a rank within the total is in a bucket")

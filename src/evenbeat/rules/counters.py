"""Counters: what all nodes have counted since the store was created, and its stored form. Pure.

Rollups answer how much happened in a minute or an hour, and are deleted. Prometheus wants numbers that only
grow. So each process keeps one record with everything that it has counted since its start, and the records
of processes that have ended are added to the *base*. A counter is the base plus all records.

No count may be in two places at once, nor in none:

- A record is *sealed* before it is added to the base: its process can't change it any more.
- The base names the records that it contains, so that adding one twice, or reading both, counts nothing
  twice. A reader reads the records first and the base last: a record that disappeared in between is in it.
- A process whose record was sealed (it was frozen, or cut off) continues with another record, which begins
  where the sealed one ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, sub
from typing import NamedTuple, TypeAlias

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.rules import rollups
from evenbeat.rules.rollups import BUCKETS, OTHER, Counts, Tally, add_counts, new_tally, to_counts

FORMAT = 1
"""The format of the records that this version writes. It leaves records of a newer format as they are."""
SEALED = 1 << 40
"""Added to the version of a record that is sealed."""
OLD = 600_000
"""Milliseconds after which a record that was not written again is sealed: a node writes it each minute."""
REMEMBERED = 86_400_000
"""Milliseconds for which the base names the records that it contains, at least."""

MOST_PAIRS = rollups.MOST_NAMES_IN_ALL
"""How many pairs of tenant and task are kept apart."""
MOST_OTHERS = rollups.MOST_TENANTS
"""For how many tenants the tasks past that bound are counted together; for the others in all."""

CLAIMS, CALLS = "claims", "calls"
"""The names of lengths of time: claims of runs, and calls of the store by operation."""
NUMBERS: dict[str, tuple[str, ...]] = {
    "lease_losses": (),
    "duplicates": ("kind",),
    "lock_failures": ("lock", "reason"),
    "store_errors": ("operation",),
    "alerts": ("channel", "outcome"),
}
"""What a node counts that belongs to no tenant, with the labels of each."""

Pair: TypeAlias = tuple[str, str]
"""(tenant, task). OTHER stands for those that the bounds leave no room for."""
Spread: TypeAlias = list[int]
"""Lengths of time as a list: their sum in microseconds, then the buckets of rollups."""


def new_spread() -> Spread:
    return [0] * (1 + BUCKETS)


def counter_name(name: str, *labels: str) -> str:
    """Return the name of a number or of lengths, with its labels: ``lock_failures/named/held``."""
    return "/".join((name, *labels))


def read_name(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the labels of a text that ``counter_name`` made."""
    name, *labels = text.split("/")
    return name, tuple(labels)


class Lengths(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A spread as it is stored: zeros are left out."""

    us: int = 0
    buckets: dict[int, int] = {}


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts as they are stored."""

    format: int = FORMAT
    tenants: dict[str, dict[str, Counts]] = {}
    """By tenant and task."""
    numbers: dict[str, int] = {}
    """What belongs to a node and not to a tenant, by name: the parts of a name are separated by slashes."""
    lengths: dict[str, Lengths] = {}


class CounterRecord(Counters, frozen=True, kw_only=True, omit_defaults=True):
    """The body of the record of one process."""

    written_at: Instant = 0
    is_sealed: bool = False


class Folded(NamedTuple):
    """A record that the base contains."""

    version: int
    """Its last version before it was sealed."""
    at: Instant


class Base(Counters, frozen=True, kw_only=True, omit_defaults=True):
    """The body of the base."""

    folded: dict[str, Folded] = {}
    """The records that it contains, by their keys; old ones are forgotten after they were deleted."""


# msgspec inspects types when it first reads one, and is not safe if threads do so at once: see core.records.
_read_record = msgspec.json.Decoder(CounterRecord)
_read_base = msgspec.json.Decoder(Base)


class Sums(NamedTuple):
    """Counts that can be added up. Lists in it are replaced, and never changed."""

    tallies: dict[Pair, Tally]
    numbers: dict[str, int]
    lengths: dict[str, Spread]

    @classmethod
    def empty(cls) -> Sums:
        return cls({}, {}, {})

    def add_tally(self, tenant: str, task: str, tally: Tally) -> None:
        """Add the counts of a task, or count them with the others where there is no room for its name."""
        pair = self._admit((tenant, task))
        present = self.tallies.get(pair)
        self.tallies[pair] = tally if present is None else list(map(add, present, tally))

    def add(self, counters: Counters) -> None:
        """Add stored counts."""
        for tenant, tasks in counters.tenants.items():
            for task, counts in tasks.items():
                tally = new_tally()
                add_counts(tally, counts)
                self.add_tally(tenant, task, tally)
        for name, number in counters.numbers.items():
            self.numbers[name] = self.numbers.get(name, 0) + number
        for name, lengths in counters.lengths.items():
            self.lengths[name] = list(map(add, self.lengths.get(name) or new_spread(), _spread(lengths)))

    def minus(self, earlier: Sums) -> Sums:
        """Return what was counted since ``earlier``."""
        return Sums(
            {pair: _less(tally, earlier.tallies.get(pair)) for pair, tally in self.tallies.items()},
            {name: number - earlier.numbers.get(name, 0) for name, number in self.numbers.items()},
            {name: _less(spread, earlier.lengths.get(name)) for name, spread in self.lengths.items()},
        )

    def _admit(self, pair: Pair) -> Pair:
        if pair in self.tallies or len(self.tallies) < MOST_PAIRS:
            return pair
        rest = (pair[0], OTHER)
        return (
            rest if rest in self.tallies or len(self.tallies) < MOST_PAIRS + MOST_OTHERS else (OTHER, OTHER)
        )


def _less(values: list[int], earlier: list[int] | None) -> list[int]:
    return values if earlier is None else list(map(sub, values, earlier))


def _spread(lengths: Lengths) -> Spread:
    spread = new_spread()
    spread[0] = lengths.us
    for at, number in lengths.buckets.items():
        if 0 <= at < BUCKETS:
            spread[1 + at] = number
    return spread


# -- stored forms --------------------------------------------------------------------------------------------


def write_record(sums: Sums, now: Instant) -> str:
    """Return the body of a process's record."""
    stored = _stored(sums)
    return _encode(
        CounterRecord(tenants=stored.tenants, numbers=stored.numbers, lengths=stored.lengths, written_at=now)
    )


def write_sealed(record: CounterRecord) -> str:
    """Return the body of a record that its process can't change any more."""
    return _encode(msgspec.structs.replace(record, is_sealed=True))


def write_base(base: Base) -> str:
    return _encode(base)


def read_record(body: str) -> CounterRecord | None:
    """Return the body of a process's record; None if it can't be read."""
    try:
        return _read_record.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def read_base(body: str) -> Base | None:
    """Return the body of the base; None if it can't be read."""
    try:
        return _read_base.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _encode(body: Counters) -> str:
    return msgspec.json.encode(body).decode()


def _stored(sums: Sums) -> Counters:
    tenants: dict[str, dict[str, Counts]] = {}
    for (tenant, task), tally in sums.tallies.items():
        if any(tally):
            tenants.setdefault(tenant, {})[task] = to_counts(tally)
    return Counters(
        tenants=tenants,
        numbers={name: number for name, number in sums.numbers.items() if number},
        lengths={
            name: Lengths(us=spread[0], buckets={at: n for at, n in enumerate(spread[1:]) if n})
            for name, spread in sums.lengths.items()
            if any(spread)
        },
    )


# -- the base ------------------------------------------------------------------------------------------------


def is_old(record: CounterRecord, now: Instant) -> bool:
    """Return whether a record's process has ended, or no longer reaches the store."""
    return record.format <= FORMAT and (record.is_sealed or now - record.written_at >= OLD)


def with_folded(base: Base, sealed: dict[str, tuple[int, CounterRecord]], now: Instant) -> Base:
    """Return the base with the sealed records, by their keys, that it does not contain yet.

    Each comes with its last version before it was sealed. Forgets the names of records that it has contained
    for a day: by then they are deleted.
    """
    sums = Sums.empty()
    sums.add(base)
    folded = {key: each for key, each in base.folded.items() if key in sealed or now - each.at < REMEMBERED}
    for key, (version, record) in sealed.items():
        if key not in folded:
            sums.add(record)
            folded[key] = Folded(version, now)
    stored = _stored(sums)
    return Base(tenants=stored.tenants, numbers=stored.numbers, lengths=stored.lengths, folded=folded)


def total(base: Base | None, records: Iterable[tuple[str, CounterRecord]]) -> Sums:
    """Return the sum of the base and of all records, by their keys, that it does not contain."""
    sums = Sums.empty()
    if base is not None:
        sums.add(base)
    for key, record in records:
        if base is None or key not in base.folded:
            sums.add(record)
    return sums

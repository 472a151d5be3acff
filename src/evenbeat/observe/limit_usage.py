"""What each limit counts and holds up now, from the counts of active runs. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.limits import LimitValue, RunLimit
from evenbeat.core.rates import write_rate
from evenbeat.core.records import RunRecord
from evenbeat.core.results import ChangeWarning
from evenbeat.observe.reasons import partition_value
from evenbeat.rules.limit_definitions import limit_words
from evenbeat.rules.limits import Limit, Limits, Partition, Usage
from evenbeat.rules.waiting import Hold

MOST_VALUES = 10


class CohortCounts(NamedTuple):
    """Counts of the active runs of a cohort, by the cohorts that the present limits give them."""

    cohort: str
    running: int
    due: int
    oldest_due: Instant | None


class PartitionCounts(NamedTuple):
    """Counts of the active runs of a partition."""

    partition: Partition
    running: int = 0
    due: int = 0
    waiting: int = 0
    """Due runs that the limit does not admit now."""
    oldest_due: Instant | None = None


class LimitUsage:
    """What is used of each limit of a store at one moment."""

    def __init__(
        self, limits: Limits, counts: Iterable[CohortCounts], buckets: Mapping[str, str], now: Instant
    ) -> None:
        self.limits = limits
        counts = list(counts)
        running = Counter({each.cohort: 0 for each in counts})
        for each in counts:
            running[each.cohort] += each.running
        self._usage = Usage(limits, running, buckets, now)
        self._counts = self._by_limit(counts)

    def _by_limit(self, counts: Iterable[CohortCounts]) -> dict[str, dict[str, PartitionCounts]]:
        found: defaultdict[str, dict[str, PartitionCounts]] = defaultdict(dict)
        for each in counts:
            for partition in self.limits.partitions(each.cohort):
                of_limit = found[partition.limit.name]
                before = of_limit.get(partition.name, PartitionCounts(partition))
                due = before.due + each.due
                left = self._usage.left(partition)
                oldest = [at for at in (before.oldest_due, each.oldest_due) if at is not None]
                of_limit[partition.name] = PartitionCounts(
                    partition,
                    before.running + each.running,
                    due,
                    0 if left is None else max(0, due - left),
                    min(oldest, default=None),
                )
        return found

    def of(self, limit: Limit) -> list[PartitionCounts]:
        """Return the counts of a limit's partitions that have active runs, the busiest first."""
        found = self._counts.get(limit.name, {}).values()
        return sorted(found, key=lambda each: (-each.waiting, -each.running, each.partition.name))

    def oldest_waiting(self, limit: Limit) -> Instant | None:
        """Return since when the oldest run has been due of a partition in which runs wait."""
        waits = [each.oldest_due for each in self.of(limit) if each.waiting and each.oldest_due is not None]
        return min(waits, default=None)

    def hold(self, run: RunRecord) -> Hold | None:
        """Return the limit that does not admit a run now; None if all do.

        Of several limits it is one that waits for the end of a running run, else the one that opens last. A
        run without a cohort of its own and without its payload counts as a run without keys.
        """
        cohort = self._cohort(run)
        if cohort is None:
            return None
        holds = [
            Hold(each.limit, each.name, self._usage.used(each), self._usage.opens(each))
            for each in self.limits.partitions(cohort)
            if self._usage.left(each) == 0
        ]
        return max(holds, key=lambda each: (each.opens is None, each.opens or 0), default=None)

    def counted(self, run: RunRecord) -> list[str]:
        """Return the names of the partitions that count a run."""
        cohort = self._cohort(run)
        return [] if cohort is None else [each.name for each in self.limits.partitions(cohort)]

    def _cohort(self, run: RunRecord) -> str | None:
        if run.cohort is not None and self.limits.fits(run.cohort):
            return run.cohort
        return self.limits.cohort(run)

    def view(self, limit: Limit, warnings: tuple[ChangeWarning, ...] = ()) -> RunLimit:
        """Return a limit as users see it."""
        counts = self.of(limit)
        oldest = self.oldest_waiting(limit)
        left = opens = None
        if limit.key is None:
            whole = Partition(limit.name, limit)
            left = self._usage.left(whole)
            opens = self._usage.opens(whole) if left == 0 else None
        return RunLimit(
            name=limit.name,
            task=limit.task,
            queue=limit.queue,
            tenant=limit.tenant,
            key=limit.key,
            concurrency=limit.concurrency,
            rate=None if limit.rate is None else write_rate(limit.rate),
            burst=None if limit.rate is None else limit.size,
            words=limit_words(limit),
            running=sum(each.running for each in counts),
            waiting=sum(each.waiting for each in counts),
            oldest_waiting=None if oldest is None else from_ms(min(max(oldest, FIRST), LAST)),
            admits=left,
            admits_at=None if opens is None else from_ms(opens),
            values=() if limit.key is None else tuple(map(_value, counts[:MOST_VALUES])),
            value_count=0 if limit.key is None else len(counts),
            warnings=warnings,
        )


def _value(counts: PartitionCounts) -> LimitValue:
    partition = counts.partition
    return LimitValue(
        value=partition_value(partition.limit, partition.name), running=counts.running, waiting=counts.waiting
    )

"""Claims of the store in memory: tenants in turn, and limits."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.rules.limits import (
    BUCKET,
    LIMIT,
    NO_LIMITS,
    OWNER,
    Candidate,
    Limits,
    Usage,
    choose,
    next_start,
    read_cohort,
    read_limits,
)
from evenbeat.stores.base import Claim, Claimed
from evenbeat.stores.memory.state import MemoryState

# How many claims can still be repeated: far more than workers make at a time.
_CLAIMS_KEPT = 10_000


class MemoryClaims(MemoryState):
    """Gives due runs to workers."""

    def claim_runs(self, claim: Claim) -> Claimed:
        with self._lock:
            limits = self._limits()
            usage = None
            if limits or self._queued.has_cohorts:
                usage = Usage(limits, self._running_cohorts(limits), self._buckets(), self.now())
            is_repetition = claim.token in self._claims
            runs = self._held(claim) if is_repetition else self._claim(claim, limits, usage)
            return Claimed(tuple(runs), self._next_due(claim, usage))

    def _limits(self) -> Limits:
        # 0.2 us without limits.
        if not self._records.has(LIMIT):
            return NO_LIMITS
        return read_limits(record.body for record in self._records.find(LIMIT, OWNER, "", None, None))

    def _buckets(self) -> dict[str, str]:
        return {record.key: record.body for record in self._records.find(BUCKET, OWNER, "", None, None)}

    def _running_cohorts(self, limits: Limits) -> Counter[str]:
        """Count the running runs by the cohorts that the present limits give them."""
        cohorts = (limits.cohort(self._runs[run_id]) for run_id in self._running)
        return Counter(cohort for cohort in cohorts if cohort is not None)

    def _next_due(self, claim: Claim, usage: Usage | None) -> Instant | None:
        next_due = self._queued.next_due(claim)
        if usage is None:
            return next_due
        firsts = ((cohort, self._queued.first_of_cohort(cohort)) for cohort in self._queued.cohorts(claim))
        start = next_start([(cohort, first) for cohort, first in firsts if first is not None], usage)
        return min((at for at in (next_due, start) if at is not None), default=None)

    def _held(self, claim: Claim) -> list[RunRecord]:
        """Return the runs of a repeated claim that are still held."""
        held = (self._runs[run_id] for run_id in self._claims[claim.token] if run_id in self._runs)
        return [run for run in held if run.claim == claim.token and run.state == "running"]

    def _claim(self, claim: Claim, limits: Limits, usage: Usage | None) -> list[RunRecord]:
        now = min(claim.now, self.now())

        def give_cohort(run: RunRecord) -> bool:
            cohort = limits.cohort(run)
            if cohort is not None:
                self._store(replace(run, cohort=cohort))
            return cohort is not None

        if usage is not None:
            self._move_misfits(claim, limits, now)
        chosen: list[Candidate] = []
        for priority in range(9, -1, -1):
            room = claim.limit - len(chosen)
            if room <= 0:
                break
            some = self._queued.due(claim, now, room, priority, give_cohort)
            if usage is not None:
                some += self._limited(claim, usage, now, priority)
            taken = choose(some, room, claim.turn, usage)
            ids = {run.id for run in taken}
            self._queued.add_candidates([run for run in some if run.id not in ids])
            chosen += taken
        if usage is not None:
            self._records.write(usage.spent())
        return self._started(claim, chosen)

    def _move_misfits(self, claim: Claim, limits: Limits, now: Instant) -> None:
        """Give other cohorts, or none, to runs whose cohorts do not fit the limits any more."""
        for cohort in self._queued.cohorts(claim):
            if not limits.fits(cohort):
                for candidate in self._queued.of_cohort(cohort, now, None):
                    run = self._runs[candidate.id]
                    self._store(replace(run, cohort=limits.cohort(run)))

    def _limited(self, claim: Claim, usage: Usage, now: Instant, priority: int) -> list[Candidate]:
        """Take the first due runs of each cohort of a priority out of its heap."""
        found: list[Candidate] = []
        for cohort in self._queued.cohorts(claim):
            if read_cohort(cohort).priority == priority:
                room = usage.room(cohort)
                most = claim.limit if room is None else min(room, claim.limit)
                found += self._queued.of_cohort(cohort, now, most)
        return found

    def _started(self, claim: Claim, chosen: list[Candidate]) -> list[RunRecord]:
        claimed: list[RunRecord] = []
        for candidate in chosen:
            run = self._runs[candidate.id]
            taken = replace(
                run,
                state="running",
                attempt=run.attempt + 1,
                worker=claim.worker,
                claim=claim.token,
                lease_until=self.now() + claim.lease,
                started_at=self.now(),
            )
            self._store(taken)
            claimed.append(taken)
        if claimed:
            self._claims[claim.token] = [run.id for run in claimed]
            if len(self._claims) > _CLAIMS_KEPT:
                del self._claims[next(iter(self._claims))]
        return claimed

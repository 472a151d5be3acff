"""Claims runs to which limits may apply.

One claim at a time does this, under an advisory lock of the schema, which ends with the transaction. It
counts the running runs, decides in Python, and writes. The others claim unlimited runs meanwhile. The server
ends the session of a claim that is frozen while it has the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import Candidate, Limits, Usage, choose, next_start, read_cohort
from evenbeat.stores.base import Claim, Claimed
from evenbeat.stores.postgres import claim_statements as sql
from evenbeat.stores.postgres import records
from evenbeat.stores.postgres.encoding import json_list, json_text, unmarked
from evenbeat.stores.postgres.free_claims import ClaimResult, candidate, committed, free_runs, started
from evenbeat.stores.postgres.outlook import Groups, Guess, Outlook, outlook_statement, scope
from evenbeat.stores.postgres.runs import read_rows
from evenbeat.stores.postgres.session import Statement, Transaction
from evenbeat.stores.refusals import ClaimRefused
from evenbeat.stores.rows import Row

# How many runs get a cohort in one claim, and how many runs it compares. Giving 200 takes about 10 ms.
# While 50,000 limited runs get theirs, an unlimited run starts within 55 ms (p99); with 500, within 70.
_ASSIGNED, _COMPARED = 200, 5_000
# Far longer than a claim computes between two round trips, in ms.
_IDLE_TIMEOUT = 3_000


class _Survey(NamedTuple):
    """What a claim reads first."""

    running: list[Row]
    """(cohort, count)."""
    unassigned_running: list[Row]
    cohorts: list[Row]
    """The fields of _First."""
    unassigned: list[Row]


class _First(NamedTuple):
    """The first queued run of a cohort."""

    queue: str
    cohort: str
    run_at: Instant
    id: str
    tenant: str
    priority: int


def survey_statements(wanted: Claim, limits: Limits, clock: int | None) -> list[Statement]:
    """Return the statements that take the lock, and read what a claim decides on."""
    tasks = limits.tasks if wanted.tasks is None else limits.tasks & wanted.tasks
    values = {
        **scope(wanted, clock).values,
        "has_keys": _has_keys(limits),
        "any": limits.any,
        "limited_tenants": sorted(limits.tenants),
        "limited_queues": sorted(limits.queues),
        "most": _ASSIGNED,
        "idle_timeout": str(_IDLE_TIMEOUT),
    }
    return [
        scope(wanted, clock, limits).groups_statement,
        (sql.LOCK_LIMITED, values),
        (sql.COUNT_RUNNING, ()),
        (sql.SELECT_RUNNING, {**values, "limited_tasks": sorted(limits.tasks)}),
        (sql.SELECT_COHORTS, values),
        (sql.unassigned(wanted.tasks is not None), {**values, "limited_tasks": sorted(tasks)}),
    ]


def claim(
    transaction: Transaction,
    wanted: Claim,
    outlook: Outlook,
    clock: int | None,
    surveyed: list[list[Row]] | None,
) -> ClaimResult:
    """Claim limited and unlimited runs. ``surveyed``: the answers to ``survey_statements``, if sent."""
    limits = outlook.limits
    if surveyed is None:
        surveyed = transaction.together("select cohorts", survey_statements(wanted, limits, clock))
    ((found,),), ((has_lock, _),), *rest = surveyed
    groups = scope(wanted, clock, limits).groups(found)
    if not has_lock:
        return _claim_unlimited(transaction, wanted, limits, groups, clock)
    return _Claim(transaction, wanted, limits, clock).made(groups, _Survey(*rest))


def _claim_unlimited(
    transaction: Transaction, wanted: Claim, limits: Limits, groups: Groups, clock: int | None
) -> ClaimResult:
    """Claim runs that no limit concerns, because another claim has the lock."""
    rows = free_runs(transaction, wanted, scope(wanted, clock, limits), groups, None, [])
    runs, to_quarantine = read_rows(rows)
    taken, statements = started(transaction, wanted, runs)
    committed(transaction, taken, statements)
    # Limited runs may be waiting: claim again soon.
    next_due = min(wanted.now, transaction.now)
    return ClaimResult(Claimed(tuple(taken), next_due), None, to_quarantine)


class _Claim:
    """A claim that has the lock."""

    def __init__(self, transaction: Transaction, wanted: Claim, limits: Limits, clock: int | None) -> None:
        self._transaction = transaction
        self._wanted = wanted
        self._limits = limits
        self._clock = clock
        self._due = min(wanted.now, transaction.now)
        self._values: dict[str, object] = {
            "now": wanted.now,
            "clock": clock,
            "format": FORMAT,
            "has_keys": _has_keys(limits),
            "most": _ASSIGNED,
        }
        self._running: Counter[str] = Counter()
        """How many runs of each cohort are running."""
        self._queued: dict[str, _First] = {}
        """The cohorts that the claim may take."""
        self._given: dict[str, str | None] = {}
        """The cohorts that the claim gives to runs, by id."""
        self._has_freed = False
        """Whether no limit concerns some of these any more."""
        self._leaves_misfits = False
        """Whether due runs stay in cohorts that do not fit the limits."""

    def made(self, groups: Groups, survey: _Survey) -> ClaimResult:
        wanted = self._wanted
        self._read(survey)
        buckets, groups = self._prepare(groups)
        free, heads = self._candidates(groups, self._usage(buckets))
        free_ids = {run.id for run in map(candidate, free)}
        chosen = choose([*map(candidate, free), *heads], wanted.limit, wanted.turn, self._usage(buckets))
        ids = [run.id for run in chosen if run.id not in free_ids]
        locked: list[Row] = []
        if ids:
            values = {**self._values, "ids": json_list(ids)}
            locked = self._transaction.rows("lock claimable", sql.LOCK_HEADS, values)
        runs, to_quarantine = read_rows([*free, *locked])
        # Decides again: another transaction may have changed a run since, and a run may be unreadable.
        present = {run.id: run for run in runs}
        kept = (run for run in [*map(candidate, free), *heads] if run.id in present)
        usage = self._usage(buckets)
        final = choose(kept, wanted.limit, wanted.turn, usage)
        taken, statements = started(self._transaction, wanted, [present[run.id] for run in final])
        statements += records.overwriting(usage.spent())
        return self._committed(taken, statements, usage)._replace(to_quarantine=to_quarantine)

    def _usage(self, buckets: dict[str, str]) -> Usage:
        return Usage(self._limits, self._running, buckets, self._transaction.now)

    def _read(self, survey: _Survey) -> None:
        """Count the running runs by cohort, and note the cohorts of queued runs and those to be given."""
        limits = self._limits
        misfits: list[str] = []
        for cohort, count in survey.running:
            if _fits(limits, cohort):
                self._running[cohort] += count
            else:
                misfits.append(cohort)
        queued_misfits: list[dict[str, str]] = []
        for row in survey.cohorts:
            first = _First(*row)
            if not _fits(limits, first.cohort):
                queued_misfits.append({"queue": first.queue, "cohort": first.cohort})
            elif self._is_wanted(first.cohort):
                self._queued[first.cohort] = first
        running, queued = survey.unassigned_running, survey.unassigned
        if misfits or queued_misfits:
            of_running = {**self._values, "cohorts": json_list(misfits)}
            of_queued = {**self._values, "rows": json_text(queued_misfits)}
            more_running, more_queued = self._transaction.together(
                "select misfits",
                [(sql.SELECT_RUNNING_OF_COHORTS, of_running), (sql.SELECT_QUEUED_OF_COHORTS, of_queued)],
            )
            running, queued = [*running, *more_running], [*queued, *more_queued]
            self._leaves_misfits = len(more_queued) >= _ASSIGNED
        for run_id, *source, _ in running:
            cohort = self._given[run_id] = limits.cohort_of(*source)
            if cohort is not None:
                self._running[cohort] += 1
        for run_id, *source, run_at in queued:
            cohort = self._given[run_id] = limits.cohort_of(*source)
            if cohort is None:
                self._has_freed = True
            elif self._is_wanted(cohort):
                queue, priority, tenant, *_ = source
                first = _First(queue, cohort, run_at, run_id, tenant, priority)
                known = self._queued.get(cohort, first)
                self._queued[cohort] = min(known, first, key=lambda one: (one.run_at, one.id))

    def _is_wanted(self, cohort: str) -> bool:
        return self._wanted.tasks is None or _task(cohort) in self._wanted.tasks

    def _prepare(self, groups: Groups) -> tuple[dict[str, str], Groups]:
        """Give runs their cohorts. Return the bodies of the buckets, and the groups of unlimited runs."""
        statements: list[Statement] = []
        if self._given:
            rows = [{"id": run_id, "cohort": cohort} for run_id, cohort in self._given.items()]
            values = {"rows": json_text(rows), "ids": json_list(self._given)}
            statements.append((sql.GIVE_COHORTS, values))
        if self._has_freed:
            statements.append(scope(self._wanted, self._clock, self._limits).groups_statement)
        if keys := self._limits.buckets(self._queued):
            statements.append((sql.SELECT_BUCKETS, {**self._values, "keys": json_list(keys)}))
        if not statements:
            return {}, groups
        try:
            answers = self._transaction.together("give cohorts", statements)
        except RowRefused as error:
            raise ClaimRefused(list(self._given), error, are_chosen=False) from error
        buckets = {key: unmarked(body) or "" for key, body in answers.pop()} if keys else {}
        if self._has_freed:
            ((found,),) = answers.pop()
            groups = scope(self._wanted, self._clock, self._limits).groups(found)
        return buckets, groups

    def _candidates(self, groups: Groups, usage: Usage) -> tuple[list[Row], list[Candidate]]:
        """Select the unlimited runs, and the first due runs of each cohort that has room."""
        due = [first for first in self._queued.values() if first.run_at <= self._due]
        # The rest stays for the next claim.
        most = min(self._wanted.limit, max(1, _COMPARED // max(1, len(due))))
        heads: list[Candidate] = []
        rows: list[dict[str, object]] = []
        for first in due:
            room = usage.room(first.cohort)
            room = most if room is None else min(room, most)
            if room == 1:
                heads.append(Candidate(first.id, first.tenant, first.priority, first.run_at, first.cohort))
            elif room > 1:
                rows.append({"queue": first.queue, "cohort": first.cohort, "room": room})
        of_free = scope(self._wanted, self._clock, self._limits)
        guess: Guess | None = None
        statements: list[Statement] = []
        for priority in groups.due(self._due)[:1]:
            guess = Guess(priority, groups.only_tenant(priority))
            statements += of_free.claimable(guess.priority, guess.tenant, self._wanted.limit)
        if rows:
            statements.append((sql.SELECT_HEADS, {**self._values, "rows": json_text(rows)}))
        answers = self._transaction.together("select claimable", statements) if statements else []
        found = answers.pop() if rows else []
        heads += [
            Candidate(run_id, tenant, priority, run_at, cohort)
            for cohort, run_id, tenant, priority, run_at in found
        ]
        return free_runs(self._transaction, self._wanted, of_free, groups, guess, answers), heads

    def _committed(
        self, taken: Sequence[RunRecord], statements: list[Statement], usage: Usage
    ) -> ClaimResult:
        """Write the claim, and find out when to claim again."""
        cohorts = dict.fromkeys(run.cohort for run in taken if run.cohort is not None)
        rows = [{"queue": self._queued[cohort].queue, "cohort": cohort} for cohort in cohorts]
        values = {**self._values, "rows": json_text(rows)}
        *_, firsts, (row,) = committed(
            self._transaction,
            taken,
            [*statements, (sql.SELECT_FIRSTS, values), outlook_statement(self._wanted, self._clock)],
        )
        coming = Outlook(row)
        waiting = [(first.cohort, first.run_at) for first in self._queued.values()]
        waiting = [one for one in waiting if one[0] not in cohorts]
        starts = [coming.groups.next_due, next_start([*waiting, *firsts], usage)]
        if self._leaves_misfits:
            starts.append(self._due)
        next_due = min((start for start in starts if start is not None), default=None)
        expected = coming.guess(self._wanted, self._due) if taken else None
        return ClaimResult(Claimed(tuple(taken), next_due), expected)


@lru_cache(10_000)
def _fits(limits: Limits, cohort: str) -> bool:
    """Return whether the runs of a cohort belong there. Those of a damaged one do not."""
    try:
        return limits.fits(cohort)
    except ValueError:
        return False


@lru_cache(10_000)
def _task(cohort: str) -> str:
    return read_cohort(cohort).task


def _has_keys(limits: Limits) -> bool:
    return any(limit.key is not None for limit in limits)

"""Queued runs to which limits apply: their cohorts, and which of them a claim may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import (
    Candidate,
    Limits,
    Usage,
    choose,
    cohort_range,
    next_start,
    read_cohort,
    read_limits,
)
from evenbeat.stores.base import Claim
from evenbeat.stores.refusals import ClaimRefused
from evenbeat.stores.rows import Row, record_row
from evenbeat.stores.sqlite import claim_statements as sql
from evenbeat.stores.sqlite import statements
from evenbeat.stores.sqlite.bulk import bulk
from evenbeat.stores.sqlite.json_values import json_list
from evenbeat.stores.sqlite.session import Session

# How many queued runs one claim gives a cohort: 10 us each.
_MOST_GIVEN = 200


class Waiting(NamedTuple):
    """A cohort with queued runs, and the first of these."""

    cohort: str
    stored: bytes
    run_at: Instant
    rowid: int
    id: str


class Cohorts:
    """The cohorts that concern a claim, and what is used of their limits.

    ``most``: reads so many cohorts; None for all of them.
    """

    def __init__(
        self, session: Session, wanted: Claim, due: Instant, now: Instant, most: int | None = None
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._due = due
        self._now = now
        self._most = most
        self._budget = _MOST_GIVEN
        self._is_changed = False
        self._taken: set[str | None] = set()
        bodies = session.rows("select limits", sql.SELECT_LIMITS, (now,))
        self.limits: Limits = read_limits(row[0] for row in bodies)
        self.read()

    def read(self) -> None:
        """Read the running runs and the waiting cohorts."""
        self._is_changed = False
        running: Counter[str] = Counter()
        self._has_running_misfits = False
        for cohort, queue, tenant, task, count in self._session.rows("count running", sql.COUNT_RUNNING):
            if self._belongs(cohort, queue, tenant, task):
                if cohort is not None:
                    running[cohort] += count
            else:
                self._has_running_misfits = True
        self._waiting: list[Waiting] = []
        self._misfits: list[Waiting] = []
        ranges = json_list([cohort_range(queue) for queue in dict.fromkeys(self._wanted.queues)])
        values = (ranges, FORMAT, -1 if self._most is None else self._most)
        rows = self._session.rows("select waiting", sql.SELECT_WAITING, values)
        self.is_complete = self._most is None or len(rows) < self._most
        for one in _waiting(rows):
            fits = self.limits.fits(one.cohort)
            tasks = self._wanted.tasks
            if tasks is None or not fits or read_cohort(one.cohort).task in tasks:
                (self._waiting if fits else self._misfits).append(one)
        self.usage = Usage(self.limits, running, self._buckets(), self._now)

    def _belongs(self, cohort: str | None, queue: str, tenant: str, task: str) -> bool:
        """Return whether a run has the cohort that it should have, or rightly none."""
        if cohort is None:
            return not self.limits.may_concern(queue, tenant, task)
        return self.limits.fits(cohort)

    def _buckets(self) -> dict[str, str]:
        names = self.limits.buckets(one.cohort for one in self._waiting)
        if not names:
            return {}
        return dict(self._session.rows("select buckets", sql.SELECT_BUCKETS, (json_list(names), self._now)))

    def may_start(self) -> bool:
        """Return whether a claim may take a run of a cohort, or has cohorts to correct."""
        return (
            self._has_running_misfits
            or any(one.run_at <= self._due for one in self._misfits)
            or any(one.run_at <= self._due and self.usage.room(one.cohort) != 0 for one in self._waiting)
        )

    @property
    def can_give(self) -> bool:
        return self._budget > 0

    def give(self, rowids: Sequence[int]) -> None:
        """Give cohorts to queued runs, as many as one claim may."""
        some = rowids[: self._budget]
        self._budget -= len(some)
        self._set_cohorts(some)

    def correct(self) -> bool:
        """Give the right cohorts to runs that were claimed, or got their cohort, before limits were set or
        removed. Return whether there were any."""
        if self._has_running_misfits:
            rows = self._session.rows("select running", sql.SELECT_RUNNING)
            self._set_cohorts([rowid for rowid, *row in rows if not self._belongs(*row)])
        for one in self._misfits:
            if one.run_at <= self._due and self._budget > 0:
                values = (one.stored, self._due, FORMAT, self._budget)
                rows = self._session.rows("select of cohort", sql.SELECT_OF_COHORT, values)
                self.give([row[2] for row in rows])
        return self._is_changed

    def _set_cohorts(self, rowids: Sequence[int]) -> None:
        rows = self._session.rows("select for cohort", sql.SELECT_FOR_COHORT, (json_list(rowids),))
        found = [(rowid, cohort, self.limits.cohort_of(*fields)) for rowid, cohort, *fields in rows]
        changed: list[Row] = [(rowid, cohort) for rowid, before, cohort in found if cohort != before]
        together = bulk(changed)
        try:
            if together is None:
                wanted = [(cohort, rowid) for rowid, cohort in changed]
                self._session.many("set cohorts", sql.SET_COHORT, wanted)
            else:
                self._session.run("set cohorts", sql.set_cohorts(together.expressions), together.values)
        except RowRefused as error:
            refused = json_list([rowid for rowid, _ in changed])
            ids = [row[0] for row in self._session.rows("select refused", sql.SELECT_IDS, (refused,))]
            raise ClaimRefused(ids, error, are_chosen=False) from error
        self._is_changed = True

    def choose(self, free: list[Candidate], rowids: dict[str, int]) -> list[Candidate]:
        """Choose among runs without a cohort and the first due runs of each cohort that has room. Add the
        rowids of the latter."""
        if self._is_changed:
            self.read()
        candidates = list(free)
        for one in self._waiting:
            parts = read_cohort(one.cohort)
            for run_at, run_id, rowid in self._first_runs(one):
                rowids[run_id] = rowid
                candidates.append(Candidate(run_id, parts.tenant, parts.priority, run_at, one.cohort))
        chosen = choose(candidates, self._wanted.limit, self._wanted.turn, self.usage)
        self._taken = {run.cohort for run in chosen}
        return chosen

    def _first_runs(self, one: Waiting) -> Sequence[Row]:
        """Return the due runs of a cohort that may start as far as its own limits go."""
        if one.run_at > self._due:
            return ()
        room = self.usage.room(one.cohort)
        most = self._wanted.limit if room is None else min(room, self._wanted.limit)
        if most <= 1:
            return [(one.run_at, one.id, one.rowid)][:most]
        values = (one.stored, self._due, FORMAT, most)
        return self._session.rows("select of cohort", sql.SELECT_OF_COHORT, values)

    def write_buckets(self) -> None:
        """Write what the chosen runs have taken from buckets."""
        rows = [record_row(record) for record in self.usage.spent()]
        self._session.many("put buckets", statements.PUT_RECORD, rows)

    def next_start(self) -> Instant | None:
        """Return when a claim may next take a run of a cohort, after the chosen ones."""
        if not self.can_give:
            return self._due  # there may be more runs without their cohort
        firsts: list[tuple[str, Instant]] = []
        for one in self._waiting:
            if one.cohort not in self._taken:
                firsts.append((one.cohort, one.run_at))
            elif self.usage.opens_at(one.cohort) is not None:
                values = (one.stored, FORMAT)
                left = self._session.rows("select first of cohort", sql.SELECT_FIRST_OF_COHORT, values)
                firsts += [(one.cohort, run_at) for (run_at,) in left]
        # Runs whose cohort does not fit get another one when they are due.
        starts = [one.run_at for one in self._misfits if one.run_at > self._due]
        if (start := next_start(firsts, self.usage)) is not None:
            starts.append(start)
        return min(starts, default=None)


def _waiting(rows: Iterable[Row]) -> Iterator[Waiting]:
    for stored, first in rows:
        if first is not None:  # else all of them have a newer format
            run_at, rowid, run_id = first.decode(errors="replace").split(" ", 2)
            yield Waiting(stored.decode(errors="replace"), stored, int(run_at), int(rowid), run_id)

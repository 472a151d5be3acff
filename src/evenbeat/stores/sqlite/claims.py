"""Claims: tenants in turn, and limits. Functions of an open transaction, which holds the write lock, except
``take_nothing``."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import Candidate, Limits, choose, in_turn, share
from evenbeat.stores.base import Claim, Claimed
from evenbeat.stores.damage import Unreadable
from evenbeat.stores.refusals import ClaimRefused
from evenbeat.stores.rows import Row, read_run, readable_runs
from evenbeat.stores.sqlite import claim_statements as sql
from evenbeat.stores.sqlite.cohorts import Cohorts
from evenbeat.stores.sqlite.json_values import json_list
from evenbeat.stores.sqlite.runs import quarantine
from evenbeat.stores.sqlite.session import Session

# Runs that get a cohort are read so many at a time.
_GIVEN_TOGETHER = 200
_FIRST_COHORTS = 50
_BESIDE = {
    sql.SELECT_CLAIMABLE: sql.SELECT_CLAIMABLE_BESIDE,
    sql.SELECT_CLAIMABLE_OF_TASKS: sql.SELECT_CLAIMABLE_OF_TASKS_BESIDE,
}


class Group(NamedTuple):
    """The queued runs without a cohort that have the same queue, priority and tenant, as far as a claim may
    take them."""

    queue: str
    priority: int
    tenant: bytes
    first: Instant
    """The earliest ``run_at`` of these runs."""

    @property
    def owner(self) -> str:
        return self.tenant.decode(errors="replace")


class Outlook(NamedTuple):
    """What a claim finds."""

    groups: list[Group]
    holds: bool
    """Whether the claim holds runs already."""
    is_limited: bool
    """Whether there are limits, or queued runs with cohorts."""

    @property
    def next_due(self) -> Instant | None:
        return min((group.first for group in self.groups), default=None)


def outlook(session: Session, wanted: Claim) -> Outlook:
    statement, tasks = sql.OUTLOOK, []
    if wanted.tasks is not None:
        statement, tasks = sql.OUTLOOK_OF_TASKS, [json_list(wanted.tasks)]
    values = (json_list(dict.fromkeys(wanted.queues)), wanted.worker, wanted.token, FORMAT, *tasks)
    (holds, is_limited, *_), *rows = session.rows("select next due", statement, values)
    return Outlook([Group._make(row) for row in rows if row[3] is not None], holds == 1, is_limited == 1)


def take_nothing(
    session: Session, wanted: Claim, found: Outlook, due: Instant, now: Instant
) -> Claimed | None:
    """Return the answer to a claim that takes nothing; None if it may take runs. Only reads."""
    next_due = found.next_due
    if found.holds or (next_due is not None and next_due <= due):
        return None
    if found.is_limited:
        # Often one of the first cohorts has room: then the others need not be read twice.
        for most in (_FIRST_COHORTS, None):
            cohorts = Cohorts(session, wanted, due, now, most)
            if cohorts.may_start():
                return None
            if cohorts.is_complete:
                break
        next_due = _earliest(next_due, cohorts.next_start())
    return Claimed((), next_due)


def claim(session: Session, wanted: Claim, found: Outlook, due: Instant, now: Instant) -> Claimed:
    """Claim runs that are due at ``due``. Leases begin at ``now``, the time of the store's own clock.

    ``found`` was read before this transaction: the claim takes no runs of a queue, priority or tenant that
    has had none before. It reads everything else again.
    """
    ((holds, is_limited),) = session.rows("select ways", sql.SELECT_WAYS, (wanted.worker, wanted.token))
    if holds:
        # The reply was lost.
        held = session.rows("select claimed", sql.SELECT_CLAIMED, (wanted.worker, wanted.token))
        return Claimed(tuple(readable_runs(held)), due if is_limited else outlook(session, wanted).next_due)
    groups = [group for group in found.groups if group.first <= due]
    if is_limited:
        return _claim_within_limits(session, wanted, groups, due, now)
    reader = _Reader(session, wanted, due)
    if len(groups) == 1:
        # The usual case: one run more than the limit tells when the next one is due.
        rows = reader.select(groups[0], wanted.limit + 1, 0)
        runs = _start(session, wanted, [row[2] for row in rows[: wanted.limit]], now)
        if len(rows) > wanted.limit:
            return Claimed(tuple(runs), rows[-1][0])
    else:
        chosen = reader.choose(groups)
        runs = _start(session, wanted, chosen, now)
        if len(chosen) == wanted.limit and _has_several_tenants(groups):
            return Claimed(tuple(runs), due)  # there may be more, and reading all tenants again takes long
    return Claimed(tuple(runs), outlook(session, wanted).next_due)


def _claim_within_limits(
    session: Session, wanted: Claim, groups: list[Group], due: Instant, now: Instant
) -> Claimed:
    cohorts = Cohorts(session, wanted, due, now)
    if cohorts.correct():
        groups = [group for group in outlook(session, wanted).groups if group.first <= due]
    chosen = _Reader(session, wanted, due, cohorts).choose(groups)
    runs = _start(session, wanted, chosen, now)
    cohorts.write_buckets()
    if len(chosen) == wanted.limit:
        return Claimed(tuple(runs), due)  # there may be more
    return Claimed(tuple(runs), _earliest(outlook(session, wanted).next_due, cohorts.next_start()))


def _has_several_tenants(groups: list[Group]) -> bool:
    return any(group.tenant != groups[0].tenant for group in groups)


def _earliest(*instants: Instant | None) -> Instant | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _start(session: Session, wanted: Claim, chosen: list[int], now: Instant) -> list[RunRecord]:
    """Set the chosen rows to running, and return the readable ones in this order."""
    if not chosen:
        return []
    rowids = json_list(chosen)
    try:
        session.run("claim runs", sql.CLAIM, (wanted.worker, wanted.token, now + wanted.lease, now, rowids))
    except RowRefused as error:
        ids = [row[0] for row in session.rows("select refused", sql.SELECT_IDS, (rowids,))]
        raise ClaimRefused(ids, error) from error
    taken: dict[int, RunRecord] = {}
    unreadable: list[tuple[Row, Unreadable]] = []
    for row in session.rows("select taken", sql.SELECT_TAKEN, (rowids,)):
        try:
            taken[row[-1]] = read_run(row)
        except Unreadable as error:
            unreadable.append((row, error))
    if unreadable:
        quarantine(session, unreadable, now)
    return [taken[rowid] for rowid in chosen if rowid in taken]


class _Reader:
    """Reads the runs that a claim may take, and chooses among them."""

    def __init__(self, session: Session, wanted: Claim, due: Instant, cohorts: Cohorts | None = None) -> None:
        self._session = session
        self._wanted = wanted
        self._due = due
        self._cohorts = cohorts
        self._statement, self._tasks = sql.SELECT_CLAIMABLE, list[str]()
        if wanted.tasks is not None:
            self._statement, self._tasks = sql.SELECT_CLAIMABLE_OF_TASKS, [json_list(wanted.tasks)]

    def choose(self, groups: list[Group]) -> list[int]:
        """Return the rowids of the runs to take, in order."""
        if self._cohorts is None and not _has_several_tenants(groups):
            return [row[2] for _, row in self._free(groups)]
        rowids: dict[str, int] = {}
        free: list[Candidate] = []
        for group, (run_at, run_id, rowid, _) in self._free(groups):
            rowids[run_id] = rowid
            free.append(Candidate(run_id, group.owner, group.priority, run_at))
        if self._cohorts is None:
            chosen = choose(free, self._wanted.limit, self._wanted.turn)
        else:
            chosen = self._cohorts.choose(free, rowids)
        return [rowids[run.id] for run in chosen]

    def _free(self, groups: list[Group]) -> list[tuple[Group, Row]]:
        """Read due runs without a cohort, the highest priority first, up to the claim's limit."""
        found: list[tuple[Group, Row]] = []
        ordered = sorted(groups, key=lambda group: -group.priority)
        for _, of_level in groupby(ordered, key=lambda group: group.priority):
            room = self._wanted.limit - len(found)
            if room <= 0:
                break
            found += self._of_level(list(of_level), room)
        return found

    def _of_level(self, groups: list[Group], room: int) -> list[tuple[Group, Row]]:
        """Read runs of one priority, divided among the tenants in turn."""
        by_tenant: defaultdict[str, list[Group]] = defaultdict(list)
        for group in groups:
            by_tenant[group.owner].append(group)
        found: list[tuple[Group, Row]] = []
        read: Counter[Group] = Counter()
        tenants = in_turn(list(by_tenant), self._wanted.turn)
        while tenants and len(found) < room:
            # Tenants that have more runs than their share divide what the others left free.
            left = []
            for at, tenant in enumerate(tenants):
                most = share(room - len(found), len(tenants) - at)
                if most == 0:
                    break
                some = self._of_tenant(by_tenant[tenant], most, read)
                read.update(group for group, _ in some)
                found += some
                if len(some) == most:
                    left.append(tenant)
            tenants = left
        return found

    def _of_tenant(self, groups: list[Group], most: int, read: Counter[Group]) -> list[tuple[Group, Row]]:
        """Read the next runs of one priority and tenant, merged over the queues."""
        some = [(group, row) for group in groups for row in self._of_group(group, most, read[group])]
        if len(groups) > 1:
            some.sort(key=lambda entry: entry[1][:2])
        return some[:most]

    def _of_group(self, group: Group, most: int, after: int) -> list[Row]:
        """Read due runs after the first ``after`` ones. Those that a limit may concern get a cohort, and are
        left out."""
        rows = self.select(group, most, after)
        if self._cohorts is None:
            return rows
        owner, limits = group.owner, self._cohorts.limits
        while limited := [row[2] for row in rows if limits.may_concern(group.queue, owner, row[3])]:
            if not self._cohorts.can_give:
                # Too many for one claim: skip the others inside the index.
                rows = self.select(group, most, after, beside=limits)
                return [row for row in rows if not limits.may_concern(group.queue, owner, row[3])]
            self._cohorts.give(limited)
            rows = self.select(group, max(most, _GIVEN_TOGETHER), after)
        return rows[:most]

    def select(self, group: Group, most: int, after: int, beside: Limits | None = None) -> list[Row]:
        statement, tasks = self._statement, self._tasks
        if beside is not None:
            statement, tasks = _BESIDE[statement], [*tasks, json_list(beside.tasks)]
        values = (group.queue, group.priority, group.tenant, self._due, FORMAT, *tasks, most, after)
        return self._session.rows("select claimable", statement, values)

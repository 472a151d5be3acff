"""What a claim finds: groups of due runs, limits, and the statements that select runs of a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT
from evenbeat.rules.limits import Limits, read_limits
from evenbeat.stores.base import Claim
from evenbeat.stores.postgres import claim_statements as sql
from evenbeat.stores.postgres.encoding import is_kept, json_text, marked, unmarked
from evenbeat.stores.postgres.session import Statement
from evenbeat.stores.rows import Row

# Sorts after all names of tasks.
_LAST_NAME = "\U0010ffff"


class Guess(NamedTuple):
    """What a claim will probably find. It is almost always right, and saves a round trip."""

    priority: int
    tenant: str | None
    """The tenant of all due runs of that priority; None if there may be several."""
    limits: Limits | None = None
    """The limits, if they may concern the claim."""


class Group(NamedTuple):
    """Queued runs without a cohort that have the same queue, priority and tenant."""

    queue: str
    priority: int
    tenant: str
    run_at: Instant
    """Of the first of them."""


class Groups:
    """The groups that a claim will probably find. Read without a lock, so they may be outdated.

    Of each queue and priority, these are the tenants up to the first one with a due run, and the next one.
    Those in ``without`` are not for the claim.
    """

    def __init__(self, found: Sequence[Sequence[Any]] | None, without: Iterable[str] = ()) -> None:
        groups = [Group(*group) for group in found or ()]
        self._groups = [group for group in groups if group.tenant not in without]
        self._tenants: dict[int, set[str]] = {}
        for group in groups:
            self._tenants.setdefault(group.priority, set()).add(group.tenant)

    @property
    def next_due(self) -> Instant | None:
        return min((group.run_at for group in self._groups), default=None)

    def due(self, now: Instant) -> list[int]:
        """Return the priorities that have due runs, the highest first."""
        return sorted({group.priority for group in self._groups if group.run_at <= now}, reverse=True)

    def only_tenant(self, priority: int) -> str | None:
        """Return the tenant of all runs of a priority; None if there are several."""
        tenants = self._tenants.get(priority, ())
        return next(iter(tenants)) if len(tenants) == 1 else None

    def guess(self, now: Instant) -> Guess | None:
        """Return what a claim without limits will find; None if nothing is due."""
        priority = next(iter(self.due(now)), None)
        return None if priority is None else Guess(priority, self.only_tenant(priority))


class Outlook:
    """What a claim will probably find, and the limits."""

    def __init__(self, row: Row) -> None:
        self.servers_clock: Instant = row[0]
        self.is_repetition: bool = row[1]
        self.limits = read_limits(unmarked(body) or "" for body in row[2])
        self.has_cohorts: bool = row[3]
        """Whether runs with a cohort wait in the queues of the claim."""
        self.groups = Groups(row[4])

    def is_limited(self, wanted: Claim) -> bool:
        """Return whether a limit may concern the claim."""
        limits = self.limits
        return (
            self.has_cohorts
            or limits.any
            or bool(limits.tenants)
            or not limits.queues.isdisjoint(wanted.queues)
            or not limits.tasks.isdisjoint(limits.tasks if wanted.tasks is None else wanted.tasks)
        )

    def guess(self, wanted: Claim, now: Instant) -> Guess | None:
        """Return what a claim will find; None if nothing is due."""
        guess = self.groups.guess(now)
        if self.is_limited(wanted) and (guess is not None or self.has_cohorts):
            return Guess(0, None, self.limits)
        return guess

    def next_claim(self, now: Instant) -> Instant | None:
        """Return when a claim may find runs. Whether runs with a cohort may start is not known: at once."""
        next_due = self.groups.next_due
        if not self.has_cohorts:
            return next_due
        return now if next_due is None else min(next_due, now)


class Scope(NamedTuple):
    """The runs that a claim may take without considering limits."""

    queues: list[str]
    conditions: sql.Conditions
    without_tenants: frozenset[str]
    values: dict[str, object]

    def groups(self, found: Sequence[Sequence[Any]] | None) -> Groups:
        """Return the groups that the statement ``groups`` has found."""
        return Groups(found, self.without_tenants)

    @property
    def groups_statement(self) -> Statement:
        return sql.groups(self.conditions), self.values

    def claimable(self, priority: int, tenant: str | None, limit: int) -> list[Statement]:
        """Return the statements that select and lock due runs of a priority, one for each queue; of all
        tenants in turn if ``tenant`` is None."""
        text = (sql.claimable_in_turn if tenant is None else sql.claimable)(self.conditions)
        values = {**self.values, "priority": priority, "tenant": tenant, "limit": limit}
        return [(text, {**values, "queue": queue}) for queue in self.queues]

    def claimable_of(self, queue: str, priority: int, rooms: dict[str, int]) -> Statement:
        rows = json_text([{"tenant": tenant, "room": room} for tenant, room in rooms.items()])
        values = {**self.values, "priority": priority, "queue": queue, "rows": rows}
        return sql.claimable_of_tenants(self.conditions), values


def scope(wanted: Claim, clock: int | None, limits: Limits | None = None) -> Scope:
    """Return the scope of a claim: without the runs that ``limits`` may concern."""
    queues = list(dict.fromkeys(wanted.queues))
    tasks = wanted.tasks
    after: list[str] = []
    before: list[str] = []
    without_tenants: frozenset[str] = frozenset()
    if limits is not None:
        queues = [] if limits.any else [queue for queue in queues if queue not in limits.queues]
        without_tenants = limits.tenants
        tasks = None if tasks is None else tasks - limits.tasks
        after, before = _between(limits.tasks, tasks)
    values: dict[str, object] = {
        "queues": queues,
        "now": wanted.now,
        "clock": clock,
        "format": FORMAT,
        "turn": _turn(wanted.turn),
        "tasks": None if tasks is None else sorted(tasks),
        "after_tasks": after,
        "before_tasks": before,
        "without_tenants": sorted(without_tenants),
    }
    conditions = sql.Conditions(tasks is not None, bool(limits and limits.tasks), bool(without_tenants))
    return Scope(queues, conditions, without_tenants, values)


def _between(without: frozenset[str], tasks: frozenset[str] | None) -> tuple[list[str], list[str]]:
    """Return the bounds of the ranges of names between some tasks; only those that contain one of
    ``tasks``."""
    bounds = ["", *sorted(without), _LAST_NAME]
    ranges = [
        (low, high)
        for low, high in pairwise(bounds)
        if tasks is None or any(low < task < high for task in tasks)
    ]
    return [low for low, _ in ranges], [high for _, high in ranges]


def _turn(tenant: str) -> str:
    """Return a tenant that can be stored, and that no other stored one lies in between."""
    return tenant.partition("\0")[0]


def possible(wanted: Claim) -> Claim:
    """Return the claim without tasks and queues whose names cannot be stored."""
    tasks = wanted.tasks
    if is_kept(*wanted.queues, *(tasks or ())):
        return wanted
    return replace(
        wanted,
        queues=tuple(filter(is_kept, wanted.queues)),
        tasks=None if tasks is None else frozenset(filter(is_kept, tasks)),
    )


def outlook_statement(wanted: Claim, clock: int | None) -> Statement:
    of_claim = scope(wanted, clock)
    token = {"worker": marked(wanted.worker), "token": marked(wanted.token)}
    return sql.outlook(of_claim.conditions), {**of_claim.values, **token}

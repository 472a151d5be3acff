"""Reads the due runs of several tenants, so that each gets its turn however many runs another one has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT
from evenbeat.rules.limits import Candidate, Limits, in_turn, share
from evenbeat.stores.base import Claim
from evenbeat.stores.mongo.claims import union
from evenbeat.stores.mongo.damaged_ids import exactly
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import NO_COHORT
from evenbeat.stores.mongo.schema import RUNS
from evenbeat.stores.mongo.session import Session

# One command reads runs of so many tenants, and so many runs unless more are wanted.
_TENANTS_AT_ONCE = 100
_RUNS_AT_ONCE = 1_000


class Waiting(NamedTuple):
    """A tenant with queued runs of a priority."""

    tenant: Any
    """A text, unless someone has edited the document."""
    priority: int
    run_at: Any
    """When the first run is due."""


class Scope(NamedTuple):
    """A set of queues and tasks."""

    queues: list[str]
    tasks: Document | None
    """A condition on the task; None for any task."""


ScopesOf = Callable[[str], list[Scope]]


def unlimited(wanted: Claim, limits: Limits) -> ScopesOf:
    """Return, for a tenant, where a claim finds the runs that no limit may concern."""
    queues = [queue for queue in dict.fromkeys(wanted.queues) if queue not in limits.queues]
    tasks: Document | None = None
    if wanted.tasks is not None:
        tasks = {"$in": sorted(wanted.tasks - limits.tasks)}
    elif limits.tasks:
        tasks = {"$nin": sorted(limits.tasks)}
    is_empty = limits.any or not queues or tasks == {"$in": []}
    scope = [] if is_empty else [Scope(queues, tasks)]
    return lambda tenant: [] if tenant in limits.tenants else scope


def limited(wanted: Claim, limits: Limits) -> ScopesOf:
    """Return, for a tenant, where a claim finds the runs that a limit may concern: all others."""
    queues = list(dict.fromkeys(wanted.queues))
    every = [Scope(queues, None if wanted.tasks is None else {"$in": sorted(wanted.tasks)})]
    scopes: list[Scope] = every if limits.any else []
    of_queue = [queue for queue in queues if queue in limits.queues]
    if of_queue and not limits.any:
        scopes.append(Scope(of_queue, every[0].tasks))
    of_task = limits.tasks if wanted.tasks is None else limits.tasks & wanted.tasks
    others = [queue for queue in queues if queue not in limits.queues]
    if others and of_task and not limits.any:
        scopes.append(Scope(others, {"$in": sorted(of_task)}))
    return lambda tenant: every if tenant in limits.tenants else scopes


class Search(NamedTuple):
    """A search for due runs without a cohort, in the turn of their tenants."""

    due: Instant
    turn: str
    scopes_of: ScopesOf
    fields: Sequence[str] = ()
    """Fields to read besides those of a candidate."""


def find_in_turn(session: Session, waiting: Iterable[Waiting], search: Search, room: int) -> list[Document]:
    """Find at least ``room`` due runs, if there are as many: those of the highest priority; within a priority
    one of each tenant in turn, before more of any of them."""
    by_priority: dict[int, list[Any]] = {}
    for tenant, priority, run_at in waiting:
        if isinstance(run_at, int) and run_at <= search.due:
            by_priority.setdefault(priority, []).append(tenant)
    found: list[Document] = []
    for priority in sorted(by_priority, reverse=True):
        tenants = [
            tenant for tenant in _ordered(by_priority[priority], search.turn) if search.scopes_of(str(tenant))
        ]
        while tenants and len(found) < room:
            left = room - len(found)
            some, tenants = tenants[: min(left, _TENANTS_AT_ONCE)], tenants[min(left, _TENANTS_AT_ONCE) :]
            most = max(share(left, len(some)), min(left, _RUNS_AT_ONCE // len(some)))
            read = _read(session, search, priority, some, most)
            if len(read) < left and not tenants and most < left:
                # Those of which the first command left runs behind get what the others left free.
                full = [one for one in some if sum(row["tenant"] == one for row in read) >= most]
                read = [row for row in read if row["tenant"] not in full]
                read += _read(session, search, priority, full, left)
            found += read
    return found


def candidates(documents: Iterable[Document]) -> list[Candidate]:
    return [
        Candidate(document["_id"], str(document["tenant"]), document["priority"], document["run_at"])
        for document in documents
    ]


def _ordered(tenants: Iterable[Any], turn: str) -> list[Any]:
    """Return tenants in turn. A tenant that is not a text comes first: a claim finds its runs unreadable."""
    texts = {tenant for tenant in tenants if isinstance(tenant, str)}
    damaged = [tenant for tenant in tenants if not isinstance(tenant, str)]
    return damaged[:1] + in_turn(list(texts), turn)


def _read(
    session: Session, search: Search, priority: int, tenants: Sequence[Any], most: int
) -> list[Document]:
    """Read up to ``most`` runs of each tenant, with one command."""
    shown = dict.fromkeys(("_id", "run_at", *search.fields), 1)
    pipelines: list[list[Document]] = []
    for tenant in tenants:
        for queues, tasks in search.scopes_of(str(tenant)):
            where: Document = {
                "state": "queued",
                "cohort": NO_COHORT,
                "queue": {"$in": queues},
                "priority": priority,
                "tenant": exactly(tenant),
                "run_at": {"$lte": search.due},
                "format": {"$lte": FORMAT},
            }
            if tasks is not None:
                where["task"] = tasks
            constants = {"tenant": {"$literal": tenant}, "priority": {"$literal": priority}}
            pipelines.append(
                [
                    {"$match": where},
                    {"$sort": {"run_at": 1, "_id": 1}},
                    {"$limit": most},
                    {"$project": {**shown, **constants}},
                ]
            )
    if not pipelines:
        return []
    first, *others = pipelines
    return session.aggregate("find due in turn", RUNS, [*first, *(union(RUNS, other) for other in others)])

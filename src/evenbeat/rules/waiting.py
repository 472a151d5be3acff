"""Why a queued run has not started yet. Pure: decided from the run and what live nodes say of themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.core.results import WaitReason
from evenbeat.rules.attempts import is_retrying, was_unfit


class Taker(NamedTuple):
    """A live node, as far as a run that waits is concerned."""

    node: str
    worker: bool
    """Whether it executes runs."""
    tasks: frozenset[str] | None
    """None: it did not say."""
    queues: tuple[str, ...]

    def has(self, task: str) -> bool:
        return self.worker and (self.tasks is None or task in self.tasks)


class Waiting(NamedTuple):
    """Why a run waits."""

    reason: WaitReason
    until: Instant | None = None
    """Of ``later``, ``retry`` and ``unfit``: when it is due."""
    nodes: tuple[str, ...] = ()
    """The live nodes that could take it."""


def takers(run: RunRecord, nodes: Iterable[Taker]) -> tuple[str, ...]:
    """The nodes that have the run's task and take its queue."""
    return tuple(node.node for node in nodes if node.has(run.task) and run.queue in node.queues)


def why_waiting(run: RunRecord, now: Instant, nodes: Iterable[Taker], busy: frozenset[str]) -> Waiting | None:
    """Why the run waits; None if it does not. ``busy`` are nodes without a free slot for it.

    A run that is not due says so, even if no node could take it.
    """
    if run.state != "queued":
        return None
    nodes = list(nodes)
    able = takers(run, nodes)
    if run.run_at > now:
        reason: WaitReason = "unfit" if was_unfit(run) else "retry" if is_retrying(run) else "later"
        return Waiting(reason, run.run_at, able)
    if able:
        return Waiting("busy" if busy.issuperset(able) else "next", None, able)
    return Waiting(lacking(run.task, nodes))


def lacking(task: str, nodes: Iterable[Taker]) -> Literal["no_worker", "no_task", "no_queue"]:
    """What keeps all of these nodes, of which none can take a run of the task, from doing so."""
    workers = [node for node in nodes if node.worker]
    if not workers:
        return "no_worker"
    return "no_queue" if any(node.has(task) for node in workers) else "no_task"

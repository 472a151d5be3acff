"""Why a queued run has not started yet, decided from the run and the records of live nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.core.results import WaitReason
from evenbeat.rules.attempts import is_retrying, was_unfit
from evenbeat.rules.limits import Limit

Lack: TypeAlias = Literal["no_worker", "no_task", "no_queue"]
"""Why no node can take a run."""


class Taker(NamedTuple):
    """A live node that may take runs: its tasks and queues."""

    node: str
    worker: bool
    """Whether it executes runs."""
    tasks: frozenset[str] | None
    """None if the node's record does not list them."""
    queues: tuple[str, ...]

    def has(self, task: str) -> bool:
        """Return whether it executes the task."""
        return self.worker and (self.tasks is None or task in self.tasks)


class Hold(NamedTuple):
    """A limit that does not admit a run now."""

    limit: Limit
    partition: str
    """The name of the partition that is full: that of the limit, or with a value of its key."""
    running: int
    """How many runs of the partition are running."""
    opens: Instant | None
    """When the rate admits the next run; None if a running one has to end first."""


class Waiting(NamedTuple):
    """Why a run waits."""

    reason: WaitReason
    until: Instant | None = None
    """When the run is due, for ``later``, ``retry`` and ``unfit``; when a rate admits the next run, for
    ``limited``."""
    nodes: tuple[str, ...] = ()
    """The live nodes that could take the run."""
    hold: Hold | None = None
    """The limit, for ``limited``."""


def takers(run: RunRecord, nodes: Iterable[Taker]) -> tuple[str, ...]:
    """Return the nodes that have the run's task and take runs from its queue."""
    return tuple(node.node for node in nodes if node.has(run.task) and run.queue in node.queues)


def why_waiting(
    run: RunRecord, now: Instant, nodes: Iterable[Taker], busy: frozenset[str], hold: Hold | None = None
) -> Waiting | None:
    """Return why the run waits; None if it does not. ``busy`` are nodes without a free slot for it, ``hold``
    is a limit that does not admit it.

    For a run that is not due this is the reason, even if no node could take it.
    """
    if run.state != "queued":
        return None
    nodes = list(nodes)
    able = takers(run, nodes)
    if run.run_at > now:
        reason: WaitReason = "unfit" if was_unfit(run) else "retry" if is_retrying(run) else "later"
        return Waiting(reason, run.run_at, able)
    if able and hold is not None:
        return Waiting("limited", hold.opens, able, hold)
    if able:
        return Waiting("busy" if busy.issuperset(able) else "next", None, able)
    return Waiting(why_no_taker(run.task, nodes))


def why_no_taker(task: str, nodes: Iterable[Taker]) -> Lack:
    """Return what all of these nodes lack, of which none can take a run of the task."""
    workers = [node for node in nodes if node.worker]
    if not workers:
        return "no_worker"
    return "no_queue" if any(node.has(task) for node in workers) else "no_task"

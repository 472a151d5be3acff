"""Warnings about tasks that a worker will never execute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from evenbeat.node.settings import NodeSettings
from evenbeat.tasks.task import Tasks


def worker_warnings(tasks: Tasks, settings: NodeSettings) -> Iterator[str]:
    """Yield warnings about a worker with these tasks and settings: the problem, and what to do."""
    if not len(tasks):
        yield (
            "the app has no tasks, so this worker executes nothing: register some with @app.task, "
            "and import the modules that do so where the app is created"
        )
    others: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if task.queue not in settings.queues:
            others[task.queue].append(task.name)
    for queue, names in sorted(others.items()):
        every, waiting = ",".join((*settings.queues, queue)), ", ".join(sorted(names))
        yield (
            f"this worker does not take from queue {queue}, so {waiting} will wait for a node that does: "
            f"start one with --queues {queue}, or this one with --queues {every}"
        )

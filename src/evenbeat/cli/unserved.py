"""What a worker that starts will never do, though its app looks as if it should."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from evenbeat.node.settings import NodeSettings
from evenbeat.tasks.task import Tasks


def unserved(tasks: Tasks, settings: NodeSettings) -> Iterator[str]:
    """Warnings for who starts a worker with these tasks and settings: what is wrong, and what to do."""
    if not len(tasks):
        yield (
            "the app has no tasks, so nothing is executed here: register some with @app.task, "
            "and import the modules that do so where the app is made"
        )
    others: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if task.queue not in settings.queues:
            others[task.queue].append(task.name)
    for queue, names in sorted(others.items()):
        every = ",".join((*settings.queues, queue))
        yield (
            f"queue {queue} is not taken here, so {', '.join(sorted(names))} will wait for a node that takes "
            f"it: start one with --queues {queue}, or take it here with --queues {every}"
        )

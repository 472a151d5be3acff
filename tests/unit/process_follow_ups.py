"""An app with a task in a process of its own, which adds a run: it must be importable there."""

from __future__ import annotations

from evenbeat import FollowUp, Scheduler, follow_up

app = Scheduler("memory://")


@app.task
def child(n: int) -> int:
    return n + 1


@app.task(executor="process")
def parent(n: int) -> FollowUp:
    return follow_up(child.bind(n), result=n)

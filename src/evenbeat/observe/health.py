"""Judge whether a node is healthy, by its status file. Only what a restart could fix is a problem.

A store that does not answer is not a problem: a new process would not reach it either, and this one retries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evenbeat.observe.phrases import span
from evenbeat.observe.status_files import LoopStatus, NodeStatus, ProcessStatus

LATE = 120.0
"""Seconds that a step may take, or be late. A step calls the store a few times, each with a timeout of
seconds: a step that takes longer hangs."""
SILENT = 60.0
"""Seconds without a heartbeat after which a process counts as frozen."""


def patience(lease: int) -> float:
    """Return for how many seconds a process may be silent that has no supervisor and leases of ``lease`` ms.

    A job may block the interpreter for that long. After that other nodes have taken its runs over, and a
    restart costs nothing.
    """
    return max(SILENT, lease / 1000 + SILENT / 2)


class Verdict(NamedTuple):
    """The findings about a process."""

    problems: tuple[str, ...]
    """Findings that a restart could fix."""
    notes: tuple[str, ...]
    """Findings that a restart would not fix."""


def judge(status: ProcessStatus, now: float) -> Verdict:
    """Return the findings about a process at ``now``, by ``time.monotonic``."""
    silent = now - status.written
    if silent > status.patience:
        return Verdict((f"it has given no sign of life for {_for(silent)}: it is frozen",), ())
    problems = [*_late(status.loops, now, "")]
    notes = []
    for node in status.nodes:
        whose = f"process {node.pid}: " if status.kind == "supervisor" else ""
        if node.broken is not None:
            problems.append(f"{whose}{node.broken}")
        elif not node.up:
            notes.append(f"{whose}it is starting")
        elif node.heard is not None and now - node.heard > SILENT:
            if node.executing:
                notes.append(f"{whose}a job has kept the interpreter to itself for {_for(now - node.heard)}")
            else:
                problems.append(f"{whose}it has given no sign of life for {_for(now - node.heard)}")
        else:
            problems += _late(node.loops, now, whose)
            notes += _failing(node, now, whose)
    return Verdict(tuple(problems), tuple(notes))


def _late(loops: tuple[LoopStatus, ...], now: float, whose: str) -> Iterator[str]:
    for loop in loops:
        if now - loop.due > LATE:
            yield f"{whose}the {loop.name} has not stepped for {_for(now - loop.due)}"


def _failing(node: NodeStatus, now: float, whose: str) -> Iterator[str]:
    """Yield the oldest failure of the loops, since all of them fail when the store does not answer."""
    failing = [(loop.failing_since, loop) for loop in node.loops if loop.failing_since is not None]
    if failing:
        since, loop = min(failing, key=lambda pair: pair[0])
        yield f"{whose}the {loop.name} has failed for {_for(now - since)} and keeps trying: {loop.error}"


def _for(seconds: float) -> str:
    whole = max(0, int(seconds))
    return span(whole * 1000, units=1)

"""Judge whether a node is healthy and whether it is ready, by its status.

It is healthy unless a restart could fix something. A store that does not answer is not a problem of health:
a new process would not reach it either, and this one retries. Until the store answers, the node is not ready.
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


class Readiness(NamedTuple):
    """Whether a process fires and executes what is due."""

    ok: bool
    problems: tuple[str, ...]
    """Why it does not; empty if it does."""


class _Findings(NamedTuple):
    problems: list[str]
    """Findings that a restart could fix."""
    absent: list[str]
    """Nodes that do not work for now, and why."""
    failures: list[tuple[str, float, LoopStatus]]
    """Loops that keep trying: whose, since when, which."""


def judge(status: ProcessStatus, now: float) -> Verdict:
    """Return the findings about a process at ``now``, by ``time.monotonic``."""
    problems, absent, failures = _findings(status, now)
    failing = (
        f"{whose}the {loop.name} has failed for {_for(now - since)} and keeps trying: {loop.error}"
        for whose, since, loop in failures
    )
    return Verdict(tuple(problems), (*absent, *failing))


def readiness(status: ProcessStatus, now: float) -> Readiness:
    """Return whether a process works at ``now``: its health has no problem, a node is up, and the steps of
    its loops, which need the store, succeed.

    A node that starts, or whose interpreter a job keeps to itself, is a problem only if no other node of the
    process works. The errors of loops are left out: they may name hosts, and a probe has no password.
    """
    problems, absent, failures = _findings(status, now)
    problems += (
        f"{whose}the {loop.name} has failed for {_for(now - since)}: the log says why"
        for whose, since, loop in failures
    )
    if not any(node.up and not _is_silent(node, now) for node in status.nodes):
        problems += absent if status.nodes else ["no node is up"]
    return Readiness(not problems, tuple(problems))


def _findings(status: ProcessStatus, now: float) -> _Findings:
    silent = now - status.written
    if silent > status.patience:
        return _Findings([f"it has given no sign of life for {_for(silent)}: it is frozen"], [], [])
    found = _Findings([*_late(status.loops, now, "")], [], [*_failing(status.loops, "")])
    for node in status.nodes:
        whose = f"process {node.pid}: " if status.kind == "supervisor" else ""
        if node.broken is not None:
            found.problems.append(f"{whose}{node.broken}")
        elif not node.up:
            found.absent.append(f"{whose}it is starting")
        elif node.last_message is not None and _is_silent(node, now):
            length = _for(now - node.last_message)
            if node.executing:
                found.absent.append(f"{whose}a job has kept the interpreter to itself for {length}")
            else:
                found.problems.append(f"{whose}it has given no sign of life for {length}")
        else:
            found.problems.extend(_late(node.loops, now, whose))
            found.failures.extend(_failing(node.loops, whose))
    return found


def _is_silent(node: NodeStatus, now: float) -> bool:
    return node.last_message is not None and now - node.last_message > SILENT


def _late(loops: tuple[LoopStatus, ...], now: float, whose: str) -> Iterator[str]:
    for loop in loops:
        if now - loop.due > LATE:
            yield f"{whose}the {loop.name} has not stepped for {_for(now - loop.due)}"


def _failing(loops: tuple[LoopStatus, ...], whose: str) -> Iterator[tuple[str, float, LoopStatus]]:
    """Yield the oldest failure of the loops, since all of them fail when the store does not answer."""
    failing = [(loop.failing_since, loop) for loop in loops if loop.failing_since is not None]
    if failing:
        since, loop = min(failing, key=lambda pair: pair[0])
        yield whose, since, loop


def _for(seconds: float) -> str:
    whole = max(0, int(seconds))
    return span(whole * 1000, units=1)

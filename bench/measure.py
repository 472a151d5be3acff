"""Measure: many short rounds, in which all libraries take turns, and medians.

Machines are noisy, so the libraries take turns round by round: a slow moment affects all of them.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One measured figure. Times are in ``unit``; ``peers`` were measured in the same rounds."""

    suite: str
    name: str
    unit: str
    ours: float
    peers: dict[str, float] = {}
    goal: str = ""
    met: bool | None = None
    """None if there is no goal for this row alone."""
    p95: float | None = None
    p99: float | None = None


class Report(msgspec.Struct, frozen=True):
    when: str
    machine: dict[str, str]
    versions: dict[str, str]
    rows: list[Row]


def interleaved(contestants: Mapping[str, Callable[[], object]], rounds: int = 7) -> dict[str, list[float]]:
    """Return the seconds per call of each library, over ``rounds`` rounds in which each takes its turn."""
    for call in contestants.values():
        call()  # imports, caches, zone data
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contestants.items():
                begin = time.perf_counter()
                call()
                taken[name].append(time.perf_counter() - begin)
    finally:
        gc.enable()
    return taken


def samples(call: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of ``count`` single calls, sorted."""
    return sorted(interleaved({"it": call}, count)["it"])


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: list[float]) -> float:
    return statistics.median(values)


def machine() -> dict[str, str]:
    """Return what a reader needs to judge the figures, and nothing that identifies this machine."""
    model = ""
    try:
        with open("/proc/cpuinfo") as lines:
            model = next(
                (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), ""
            )
    except OSError:
        pass
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found

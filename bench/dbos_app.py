"""DBOS on PostgreSQL: a workflow of steps, and a queue of child workflows that it waits for.

``python -m bench.dbos_app URL STEPS ELEMENTS CHAINS NOTED`` runs both in this process, as its users do, and
writes the figures to NOTED. A step of DBOS is a function call with a checkpoint in the same process, not a
task that any node may execute; an element of the map is a workflow that its queue hands to any process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from dbos import DBOS

STARTS: list[float] = []
# The queue looks every second by its default: a shorter wait is to its advantage.
_POLLING = 0.05
_QUEUE = "elements"


class Noted(msgspec.Struct):
    chains: list[tuple[float, float]]
    maps: list[tuple[float, float]]
    starts: list[float]


def make() -> tuple[Callable[[int], None], Callable[[int], int]]:
    """Register the workflows: a chain of steps, and a map whose elements are workflows of a queue."""

    # Not as decorators: type checkers know no types of DBOS where it is not installed.
    def mark() -> None:
        STARTS.append(time.time())

    step: Callable[[], None] = DBOS.step()(mark)

    def chain(steps: int) -> None:
        for _ in range(steps):
            step()

    def element(number: int) -> None:
        pass

    each: Callable[[int], None] = DBOS.workflow()(element)

    def fan_out(elements: int) -> int:
        handles = [DBOS.enqueue_workflow(_QUEUE, each, number) for number in range(elements)]
        return len([handle.get_result() for handle in handles])

    chain_workflow: Callable[[int], None] = DBOS.workflow()(chain)
    map_workflow: Callable[[int], int] = DBOS.workflow()(fan_out)
    return chain_workflow, map_workflow


def measure(url: str, steps: int, elements: int, chains: int) -> Noted:
    """Run a warm-up, the chains and a map; return when each began and ended."""
    # It uses SQLAlchemy with psycopg 3, and needs the driver in the URL.
    place = urlsplit(url)._replace(scheme="postgresql+psycopg").geturl()
    DBOS(config={"name": "bench", "system_database_url": place, "log_level": "ERROR"})
    chain, fan_out = make()
    DBOS.launch()
    try:
        DBOS.register_queue(_QUEUE, polling_interval_sec=_POLLING)
        chain(3)
        fan_out(3)
        found = Noted([], [], STARTS)
        for _ in range(chains):
            begin = time.time()
            chain(steps)
            found.chains.append((begin, time.time()))
        begin = time.time()
        assert fan_out(elements) == elements
        found.maps.append((begin, time.time()))
        return found
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    where, *numbers, noted = sys.argv[1:]
    figures = measure(where, *(int(number) for number in numbers))
    Path(noted).write_bytes(msgspec.json.encode(figures))

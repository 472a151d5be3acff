"""The app of the flows that the suite measures: no-op tasks, and a flow of each shape.

``python -m bench.flow_app STORE SIZES STARTS`` runs a node with the default settings until SIGTERM. Then it
writes when each step of a chain began to the file STARTS. SIZES is the JSON text of ``Sizes``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.processes import process
from evenbeat import Scheduler

STARTS: list[float] = []
"""When each step of a chain began in this process, in seconds since 1970."""


class Sizes(msgspec.Struct, frozen=True):
    """How large the flows are, and how often each is measured."""

    chain: int = 100
    elements: int = 10_000
    steps: int = 1_000
    layers: int = 10
    rounds: int = 3
    chains: int = 3
    """How often each flow but the map is measured in a round: a p99 needs some hundred gaps."""


QUICK = Sizes(chain=5, elements=20, steps=20, layers=4, rounds=1, chains=1)


def make(store: str, sizes: Sizes) -> Scheduler:
    """Make the app with its tasks and flows."""
    app = Scheduler(store)
    noop = app.task(name="noop")(_noop)
    element = app.task(name="element")(_element)
    join = app.task(name="join")(_join)
    mark, passed = app.task(name="mark")(_mark), app.task(name="passed")(_passed)

    def chain() -> None:
        step = mark.step(step_name="s0")
        for at in range(1, sizes.chain):
            step = mark.step(step_name=f"s{at}", after=[step])

    def data_chain() -> Any:
        step = passed.step(0, step_name="s0")
        for at in range(1, sizes.chain):
            step = passed.step(step, step_name=f"s{at}")
        return step

    def fan_out() -> Any:
        return join.step(element.map(list(range(sizes.elements))))

    def wide() -> None:
        for at in range(sizes.steps):
            noop.step(step_name=f"s{at}")

    def layers() -> None:
        width = sizes.steps // sizes.layers
        before = [noop.step(step_name=f"l0-{at}") for at in range(width)]
        for layer in range(1, sizes.layers):
            before = [
                noop.step(step_name=f"l{layer}-{at}", after=[before[at], before[at - 1]])
                for at in range(width)
            ]

    for function in (chain, data_chain, fan_out, wide, layers):
        app.flow(name=function.__name__)(function)
    return app


def _noop() -> None:
    pass


def _mark() -> None:
    STARTS.append(time.time())


def _passed(value: int) -> int:
    STARTS.append(time.time())
    return value


def _element(number: int) -> None:
    pass


def _join(parts: list[None]) -> int:
    return len(parts)


@contextmanager
def nodes(store: str, sizes: Sizes, folder: Path, count: int = 1) -> Iterator[list[Path]]:
    """Start nodes, each in its own process; yield the files that they write at their end."""
    files = [folder / f"{at}.starts" for at in range(count)]
    text = msgspec.json.encode(sizes).decode()
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(process("-m", "bench.flow_app", store, text, str(file)))
        yield files


if __name__ == "__main__":
    # Imported by its name: this module is __main__ here, and has another list.
    from bench import flow_app

    url, given, noted = sys.argv[1:]
    flow_app.make(url, msgspec.json.decode(given, type=flow_app.Sizes)).run()
    Path(noted).write_bytes(msgspec.json.encode(flow_app.STARTS))

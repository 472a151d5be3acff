"""The flows of the peers: Celery's canvas on Valkey; procrastinate and DBOS on PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.servers import Valkey

from bench import databases
from bench.databases import StoreName
from bench.flow_app import Sizes
from bench.processes import ROOT, scratch

# Elements of the maps of slow peers: fewer, so that a round takes seconds.
CELERY_ELEMENTS, DBOS_ELEMENTS = 500, 500
CELERY, PROCRASTINATE, DBOS = "Celery", "procrastinate, by hand", "DBOS"


class Figures(NamedTuple):
    """One round of a peer."""

    rates: dict[str, float]
    """Steps a second, by the kind of flow: chain, map."""
    gaps: list[float]
    """Milliseconds from each step of a chain to the next."""


def peers_of(place: StoreName, sizes: Sizes) -> Iterator[tuple[str, Figures]]:
    """Measure the peers that have a flow on such a server, those that are installed."""
    if place == "Valkey" and find_spec("celery") is not None:
        yield CELERY, _celery(sizes)
    if place == "PostgreSQL":
        if find_spec("procrastinate") is not None:
            yield PROCRASTINATE, asyncio.run(_procrastinate(sizes))
        if find_spec("dbos") is not None:
            yield DBOS, _dbos(sizes)


def _celery(sizes: Sizes) -> Figures:
    from bench import celery_app

    # On a server of its own: it has no prefix for all of its keys. As durable as ours: appendfsync always.
    server = Valkey()
    server.start()
    try:
        with scratch() as folder:
            noted = folder / "celery.starts"
            app = celery_app.make(server.url)
            elements = min(sizes.elements, CELERY_ELEMENTS)
            with celery_app.worker(server.url, noted):
                celery_app.run_chain(app, 3)
                celery_app.run_chord(app, 3)
                chains = [celery_app.run_chain(app, sizes.chain) for _ in range(sizes.chains)]
                maps = [celery_app.run_chord(app, elements)]
            # Its results unsubscribe when they are deleted, which needs the server.
            gc.collect()
            app.close()
            starts = msgspec.json.decode(noted.read_bytes(), type=list[float])
    finally:
        server.stop()
    return _figures(chains, maps, starts, sizes.chain, elements)


def _dbos(sizes: Sizes) -> Figures:
    with databases.place("postgres") as url, scratch() as folder:
        noted = folder / "dbos"
        elements = min(sizes.elements, DBOS_ELEMENTS)
        numbers = [str(number) for number in (sizes.chain, elements, sizes.chains)]
        subprocess.run(
            [sys.executable, "-m", "bench.dbos_app", url, *numbers, str(noted)],
            cwd=ROOT,
            check=True,
            timeout=300,
            stdout=subprocess.DEVNULL,
        )
        found = msgspec.json.decode(noted.read_bytes(), type=_Noted)
    return _figures(found.chains, found.maps, found.starts, sizes.chain, elements)


class _Noted(msgspec.Struct):
    chains: list[tuple[float, float]]
    maps: list[tuple[float, float]]
    starts: list[float]


async def _procrastinate(sizes: Sizes) -> Figures:
    """Measure a chain whose tasks defer the next one: not atomic with the end of the task."""
    from bench import procrastinate_app

    chains: list[tuple[float, float]] = []
    with databases.place("postgres") as url, scratch() as folder:
        noted = folder / "procrastinate.starts"
        app = procrastinate_app.make(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            with procrastinate_app.worker(url, 10, noted):
                # One chain: now and then its next look is 5 s later, so a chain may take half a minute.
                for steps in (3, sizes.chain):
                    before = await procrastinate_app.succeeded(app)
                    begin = time.time()
                    await app.tasks["link"].defer_async(left=steps)
                    while await procrastinate_app.succeeded(app) < before + steps:
                        await asyncio.sleep(0.01)
                    chains.append((begin, time.time()))
        starts = msgspec.json.decode(Path(noted).read_bytes(), type=list[float])
    return _figures(chains[1:], [], starts, sizes.chain, 0)


def _figures(
    chains: list[tuple[float, float]],
    maps: list[tuple[float, float]],
    starts: list[float],
    steps: int,
    elements: int,
) -> Figures:
    rates = {"chain": len(chains) * steps / sum(end - begin for begin, end in chains)}
    if maps:
        rates["map"] = len(maps) * (elements + 1) / sum(end - begin for begin, end in maps)
    return Figures(rates, [gap for window in chains for gap in gaps(starts, window, steps)])


def gaps(starts: list[float], window: tuple[float, float], steps: int) -> list[float]:
    """Return the milliseconds from the start of each no-op of a chain to that of the next."""
    begin, end = window
    found = sorted(start for start in starts if begin <= start <= end)
    assert len(found) == steps, f"{len(found)} of {steps} steps began"
    return [(later - earlier) * 1000 for earlier, later in pairwise(found)]

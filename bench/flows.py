"""Flows: a chain, a map with a join, and many steps against the same runs without edges, on each store.

One node with the default settings executes them in another process; on the store in memory, in this one. The
peers are Celery's canvas on Valkey, and on PostgreSQL procrastinate, whose tasks add the next ones by hand,
and DBOS. ``python -m bench.flows quick [STORE …]`` runs tiny flows, to see that all of it works.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from tests.servers import stop_shared

from bench import databases, flow_app
from bench.databases import StoreName, store_place
from bench.flow_app import QUICK, Sizes
from bench.flow_peers import Figures, gaps, peers_of
from bench.measure import Row, median, percentile
from bench.processes import scratch, until
from evenbeat import Scheduler
from evenbeat.core.records import FINAL_STATES

GOAL_P99 = 20
GOAL_RATIO = 2
NODES = 2
# Seconds between two looks at a flow that runs.
_LOOK = 0.01
PLAIN, WIDE, LAYERS = "plain", "wide", "layers"


class _Round(NamedTuple):
    """The seconds of each flow of one round, and the gaps of the chains in milliseconds."""

    seconds: Mapping[str, list[float]]
    gaps: Mapping[str, list[float]]


def run(sizes: Sizes = Sizes(), *stores: StoreName, with_peers: bool = True) -> list[Row]:  # noqa: B008
    """Measure these stores, by default all."""
    rows: list[Row] = []
    for place in stores or databases.stores():
        ours: list[_Round] = []
        pairs: list[float] = []
        theirs: dict[str, list[Figures]] = {}
        for _ in range(sizes.rounds):
            ours.append(_round(place, sizes))
            if place != "memory":
                pairs.append(_fan_out_on_two(place, sizes))
            for name, figures in peers_of(place, sizes) if with_peers else ():
                theirs.setdefault(name, []).append(figures)
        rows += _rows(place, sizes, ours, pairs, theirs)
    return rows


def _rows(
    place: StoreName,
    sizes: Sizes,
    rounds: list[_Round],
    pairs: list[float],
    peers: Mapping[str, list[Figures]],
) -> list[Row]:
    row = partial(Row, "flows")
    seconds = {kind: [one for each in rounds for one in each.seconds[kind]] for kind in rounds[0].seconds}
    waits = {kind: sorted(gap for each in rounds for gap in each.gaps[kind]) for kind in rounds[0].gaps}
    rate = {kind: median([_steps(kind, sizes) / one for one in found]) for kind, found in seconds.items()}
    chains, maps = _peers(peers, "chain"), _peers(peers, "map")
    theirs = {name: sorted(gap for each in found for gap in each.gaps) for name, found in peers.items()}
    theirs = {name: found for name, found in theirs.items() if found}
    half, most = ({name: percentile(found, share) for name, found in theirs.items()} for share in (0.5, 0.99))
    chain, then = f"{place}: a chain of {sizes.chain:,}", "end of a step to the start of the next"
    fan_out = f"{place}: a map of {sizes.elements:,} with a join"
    many = f"{sizes.steps:,} steps"
    rows = [
        row(f"{chain}", "steps/s", rate["chain"], chains),
        row(f"{chain}, each gets the result before it", "steps/s", rate["data_chain"]),
        row(f"{chain}: {then}, half of them", "ms", percentile(waits["chain"], 0.5), half),
    ]
    for kind, how in (("chain", ""), ("data_chain", ", with results")):
        p99 = percentile(waits[kind], 0.99)
        goal: tuple[str, bool | None] = ("", None)
        if place == "PostgreSQL":
            goal = (f"< {GOAL_P99} ms", p99 < GOAL_P99)
        rows.append(row(f"{chain}: {then}{how}, p99", "ms", p99, most if kind == "chain" else {}, *goal))
    rows.append(row(fan_out, "steps/s", rate["fan_out"], maps))
    if pairs:
        both = median([_steps("fan_out", sizes) / one for one in pairs])
        rows.append(row(f"{fan_out}, {NODES} nodes", "steps/s", both))
    for kind, how in ((WIDE, "independent"), (LAYERS, f"in {sizes.layers} layers")):
        rows.append(row(f"{place}: {many}, {how}", "steps/s", rate[kind], {"without edges": rate[PLAIN]}))
        # Each after the same runs without edges: a slow minute affects both.
        times = median([one / plain for one, plain in zip(seconds[kind], seconds[PLAIN], strict=True)])
        title = f"{place}: {many}, {how}, times the cost of these runs without edges"
        rows.append(row(title, "x", times, goal=f"≤ {GOAL_RATIO}x", met=times <= GOAL_RATIO))
    return rows


def _peers(peers: Mapping[str, list[Figures]], kind: str) -> dict[str, float]:
    """Return the steps a second of the peers that have such a flow."""
    found = {name: [each.rates[kind] for each in all_ if kind in each.rates] for name, all_ in peers.items()}
    return {name: median(rates) for name, rates in found.items() if rates}


def _steps(kind: str, sizes: Sizes) -> int:
    return {"chain": sizes.chain, "data_chain": sizes.chain, "fan_out": sizes.elements + 1}.get(
        kind, sizes.steps
    )


def _round(place: StoreName, sizes: Sizes) -> _Round:
    """Measure each flow in an empty store, in turn."""
    with store_place(place) as url, scratch() as folder:
        app = flow_app.make(url, sizes)
        windows: dict[str, list[tuple[float, float]]] = {}
        with _nodes(app, url, sizes, folder) as starts:
            for kind in ("chain", "data_chain", WIDE):
                _run(app, kind, sizes)  # a warm-up: code is imported, connections are open, plans are made
            databases.analyze(url)
            for _ in range(sizes.chains):
                for kind in ("chain", "data_chain", PLAIN, WIDE, LAYERS):
                    windows.setdefault(kind, []).append(_run(app, kind, sizes))
            windows["fan_out"] = [_run(app, "fan_out", sizes)]
        app.close()
        began = starts()
    seconds = {kind: [end - begin for begin, end in found] for kind, found in windows.items()}
    waits = {
        kind: [gap for window in windows[kind] for gap in gaps(began, window, sizes.chain)]
        for kind in ("chain", "data_chain")
    }
    return _Round(seconds, waits)


def _fan_out_on_two(place: StoreName, sizes: Sizes) -> float:
    """Return the seconds of a map on two nodes, which both end its elements."""
    with store_place(place) as url, scratch() as folder:
        app = flow_app.make(url, sizes)
        with _nodes(app, url, sizes, folder, NODES):
            until(lambda: len(app.nodes()) == NODES, every=0.05)
            _run(app, WIDE, sizes)
            databases.analyze(url)
            begin, end = _run(app, "fan_out", sizes)
        app.close()
    return end - begin


@contextmanager
def _nodes(
    app: Scheduler, url: str, sizes: Sizes, folder: Path, count: int = 1
) -> Iterator[Callable[[], list[float]]]:
    """Execute the flows; yield a function that returns when the steps of chains began, after the end."""
    if url.startswith("memory:"):
        flow_app.STARTS.clear()
        with app:
            yield lambda: sorted(flow_app.STARTS)
        return
    with flow_app.nodes(url, sizes, folder, count) as files:
        yield lambda: sorted(
            one for file in files for one in msgspec.json.decode(file.read_bytes(), type=list[float])
        )


def _run(app: Scheduler, kind: str, sizes: Sizes) -> tuple[float, float]:
    """Run a flow, or the same runs without edges; return when it was enqueued, and when its end was seen."""
    if kind == PLAIN:
        before = app.runs.count().get("succeeded", 0)
        begin = time.time()
        *_, last = app.enqueue_many([("noop", {})] * sizes.steps)
        # As cheap as the looks at a flow; counting, which is not, begins when most of them have ended.
        until(lambda: app.runs.get(last).state in FINAL_STATES, every=_LOOK)
        until(lambda: app.runs.count().get("succeeded", 0) == before + sizes.steps, every=_LOOK)
        return begin, time.time()
    begin = time.time()
    run_id = app.enqueue(kind).id
    until(lambda: app.runs.get(run_id).state in FINAL_STATES, every=_LOOK)
    end = time.time()
    ended = app.runs.get(run_id)
    assert ended.state == "succeeded", ended.error
    if kind == "fan_out":
        assert ended.result == sizes.elements
    return begin, end


if __name__ == "__main__":
    is_quick = sys.argv[1:2] == ["quick"]
    chosen = msgspec.convert(sys.argv[2 if is_quick else 1 :], list[StoreName])
    try:
        for each in run(QUICK if is_quick else Sizes(), *chosen):
            print(each)
    finally:
        stop_shared()

"""How late one-shots start on servers, enqueued by one process and executed by a node in another.

All servers and both kinds of one-shots are measured at the same time, which improves no figure.
"""

from __future__ import annotations

import itertools
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import apps, databases
from bench.databases import TITLES, Database
from bench.measure import Row, median, percentile
from bench.processes import scratch, until
from bench.punctuality import HOW, How, lateness, order

JOBS = 200
WINDOW = 20.0
# All are enqueued before the first is due.
LEAD = 6.0
ROUNDS = 3
GOAL = 30


def run() -> list[Row]:
    names = databases.present()
    found: dict[tuple[Database, How], list[list[float]]] = {(name, how): [] for name in names for how in HOW}
    for number in range(ROUNDS):
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            for name, measured in zip(names, pool.map(partial(_lates, number), names), strict=True):
                for how, values in measured.items():
                    assert len(values) == JOBS, f"{name}, {how}: {len(values)} of {JOBS} started"
                    found[name, how].append(sorted(values))
    rows = []
    for (name, how), rounds in found.items():
        p50, p95, p99 = (
            median([percentile(ordered, share) for ordered in rounds]) for share in (0.5, 0.95, 0.99)
        )
        title, goal = f"{TITLES[name]}: {HOW[how]}, half of them", f"p99 < {GOAL} ms"
        rows.append(Row("servers_punctuality", title, "ms", p50, {}, goal, p99 < GOAL, p95, p99))
    return rows


def _dues(seed: int) -> dict[How, list[float]]:
    """Return instants for one-shots of each kind, no two the same, which identifies the kinds afterwards."""
    chosen = random.Random(seed)  # noqa: S311  # the same instants in each run, not a secret
    begin = round(time.time() + LEAD, 3)
    instants = [
        round(begin + at / 1000, 3) for at in chosen.sample(range(int(WINDOW * 1000)), JOBS * len(HOW))
    ]
    return {how: sorted(instants[at :: len(HOW)]) for at, how in enumerate(HOW)}


def _lates(seed: int, name: Database) -> dict[How, list[float]]:
    with databases.place(name) as url, scratch() as folder:
        noted = folder / "bench.starts"
        app = apps.make("stamp", url)
        with apps.node("stamp", url, noted):
            assert app.runs.join(app.enqueue("stamp", {"due": 0}).id, "30s").state == "succeeded"
            dues, numbers = _dues(seed), itertools.count()
            # The earliest first, so that the lead is enough for each.
            for due, how in sorted((due, how) for how, instants in dues.items() for due in instants):
                order(app, how, numbers, due)
                assert time.time() < due, "handing over took longer than the lead"
            # No query while it is measured.
            time.sleep(max(0.0, max(max(instants) for instants in dues.values()) - time.time()))
            expected = {"succeeded": JOBS * len(HOW) + 1}
            until(lambda: app.runs.count() == expected, every=0.2)
        app.close()
        starts = apps.read_starts(noted)
    return {
        how: lateness([(due, began) for due, began in starts if due in set(instants)])
        for how, instants in dues.items()
    }

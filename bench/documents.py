"""Documents processed by several processes: from the instant at which all are due until the last is done."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from tests.documents.places import fresh

from bench import databases
from bench.measure import Row, median
from bench.processes import process, scratch, until

COUNT = {"mongo": 20_000, "postgres": 40_000, "valkey": 20_000, "sqlite": 20_000}
# One at a time is slow: fewer, so that a round takes less than a minute.
ONE_COUNT = {"mongo": 3_000, "postgres": 5_000}
TITLES = {"mongo": "MongoDB", "postgres": "PostgreSQL", "valkey": "Valkey", "sqlite": "SQLite"}
GOALS = {"mongo": 3_000, "postgres": 5_000}
PROCESSES, ROUNDS = 4, 3
ONE = "one document at a time"


def run() -> list[Row]:
    rows = []
    kinds = [*databases.present("mongo", "postgres", "valkey"), "sqlite"]
    for kind in kinds:
        contestants = {("def", 100): COUNT[kind], ("async", 100): COUNT[kind], ("def", 25): COUNT[kind]}
        if kind in ONE_COUNT:
            contestants["one", 25] = ONE_COUNT[kind]
        rates: dict[tuple[str, int], list[float]] = {who: [] for who in contestants}
        for _ in range(ROUNDS):
            for (how, concurrency), count in contestants.items():
                rates[how, concurrency].append(_rate(kind, how, concurrency, count))
        peers = {ONE: median(rates["one", 25])} if kind in ONE_COUNT else {}
        for (how, concurrency), found in rates.items():
            if how == "one":
                continue
            word = "`def`" if how == "def" else "`async def`"
            title = f"{TITLES[kind]}: {COUNT[kind]:,} documents, {word}, {PROCESSES} x {concurrency} at once"
            rate, goal = median(found), GOALS.get(kind)
            row = Row("documents", title, "documents/s", rate, peers)
            if goal is not None:
                row = Row("documents", title, "documents/s", rate, peers, f"≥ {goal:,}", rate >= goal)
            rows.append(row)
    return rows


def _rate(kind: str, how: str, concurrency: int, count: int) -> float:
    with scratch() as folder, fresh(kind, folder) as place:
        place.make()
        ledgers = [folder / f"ledger-{number}" for number in range(PROCESSES)]
        # Seconds to write the documents and to start the processes.
        due = datetime.now(UTC) + timedelta(seconds=5)
        place.fill(0, count, due)
        with ExitStack() as stack:
            for ledger in ledgers:
                stack.enter_context(
                    process(
                        "-m", "bench.document_worker", kind, place.url, how, str(concurrency), str(ledger)
                    )
                )
            time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
            # Counting is work for the database, so it is done seldom.
            until(lambda: place.left() == 0, every=0.1)
            taken = (datetime.now(UTC) - due).total_seconds()
        handled = [line for ledger in ledgers for line in ledger.read_text().split()]
        assert len(handled) == count, f"{len(handled)} of {count} were handled on {kind}"
        assert len(set(handled)) == count, f"some were handled twice on {kind}"
    return count / taken

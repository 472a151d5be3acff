"""The store on SQLite: a file in the default temporary folder, synchronous=FULL, one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import Row, interleaved, median
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, Write
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock

TICKS = 10_000
RUNS = 10_000
FIRE_BATCH = 2_000
RUN_BATCH = 1_000
STEP_BATCH = 500
ROUNDS = 5


def run() -> list[Row]:
    fired = median([_ticks_a_second() for _ in range(ROUNDS)])
    cycled = median([1 / sum(_seconds_a_run(RUN_BATCH)) for _ in range(ROUNDS)])
    steps = [_seconds_a_run(STEP_BATCH) for _ in range(ROUNDS)]
    added, claimed, settled = (median([step * 1e6 for step in each]) for each in zip(*steps, strict=True))
    whole = median([sum(each) * 1e6 for each in steps])
    small, large = _nothing_due(1_000, 100_000)
    return [
        _rate(f"{TICKS:,} due at once, fired in batches of {FIRE_BATCH:,}", "ticks/s", fired, 20_000),
        _rate(f"runs added, claimed and settled in batches of {RUN_BATCH:,}", "runs/s", cycled, 10_000),
        Row("sqlite", f"a run added, in batches of {STEP_BATCH}", "us", added),
        Row("sqlite", f"a run claimed, in batches of {STEP_BATCH}", "us", claimed),
        Row("sqlite", f"a run settled, in batches of {STEP_BATCH}", "us", settled),
        Row(
            "sqlite",
            f"a run from added to settled, in batches of {STEP_BATCH}",
            "us",
            whole,
            goal="< 90 us",
            met=whole < 90,
        ),
        Row("sqlite", "a claim with nothing due, 10,000 runs queued for later", "us", _idle_claim() * 1e6),
        Row("sqlite", "a pass with nothing due, 1,000 schedules", "us", small * 1e6),
        Row(
            "sqlite",
            "a pass with nothing due, 100,000 schedules",
            "us",
            large * 1e6,
            goal="< 1.6x of 1,000",
            met=large < 1.6 * small,
        ),
    ]


def _rate(name: str, unit: str, rate: float, goal: int) -> Row:
    return Row("sqlite", name, unit, rate, goal=f"> {goal:,} {unit}", met=rate > goal)


@contextmanager
def _store(clock: VirtualClock) -> Iterator[SqliteStore]:
    with TemporaryDirectory(prefix="evenbeat-bench-") as folder:
        store = SqliteStore(Path(folder) / "bench.db", clock)
        store.open()
        try:
            yield store
        finally:
            store.close()


def _fill(store: SqliteStore, count: int, trigger: str) -> None:
    now = store.now()
    for start in range(0, count, 5_000):
        names = (f"schedule-{at:06}" for at in range(start, min(count, start + 5_000)))
        made = (ScheduleRecord(name=name, task="work", trigger=trigger, payload='{"n":1}') for name in names)
        store.put_schedules([Write(changes.create(schedule, now), None) for schedule in made])


def _ticks_a_second() -> float:
    clock = VirtualClock()
    with _store(clock) as store:
        _fill(store, TICKS, "* * * * *")
        clock.advance("1m")
        begin = time.perf_counter()
        fired = 0
        while planned := store.fire_due(clock.now, FIRE_BATCH, plan).planned:
            fired += sum(len(entry.runs) for entry in planned)
        taken = time.perf_counter() - begin
        assert fired == TICKS
        return fired / taken


def _seconds_a_run(batch: int) -> tuple[float, float, float]:
    """Return the seconds per run for adding, claiming and settling, with an empty history."""
    clock = VirtualClock()
    with _store(clock) as store:
        wanted = _queued(RUNS, clock.now)
        begin = time.perf_counter()
        for start in range(0, RUNS, batch):
            store.add_runs(wanted[start : start + batch])
        adding = time.perf_counter() - begin
        claiming = settling = 0.0
        for number in range(RUNS // batch):
            claim = Claim(worker="w", token=f"c{number}", limit=batch, now=clock.now, lease=30_000)
            begin = time.perf_counter()
            held = store.claim_runs(claim).runs
            claiming += time.perf_counter() - begin
            ends = [attempts.succeeded(entry, "null", clock.now, f"t-{entry.id}") for entry in held]
            begin = time.perf_counter()
            accepted = store.settle_runs(ends)
            settling += time.perf_counter() - begin
            assert sum(accepted) == batch
        return adding / RUNS, claiming / RUNS, settling / RUNS


def _queued(count: int, run_at: int) -> list[RunRecord]:
    return [
        RunRecord(id=f"run-{at:06}", task="work", payload=f'{{"n":{at}}}', run_at=run_at, created_at=run_at)
        for at in range(count)
    ]


def _idle_claim() -> float:
    """Return the seconds of a claim that finds no run."""
    clock = VirtualClock()
    with _store(clock) as store:
        store.add_runs(_queued(10_000, clock.now + 60_000))
        claim = Claim(worker="w", token=f"c{clock.now}", limit=10, now=clock.now, lease=30_000)

        def hundred() -> None:
            for _ in range(100):
                assert store.claim_runs(claim).runs == ()

        return median(interleaved({"it": hundred}, rounds=21)["it"]) / 100


def _nothing_due(*counts: int) -> list[float]:
    """Return the seconds per pass for each number of schedules, measured in turn."""
    clock = VirtualClock()
    with _store(clock) as first, _store(clock) as second:
        stores = dict(zip(counts, (first, second), strict=True))
        for count, store in stores.items():
            _fill(store, count, "0 0 1 1 *")
        passes: dict[str, Callable[[], object]] = {
            str(count): _passes(store, clock) for count, store in stores.items()
        }
        taken = interleaved(passes, rounds=51)
        return [median(taken[str(count)]) / 100 for count in counts]


def _passes(store: SqliteStore, clock: VirtualClock) -> Callable[[], None]:
    def hundred() -> None:
        for _ in range(100):
            assert store.fire_due(clock.now, 100, plan).planned == ()

    return hundred

"""How late one-shots start: the clock inside the function, minus the instant at which it was due."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from bench import apps, huey_app
from bench.measure import Row, median, percentile
from bench.processes import ROOT, scratch, until
from evenbeat import Scheduler, at

JOBS = 200
WINDOW = 20.0
# All are enqueued before the first is due.
LEAD = 3.0
ROUNDS = 3
GOAL = 20

How: TypeAlias = Literal["enqueue", "schedule"]
HOW: dict[How, str] = {"enqueue": "`enqueue(at=…)`", "schedule": "`at(…)` schedules"}
SHARES = {"half of them": 0.5, "p95": 0.95, "p99": 0.99, "the latest": 1.0}


def run() -> list[Row]:
    contestants: dict[str, Callable[[int], list[float]]] = {
        "here, enqueue": partial(_alone, "enqueue"),
        "here, schedule": partial(_alone, "schedule"),
        "apart, enqueue": partial(_apart, "enqueue"),
        "apart, schedule": partial(_apart, "schedule"),
        "APScheduler 3, memory": partial(_alone, "apscheduler"),
        "huey": _huey,
    }
    late: dict[str, list[list[float]]] = {name: [] for name in contestants}
    for number in range(ROUNDS):
        for name, measure in contestants.items():
            late[name].append(sorted(measure(number)))
            assert len(late[name][-1]) == JOBS, f"{name}: {len(late[name][-1])} of {JOBS} started"
    rows = []
    # One process is compared with APScheduler, two processes with huey.
    for where, title, peer in (
        ("here", "from the worker's own process", "APScheduler 3, memory"),
        ("apart", "from another process", "huey"),
    ):
        for how, what in HOW.items():
            for share, wanted in SHARES.items():
                ours, theirs = (
                    median([percentile(ordered, wanted) for ordered in late[name]])
                    for name in (f"{where}, {how}", peer)
                )
                name, peers = f"{what} {title}: {share}", {peer: theirs}
                if share == "p99":
                    rows.append(Row("punctuality", name, "ms", ours, peers, f"< {GOAL} ms", ours < GOAL))
                else:
                    rows.append(Row("punctuality", name, "ms", ours, peers))
    return rows


def _dues(seed: int) -> list[float]:
    """Return instants to start at, in order, in seconds: whole milliseconds, as they are stored."""
    chosen = random.Random(seed)  # noqa: S311  # the same instants in each run, not a secret
    begin = time.time() + LEAD
    return sorted(round(begin + chosen.uniform(0, WINDOW), 3) for _ in range(JOBS))


def _hand_over(dues: list[float], one: Callable[[float], object]) -> None:
    for due in dues:
        one(due)
    assert time.time() < dues[0], "handing over took longer than the lead"


def _wait(dues: list[float], done: Callable[[], bool]) -> None:
    # No query while it is measured: that would be work for the same processors and the same file.
    time.sleep(max(0.0, dues[-1] - time.time()))
    until(done, every=0.2)


def lateness(starts: list[tuple[float, float]]) -> list[float]:
    """Return milliseconds, without those of the warm-up calls."""
    return [(began - due) * 1000 for due, began in starts if due]


def moment(due: float) -> datetime:
    return datetime.fromtimestamp(due, UTC)


def order(app: Scheduler, how: How, numbers: Iterator[int], due: float) -> None:
    payload = {"due": due}
    if how == "enqueue":
        app.enqueue("stamp", payload, at=moment(due))
    else:
        app.schedules.add(f"once-{next(numbers)}", at(moment(due)), "stamp", payload)


def _ordered(app: Scheduler, how: How, seed: int) -> None:
    """Enqueue for a node that runs already, from the warm-up to the last success."""
    assert app.runs.join(app.enqueue("stamp", {"due": 0}).id, "30s").state == "succeeded"
    dues = _dues(seed)
    _hand_over(dues, partial(order, app, how, itertools.count()))
    _wait(dues, lambda: app.runs.count().get("succeeded") == JOBS + 1)
    assert app.runs.count() == {"succeeded": JOBS + 1}


def _apart(how: How, seed: int) -> list[float]:
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make("stamp", database)
        with apps.node("stamp", database):
            _ordered(app, how, seed)
        app.close()
        return lateness(apps.starts(database))


def _huey(seed: int) -> list[float]:
    with scratch() as folder:
        database = folder / "bench.db"
        huey = huey_app.make(database, keep=True)
        with huey_app.consumer(database, keep=True):
            huey.stamp(0.0)
            until(lambda: huey.result_count() == 1)
            dues = _dues(seed)
            _hand_over(dues, lambda due: huey.stamp.schedule((due,), eta=moment(due)))
            _wait(dues, lambda: huey.result_count() == JOBS + 1)
        huey.storage.close()
        return lateness(apps.starts(database))


def _alone(who: How | Literal["apscheduler"], seed: int) -> list[float]:
    """Enqueue and execute in one process."""
    with scratch() as folder:
        database, noted = folder / "bench.db", folder / "bench.starts"
        command = [sys.executable, "-m", "bench.punctuality", who, str(seed), str(database), str(noted)]
        subprocess.run(command, check=True, cwd=ROOT)
        return lateness(apps.read_starts(noted))


def _do_alone(who: How | Literal["apscheduler"], seed: int, database: Path) -> None:
    if who == "apscheduler":
        _apscheduler(seed)
        return
    app = apps.make("stamp", database)
    with app:
        _ordered(app, who, seed)


def _apscheduler(seed: int) -> None:
    from apscheduler.schedulers.background import BackgroundScheduler

    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start()
    scheduler.add_job(apps.stamp, args=[0.0])
    until(lambda: len(apps.STARTS) == 1)
    dues = _dues(seed)
    _hand_over(
        dues,
        lambda due: scheduler.add_job(
            apps.stamp, "date", run_date=moment(due), args=[due], misfire_grace_time=None
        ),
    )
    _wait(dues, lambda: len(apps.STARTS) == JOBS + 1)
    scheduler.shutdown()


if __name__ == "__main__":
    chosen = msgspec.convert(sys.argv[1], How | Literal["apscheduler"])
    _do_alone(chosen, int(sys.argv[2]), Path(sys.argv[3]))
    apps.write_starts(Path(sys.argv[4]))

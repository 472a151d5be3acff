"""10,000 schedules due at the same instant on one node: how late each of them starts."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bench import apps
from bench.measure import Row, percentile
from bench.plot import curve
from bench.processes import ROOT, scratch, until
from evenbeat import Scheduler
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import RunQuery, Write

SCHEDULES = 10_000
ROUNDS = 3
GOAL = 2_000
# Seconds between the end of the set-up and the instant at which all schedules are due.
LEAD = 2
PLOT = ROOT / "bench" / "results" / "burst.svg"
"""Where the picture of the last run is; a run of all suites takes it to docs/img/."""

_BATCH = 1_000
_PAGE = 500


def run() -> list[Row]:
    rounds = sorted((_late() for _ in range(ROUNDS)), key=lambda late: late[-1])
    late = rounds[ROUNDS // 2]  # the median round, by its last start
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(
        curve(
            late,
            title=f"{SCHEDULES:,} schedules due at the same instant, one node, SQLite",
            across="starts, in their order",
            up="ms late",
            limit=(GOAL, f"goal: all within {GOAL // 1000} s"),
        )
    )
    last = late[-1]
    ordered = sorted(late)
    return [
        Row("burst", "the first start", "ms", ordered[0]),
        Row("burst", "half of them", "ms", percentile(ordered, 0.5)),
        Row("burst", "p99", "ms", percentile(ordered, 0.99)),
        Row("burst", f"the last of {SCHEDULES:,}", "ms", last, goal=f"< {GOAL:,} ms", met=last < GOAL),
    ]


def _late() -> list[float]:
    """Return the milliseconds from the tick to the start inside the function, in the order of the starts."""
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make("stamp", database)
        with apps.node("stamp", database):
            assert app.runs.join(app.enqueue("stamp", {"due": 0}).id, "30s").state == "succeeded"
            due = _fill(app)
            # No query while it is measured: that would be work for the same processors and the same file.
            time.sleep(due - time.time() + GOAL / 1000)
            until(lambda: app.runs.count().get("succeeded") == SCHEDULES + 1, every=0.2)
        _check(app, due)
        app.close()
        noted = sorted((began, when) for when, began in apps.starts(database) if when)
    assert len(noted) == SCHEDULES
    assert {when for _, when in noted} == {due}
    return [(began - due) * 1000 for began, _ in noted]


def _fill(app: Scheduler) -> int:
    """Add schedules that tick once a day, next in a few seconds; return the second of that tick."""
    store = app.store
    # Five seconds to write them; checked below.
    due = int(time.time()) + LEAD + 5
    tick = datetime.fromtimestamp(due, UTC)
    trigger = f"{tick.second} {tick.minute} {tick.hour} * * *"
    payload = f'{{"due":{due}}}'
    for start in range(0, SCHEDULES, _BATCH):
        made = (
            ScheduleRecord(name=f"daily-{number:05}", task="stamp", trigger=trigger, payload=payload)
            for number in range(start, start + _BATCH)
        )
        written = store.put_schedules(
            [Write(changes.create(schedule, store.now()), None) for schedule in made]
        )
        assert all(answer.accepted for answer in written)
        store.hint()
    assert time.time() < due - LEAD, "setting up took longer than there was time for"
    return due


def _check(app: Scheduler, due: int) -> None:
    """Check that each schedule has one run, of this tick, which succeeded at the first attempt."""
    assert app.runs.count() == {"succeeded": SCHEDULES + 1}
    found: list[RunRecord] = []
    query = RunQuery(task="stamp", states=("succeeded",), limit=_PAGE)
    while True:
        page = app.store.find_runs(query)
        found += page.items
        if page.cursor is None:
            break
        query = RunQuery(task="stamp", states=("succeeded",), limit=_PAGE, cursor=page.cursor)
    ticks = [run for run in found if run.schedule is not None]
    assert len({run.schedule for run in ticks}) == len(ticks) == SCHEDULES
    assert {(run.tick, run.attempt) for run in ticks} == {(due * 1000, 1)}

"""Rows of a newer format in a mixed fleet: older nodes leave them alone, and do not spin on them."""

from __future__ import annotations

import time

from evenbeat.core.records import FORMAT, RunRecord, ScheduleRecord
from evenbeat.stores.base import RunQuery, ScheduleQuery
from tests.faults import newer_node
from tests.faults.fleet import Fleet, add_schedules, fleet, opened, prepare, wait_until
from tests.faults.scene import SCHEDULES, Ground, Mutant, Outcome, Scene, caught, end, next_completion

NEWER = FORMAT + 1
# Commands a second of a node that has nothing to do, its start included: 10 to 20 were measured.
MOST_COMMANDS = 60


def mixed(ground: Ground, seconds: int) -> Outcome:
    """Older nodes alone with newer rows, then with ordinary ones, too, then beside a newer node."""
    assert newer_node.FORMAT == NEWER
    _add_newer(ground)
    _rest(ground, seconds)
    prepare(ground.url, SCHEDULES // 4)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(2):
            nodes.start()
        nodes.await_ready()
        for _ in range(seconds):
            next_completion(nodes)
            time.sleep(1)
        _assert_untouched(ground)
        nodes.start(module="tests.faults.newer_node")
        wait_until(lambda: _ran(nodes, "newer-run-"), "the newer node took no run of its format")
        wait_until(lambda: _fired(ground), "the newer node fired no row of its format")
        before = _ran(nodes, "default/s")
        wait_until(lambda: _ran(nodes, "default/s") > before, "ordinary schedules stand still")
        return end(ground, nodes, 0)


def _add_newer(ground: Ground) -> None:
    wanted = [
        ScheduleRecord(name=f"newer-{at}", task="work", trigger="every 50ms", format=NEWER) for at in range(5)
    ]
    add_schedules(ground.url, wanted)
    with opened(ground.url) as store:
        now = store.now()
        store.add_runs(
            [
                RunRecord(
                    id=f"newer-run-{at}",
                    task="work",
                    scheduled_at=now,
                    run_at=now,
                    created_at=now,
                    format=NEWER,
                )
                for at in range(10)
            ]
        )


def careless(ground: Ground) -> str | None:
    """A node that takes rows of the next format for its own."""
    _add_newer(ground)
    return caught(lambda: _rest(ground, 2, "tests.faults.newer_node"))


def _rest(ground: Ground, seconds: int, module: str = "tests.faults.node") -> None:
    """Only newer rows are due: a node asks now and then, and does not go in circles."""
    folder = ground.folder / "rest"
    folder.mkdir()
    with fleet(ground.url, folder) as nodes:
        start = time.monotonic()
        nodes.start("--record", module=module)
        nodes.await_ready()
        time.sleep(seconds)
        nodes.stop()
        spent = time.monotonic() - start
        seen = next(report["names"] for report in nodes.reports() if report["what"] == "commands")
    _assert_untouched(ground)
    assert sum(seen.values()) <= MOST_COMMANDS * spent, f"a node goes in circles: {seen} in {spent:.1f} s"


def _assert_untouched(ground: Ground) -> None:
    with opened(ground.url) as store:
        rows = [row for row in store.find_schedules(ScheduleQuery(limit=1000)).items if row.format == NEWER]
        assert len(rows) == 5, "rows of a newer format are gone"
        fired = [row for row in rows if row.fire_seq != 1]
        assert not fired, f"an older node fired a row of a newer format: {fired[0].name}"
        ids = tuple(f"newer-run-{at}" for at in range(10))
        runs = store.find_runs(RunQuery(ids=ids, limit=10)).items
        assert {run.state for run in runs} == {"queued"}, f"an older node took runs of a newer format: {runs}"
        assert len(runs) == 10, "runs of a newer format are gone"
        assert not store.find_records("quarantine"), "an older node quarantined rows of a newer format"


def _fired(ground: Ground) -> bool:
    with opened(ground.url) as store:
        rows = store.find_schedules(ScheduleQuery(limit=1000)).items
    return all(row.fire_seq > 1 for row in rows if row.format == NEWER)


def _ran(nodes: Fleet, beginning: str) -> int:
    return sum(
        1
        for report in nodes.reports()
        if report["what"] == "done accepted" and report["run"].startswith(beginning)
    )


WHAT = "2 nodes and rows of a newer format, then a newer node next to them"
SCENES = (Scene("formats", mixed, WHAT, 2, 10),)
MUTANTS = (Mutant("careless", careless, "newer format", quick=("sqlite",)),)

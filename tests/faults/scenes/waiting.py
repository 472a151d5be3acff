"""Schedules that wait for their own runs go on as soon as those end. No faults but bad timing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import to_json
from evenbeat.core.records import Overlap, RunRecord, ScheduleRecord
from evenbeat.rules.firing import CHANGED_LATELY
from evenbeat.stores.base import ScheduleQuery
from tests.faults.fleet import Fleet, add_schedules, all_runs, fleet, opened
from tests.faults.scene import Ground, Mutant, Outcome, Scene, assert_no_overlap, caught, end

PERIOD_MS = 500
# Runs end so shortly before a tick: where a wake-up is lost, it is here.
EARLY_MS = 30
STALL_MS = 2000
POLICIES: tuple[tuple[Overlap, int | None], ...] = (("queue", None), ("queue_all", None), ("allow", 1))

EACH_ALONE = {f"s{at:02}": 1 for at in range(60)}


def stalls(ground: Ground, seconds: int) -> Outcome:
    """Three nodes and up to 60 schedules whose runs last about as long as their period."""
    with fleet(ground.url, ground.folder) as nodes:
        found, longest = play(ground, nodes, seconds)
        assert not found, f"{len(found)} stalls: {'; '.join(found[:3])}"
        outcome = end(ground, nodes, 0)
    assert_no_overlap(nodes.reports(), EACH_ALONE)
    result = f"0 lost, 0 doubled, 0 stalls; a tick waited {longest / 1000:.1f} s at most after it could fire"
    return outcome._replace(result=result)


def unwoken(ground: Ground) -> str | None:
    """Ends of runs that wake no schedule: waiting ticks are planned half a minute later."""
    with fleet(ground.url, ground.folder) as nodes:
        found, _ = play(ground, nodes, 6, "--broken", "unwoken")
    return found[0] if found else None


def unguarded(ground: Ground) -> str | None:
    """Ticks that fire as if nothing was running."""
    with fleet(ground.url, ground.folder) as nodes:
        play(ground, nodes, 3, "--broken", "unguarded", lasting=2 * PERIOD_MS)
        return caught(lambda: assert_no_overlap(nodes.reports(), EACH_ALONE))


def play(
    ground: Ground, nodes: Fleet, seconds: int, *options: str, lasting: int = PERIOD_MS
) -> tuple[list[str], int]:
    """Let schedules wait for their runs, and answer each stall, and the longest wait in milliseconds."""
    count = 60 if seconds >= 60 else 30
    # A schedule that was changed lately is planned every second, which would hide a stall.
    add_schedules(ground.url, wanted(count, lasting), apart=PERIOD_MS // count, unchanged=2 * CHANGED_LATELY)
    for _ in range(3):
        nodes.start("--lease", "30s", *options)
    nodes.await_ready()
    time.sleep(seconds)
    with opened(ground.url) as store:
        now = store.now()
        rows = store.find_schedules(ScheduleQuery(limit=1000)).items
        runs: dict[str | None, list[RunRecord]] = {row.name: [] for row in rows}
        for run in all_runs(store):
            runs[run.schedule].append(run)
    # What those that wait for nothing are late by is the machine's doing.
    free = [waits(runs[row.name], most_active(row), now) for row in rows if row.name.startswith("free")]
    slow = max(wait for found in free for wait in found)
    found, longest = [], 0
    for row in rows:
        for wait in waits(runs[row.name], most_active(row), now):
            longest = max(longest, wait)
            if wait > STALL_MS + slow:
                found.append(f"{row.name} ({row.overlap}) stood still for {wait / 1000:.1f} s")
    return found, longest


def most_active(schedule: ScheduleRecord) -> int:
    """How many runs of a schedule may be active."""
    return schedule.max_concurrent or (1000 if schedule.overlap == "allow" else 1)


def wanted(count: int, lasting: int) -> list[ScheduleRecord]:
    payload = to_json({"period": lasting, "early": EARLY_MS})
    waiting = [
        ScheduleRecord(
            name=f"s{at:02}",
            task="steady",
            trigger=f"every {PERIOD_MS}ms",
            payload=payload,
            overlap=POLICIES[at % 3][0],
            max_concurrent=POLICIES[at % 3][1],
        )
        for at in range(count)
    ]
    free = [ScheduleRecord(name=f"free{at}", task="work", trigger=f"every {PERIOD_MS}ms") for at in range(3)]
    return [*waiting, *free]


def waits(runs: Sequence[RunRecord], most: int, now: Instant) -> list[int]:
    """By how many milliseconds each run of a schedule was made later than it could be.

    It could when its tick had come and fewer than ``most`` of those before it were active.
    """
    runs = sorted((run for run in runs if run.tick is not None), key=lambda run: run.created_at)
    ends = [now if run.finished_at is None else run.finished_at for run in runs]
    made = [*(run.created_at for run in runs[1:]), now]
    found = []
    for at, run in enumerate(runs):
        assert run.tick is not None
        due = run.tick + PERIOD_MS  # of the next one
        room = sorted(ends[: at + 1])[-most] if at + 1 >= most else 0
        found.append(max(0, made[at] - max(due, room)))
    return found


SCENES = (
    Scene("stalls", stalls, "3 nodes, 60 schedules whose runs end near their next tick, no faults", 5, 60),
)
MUTANTS = (
    Mutant("unwoken", unwoken, "stood still", quick=("sqlite",)),
    Mutant("unguarded", unguarded, "overlapped", quick=("sqlite",)),
)

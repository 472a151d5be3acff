"""Schedules that follow others, and backfills, while nodes die and freeze: each success starts one run of
each follower, and each tick of a backfill becomes one run."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

from evenbeat import Scheduler, cron, every, on_success_of
from evenbeat.core.records import RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import changes
from evenbeat.rules.dependencies import PENDING, predecessor_run
from evenbeat.stores.base import ScheduleQuery, Store, Write
from tests.faults.fleet import Account, Fleet, all_runs, await_rest, check, fleet, opened, wait_until
from tests.faults.scene import LEASE_MS, Ground, Mutant, Outcome, Scene, caught

LEADERS = ("load-0", "load-1")
# Each leader has two followers, and the first of them has one, too.
FOLLOWS = {
    f"{kind}-{at}": f"{leader}-{at}"
    for at in range(len(LEADERS))
    for kind, leader in (("check", "load"), ("report", "load"), ("mail", "check"))
}
BACKFILLED = "hourly"
# So few at once that it lasts longer than the faults.
AT_ONCE = 3
TICKS_PER_FAULT = 100


def chains(ground: Ground, faults: int, *options: str) -> Outcome:
    """Four nodes, killed and frozen at random, while successes start runs."""
    _prepare(ground.url)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start(*options)
        nodes.await_ready()
        _harm(nodes, faults, random.Random(11), *options)
        with opened(ground.url) as store:
            wait_until(lambda: _are_paused(store), "the leaders could not be paused")
            wait_until(lambda: _is_quiet(store), "successes were left without a run")
        nodes.stop()
        account = check(ground.url, nodes.reports())
        _check_followers(ground.url)
    return Outcome(account, faults)


def backfill(ground: Ground, faults: int) -> Outcome:
    """Three nodes, killed and frozen at random, while they go through a backfill."""
    with closing(Scheduler(ground.url)) as app:
        # Its own ticks are years away.
        app.schedules.add(
            BACKFILLED, cron("0 * * * *"), "work", start_at="2100-01-01T00:00Z", max_crashes=1000
        )
        start = datetime(2026, 3, 1, tzinfo=UTC)
        ticks = TICKS_PER_FAULT * faults
        made = app.schedules.backfill(
            BACKFILLED, start, start + timedelta(hours=ticks), max_concurrent=AT_ONCE
        )
        with fleet(ground.url, ground.folder) as nodes:
            for _ in range(3):
                nodes.start()
            nodes.await_ready()
            _harm(nodes, faults, random.Random(13))
            wait_until(lambda: app.backfills.get(made.id).state == "done", "the backfill did not end", 120)
            nodes.stop()
            account = check(ground.url, nodes.reports())
    with opened(ground.url) as store:
        ran = Counter(run.tick for run in all_runs(store) if run.cause == "backfill")
    assert set(ran.values()) == {1}, "a tick was backfilled twice"
    assert len(ran) == ticks, f"{ticks - len(ran)} ticks of the backfill were lost"
    return Outcome(Account(ticks, account.runs, account.completions), faults)


def _harm(nodes: Fleet, faults: int, chance: random.Random, *options: str) -> None:
    for at in range(faults):
        time.sleep(chance.uniform(0.05, 0.5))
        victim = chance.choice(list(nodes.alive))
        if at % 4 == 3:
            nodes.signal(victim, signal.SIGSTOP)
            time.sleep(LEASE_MS / 1000 + 0.3)
            nodes.signal(victim, signal.SIGCONT)
        else:
            nodes.kill(victim)
            nodes.start(*options)


def _prepare(url: str) -> None:
    with closing(Scheduler(url)) as app:
        for name in LEADERS:
            app.schedules.add(name, every("200ms"), "work", max_crashes=1000)
        for name, leader in FOLLOWS.items():
            app.schedules.add(name, on_success_of(leader), "work", max_crashes=1000)


def _are_paused(store: Store) -> bool:
    """Pause the leaders alone: a success of a paused follower would not start a run."""
    try:
        found = store.find_schedules(ScheduleQuery(states=("active",), limit=100)).items
        rows = [row for row in found if row.name in LEADERS]
        now = store.now()
        store.put_schedules([Write(changes.pause(row, now), row.version) for row in rows])
    except StoreUnavailable:
        return False  # MongoDB: the transaction of a killed node still blocks the rows
    store.hint()
    return not rows


def _is_quiet(store: Store) -> bool:
    """Return whether no run is left, and no success that has to start one."""
    await_rest(store)
    return not store.find_records(PENDING) and not {"queued", "running"} & store.count_runs().keys()


def _check_followers(url: str) -> None:
    with opened(url) as store:
        runs: dict[str | None, list[RunRecord]] = {}
        for run in all_runs(store):
            runs.setdefault(run.schedule, []).append(run)
    for name, leader in FOLLOWS.items():
        started = Counter(predecessor_run(run) for run in runs.get(name, ()))
        succeeded = {run.id: run for run in runs[leader]}
        assert set(started.values()) <= {1}, f"a success of {leader} started two runs of {name}"
        lost = succeeded.keys() - started.keys()
        assert not lost, f"{len(lost)} successes of {leader} started no run of {name}: {sorted(lost)[:3]}"
        assert set(started) == set(succeeded), f"{name} ran without a success of {leader}"
        for run in runs[name]:
            assert run.tick == succeeded[str(predecessor_run(run))].tick, run


def deaf(ground: Ground) -> str | None:
    """Nodes that end some runs without the step that tells their followers."""
    return caught(lambda: chains(ground, 6, "--broken", "deaf"))


SCENES = (
    Scene("followers", chains, "SIGKILL, and SIGSTOP past the lease, while successes start runs", 6, 40),
    Scene("backfill", backfill, "SIGKILL, and SIGSTOP past the lease, during a backfill", 3, 30),
)
MUTANTS = (Mutant("deaf", deaf, "started no run", quick=("sqlite",)),)

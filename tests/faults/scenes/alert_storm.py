"""Many jobs fail many times a second while nodes die: each job is announced once, and the work goes on."""

from __future__ import annotations

import random
import time

from evenbeat.core.records import CatchUp, Execution, ScheduleRecord
from evenbeat.rules.alert_records import PENDING, SIGNAL
from evenbeat.stores.base import Store
from tests.alerting import put_rule
from tests.faults.fleet import (
    Account,
    add_schedules,
    all_runs,
    are_paused,
    await_rest,
    fleet,
    opened,
    wait_until,
)
from tests.faults.scene import Ground, Outcome, Scene
from tests.faults.scenes.alerts import check_announced
from tests.unit.receivers import receiver

JOBS = 20


def storm(ground: Ground, faults: int) -> Outcome:
    chance = random.Random(3)
    armed = ground.folder / "armed"  # never written: the nodes die at random
    with receiver() as server, opened(ground.url) as store, fleet(ground.url, ground.folder) as nodes:
        put_rule(store, "failed", url=server.url)
        for _ in range(4):
            nodes.start("--armed", str(armed), module="tests.faults.watcher")
        nodes.await_ready()
        add_schedules(
            ground.url,
            [
                ScheduleRecord(
                    name=f"s{at:03}",
                    task="work",
                    trigger="every 200ms",
                    catch_up=CatchUp("skip"),
                    execution=Execution(max_crashes=1000),
                )
                for at in range(JOBS)
            ],
        )
        for _ in range(faults):
            time.sleep(chance.uniform(0.3, 1.0))
            nodes.kill(chance.choice(list(nodes.alive)))
            nodes.start("--armed", str(armed), module="tests.faults.watcher")
        # On a busy machine, ticks of some jobs may all have come too late until now.
        wait_until(lambda: len(_failed(store)) == JOBS, "some jobs did not run")
        wait_until(lambda: are_paused(store), "the schedules could not be paused")
        await_rest(store)
        wait_until(
            lambda: not (store.find_records(SIGNAL) or store.find_records(PENDING)),
            lambda: f"{len(store.find_records(SIGNAL))} signals are left: {nodes.errors()}",
        )
        nodes.stop()
        failures = sum(run.state == "failed" for run in all_runs(store))
        sent = check_announced(server, JOBS)
    result = f"{failures:,} failures of {JOBS} jobs, {JOBS} alerts in {sent} messages, each under one id"
    return Outcome(Account(0, failures, failures), faults, result=result)


def _failed(store: Store) -> set[str | None]:
    return {run.schedule for run in all_runs(store) if run.state == "failed"}


SCENES = (Scene("alert storm", storm, f"{JOBS} jobs fail 5 times a second; SIGKILL of nodes", 3, 40),)

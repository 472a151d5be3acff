"""Flows with maps, joins and flows within them, while nodes die and freeze: each step succeeds once, and what
comes after it starts once."""

from __future__ import annotations

import json
import random
import signal
import time

from evenbeat.core.records import ACTIVE_STATES, Execution, Overlap, RunRecord, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.flow_parts import flow_part, step_run_id
from evenbeat.stores.base import RunQuery, Store
from tests.faults.fleet import Fleet, add_schedules, all_runs, check, drain, fleet, opened, wait_until
from tests.faults.scene import LEASE_MS, Ground, Mutant, Outcome, Scene, caught
from tests.faults.scenes.nodes import recorded_commands

OVERLAPS: tuple[Overlap, ...] = ("skip", "allow")
LARGEST = 12
"""The largest map."""
STILL = 10.0
"""Seconds without a change after which a flow stands still: longer than a lease and a step of the reaper."""


def flows(ground: Ground, faults: int, *options: str) -> Outcome:
    """Four nodes, killed and frozen at random, while a schedule and a user start flows."""
    chance = random.Random(17)
    _prepare(ground.url)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start(*options)
        nodes.await_ready()
        for at in range(faults):
            _start(ground.url, f"flow-{at:03}", chance.randint(0, LARGEST))
            time.sleep(chance.uniform(0.05, 0.5))
            _harm(nodes, at, chance, *options)
        return _end(ground, nodes, faults)


def failpoints(ground: Ground, faults: int) -> Outcome:
    """A node dies before each command that it sends while flows run, and after commits; ``faults`` times at
    each, a few commands later every time."""
    _prepare(ground.url)
    commands = recorded_commands(ground)[:: 2 if faults == 1 else 1]
    died = 0
    with fleet(ground.url, ground.folder) as nodes:
        nodes.start()
        for nth in range(2, 2 + 3 * faults, 3):
            for command in commands:
                _start(ground.url, f"flow-{died:03}", LARGEST)
                nodes.start("--failpoint", f"{command}:{nth}")
                wait_until(nodes.reap, f"{command} was not sent {nth} times")
                died += 1
        return _end(ground, nodes, died)


def _prepare(url: str) -> None:
    add_schedules(
        url,
        [
            ScheduleRecord(
                name=f"etl-{at}",
                task="pipeline",
                kind="flow",
                payload='{"size":4}',
                trigger="every 1s",
                overlap=overlap,
                execution=Execution(max_crashes=1000),
            )
            for at, overlap in enumerate(OVERLAPS)
        ],
    )


def _end(ground: Ground, nodes: Fleet, faults: int) -> Outcome:
    """Let the fleet finish all flows, and check every step."""
    with opened(ground.url) as store:
        _await_flows(store)
    drain(ground.url)
    nodes.stop()
    account = check(ground.url, nodes.reports())
    assert "stood still" not in nodes.errors_of_all(), "the safety net found a flow that stood still"
    ended = _check_flows(ground.url)
    return Outcome(account, faults, result=f"{ended} flows ended, each step once")


def _harm(nodes: Fleet, at: int, chance: random.Random, *options: str) -> None:
    victim = chance.choice(list(nodes.alive))
    if at % 4 == 3:
        nodes.signal(victim, signal.SIGSTOP)
        time.sleep(LEASE_MS / 1000 + 0.3)
        nodes.signal(victim, signal.SIGCONT)
    else:
        nodes.kill(victim)
        nodes.start(*options)


def _start(url: str, name: str, size: int) -> None:
    def is_added() -> bool:
        try:
            with opened(url) as store:
                now = store.now()
                run = RunRecord(
                    id=name,
                    task="pipeline",
                    kind="flow",
                    payload=json.dumps({"size": size}),
                    execution=Execution(max_crashes=1000),
                    run_at=now,
                    created_at=now,
                )
                store.add_runs([run])
                store.hint()
        except StoreUnavailable:
            return False
        return True

    wait_until(is_added, f"{name} could not be added")


def _await_flows(store: Store) -> None:
    """Wait until the flows of users have ended, or one of them stands still."""
    seen: dict[str, int] = {}
    since = time.monotonic()
    while True:
        query = RunQuery(states=("queued", "running"), limit=10_000)
        active = {run.id: run.attempt for run in store.find_runs(query).items}
        if not any(run_id.startswith("flow-") for run_id in active):
            return
        mine = {run_id: attempt for run_id, attempt in active.items() if run_id.startswith("flow-")}
        if mine != seen:
            seen, since = mine, time.monotonic()
        assert time.monotonic() - since < STILL, f"flows stand still: {sorted(mine)[:3]}"
        time.sleep(0.2)


def _check_flows(url: str) -> int:
    """Check the steps of each flow, and what they got from each other; return how many flows there are."""
    with opened(url) as store:
        runs = {run.id: run for run in all_runs(store)}
    flows = [run for run in runs.values() if run.task == "pipeline"]
    left = set(runs)
    for flow in flows:
        size = json.loads(flow.payload)["size"]
        state = flow_part(flow).state
        assert state is not None, f"flow {flow.id} never began"
        for name, before in _steps(size).items():
            run = runs.get(step_run_id(flow.id, name, nonce=state.nonce))
            assert run is not None, f"step {name} of flow {flow.id} did not run"
            left.discard(run.id)
            for each in before:
                earlier = runs[step_run_id(flow.id, each, nonce=state.nonce)]
                ended, began = earlier.finished_at or 0, run.started_at or 0
                assert ended <= began, f"{name} of flow {flow.id} began before {each} had ended"
        left.discard(flow.id)
        result = 6 * sum(range(size))
        assert flow.result == str(result), f"flow {flow.id} returned {flow.result} instead of {result}"
    others = [run_id for run_id in left if "~" in run_id]
    assert not others, f"steps ran twice, or were not to run: {sorted(others)[:3]}"
    assert all(run.state not in ACTIVE_STATES for run in runs.values())
    return len(flows)


def _steps(size: int) -> dict[str, list[str]]:
    """Return the ids of all steps of a flow, each with those that must have ended before it began."""
    left = [f"left~{at}" for at in range(size)]
    right = [f"right~{at}" for at in range(size)]
    inside = [f"doubled~double~{at}" for at in range(size)]
    return {
        "numbers": [],
        **{name: ["numbers"] for name in (*left, *right)},
        "doubled": [*left, "numbers"],
        **dict.fromkeys(inside, left),
        "doubled~total": inside,
        "total": [*right, "numbers"],
        "all": ["doubled", "doubled~total", "total"],
    }


def halting(ground: Ground) -> str | None:
    """Nodes that end some steps without their flow."""
    return caught(lambda: flows(ground, 4, "--broken", "halting"))


SCENES = (
    Scene(
        "flows",
        flows,
        "4 nodes; SIGKILL, and SIGSTOP past the lease, while flows with maps and joins run",
        4,
        40,
    ),
    Scene(
        "flow failpoints", failpoints, "SIGKILL before each command and after commits, while flows run", 1, 2
    ),
)
MUTANTS = (Mutant("halting", halting, "stand still|did not finish", quick=("sqlite",)),)

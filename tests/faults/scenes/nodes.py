"""Nodes that die and freeze: at random, before each of their commands, while they hold a run."""

from __future__ import annotations

import random
import signal
import time

from evenbeat.core.records import Execution, RunRecord
from tests.faults.fleet import check, fleet, opened, prepare, wait_until
from tests.faults.scene import LEASE_MS, Ground, Mutant, Outcome, Scene, caught, completions, end, held


def kills(ground: Ground, faults: int) -> Outcome:
    """Five nodes, killed and frozen at random: every fourth is frozen past its lease, and thawed."""
    chance = random.Random(7)
    prepare(ground.url, ground.schedules)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(5):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            time.sleep(chance.uniform(0.05, 0.5))
            victim = chance.choice(list(nodes.alive))
            if at % 4 == 3:
                nodes.signal(victim, signal.SIGSTOP)
                time.sleep(LEASE_MS / 1000 + 0.3)
                nodes.signal(victim, signal.SIGCONT)
            else:
                nodes.kill(victim)
                nodes.start()
        return end(ground, nodes, faults)


def failpoints(ground: Ground, faults: int) -> Outcome:
    """A node dies before each command that the store sends, and after its commits: first and later ones.

    Before every other one if ``faults`` is 1: crashes at each command are also in ``tests/contract``.
    """
    prepare(ground.url, ground.schedules)
    session = recorded_commands(ground)[:: 2 if faults == 1 else 1]
    died = 0
    with fleet(ground.url, ground.folder) as nodes:
        nodes.start()
        for nth in range(2, 2 + faults):
            for command in session:
                nodes.start("--failpoint", f"{command}:{nth}")
                wait_until(nodes.reap, f"{command} was not sent {nth} times")
                died += 1
        return end(ground, nodes, died)


def recorded_commands(ground: Ground) -> list[str]:
    """Every command that nodes send again and again while they work."""
    folder = ground.folder / "recorded"
    folder.mkdir()
    with fleet(ground.url, folder) as nodes:
        nodes.start("--record")
        nodes.start()
        nodes.await_ready()
        time.sleep(3)
        nodes.stop()
        seen = next(report["names"] for report in nodes.reports(1) if report["what"] == "commands")
    return sorted(name for name, times in seen.items() if times >= 10)


def takeovers(ground: Ground, faults: int) -> Outcome:
    """A worker dies while it holds a run: how long until another one has it."""
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(2):
            nodes.start()
        nodes.await_ready()
        with opened(ground.url) as store:
            for at in range(faults):
                run = RunRecord(
                    id=f"hold-{at}", task="hold", execution=Execution(max_crashes=9), run_at=store.now()
                )
                store.add_runs([run])
                store.hint()
                (holder, _) = held(nodes, run.id, 1)
                died = time.time()
                nodes.kill(holder)
                (_, again) = held(nodes, run.id, 2)
                longest = max(longest, again - died)
                nodes.start()
                nodes.await_ready()
        return end(ground, nodes, faults, longest)


def unfenced(ground: Ground) -> str | None:
    """A worker is frozen in the middle of a run until another one has completed it, and thawed then."""
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(2):
            nodes.start("--broken", "unfenced")
        nodes.await_ready()
        with opened(ground.url) as store:
            store.add_runs(
                [RunRecord(id="nap", task="nap", execution=Execution(max_crashes=9), run_at=store.now())]
            )
            store.hint()
            frozen, _ = held(nodes, "nap", 1)
            nodes.signal(frozen, signal.SIGSTOP)
            held(nodes, "nap", 2)
            wait_until(lambda: completions(nodes) == 1, "no other node completed the run")
            nodes.signal(frozen, signal.SIGCONT)
            wait_until(lambda: completions(nodes) == 2, "the late result was refused")
        nodes.stop()
        return caught(lambda: check(ground.url, nodes.reports()))


def unchecked(ground: Ground) -> str | None:
    """Nodes that fire without a compare-and-set are frozen in the middle of it, and thawed."""
    chance = random.Random(3)
    prepare(ground.url, ground.schedules)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start("--broken", "unchecked")
        nodes.await_ready()
        for _ in range(4):
            time.sleep(0.5)
            victim = chance.choice(list(nodes.alive))
            nodes.signal(victim, signal.SIGSTOP)
            time.sleep(LEASE_MS / 1000 + 0.7)
            nodes.signal(victim, signal.SIGCONT)
        time.sleep(0.5)
        return caught(lambda: end(ground, nodes, 4))


SCENES = (
    Scene("kills", kills, "5 nodes; SIGKILL at random, every fourth SIGSTOP past the lease", 8, 90),
    Scene("failpoints", failpoints, "SIGKILL before each command and after commits", 1, 3),
    Scene("takeovers", takeovers, "SIGKILL with a run in hand", 1, 5),
)
# Without the compare-and-set a tick is fired twice, or the place of another node is overwritten.
MUTANTS = (
    Mutant("unfenced", unfenced, "completed twice"),
    # MongoDB's transactions conflict on most such writes by themselves: there it takes the full length.
    Mutant("unchecked", unchecked, "doubled|lost or invented", quick=("sqlite", "valkey")),
)

"""A fleet of two versions: nodes of this tree, and nodes of another one, die side by side on each store.

    python -m tests.faults.mixed TREE [STORE …] [--faults 30]

TREE is a checkout of the other version, for example ``git worktree add ../before v0.1.0``. Its nodes use
its own code, and the Python of this process.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.fleet import Fleet, prepare, wait_until
from tests.faults.grounds import Grounds
from tests.faults.scene import LEASE_MS, SCHEDULES, STORES, Ground, end

ROOT = Path(__file__).parents[2]


class MixedFleet(Fleet):
    """Every second node that is started has the code of the other tree."""

    other: Path

    def start_next(self) -> None:
        tree = (ROOT, self.other)[self._started % 2]
        self._started += 1
        words = [sys.executable, "-m", "tests.faults.node", self.url, str(self.stopping)]
        path = os.pathsep.join((str(tree / "src"), str(tree)))
        with self.log(self._started).open("wb") as output, (self.folder / "errors").open("ab") as errors:
            self.alive[self._started] = subprocess.Popen(
                words, stdout=output, stderr=errors, cwd=tree, env={**os.environ, "PYTHONPATH": path}
            )


def play(ground: Ground, other: Path, faults: int) -> str:
    chance = random.Random(17)
    nodes = MixedFleet(ground.url, ground.folder)
    nodes.other = other
    prepare(ground.url, SCHEDULES)
    try:
        for _ in range(4):
            nodes.start_next()
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
                nodes.start_next()
        nodes.await_ready()
        before = {number: len(nodes.reports(number)) for number in nodes.alive}
        wait_until(
            lambda: all(len(nodes.reports(number)) > seen for number, seen in before.items()),
            lambda: f"a node does nothing: {nodes.errors()}",
        )
        account = end(ground, nodes, faults).account
        return f"{account.ticks:,} ticks, {account.completions:,} completions, 0 lost, 0 doubled"
    finally:
        for process in nodes.alive.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mixed")
    parser.add_argument("tree", type=Path)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--faults", type=int, default=30)
    options = parser.parse_args()
    grounds = Grounds()
    try:
        for store in options.stores or STORES:
            with tempfile.TemporaryDirectory() as folder, grounds.ground(store, Path(folder)) as ground:
                done = play(ground, options.tree.resolve(), options.faults)
                sys.stdout.write(f"{store}: {done}\n")
                sys.stdout.flush()
    finally:
        grounds.close()


if __name__ == "__main__":
    main()

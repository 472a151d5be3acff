"""``make faults``: everything that can go wrong, on every store, at full length; a table says how it went.

python -m tests.faults [STORE …] [--write docs/faults.md]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import servers
from tests.faults import chaos
from tests.faults.chaos import Outcome, Scene
from tests.faults.grounds import STORES, ground, own_server

EVERYWHERE: dict[str, tuple[Scene, int, str]] = {
    "kills": (chaos.kills, 90, "5 nodes; SIGKILL at random, every fourth SIGSTOP past the lease"),
    "failpoints": (chaos.failpoints, 3, "SIGKILL before each command and after commits"),
    "takeovers": (chaos.takeovers, 5, "SIGKILL with a run in hand"),
}
ON_SERVERS: dict[str, tuple[Scene, int, str]] = {
    "network": (chaos.network, 4, "4 nodes; reset, refuse, black hole, delay, replies lost"),
    "server": (chaos.server_kills, 3, "4 nodes; the server SIGKILLed and started again"),
    "clocks": (chaos.clocks, 4, "4 nodes; clocks 5 min ahead and behind, one jumps by an hour and back"),
}
BROKEN = ("unfenced", "unchecked")


class Row(NamedTuple):
    store: str
    scene: str
    what: str
    outcome: Outcome | None
    seconds: float
    problem: str | None = None


def rows(stores: list[str]) -> Iterator[Row]:
    for store in stores:
        scenes = EVERYWHERE if store == "sqlite" else EVERYWHERE | ON_SERVERS
        with own_server(store) as server:
            for name, (play, faults, what) in scenes.items():
                yield _row(store, name, what, play, faults, server)
            for kind in BROKEN:
                yield _broken_row(store, kind, server)


def _row(store: str, name: str, what: str, play: Scene, faults: int, server: servers.Server | None) -> Row:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ground(Path(folder), server) as place:
        try:
            outcome = play(place, faults)
        except AssertionError as error:
            return Row(store, name, what, None, time.monotonic() - start, str(error)[:300] or "failed")
    return Row(store, name, what, outcome, time.monotonic() - start)


def _broken_row(store: str, kind: str, server: servers.Server | None) -> Row:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ground(Path(folder), server) as place:
        caught = chaos.is_caught(place, kind)
    what = f"a store that is broken on purpose ({kind}): {'caught: ' + caught if caught else 'NOT caught'}"
    return Row(store, "mutant", what, None, time.monotonic() - start, None if caught else "not caught")


def line(row: Row) -> str:
    cells = [row.store, row.scene, row.what]
    if row.outcome is None:
        cells += ["", "", "", "", f"FAILED: {row.problem}" if row.problem else "caught"]
    else:
        account, faults, recovery = row.outcome
        cells += [
            f"{faults:,}", f"{account.ticks:,}", f"{account.completions:,}",
            "" if recovery is None else f"{recovery:.1f} s", "0 lost, 0 doubled",
        ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = """| store | scene | what is done | faults | ticks | completions | recovery | result |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"""

PAGE = """# Faults

What `make faults` did and found, on one machine with two cores; it takes some {minutes} minutes. Each row is
a fleet of real processes on a store of its own, with 20 schedules that tick every 50 ms and a lease of 1 s.
In the end every tick of every schedule is accounted for, exactly once, as a run or in the ledger; no
completion was accepted twice, none fired early. *Recovery* is the longest time from the end of a fault (or
from a worker's death) to the next completion. Mutants are stores that are broken on purpose: the check
finds each of them.

{table}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--write", type=Path)
    said = parser.parse_args()
    start = time.monotonic()
    done: list[Row] = []
    sys.stdout.write(HEAD + "\n")
    for row in rows(said.stores or list(STORES)):
        done.append(row)
        sys.stdout.write(line(row) + "\n")
        sys.stdout.flush()
    failed = [row for row in done if row.problem]
    minutes = round((time.monotonic() - start) / 60)
    sys.stdout.write(f"{len(done) - len(failed)} as promised, {len(failed)} not, in {minutes} minutes\n")
    if said.write and not failed:
        table = "\n".join([HEAD, *map(line, done)])
        said.write.write_text(PAGE.format(minutes=minutes, table=table))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""``make faults``: every scene on every store, at full length; the result is a table.

python -m tests.faults [STORE …] [--scene NAME] [--write docs/faults.md]

With ``--write``, each row that came out as promised replaces its predecessor on the page at once; rows that
were not played again stay as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.faults.grounds import Grounds
from tests.faults.scene import STORES, Ground, Mutant, Outcome, Scene
from tests.faults.scenes import all_mutants, all_scenes
from tests.missing import Unavailable

T = TypeVar("T")


class Row(NamedTuple):
    store: str
    scene: str
    what: str
    outcome: Outcome | None
    seconds: float
    problem: str | None = None
    played: str = date.today().isoformat()

    @property
    def verdict(self) -> str:
        if self.problem is not None:
            return f"FAILED: {self.problem}"
        if self.outcome is not None:
            return self.outcome.result
        return "caught" if self.scene == "mutant" and "not tested" not in self.what else "not tested"


def rows(stores: list[str], names: list[str]) -> Iterator[Row]:
    grounds = Grounds()
    try:
        for store in stores:
            for scene in all_scenes():
                if store in scene.stores and (not names or scene.name in names):
                    yield _row(grounds, store, scene)
            for mutant in all_mutants():
                if store in mutant.stores and (not names or mutant.name in names):
                    yield _mutant_row(grounds, store, mutant)
    finally:
        grounds.close()


def _row(grounds: Grounds, store: str, scene: Scene) -> Row:
    start = time.monotonic()
    outcome, problem, missing = _tried(grounds, store, scene, lambda place: scene.play(place, scene.full))
    return Row(store, scene.name, scene.what + missing, outcome, time.monotonic() - start, problem)


def _mutant_row(grounds: Grounds, store: str, mutant: Mutant) -> Row:
    start = time.monotonic()
    noticed, problem, missing = _tried(grounds, store, mutant, mutant.play)
    if not missing and problem is None and re.search(mutant.says, noticed or "") is None:
        problem = "not caught"
    found = _short(noticed or "nothing was found", 100)
    what = f"broken on purpose ({mutant.name}): {missing or found}"
    return Row(store, "mutant", what, None, time.monotonic() - start, problem)


def _tried(
    grounds: Grounds, store: str, scene: Scene | Mutant, act: Callable[[Ground], T]
) -> tuple[T | None, str | None, str]:
    """Return the outcome, the failure, and why the scene could not be tried."""
    try:
        with tempfile.TemporaryDirectory() as folder, grounds.ground(store, Path(folder), scene) as place:
            return act(place), None, ""
    except Unavailable as error:
        return None, _short(str(error)) if error.is_required else None, f" (not tested: {_short(str(error))})"
    except AssertionError as error:
        return None, _short(str(error)) or "failed", ""
    except Exception as error:  # the failure of one scene does not stop the others
        return None, _short(repr(error)), ""


def _short(text: str, longest: int = 300) -> str:
    """Return the text for a cell of the table."""
    return " ".join(text.split())[:longest].replace("|", "/")


def line(row: Row) -> str:
    cells = [row.store, row.scene, row.what]
    if row.outcome is None:
        cells += ["", "", "", "", row.verdict]
    else:
        account, faults, recovery, _ = row.outcome
        cells += [
            f"{faults:,}",
            f"{account.ticks:,}",
            f"{account.completions:,}",
            "" if recovery is None else f"{recovery:.1f} s",
            row.verdict,
        ]
    return f"| {' | '.join([*cells, row.played])} |"


HEAD = """| store | scene | what is done | faults | ticks | completions | recovery | result | played |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- |"""

PAGE = """# Faults

What `make faults` did and found, on one machine with two cores; all of it takes about an hour. Each row is
a fleet of real processes on a store of its own, with 20 schedules that tick every 50 ms and a lease of 1 s
unless the row says otherwise.
In the end every tick of every schedule is accounted for, exactly once, as a run or in the ledger; no
completion was accepted twice, none fired early. *Recovery* is the longest time from the end of a fault (or
from a worker's death) to the next completion. Mutants are stores that are broken on purpose: the check
finds each of them. How well the tests notice changes of the code itself: [mutants.md](mutants.md).
A row stands for the code of the day on which it was *played*; those of older days were not repeated since.

{table}
"""

SOAK = "\n## Soak test\n"
"""The heading of the part of the page that follows the table."""


def write(page: Path, done: list[Row]) -> None:
    """Return the page with these rows instead of those of the same scenes."""
    known, soak = {}, ""
    if page.exists():
        table, heading, rest = page.read_text("utf-8").partition(SOAK)
        soak = heading + rest  # ``make soak`` writes it
        lines = table.splitlines()
        known = {_key(text): text for text in lines if text.startswith("| ") and text not in HEAD}
    known |= {_key(line(row)): line(row) for row in done if row.problem is None}
    scenes = list(dict.fromkeys(scene.name for scene in all_scenes()))
    order = {name: place for place, name in enumerate([*scenes, *(mutant.name for mutant in all_mutants())])}
    wanted = sorted(
        (key for key in known if key[0] in STORES and key[1] in order),
        key=lambda key: (STORES.index(key[0]), order[key[1]]),
    )
    page.write_text(PAGE.format(table="\n".join([HEAD, *(known[key] for key in wanted)])) + soak, "utf-8")


def _key(text: str) -> tuple[str, str]:
    """Return (store, scene or mutant) of a row of the table."""
    store, scene, what = text.removeprefix("| ").split(" | ")[:3]
    name = re.search(r"on purpose \((\w+)\)", what)
    return store, name[1] if scene == "mutant" and name else scene


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--scene", action="append", default=[], metavar="NAME", help="only this one")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    start = time.monotonic()
    done: list[Row] = []
    sys.stdout.write(HEAD + "\n")
    for row in rows(options.stores or list(STORES), options.scene):
        done.append(row)
        sys.stdout.write(line(row) + "\n")
        sys.stdout.flush()
        if options.write:
            write(options.write, done)
    failed = [row for row in done if row.problem is not None]
    minutes = round((time.monotonic() - start) / 60)
    sys.stdout.write(f"{len(done) - len(failed)} as promised, {len(failed)} not, in {minutes} minutes\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

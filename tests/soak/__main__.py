"""Fire and execute runs at a steady rate for a while, and sample what stores and nodes use.

    python -m tests.soak [STORE …] [--minutes 20] [--rate 200] [--write]

All stores are worked on at the same time, two nodes each. Every tick of every schedule must have run exactly
once. With ``--write``, the picture goes to docs/img/soak.svg and the table to docs/faults.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path
from typing import NamedTuple

from evenbeat import Scheduler
from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.rules.ticks import trigger_of
from evenbeat.stores.base import ScheduleQuery
from tests.faults.__main__ import SOAK
from tests.faults.fleet import add_schedules, drain, opened
from tests.faults.grounds import Grounds
from tests.faults.scene import STORES, Ground
from tests.soak.picture import drawn
from tests.soak.samples import MEASURES, of_process, of_store

NODES = 2
SAMPLE_EVERY = 5.0
# Milliseconds in which the nodes start and catch up.
STARTING = 30_000
ROOT = Path(__file__).parents[2]


class Soaked(NamedTuple):
    """A store and its nodes."""

    store: str
    ground: Ground
    processes: list[subprocess.Popen[bytes]]
    samples: list[tuple[float, dict[str, float]]]
    """(minute, the measures)"""

    def runs_of(self, number: int) -> Path:
        return self.ground.folder / f"node-{number}.runs"

    @property
    def stopping(self) -> Path:
        return self.ground.folder / "stop"

    def sample(self, minute: float) -> None:
        found: dict[str, float] = {}
        for process in self.processes:
            assert process.poll() is None, f"a node of {self.store} ended: {self.errors()}"
            for name, value in of_process(process.pid).items():
                found[name] = max(found.get(name, 0.0), value)
        with opened(self.ground.url) as store:
            found |= of_store(self.ground, store)
        self.samples.append((minute, found))

    def errors(self) -> str:
        return (self.ground.folder / "errors").read_text(errors="replace")[-2000:]


def start(store: str, ground: Ground, rate: int) -> Soaked:
    add_schedules(
        ground.url,
        [
            ScheduleRecord(
                name=f"s{at:03}", task="work", trigger="every 1s", catch_up=CatchUp("all", 600_000, 1000)
            )
            for at in range(rate)
        ],
        apart=1000 // rate,
    )
    with closing(Scheduler(ground.url)) as app:
        app.retention.set(state="succeeded", keep="2m")
    made = Soaked(store, ground, [], [])
    for number in range(NODES):
        words = [
            sys.executable,
            "-m",
            "tests.soak.node",
            ground.url,
            str(made.stopping),
            str(made.runs_of(number)),
        ]
        with (ground.folder / "errors").open("ab") as errors:
            made.processes.append(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors))
    return made


class Verdict(NamedTuple):
    ticks: int
    lost: int
    doubled: int
    late: list[int]
    """How many milliseconds after its tick each run began, sorted; without those of the start."""


def finish(soaked: Soaked) -> Verdict:
    """End the work, and count for each tick how often it ran."""
    drain(soaked.ground.url)
    soaked.stopping.touch()
    for process in soaked.processes:
        assert process.wait(60) == 0, soaked.errors()
    ran: Counter[tuple[str, int]] = Counter()
    delays: list[tuple[int, int]] = []
    for number in range(NODES):
        for line in soaked.runs_of(number).read_text().splitlines():
            name, tick, delay = line.split()
            ran[name, int(tick)] += 1
            delays.append((int(tick), int(delay)))
    with opened(soaked.ground.url) as store:
        rows = store.find_schedules(ScheduleQuery(limit=10_000)).items
        wanted: set[tuple[str, int]] = set()
        for row in rows:
            assert row.next_tick is not None
            wanted |= {
                (row.name, tick) for tick in trigger_of(row).between_ms(row.created_at + 1, row.next_tick)
            }
            skipped = store.find_skipped("default", row.name, limit=10_000)
            assert not skipped, f"{row.name} skipped ticks: {skipped[:3]}"
    settled = min(tick for tick, _ in delays) + STARTING
    late = sorted(delay for tick, delay in delays if tick >= settled)
    return Verdict(len(wanted), len(wanted - ran.keys()), sum(ran.values()) - len(ran), late)


def _grown(soaked: Soaked, measure: str) -> str:
    """The medians of the second and of the last quarter: the first one fills the tables and the caches."""
    values = [sample[measure] for _, sample in soaked.samples if measure in sample]
    if not values:
        return ""
    quarter = max(1, len(values) // 4)
    early, last = (
        statistics.median(values[quarter : 2 * quarter] or values),
        statistics.median(values[-quarter:]),
    )
    return f"{early:,.0f} → {last:,.0f}" if max(early, last) >= 10 else f"{early:.1f} → {last:.1f}"


def table(done: Sequence[tuple[Soaked, Verdict]]) -> str:
    head = ["store", "ticks", "lost", "doubled", "late: median, 99 %, most", *MEASURES]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for soaked, verdict in done:
        late = verdict.late
        when = f"{late[len(late) // 2]}, {late[len(late) * 99 // 100]}, {late[-1]:,} ms" if late else ""
        cells = [soaked.store, f"{verdict.ticks:,}", str(verdict.lost), str(verdict.doubled), when]
        lines.append(f"| {' | '.join([*cells, *(_grown(soaked, name) for name in MEASURES)])} |")
    return "\n".join(lines)


SECTION = """
What `make soak` found: {minutes:g} minutes at {rate} runs a second on each store, two nodes each, all on one
machine with two cores at the same time. Succeeded runs are kept for two minutes, so that from then on as
many runs are deleted as are added. Played on {day}.

![Memory, descriptors, connections and sizes over the minutes, a line for each store](img/soak.svg)

*Late* is how long after its tick a run began. The first half minute, in which all nodes start, does not
count. The columns on the right give the median of the second quarter of the time and that of the last one:
in the first quarter, tables and caches fill. *Memory* and *descriptors* are those of the node that uses more.
*Log* is the write-ahead log: SQLite's `-wal` file, PostgreSQL's `pg_wal`, Valkey's append-only file,
MongoDB's journal and oplog. PostgreSQL and MongoDB let it grow up to a size that is set on the server,
and Valkey rewrites its file when it has doubled.

{table}
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rate", type=int, default=200, help="runs a second on each store")
    parser.add_argument("--write", action="store_true", help="write docs/faults.md and its picture")
    options = parser.parse_args()
    stores = options.stores or list(STORES)
    grounds = Grounds()
    with ExitStack() as stack:
        stack.callback(grounds.close)
        soaks: list[Soaked] = []
        for store in stores:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            soaks.append(start(store, stack.enter_context(grounds.ground(store, folder)), options.rate))
            stack.callback(_end, soaks[-1])
        begin = time.monotonic()
        while (minute := (time.monotonic() - begin) / 60) < options.minutes:
            for soaked in soaks:
                soaked.sample(minute)
            _show(soaks, minute)
            time.sleep(SAMPLE_EVERY)
        done = [(soaked, finish(soaked)) for soaked in soaks]
        sys.stdout.write(table(done) + "\n")
        if options.write:
            _write(done, options.minutes, options.rate)
    return 1 if any(verdict.lost or verdict.doubled for _, verdict in done) else 0


def _show(soaks: Sequence[Soaked], minute: float) -> None:
    for soaked in soaks:
        facts = {name: round(value, 1) for name, value in soaked.samples[-1][1].items()}
        sys.stdout.write(f"{minute:5.2f} {soaked.store:9} {json.dumps(facts)}\n")
    sys.stdout.flush()


def _write(done: Sequence[tuple[Soaked, Verdict]], minutes: float, rate: int) -> None:
    panels = [
        (
            measure,
            {
                soaked.store: [
                    (minute, sample[measure]) for minute, sample in soaked.samples if measure in sample
                ]
                for soaked, _ in done
            },
        )
        for measure in MEASURES
    ]
    title = f"{minutes:g} minutes at {rate} runs a second on each store"
    picture = drawn(title, panels, [soaked.store for soaked, _ in done], minutes)
    (ROOT / "docs/img/soak.svg").write_text(picture, "utf-8")
    section = SECTION.format(minutes=minutes, rate=rate, day=date.today().isoformat(), table=table(done))
    page = ROOT / "docs/faults.md"
    page.write_text(page.read_text("utf-8").partition(SOAK)[0] + SOAK + section, "utf-8")


def _end(soaked: Soaked) -> None:
    for process in soaked.processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)


if __name__ == "__main__":
    sys.exit(main())

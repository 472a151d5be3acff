"""Processors and servers that die, freeze and are disconnected.

These tests take real time: they use real signals, sockets and locks.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import servers
from tests.conftest import server_url
from tests.documents.places import KINDS, Place, Row, ValkeyPlace, fresh
from tests.faults.proxy import Mode, Proxy
from tests.faults.scenes.redis_failover import Pair
from tests.lengths import LONG, some
from tests.missing import skipped_without

ROOT = Path(__file__).parents[2]
ONCE, RECURRING, PARTS = 600, 5, 12
LOCK = 1.0
PATIENCE = 100.0
CUTS: tuple[Mode, ...] = ("lose replies", "refuse", "blackhole", "delay")


class Workers:
    """Processes that process the same documents. A new one replaces one that was killed."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self.ledger = folder / "ledger"
        self._command = [
            sys.executable,
            "-m",
            "tests.documents.worker",
            kind,
            url,
            f"{LOCK:g}s",
            str(self.ledger),
        ]
        self._folder = folder
        self.alive: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def start(self) -> None:
        self.started += 1
        with (self._folder / f"worker-{self.started}.log").open("wb") as log:
            process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        self.alive.append(process)

    def await_ready(self) -> None:
        for process in self.alive:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", self.logs()

    def replace(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        self._forget(victim)
        self.start()

    def stop(self) -> list[int]:
        """Terminate all processes as an operator does. Return their exit codes."""
        for process in self.alive:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        codes = []
        for process in list(self.alive):
            try:
                codes.append(process.wait(30))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(-9)
            self._forget(process)
        return codes

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        self.alive.remove(process)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("worker-*.log")))


@contextmanager
def at_work(place: Place, kind: str, url: str, folder: Path) -> Iterator[Workers]:
    """Run three processes on some documents. At the end, check that each document was processed."""
    place.make()
    now = datetime.now(UTC)
    # Some documents are due each half second, so that handlers run whenever something fails.
    for part in range(PARTS):
        place.fill(part * ONCE // PARTS, ONCE // PARTS, now + part * timedelta(seconds=0.5))
    place.fill(ONCE, RECURRING, now, "* * * * * *")
    workers = Workers(kind, url, folder)
    try:
        for _ in range(3):
            workers.start()
        workers.await_ready()
        yield workers
        _await(lambda: all(row["note"] for row in place.rows()) and place.left() == RECURRING, workers)
    finally:
        codes = workers.stop()
    # A process that was just started may not handle the signal yet.
    assert set(codes) <= {0, -signal.SIGTERM}, workers.logs()
    check(place.rows(), begun(workers.ledger))


def begun(ledger: Path) -> dict[int, dict[int, list[str]]]:
    """Return the tokens of the handlers that began, by document, and by when that was due."""
    found: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in ledger.read_text().splitlines():
        number, due, token = line.split()
        found[int(number)][int(due)].append(token)
    return found


def check(rows: Sequence[Row], found: Mapping[int, Mapping[int, Sequence[str]]]) -> None:
    """Check that one process at a time locks a document, and that the last one writes the result.

    Each lock changes when a document is due. So two handlers with the same due time would mean two locks at
    once; and a handler with a later due time has the later lock, whenever it began.
    """
    assert [row["id"] for row in rows] == list(range(ONCE + RECURRING))
    repeated = {
        number: dues for number, dues in found.items() if any(len(tokens) > 1 for tokens in dues.values())
    }
    assert not repeated
    for row in rows[:ONCE]:
        assert row["sleep_until"] is None
        last = max(found[row["id"]])
        assert [row["note"]] == found[row["id"]][last], "a late result was written"
    assert all(row["sleep_until"] is not None for row in rows[ONCE:])


def _await(condition: Callable[[], bool], workers: Workers) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, workers.logs()
        time.sleep(0.1)


def present(kind: str) -> None:
    if kind != "sqlite":
        server_url(kind)


@pytest.mark.parametrize("kind", some(KINDS, "sqlite"))
def test_processors_that_die_and_freeze_lose_and_repeat_no_document(kind: str, tmp_path: Path) -> None:
    present(kind)
    chance = random.Random(3)
    with fresh(kind, tmp_path) as place, at_work(place, kind, place.url, tmp_path) as workers:
        for turn in range(6):
            time.sleep(chance.uniform(0.05, 0.3))
            victim = chance.choice(workers.alive)
            if turn % 2:
                # For longer than its locks: others take over its documents, and its late results are refused.
                victim.send_signal(signal.SIGSTOP)
                time.sleep(LOCK * 1.5)
                victim.send_signal(signal.SIGCONT)
            else:
                workers.replace(victim)


@pytest.mark.parametrize("kind", some(servers.KINDS))
def test_networks_and_servers_that_fail_lose_and_repeat_no_document(kind: str, tmp_path: Path) -> None:
    present(kind)
    if isinstance(servers.shared(kind), servers.Running):
        pytest.skip("tests do not kill a server that they have not started")
    server = servers.started(kind)
    proxy = Proxy(server.port)
    proxy.delay = 0.05
    try:
        with fresh(kind, tmp_path, server) as place:
            through = place.url.replace(f":{server.port}/", f":{proxy.port}/")
            with at_work(place, kind, through, tmp_path):
                for mode in CUTS:
                    time.sleep(0.3)
                    proxy.become(mode)
                    time.sleep(0.3)
                    proxy.become("pass")
                    proxy.reset()
                server.kill()
                time.sleep(0.3)
                server.start()
    finally:
        proxy.close()
        server.stop()


@LONG
def test_processors_follow_when_another_valkey_takes_over(tmp_path: Path) -> None:
    present("valkey")
    with ExitStack() as stack:
        with skipped_without("valkey"):
            pair = Pair(stack)
        place = ValkeyPlace(f"{pair.url}#orders")
        stack.callback(place.client.close)
        with at_work(place, "valkey", place.url, tmp_path) as workers:
            for take_over in (pair.swap, pair.kill):
                time.sleep(1)
                take_over()
                _await_recurring(workers)


def _await_recurring(workers: Workers) -> None:
    """Wait until a document is processed that was due after now."""
    now = time.time() * 1000
    _await(lambda: any(max(dues) > now for dues in begun(workers.ledger).values()), workers)

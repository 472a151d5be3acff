"""What 500 streams of changes cost: the processor time of a web server while other processes make changes."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Row, median
from bench.processes import process, processor_seconds, scratch, until
from evenbeat import Scheduler
from evenbeat.core.records import RunRecord
from evenbeat.stores.base import Store
from evenbeat.web import web_app
from evenbeat.web.limits import STREAMS_OF_TOKEN
from evenbeat.web.serving import WebServer, listen

CLIENTS = 500
CHANGES_A_SECOND = 10
SECONDS = 20
SETTLE = 3
ROUNDS = 3
GOAL = 10


def run() -> list[Row]:
    share = median([_share() for _ in range(ROUNDS)])
    name = f"{CLIENTS} clients of the event stream, {CHANGES_A_SECOND} changes a second"
    return [Row("web", name, "% of a core", share, goal=f"< {GOAL} %", met=share < GOAL)]


def _share() -> float:
    with scratch() as folder:
        url, port, got = f"sqlite:///{folder / 'bench.db'}", folder / "port", folder / "got"
        app = Scheduler(url)
        secrets = [app.tokens.create("bench").secret for _ in range(0, CLIENTS, STREAMS_OF_TOKEN)]
        with process("-m", "bench.web_events", "serve", url, str(port)) as server:
            until(port.exists)
            with process("-m", "bench.web_events", "follow", port.read_text(), ",".join(secrets), str(got)):
                until(got.exists)
                time.sleep(SETTLE)
                before, begin = processor_seconds(server.pid), time.perf_counter()
                with changing(app.store) as added:
                    time.sleep(SECONDS)
                used, taken = processor_seconds(server.pid) - before, time.perf_counter() - begin
                # Every client has got every change.
                until(lambda: int(got.read_text() or 0) >= CLIENTS * len(added))
        app.close()
    return used / taken * 100


@contextmanager
def changing(store: Store) -> Iterator[list[str]]:
    """Add runs meanwhile, one at a time, and yield their ids."""
    stop = threading.Event()
    added: list[str] = []

    def change() -> None:
        begin = time.perf_counter()
        while not stop.wait(begin + len(added) / CHANGES_A_SECOND - time.perf_counter()):
            now = store.now()
            run_id = f"r{now}-{len(added)}"
            store.add_runs([RunRecord(id=run_id, task="work", created_at=now, run_at=now)])
            added.append(run_id)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield added
    finally:
        stop.set()
        thread.join()


def serve(url: str, port: Path) -> None:
    app = Scheduler(url)
    bound = listen("127.0.0.1", 0)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    server = WebServer(web_app(app), bound)
    server.start()
    port.write_text(str(bound.getsockname()[1]))
    stopping.wait()
    server.stop()
    app.close()


async def follow(port: int, secrets: list[str], got: Path) -> None:
    """Read the event stream over many connections, and write how many changes came in all."""
    count = 0
    connected = 0

    async def read(secret: str) -> None:
        nonlocal count, connected
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {secret}\r\n\r\n"
        )
        writer.write(head.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        connected += 1
        while part := await reader.read(65_536):
            count += part.count(b'"subject":"run"')

    clients = [asyncio.create_task(read(secrets[at % len(secrets)])) for at in range(CLIENTS)]
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    while connected < CLIENTS:
        await asyncio.sleep(0.1)
    while not stopping.is_set():
        got.write_text(str(count))
        await asyncio.sleep(0.5)
    for client in clients:
        client.cancel()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", url, port]:
            serve(url, Path(port))
        case ["follow", port, secrets, got]:
            asyncio.run(follow(int(port), secrets.split(","), Path(got)))
        case _:
            for row in run():
                print(f"{row.name}: {row.ours:.2f} {row.unit} {row.goal} {row.met}")

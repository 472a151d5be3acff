"""What 500 streams of changes cost: the processor time of a web process while another process makes changes.

``watch`` measures the watch and the hub with clients in the same process; ``sockets`` measures the server.
"""

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
from evenbeat.core.records import RunRecord
from evenbeat.stores.base import Store
from evenbeat.stores.urls import open_url
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.changes import ChangeWatch
from evenbeat.web.streams import Hub, sse

CLIENTS = 500
CHANGES_A_SECOND = 10
SECONDS = 20
SETTLE = 3
ROUNDS = 3
GOAL = 10


def run() -> list[Row]:
    shares = [_share() for _ in range(ROUNDS)]
    share = median(shares)
    name = f"{CLIENTS} clients in one process, {CHANGES_A_SECOND} changes a second"
    return [Row("web", name, "% of a core", share, goal=f"< {GOAL} %", met=share < GOAL)]


def _share() -> float:
    with scratch() as folder:
        url, ready = f"sqlite:///{folder / 'bench.db'}", folder / "ready"
        store = open_url(url)
        store.open()
        with process("-m", "bench.web_events", url, str(ready)) as child:
            until(ready.exists)
            time.sleep(SETTLE)
            before, begin = processor_seconds(child.pid), time.perf_counter()
            with changing(store) as added:
                time.sleep(SECONDS)
            used, taken = processor_seconds(child.pid) - before, time.perf_counter() - begin
            until(lambda: int(ready.read_text() or 0) >= CLIENTS * len(added))
        store.close()
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


async def follow(url: str, ready: Path) -> None:
    """Follow the changes of a store with many clients, and write how many changes they got in all."""
    store = open_url(url)
    store.open()
    hub = Hub()
    watch = ChangeWatch(store, Catalogue(), hub)
    got = 0

    async def read() -> None:
        nonlocal got
        async for part in sse(hub.subscription(None)):
            got += part.count(b'"subject":"run"')

    clients = [asyncio.create_task(read()) for _ in range(CLIENTS)]
    watch.start()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    while not stopping.is_set():
        await asyncio.sleep(0.5)
        ready.write_text(str(got))
    hub.close()
    await asyncio.gather(*clients)
    watch.stop()
    store.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(follow(sys.argv[1], Path(sys.argv[2])))
    else:
        for row in run():
            print(f"{row.name}: {row.ours:.2f} {row.unit} {row.goal} {row.met}")

"""The REST API: requests a second on one process beside Starlette's hello world, first pages of 100,000
schedules, event streams and the catalogue."""

from __future__ import annotations

import asyncio
import http.client
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bench import web_catalogue, web_events
from bench.databases import TITLES, place, present
from bench.measure import Row, median, percentile
from bench.processes import process, scratch, until
from bench.web_events import serve
from evenbeat import Scheduler, every
from evenbeat.web.serving import listen

SECONDS = 4.0
ROUNDS = 3
CONNECTIONS = 4
GOAL_RATE, GOAL_PAGE = 1_000, 50
PAGES = 150
FILTERS = {
    "text": "text=needle",
    "state": "state=paused",
    "task": "task=task-77",
    "tag": "tag=rare",
    "tenant": "tenant=tenant-9",
    "failing": "failing=true",
    "late": "late=true",
}


def run() -> list[Row]:
    return [*_rates(), *_pages(), *web_catalogue.run(), *web_events.run()]


def _rates() -> list[Row]:
    """Measure GET of one schedule, in turn with an app that only says hello."""
    ours: list[float] = []
    hello: list[float] = []
    with scratch() as folder:
        url = f"sqlite:///{folder / 'bench.db'}"
        app = Scheduler(url)
        app.schedules.add("nightly", every("1h"), "work", {"team": "ops"})
        secret = app.tokens.create("bench", "operator").secret
        app.close()
        with serving("bench.web_events", url, folder) as port, serving("bench.web", "hello", folder) as other:
            for _ in range(ROUNDS):
                ours.append(_rate(port, "/api/v1/schedules/nightly", secret))
                hello.append(_rate(other, "/", secret))
    rate = median(ours)
    return [
        Row(
            "web",
            "GET of one schedule on SQLite, one process",
            "requests/s",
            rate,
            {"Starlette's hello world": median(hello)},
            goal=f"≥ {GOAL_RATE:,}",
            met=rate >= GOAL_RATE,
        )
    ]


def _rate(port: int, path: str, secret: str) -> float:
    """Return the requests that some connections get answered in a second."""
    counts = [0] * CONNECTIONS
    stop = threading.Event()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while not stop.is_set():
            get(connection, path, secret)
            counts[number] += 1
        connection.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def _pages() -> list[Row]:
    rows: list[Row] = []
    with scratch() as folder:
        rows += _pages_on("SQLite", f"sqlite:///{folder / 'bench.db'}", folder)
    for name in present("postgres"):
        with scratch() as folder, place(name) as url:
            rows += _pages_on(TITLES[name], url, folder)
    return rows


def _pages_on(store: str, url: str, folder: Path) -> list[Row]:
    app = Scheduler(url)
    web_catalogue.fill(app.store, web_catalogue.SCHEDULES)
    secret = app.tokens.create("bench").secret
    app.close()
    worst = 0.0
    with serving("bench.web_events", url, folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        get(connection, "/api/v1/schedules", secret)  # reads the catalogue
        for query in FILTERS.values():
            everywhere = "" if "tenant" in query else "&all_tenants=true"
            times: list[float] = []
            for _ in range(PAGES):
                begin = time.perf_counter()
                get(connection, f"/api/v1/schedules?{query}{everywhere}&limit=50", secret)
                times.append((time.perf_counter() - begin) * 1000)
            worst = max(worst, percentile(sorted(times), 0.99))
        connection.close()
    name = f"first page of 100,000 schedules on {store}, the slowest of {len(FILTERS)} filters, p99"
    return [Row("web", name, "ms", worst, goal=f"< {GOAL_PAGE} ms", met=worst < GOAL_PAGE)]


def get(connection: http.client.HTTPConnection, path: str, secret: str) -> bytes:
    connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return body


@contextmanager
def serving(module: str, url: str, folder: Path) -> Iterator[int]:
    """Serve in a process of its own, and yield its port."""
    port = folder / f"port of {module}"
    with process("-m", module, "serve", url, str(port)):
        until(lambda: port.exists() and bool(port.read_text()))
        yield int(port.read_text())


def hello(port: Path) -> None:
    """Serve Starlette's hello world: the limit of what uvicorn and Starlette do without us."""

    async def say(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    config = uvicorn.Config(
        Starlette(routes=[Route("/", say)]), log_config=None, access_log=False, lifespan="off"
    )
    server = uvicorn.Server(config)
    bound = listen("127.0.0.1", 0)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
    thread.start()
    until(lambda: server.started)
    port.write_text(str(bound.getsockname()[1]))
    stopping.wait()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", "hello", port]:
            hello(Path(port))
        case ["serve", url, port]:
            serve(url, Path(port))
        case _:
            for row in run():
                print(f"{row.name}: {row.ours:.2f} {row.unit} {row.goal} {row.met}")

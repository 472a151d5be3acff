"""procrastinate and its worker: the peer on PostgreSQL that most resembles Evenbeat.

``python -m bench.procrastinate_app URL CONCURRENCY`` runs a worker until SIGTERM, with its defaults: it
listens for new jobs (``listen_notify``) and keeps jobs that succeeded (``delete_jobs="never"``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import procrastinate

from bench.processes import process

_CHUNK = 1_000


def make(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    app.task(name="noop")(_noop)
    return app


async def _noop() -> None:
    pass


async def enqueue(app: procrastinate.App, count: int) -> None:
    for start in range(0, count, _CHUNK):
        await app.tasks["noop"].batch_defer_async(*({} for _ in range(min(_CHUNK, count - start))))


async def succeeded(app: procrastinate.App) -> int:
    query = "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status = 'succeeded'"
    return int((await app.connector.execute_query_one_async(query))["jobs"])


@contextmanager
def worker(url: str, concurrency: int) -> Iterator[None]:
    """Start its worker in its own process."""
    with process("-m", "bench.procrastinate_app", url, str(concurrency)):
        yield


if __name__ == "__main__":
    # Imported by its name: it warns about apps that are made in __main__.
    from bench import procrastinate_app

    procrastinate_app.make(sys.argv[1]).run_worker(concurrency=int(sys.argv[2]))

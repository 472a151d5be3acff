"""procrastinate and its worker: the peer on PostgreSQL that most resembles Evenbeat.

``python -m bench.procrastinate_app URL CONCURRENCY [STARTS]`` runs a worker until SIGTERM, with its defaults:
it listens for new jobs (``listen_notify``) and keeps jobs that succeeded (``delete_jobs="never"``). Then it
writes when each ``link`` of a chain began to the file STARTS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import procrastinate

from bench.processes import process

_CHUNK = 1_000
STARTS: list[float] = []


def make(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    app.task(name="noop")(_noop)

    async def link(left: int) -> None:
        """Add the next task of a chain: its users write it so, as procrastinate has no flows."""
        STARTS.append(time.time())
        if left > 1:
            await app.tasks["link"].defer_async(left=left - 1)

    app.task(name="link")(link)
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
def worker(url: str, concurrency: int, noted: Path | None = None) -> Iterator[None]:
    """Start its worker in its own process."""
    files = () if noted is None else (str(noted),)
    with process("-m", "bench.procrastinate_app", url, str(concurrency), *files):
        yield


if __name__ == "__main__":
    # Imported by its name: it warns about apps that are made in __main__.
    from bench import procrastinate_app

    procrastinate_app.make(sys.argv[1]).run_worker(concurrency=int(sys.argv[2]))
    for file in sys.argv[3:]:
        Path(file).write_bytes(msgspec.json.encode(procrastinate_app.STARTS))

"""pgqueuer and its worker: the fastest peer that executes tasks on PostgreSQL.

``python -m bench.pgqueuer_app URL BATCH`` runs a worker until SIGTERM, by its API and on uvloop, as its
command does. All of its tables are logged (``durable``, its default), and successes stay in its log.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import msgspec
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.processes import process

# The batch of one call of enqueue: one statement with arrays.
_CHUNK = 1_000


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Queries]:
    connection = await asyncpg.connect(url)
    try:
        yield Queries(AsyncpgDriver(connection))
    finally:
        await connection.close()


async def enqueue(queue: Queries, count: int) -> None:
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        await queue.enqueue(["noop"] * size, [None] * size, [0] * size)


async def succeeded(queue: Queries) -> int:
    """Return how many jobs have succeeded, by its log."""
    found = await queue.driver.fetch("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    return msgspec.convert(found[0]["count"], int)


@contextmanager
def worker(url: str, batch: int) -> Iterator[None]:
    """Start its worker in its own process."""
    with process("-m", "bench.pgqueuer_app", url, str(batch)):
        yield


async def _work(url: str, batch: int) -> None:
    program = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    async def noop(job: Job) -> None:
        pass

    program.entrypoint("noop")(noop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, program.shutdown.set)
    await program.run(batch_size=batch)


if __name__ == "__main__":
    uvloop.run(_work(sys.argv[1], int(sys.argv[2])))

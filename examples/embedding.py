"""A scheduler inside an ASGI app: it starts and stops with the web server.

python examples/embedding.py

FastAPI, Starlette and Litestar take ``lifespan`` as it is: ``FastAPI(lifespan=lifespan)``. This file has a
server of ten lines instead, so that it needs no framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evenbeat import Scheduler, every

scheduler = Scheduler("memory://")  # in real life a database that all web processes share


@scheduler.task(schedule=every("200ms"))
async def refresh_prices() -> str:
    return "refreshed"


@scheduler.task
def send_receipt(order: int) -> str:
    return f"receipt for order {order}"


@asynccontextmanager
async def lifespan(_web: object) -> AsyncIterator[None]:
    async with scheduler:
        yield


async def buy(order: int) -> str:
    """Handle a request: enqueue the receipt once, however often an impatient customer clicks."""
    run = await scheduler.aenqueue(send_receipt.bind(order), id=f"receipt-{order}")
    return run.id


async def serve() -> None:
    """Stand for the web server: enter the lifespan, handle requests, leave it."""
    async with lifespan(object()):
        ids = {await buy(7) for _ in range(3)}
        assert ids == {"receipt-7"}
        receipt = await scheduler.runs.ajoin("receipt-7", "30s")
        assert receipt.result == "receipt for order 7"
        while not await scheduler.runs.alist(schedule="refresh_prices", state="succeeded"):
            await asyncio.sleep(0.05)
    assert not scheduler.is_running
    print("one receipt for three clicks; prices are refreshed in the background")


if __name__ == "__main__":
    asyncio.run(serve())
